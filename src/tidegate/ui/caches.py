"""What is kept in the API server, so that open pages do not ask brokers and catalogs each for itself.

Answers are kept for a few seconds. Nobody waits long: what does not answer at once is answered later, in a thread of its own,
and the newest answer that is known is shown meanwhile.

Saved ranges and receipts never change, and those of thousands of partitions decode slowly. So each is decoded once, and one
request decodes for `BUDGET_S` at most: the rest comes with the next one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import KW_ONLY, dataclass, field, replace
from threading import Lock, Thread
from typing import Generic, TypeVar

from airflow.models.connection import Connection

from tidegate.airflow.connections import extra_of, get_connection
from tidegate.core.model.errors import BrokerUnavailable, StateCorrupt, StateNewer, TidegateError
from tidegate.core.state.ledger import Ledger, Listing
from tidegate.core.state.receipt import offsets_of
from tidegate.kafka.brokers import AdminBrokers
from tidegate.kafka.settings import planning_client
from tidegate.ui.database import DatabaseStore, Held
from tidegate.views.entries import Loads
from tidegate.views.history import Point

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
MOST = 1000
LATE_S = 20.0
"""After so long without an answer an error says so."""
AGAIN_S = 600.0
"""After so long without an answer the question is asked again, in another thread: some clients wait for ever."""
STEP = 20
"""Ranges that are read at once."""
BUDGET_S = 0.3
MOST_KNOWN = 100_000
"""Receipts of which is kept how many offsets they have; beyond it, all are counted anew."""
TIMEOUT_S = 5.0
REFUSED_S = 1.0
"""Refused connections: a page is shown without the log rather than late."""
AWAY_S = 10.0
"""How long brokers that did not answer are not asked again."""
IDLE_S = 600.0
"""How long a client is kept that nobody needs."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Generic[T]):
    """What was asked last, and when it was answered (epoch ms).

    `value` is the newest that is known; None where there never was one. `error` is why there is no newer one; None where there
    is. `waiting`: a newer one has been asked for, and is not there yet.
    """

    value: T | None
    at_ms: int
    error: TidegateError | None = None
    waiting: bool = False

    @property
    def soon(self) -> bool:
        """Whether a newer one is asked for, which is expected to come."""
        return self.waiting and self.error is None


@dataclass(frozen=True, slots=True)
class _Asking(Generic[T]):
    """An answer that is waited for since a time (epoch ms)."""

    since_ms: int
    future: Future[Answer[T]] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class _Held(Generic[T]):
    """An answer, when it was asked for and when it came (epoch ms)."""

    asked_ms: int
    came_ms: int
    answer: Answer[T]


@dataclass
class Answers(Generic[T]):
    """The newest answer to each question. Each question is asked in a thread of its own, by one at a time.

    `of` is who is asked, for an error that says that there is no answer. An answer, a failure too, is not asked for again for
    `keep_s` seconds; a caller waits for a newer one for `wait_s`.
    """

    of: str
    keep_s: float
    _: KW_ONLY
    wait_s: float
    now_ms: Callable[[], int]
    _lock: Lock = field(default_factory=Lock, init=False)
    _asking: dict[Hashable, _Asking[T]] = field(default_factory=dict, init=False)
    _held: dict[Hashable, _Held[T]] = field(default_factory=dict, init=False)

    def get(self, key: Hashable, ask: Callable[[], T], *, after_ms: int = 0, waits: bool = True) -> Answer[T]:
        """The answer to a question, after `wait_s` at most, or at once where nobody `waits`. Of several callers one asks.

        What `ask` raises is part of the answer. An answer from before `after_ms` (epoch ms), when it last may have changed, is
        not kept.
        """
        return self.get_all({key: ask}, after_ms=after_ms, waits=waits)[key]

    def get_all(self, questions: Mapping[K, Callable[[], T]], *, after_ms: int = 0, waits: bool = True) -> dict[K, Answer[T]]:
        """The answers to several questions that are asked at once, after `wait_s` at most in all."""
        until = time.monotonic() + (self.wait_s if waits else 0)
        asked = {key: self._asked(key, ask, after_ms) for key, ask in questions.items()}
        return {key: self._answer(key, asking, until) for key, asking in asked.items()}

    def _asked(self, key: Hashable, ask: Callable[[], T], after_ms: int) -> _Asking[T] | None:
        """The answer that is being asked for; None where the one that is held is new enough."""
        with self._lock:
            now_ms, held, asking = self.now_ms(), self._held.get(key), self._asking.get(key)
            # a clock may have gone back, and the one that `after_ms` is of may be ahead
            if held and 0 <= now_ms - held.came_ms < self.keep_s * 1000 and not held.asked_ms <= after_ms < now_ms:
                return None
            if asking is None or now_ms - asking.since_ms >= AGAIN_S * 1000:
                asking = self._asking[key] = _Asking(now_ms)
                Thread(target=self._ask, args=(key, ask, asking), name="tidegate-ui-ask", daemon=True).start()
            return asking

    def _ask(self, key: Hashable, ask: Callable[[], T], asking: _Asking[T]) -> None:
        try:
            answer = Answer(value=ask(), at_ms=self.now_ms())
        except TidegateError as error:
            answer = replace(self.known(key), error=error)
        except Exception as error:  # a fault of ours, which hides nothing of what else a page shows
            log.exception("%s cannot be asked", key)
            said = TidegateError(f"it cannot be read: {type(error).__name__}", fix="See the log of Airflow's API server")
            answer = replace(self.known(key), error=said)
        with self._lock:
            if self._asking.get(key) is asking:
                self._held.pop(key, None)
                self._held[key] = _Held(asking.since_ms, self.now_ms(), answer)
                for old in list(self._held)[:-MOST]:
                    del self._held[old]
                del self._asking[key]
        asking.future.set_result(answer)

    def _answer(self, key: Hashable, asking: _Asking[T] | None, until: float) -> Answer[T]:
        known = self.known(key)
        if asking is None:
            return known
        try:
            return asking.future.result(max(0.0, until - time.monotonic()))
        except TimeoutError:
            passed_s = (self.now_ms() - asking.since_ms) / 1000
            if passed_s < LATE_S:
                return replace(known, waiting=True)
            late = TidegateError(f"{self.of} has not answered for {passed_s:.0f} s", fix="See whether it is overloaded")
            return replace(known, waiting=True, error=known.error or late)

    def known(self, key: Hashable) -> Answer[T]:
        """The newest answer that there is; nobody is asked."""
        with self._lock:
            held = self._held.get(key)
            return Answer(value=None, at_ms=self.now_ms()) if held is None else held.answer


class Plans:
    """The saved ranges of each pipeline in short, decoded once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[str, dict[str, Point]] = {}

    def of(self, pipeline: str, listing: Listing, *, most: int | None = None, from_ms: int = 0) -> tuple[list[Point], bool]:
        """Saved ranges of a pipeline, the newest batch first, and whether these are all that were asked for.

        One that cannot be read is left out. Ranges that are gone are forgotten. At most `most` batches, of plans since
        `from_ms` (epoch ms): plans come in the order of their batches.
        """
        keys = [key.key for key in reversed(listing.ranges)]
        with self._lock:
            held = self._known.get(pipeline, {})
            known = self._known[pipeline] = {key: held[key] for key in keys if key in held}
        until = time.monotonic() + BUDGET_S
        found: list[Point] = []
        for at in range(0, len(keys[:most]), STEP):
            page = keys[:most][at : at + STEP]
            missing = [key for key in page if key not in known]
            if missing and time.monotonic() > until:
                return found, False
            known.update(_read(pipeline, missing))
            found += [known[key] for key in page if key in known]
            if found and found[-1].at_ms < from_ms:
                break
        return found, True


class Landings:
    """The receipts of batches in short: how many offsets each load read, by its snapshot. `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._offsets: dict[int, int] = {}

    def of(self, loads: Loads | None, planned: Collection[int], *, from_ms: int) -> tuple[list[Point], bool]:
        """The loads of batches, the oldest first, and whether these are all that were asked for.

        `planned` are the batches whose saved ranges are known: how many offsets they have need not be read again. Of others,
        commits since `from_ms` (epoch ms) are asked for.
        """
        until, complete = self._clock() + BUDGET_S, True
        found: list[Point] = []
        for commit, seq in reversed(() if loads is None else loads.commits):
            known = 0 if seq in planned else self._offsets.get(commit.snapshot)
            if seq is None or (seq not in planned and commit.committed_at_ms < from_ms):
                continue
            if known is None:
                if self._clock() > until:
                    complete = False
                    continue
                if len(self._offsets) >= MOST_KNOWN:
                    self._offsets.clear()
                known = self._offsets[commit.snapshot] = offsets_of(commit.properties, snapshot=commit.snapshot)
            found.append(Point(commit.committed_at_ms, seq, 1, lag=None, records=known, rows=commit.rows))
        return found[::-1], complete


def _read(pipeline: str, keys: Sequence[str]) -> dict[str, Point]:
    ledger = Ledger(Held(DatabaseStore().values(keys)), pipeline)
    read: dict[str, Point] = {}
    for key in keys:
        try:
            read[key] = Point.of(ledger.saved_range(key))
        except (StateCorrupt, StateNewer, KeyError):
            continue  # it may be repaired, or was deleted meanwhile
    return read


class Kafka:
    """The brokers of each connection, by one client for all who ask. `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._clients: dict[str, _Client] = {}

    def ask(self, connection: str, question: Callable[[AdminBrokers], T]) -> T:
        """The answer of the brokers that a connection names. One question at a time of each connection.

        Clients that nobody has needed for `IDLE_S` are closed, and one whose connection has changed. Raises ConfigError: there
        is no such connection, or it names no broker. BrokerUnavailable: no broker answers; also within `AWAY_S` after one that
        did not answer. KafkaError: what a broker refuses.
        """
        settings, now = _settings(connection), self._clock()
        with self._lock:
            old = {name for name, each in self._clients.items() if now - each.asked_at > IDLE_S}
            known = self._clients.get(connection)
            if known is not None and known.settings != settings:
                old.add(connection)
            unneeded = [self._clients.pop(name) for name in old]
            client = self._clients.setdefault(connection, _Client(settings, self._clock))
            client.asked_at = now
        for each in unneeded:
            each.close()
        return client.ask(question)

    def close(self) -> None:
        """Close all clients."""
        with self._lock:
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()


@dataclass
class _Client:
    """One client of a connection's brokers, which is opened when they are asked."""

    settings: dict[str, str] = field(repr=False)
    clock: Callable[[], float]
    asked_at: float = field(default=0.0, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)
    _brokers: AdminBrokers | None = field(default=None, init=False)
    _away: tuple[float, BrokerUnavailable] | None = field(default=None, init=False)

    def ask(self, question: Callable[[AdminBrokers], T]) -> T:
        with self._lock:
            if self._away is not None and self.clock() < self._away[0]:
                raise self._away[1]
            if self._brokers is None:
                self._brokers = AdminBrokers(self.settings, timeout_s=TIMEOUT_S, refused_s=REFUSED_S)
            try:
                return question(self._brokers)
            except BrokerUnavailable as error:
                self._away = self.clock() + AWAY_S, error
                raise

    def close(self) -> None:
        """Close it, after the question that is being asked."""
        with self._lock:
            if self._brokers is not None:
                self._brokers.close()
                self._brokers = None


def _settings(connection: str) -> dict[str, str]:
    found = get_connection(connection, expected="a Kafka connection", find=Connection.get_connection_from_secrets)
    return planning_client(extra_of(found), connection=connection, client_id="tidegate-ui").settings

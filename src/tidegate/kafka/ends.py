"""The ends of logs, asked for again and again without a consumer: one poller for all users of a connection in a process.

    async with watching("kafka_default", settings, source, poll_s=5) as subscription:
        while True:
            reading = await subscription.next()

A poll is one `list_offsets` for all partitions that its users want (one for each isolation level, where they want several),
and every `METADATA_S` one description of their topics, by which new partitions and topics are found, and one look at the
connection's settings. Users with the same interval are asked for together, since polls are due at multiples of the interval.
The first user opens the client, the last one closes it.

Nothing here blocks the event loop. Whatever may wait (making and closing a client, listing topics) or compute (requests of
thousands of partitions) is done in one thread of the poller's own; answers are futures, which the loop awaits. A broker that
does not answer costs a timeout, then pauses that double, with jitter. A poller that ends of itself, or whose client hangs,
tells its users, and the next one that joins makes another.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import confluent_kafka as ck

from tidegate.core.config.patterns import topic_filter
from tidegate.core.config.pipeline import Source
from tidegate.core.errors import BrokerUnavailable, KafkaError, TidegateError, TopicNotFound
from tidegate.core.offsets.ranges import TopicPartition
from tidegate.kafka.brokers import LATEST
from tidegate.kafka.client import STEP_S, Admin, LeaderMoving

METADATA_S = 30.0
REQUEST_S = 10.0
SLACK_S = 5.0
"""librdkafka keeps a request's timeout itself; only a client that hangs needs this."""
ROUND_S = 120.0
"""The longest that a poll may take; all its timeouts together are shorter."""
PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0

T = TypeVar("T")
Pattern = tuple[str, tuple[str, ...]]
"""A source's pattern, and what it excludes."""
Answers = dict[Any, tuple[ck.KafkaError | None, Any]]
"""For each key of a request an error or a value."""
Wanted = list[TopicPartition] | KafkaError
"""The partitions to ask for, or why there are none."""
Settings = Callable[[], Awaitable[Mapping[str, str]]]
"""How a poller learns librdkafka's configuration (`tidegate.kafka.settings.planning_client`); it is asked again and again."""


@dataclass(frozen=True)
class Reading:
    """What one poll found: the end of each partition of the source, or the error instead."""

    ends: Mapping[TopicPartition, int]
    error: TidegateError | None = None


@dataclass(eq=False)
class Subscription:
    """One user's wish: the ends of what a source names, every `poll_s` seconds."""

    source: Source
    poll_s: float
    due_s: float
    _latest: Reading = field(default_factory=lambda: Reading({}))
    _is_new: asyncio.Event = field(default_factory=asyncio.Event)
    _end: TidegateError | None = None

    async def next(self) -> Reading:
        """The next reading; the latest, where several have come since the last one.

        Raises:
            BrokerUnavailable: the poller has ended. Leave it, and watch anew.
        """
        await self._is_new.wait()
        if self._end is not None:
            raise self._end
        self._is_new.clear()
        return self._latest

    def put(self, reading: Reading) -> None:
        """A new reading."""
        self._latest = reading
        self._is_new.set()

    def end(self, why: TidegateError) -> None:
        """There are no more readings."""
        self._end = why
        self._is_new.set()


class Poller:
    """Polls for its users until it is closed; see this module.

    Args:
        settings: how to learn the client's configuration.
        request_s: seconds after which an answer counts as missing.
        open_client: makes a client of a configuration.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        request_s: float = REQUEST_S,
        open_client: Callable[[Mapping[str, str]], Admin] | None = None,
    ) -> None:
        self._settings = settings
        self._request_s = request_s
        self._open = open_client or (lambda conf: Admin(conf, timeout_s=request_s))
        self._thread = ThreadPoolExecutor(1, "tidegate-kafka-ends")
        self._admin: Admin | None = None
        self._configured: Mapping[str, str] = {}
        self._users: list[Subscription] = []
        self._joined = asyncio.Event()
        self._failures = 0
        self._partitions: dict[str, tuple[int, ...] | KafkaError] = {}
        self._names: tuple[str, ...] | None = None
        self._matching: dict[Pattern, tuple[str, ...]] = {}
        self._described_s = -METADATA_S
        self._task = asyncio.create_task(self._poll(), name="tidegate-kafka-ends")
        self._task.add_done_callback(self._ended)

    @property
    def has_ended(self) -> bool:
        """Whether it polls no more."""
        return self._task.done()

    def join(self, source: Source, poll_s: float) -> Subscription:
        """A new user, whose first reading comes with the next poll."""
        user = Subscription(source, poll_s, _next_due(poll_s))
        self._users.append(user)
        self._joined.set()
        return user

    def leave(self, user: Subscription) -> bool:
        """A user less; whether it was the last one."""
        self._users.remove(user)
        return not self._users

    async def close(self) -> None:
        """End the polls and the client. Waits for neither a broker nor the client's threads."""
        self._task.cancel()
        try:
            await asyncio.wait({self._task})
        finally:
            self._thread.submit(self._close)  # after what the thread is doing, which may be to make the client
            self._thread.shutdown(wait=False)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Tell the users that are left, which would wait for ever."""
        why = "it was cancelled" if task.cancelled() else repr(task.exception())
        for user in self._users:
            user.end(BrokerUnavailable(f"the poller of the log's ends has ended: {why}", fix="It is started again"))

    # ---- the loop

    async def _poll(self) -> None:
        while True:
            self._joined.clear()
            now_s = time.monotonic()
            due = [user for user in self._users if user.due_s <= now_s]
            if not due:
                wait_s = min((user.due_s for user in self._users), default=now_s + LONGEST_PAUSE_S) - now_s
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):  # not `wait_for`, which may lose that the poller was cancelled
                        await self._joined.wait()
                continue
            async with asyncio.timeout(ROUND_S):
                readings = await self._readings(due)
            failed = all(reading.error is not None for reading in readings.values())
            self._failures = self._failures + 1 if failed else 0
            for user, reading in readings.items():
                user.put(reading)
                user.due_s = _next_due(user.poll_s)
                await asyncio.sleep(0)  # what users compute of thousands of partitions, they compute one after the other
            if failed:
                longest_s = min(LONGEST_PAUSE_S, PAUSE_S * 2 ** min(self._failures, 10))
                await asyncio.sleep(random.uniform(longest_s / 2, longest_s))  # noqa: S311 - jitter

    async def _readings(self, users: list[Subscription]) -> dict[Subscription, Reading]:
        """A reading for each user. Raises TimeoutError: the client hangs, and only another poller will have another client."""
        try:
            admin = await self._client()
            await self._learn_topics(admin, users)
            wanted = {user: self._wanted(user.source) for user in users}
            readings = await self._ends(admin, wanted)
        except TidegateError as error:
            readings = dict.fromkeys(users, Reading({}, error))
        except TimeoutError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a client raises, the poller goes on
            why = f"the ends of the log were not answered: {type(error).__name__}: {error}"
            readings = dict.fromkeys(users, Reading({}, BrokerUnavailable(why, fix="See the broker's log")))
        if any(reading.error is not None and reading.error.retryable for reading in readings.values()):
            self._described_s = -METADATA_S  # topics and leaders may be others by now
        return readings

    async def _client(self) -> Admin:
        """The client; made anew where the connection's settings are others now.

        They are looked at after failures, and with the topics: the cluster that they named before may go on to answer.
        """
        if self._admin is not None and not self._failures and not self._is_stale():
            return self._admin
        try:
            configured = dict(await self._settings())
        except TidegateError:
            if self._admin is None:
                raise
            return self._admin
        if self._admin is not None and configured == self._configured:
            return self._admin
        self._described_s = -METADATA_S
        return await self._in_thread(lambda: self._reopened(configured))

    def _is_stale(self) -> bool:
        """Whether to ask again for what changes rarely."""
        return time.monotonic() - self._described_s >= METADATA_S

    def _reopened(self, configured: Mapping[str, str]) -> Admin:
        self._close()
        self._admin, self._configured = self._open(configured), configured
        return self._admin

    def _close(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    # ---- topics

    async def _learn_topics(self, admin: Admin, users: list[Subscription]) -> None:
        """Ask for the partitions of topics that are not known, and now and then for those of all."""
        stale = self._is_stale()
        sources = [user.source for user in ({*self._users, *users} if stale else users)]
        if patterns := {(source.pattern, source.exclude) for source in sources if source.pattern is not None}:
            await self._match(admin, patterns, again=stale)
        topics = {topic for source in sources for topic in self._topics(source)}
        unknown = topics if stale else topics - self._partitions.keys()
        described: dict[str, tuple[int, ...] | KafkaError] = {}
        if unknown:
            names = ck.TopicCollection(sorted(unknown))
            asked = await self._asked(admin, lambda: admin.client.describe_topics(names, request_timeout=self._request_s))
            errors = await self._meanings(admin, {topic: error for topic, (error, _) in asked.items() if error is not None})
            described = {topic: tuple(p.id for p in about.partitions) for topic, (e, about) in asked.items() if e is None}
            described |= errors
        self._partitions = described if stale else self._partitions | described
        if stale:
            self._described_s = time.monotonic()

    async def _match(self, admin: Admin, patterns: set[Pattern], *, again: bool) -> None:
        """Learn which topics the patterns match; in the thread, since an expression may take its time."""
        if again or self._names is None:
            self._names, self._matching = tuple(await self._in_thread(admin.topics)), {}
        names, new = self._names, patterns - self._matching.keys()
        if new:
            self._matching |= await self._in_thread(lambda: {of: tuple(topic_filter(*of)(names)) for of in new})

    def _topics(self, source: Source) -> tuple[str, ...]:
        if source.pattern is not None:
            return self._matching[source.pattern, source.exclude]
        return tuple(source.topics if source.topics is not None else source.assign or ())

    def _wanted(self, source: Source) -> Wanted:
        """The partitions that the source names; or what is wrong with one of its topics."""
        partitions: list[TopicPartition] = []
        for topic in self._topics(source):
            known = self._partitions[topic]
            if isinstance(known, TopicNotFound) and (source.pattern is not None or source.on_deleted == "retire"):
                continue  # where the cursor has it, its offsets are not in the log any more
            if isinstance(known, KafkaError):
                return known
            numbers = known if source.assign is None else [p for p in source.assign[topic] if p in known]
            partitions += [TopicPartition(topic, number) for number in numbers]
        return partitions

    # ---- ends

    async def _ends(self, admin: Admin, wanted: Mapping[Subscription, Wanted]) -> dict[Subscription, Reading]:
        """The ends of all partitions, by one request for each isolation level, as each user wants them."""
        readings = {user: Reading({}, want) for user, want in wanted.items() if isinstance(want, KafkaError)}
        partitions = {user: want for user, want in wanted.items() if not isinstance(want, KafkaError)}
        for level in {user.source.isolation_level for user in partitions}:
            users = {user: want for user, want in partitions.items() if user.source.isolation_level == level}
            ends, errors = await self._ends_of({tp for want in users.values() for tp in want}, admin, level)
            for user, want in users.items():
                await asyncio.sleep(0)
                error = next((errors[tp.topic] for tp in want if tp.topic in errors), None) if errors else None
                readings[user] = Reading({}, error) if error else Reading({tp: ends[tp] for tp in want})
        return readings

    async def _ends_of(
        self, partitions: set[TopicPartition], admin: Admin, level: str
    ) -> tuple[dict[TopicPartition, int], dict[str, KafkaError]]:
        """The end of each partition, and the error of each topic that has one."""
        if not partitions:
            return {}, {}

        def ask() -> Mapping[Any, Future[Any]]:
            asked = {ck.TopicPartition(tp.topic, tp.partition): LATEST for tp in partitions}
            isolation = ck.IsolationLevel[level.upper()]
            return admin.client.list_offsets(asked, isolation_level=isolation, request_timeout=self._request_s)

        ends: dict[TopicPartition, int] = {}
        errors: dict[str, ck.KafkaError] = {}
        for tp, (error, answer) in (await self._asked(admin, ask)).items():
            if error is None:
                ends[TopicPartition(tp.topic, tp.partition)] = int(answer.offset)
            else:
                errors.setdefault(tp.topic, error)
        if not errors:
            await self._in_thread(admin.forget_reports)
        return ends, await self._meanings(admin, errors)

    # ---- the thread and the futures

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def _asked(self, admin: Admin, ask: Callable[[], Mapping[Any, Future[Any]]]) -> Answers:
        """The answers of a request that is made in the thread. Raises TimeoutError: the client hangs."""
        answers = asyncio.wrap_future(await self._in_thread(lambda: _together(ask())))
        until_s = time.monotonic() + self._request_s + SLACK_S
        while not answers.done():
            await asyncio.wait({answers}, timeout=STEP_S)
            if not answers.done():
                if time.monotonic() > until_s:
                    raise TimeoutError
                # a login by OIDC asks for its token here, and waits for it
                await self._in_thread(lambda: admin.client.poll(0))
        return answers.result()

    async def _meanings(self, admin: Admin, errors: Mapping[str, ck.KafkaError]) -> dict[str, KafkaError]:
        """What is wrong with each topic."""
        if not errors:
            return {}
        return await self._in_thread(lambda: {topic: _meaning(admin, error, topic) for topic, error in errors.items()})


def _together(futures: Mapping[Any, Future[Any]]) -> Future[Answers]:
    """One future for all, of which there is one or more: the event loop is woken once, and not for each partition."""
    whole: Future[Answers] = Future()
    whole.set_running_or_notify_cancel()  # nobody cancels it: librdkafka's thread sets it, whoever still waits
    left, lock = len(futures), threading.Lock()

    def done(_: Future[Any]) -> None:
        nonlocal left
        with lock:
            left -= 1
            last = not left
        if last:
            whole.set_result({key: _answer(future) for key, future in futures.items()})

    for future in futures.values():
        future.add_done_callback(done)
    return whole


def _answer(future: Future[Any]) -> tuple[ck.KafkaError | None, Any]:
    """As `Admin.wait`: an error that is never raised keeps no frames that keep the client."""
    failure = future.exception()
    if failure is None:
        return None, future.result()
    if isinstance(failure, ck.KafkaException):
        return failure.args[0], None
    return ck.KafkaError(ck.KafkaError._FAIL, str(failure)), None  # noqa: SLF001 - librdkafka's


def _meaning(admin: Admin, error: ck.KafkaError, topic: str) -> KafkaError:
    meant = admin.meaning(error, topic)
    if isinstance(meant, LeaderMoving):
        return BrokerUnavailable(f"no broker leads a partition of {topic}", fix="See the log of the broker that holds it")
    return meant


def _next_due(poll_s: float) -> float:
    """The next multiple of the interval, so that users of one interval are asked for together."""
    return (time.monotonic() // poll_s + 1) * poll_s


_OPEN: dict[tuple[asyncio.AbstractEventLoop, str], Poller] = {}


@asynccontextmanager
async def watching(connection: str, settings: Settings, source: Source, poll_s: float) -> AsyncIterator[Subscription]:
    """A subscription to what a source names, at the poller of its connection in this process.

    Args:
        connection: the id of the connection; its users share one client.
        settings: how to learn the configuration, where this user is the first.
        source: what to watch.
        poll_s: seconds between two readings.
    """
    key = asyncio.get_running_loop(), connection
    if key not in _OPEN or _OPEN[key].has_ended:
        _OPEN[key] = Poller(settings)
    poller = _OPEN[key]
    user = poller.join(source, poll_s)
    try:
        yield user
    finally:
        if poller.leave(user):
            if _OPEN.get(key) is poller:
                del _OPEN[key]
            await poller.close()

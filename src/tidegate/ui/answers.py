"""Answers that are kept for a few seconds, so that open pages do not ask brokers and catalogs each for itself.

Nobody waits long: what does not answer at once is answered later, in a thread of its own, and the newest answer that is known
is shown meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from threading import Lock, Thread
from typing import Generic, TypeVar

from tidegate.core.model.errors import TidegateError

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

MOST = 1000
LATE_S = 20.0
"""After so long without an answer an error says so."""
AGAIN_S = 600.0
"""After so long without an answer the question is asked again, in another thread: some clients wait for ever."""

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


class Answers(Generic[T]):
    """The newest answer to each question. Each question is asked in a thread of its own, by one at a time.

    Args:
        of: who is asked, for an error that says that there is no answer.
        keep_s: seconds that an answer is not asked for again, a failure too.
        wait_s: seconds that a caller waits for a newer answer.
        now_ms: the clock, epoch ms.
    """

    def __init__(self, of: str, keep_s: float, *, wait_s: float, now_ms: Callable[[], int]) -> None:
        self._of = of
        self._keep_ms = keep_s * 1000
        self._wait_s = wait_s
        self._now_ms = now_ms
        self._lock = Lock()
        self._asking: dict[Hashable, _Asking[T]] = {}
        self._held: dict[Hashable, _Held[T]] = {}

    def get(self, key: Hashable, ask: Callable[[], T], *, after_ms: int = 0) -> Answer[T]:
        """The answer to a question, after `wait_s` at most. Of several callers one asks.

        Args:
            key: names the question.
            ask: asks it; what it raises is part of the answer.
            after_ms: when it last may have changed (epoch ms): an older answer is not kept.
        """
        return self.get_all({key: ask}, after_ms=after_ms)[key]

    def get_all(self, questions: Mapping[K, Callable[[], T]], *, after_ms: int = 0) -> dict[K, Answer[T]]:
        """The answers to several questions that are asked at once, after `wait_s` at most in all."""
        until = time.monotonic() + self._wait_s
        asked = {key: self._asked(key, ask, after_ms) for key, ask in questions.items()}
        return {key: self._answer(key, asking, until) for key, asking in asked.items()}

    def _asked(self, key: Hashable, ask: Callable[[], T], after_ms: int) -> _Asking[T] | None:
        """The answer that is being asked for; None where the one that is held is new enough."""
        with self._lock:
            now_ms, held, asking = self._now_ms(), self._held.get(key), self._asking.get(key)
            # a clock may have gone back, and the one that `after_ms` is of may be ahead
            if held and 0 <= now_ms - held.came_ms < self._keep_ms and not held.asked_ms <= after_ms < now_ms:
                return None
            if asking is None or now_ms - asking.since_ms >= AGAIN_S * 1000:
                asking = self._asking[key] = _Asking(now_ms)
                Thread(target=self._ask, args=(key, ask, asking), name="tidegate-ui-ask", daemon=True).start()
            return asking

    def _ask(self, key: Hashable, ask: Callable[[], T], asking: _Asking[T]) -> None:
        try:
            answer = Answer(value=ask(), at_ms=self._now_ms())
        except TidegateError as error:
            answer = replace(self._known(key), error=error)
        except Exception as error:  # a fault of ours, which hides nothing of what else a page shows
            log.exception("%s cannot be asked", key)
            said = TidegateError(f"it cannot be read: {type(error).__name__}", fix="See the log of Airflow's API server")
            answer = replace(self._known(key), error=said)
        with self._lock:
            if self._asking.get(key) is asking:
                self._held.pop(key, None)
                self._held[key] = _Held(asking.since_ms, self._now_ms(), answer)
                for old in list(self._held)[:-MOST]:
                    del self._held[old]
                del self._asking[key]
        asking.future.set_result(answer)

    def _answer(self, key: Hashable, asking: _Asking[T] | None, until: float) -> Answer[T]:
        known = self._known(key)
        if asking is None:
            return known
        try:
            return asking.future.result(max(0.0, until - time.monotonic()))
        except TimeoutError:
            passed_s = (self._now_ms() - asking.since_ms) / 1000
            if passed_s < LATE_S:
                return replace(known, waiting=True)
            late = TidegateError(f"{self._of} has not answered for {passed_s:.0f} s", fix="See whether it is overloaded")
            return replace(known, waiting=True, error=known.error or late)

    def _known(self, key: Hashable) -> Answer[T]:
        with self._lock:
            held = self._held.get(key)
            return Answer(value=None, at_ms=self._now_ms()) if held is None else held.answer

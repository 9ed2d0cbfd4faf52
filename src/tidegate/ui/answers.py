"""Answers that are kept for a few seconds, so that open pages do not ask brokers and catalogs each for itself.

Nobody waits long: what does not answer at once is answered later, in a thread of its own, and the newest answer that is known
is shown meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from threading import Lock, Thread
from typing import Generic, TypeVar

from tidegate.core.errors import TidegateError

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

MOST = 1000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What was asked last, and when it was answered (epoch ms).

    `value` is the newest that is known; None where there never was one. `error` is why there is no newer one; None where there
    is. `waiting`: a newer one has been asked for, and is not there yet.
    """

    value: T | None
    at_ms: int
    error: TidegateError | None = None
    waiting: bool = False


class Answers(Generic[T]):
    """The newest answer to each question. Each question is asked in a thread of its own, by one at a time.

    Args:
        keep_s: seconds that an answer is not asked for again, a failure too.
        wait_s: seconds that a caller waits for a newer answer.
        now_ms: the clock, epoch ms.
    """

    def __init__(self, keep_s: float, *, wait_s: float, now_ms: Callable[[], int]) -> None:
        self._keep_ms = keep_s * 1000
        self._wait_s = wait_s
        self._now_ms = now_ms
        self._lock = Lock()
        self._asking: dict[Hashable, Future[Answer[T]]] = {}
        self._held: dict[Hashable, tuple[int, Answer[T]]] = {}

    def get(self, key: Hashable, ask: Callable[[], T]) -> Answer[T]:
        """The answer to a question, after `wait_s` at most. Of several callers one asks.

        Args:
            key: names the question.
            ask: asks it; what it raises is part of the answer.
        """
        return self.get_all({key: ask})[key]

    def get_all(self, questions: Mapping[K, Callable[[], T]]) -> dict[K, Answer[T]]:
        """The answers to several questions that are asked at once, after `wait_s` at most in all."""
        until = time.monotonic() + self._wait_s
        asked = {key: self._asked(key, ask) for key, ask in questions.items()}
        return {key: self._answer(key, future, until) for key, future in asked.items()}

    def _asked(self, key: Hashable, ask: Callable[[], T]) -> Future[Answer[T]] | None:
        """The answer that is being asked for; None where the one that is held is new enough."""
        with self._lock:
            asked_at_ms, held = self._held.get(key, (0, None))
            # a clock may have gone back
            if held is not None and 0 <= self._now_ms() - asked_at_ms < self._keep_ms:
                return None
            future = self._asking.get(key)
            if future is None:
                future = self._asking[key] = Future()
                Thread(target=self._ask, args=(key, ask, future), name="tidegate-ui-ask", daemon=True).start()
            return future

    def _ask(self, key: Hashable, ask: Callable[[], T], future: Future[Answer[T]]) -> None:
        try:
            answer = Answer(ask(), self._now_ms())
        except TidegateError as error:
            answer = replace(self._known(key), error=error)
        except Exception as error:  # a fault of ours, which hides nothing of what else a page shows
            log.exception("%s cannot be asked", key)
            said = TidegateError(f"it cannot be read: {type(error).__name__}", fix="See the log of Airflow's API server")
            answer = replace(self._known(key), error=said)
        with self._lock:
            self._held.pop(key, None)
            self._held[key] = self._now_ms(), answer
            for old in list(self._held)[:-MOST]:
                del self._held[old]
            del self._asking[key]
        future.set_result(answer)

    def _answer(self, key: Hashable, future: Future[Answer[T]] | None, until: float) -> Answer[T]:
        if future is None:
            return self._known(key)
        try:
            return future.result(max(0.0, until - time.monotonic()))
        except TimeoutError:
            return replace(self._known(key), waiting=True)

    def _known(self, key: Hashable) -> Answer[T]:
        with self._lock:
            return self._held.get(key, (0, Answer(None, self._now_ms())))[1]

"""Answers that are kept for a few seconds, so that open pages do not ask brokers and catalogs each for itself."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from threading import Lock
from typing import Generic, TypeVar

from tidegate.core.errors import TidegateError

T = TypeVar("T")

MOST = 256


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What was asked last, and when it was answered (epoch ms).

    `value` is the newest that is known; None where there never was one. `error` is why there is no newer one; None where there
    is.
    """

    value: T | None
    at_ms: int
    error: TidegateError | None = None


class Answers(Generic[T]):
    """The newest answer to each question.

    Args:
        keep_s: seconds that an answer is not asked for again, a failure too.
        now_ms: the clock, epoch ms.
    """

    def __init__(self, keep_s: float, *, now_ms: Callable[[], int]) -> None:
        self._keep_ms = keep_s * 1000
        self._now_ms = now_ms
        self._lock = Lock()
        self._asking: dict[Hashable, Lock] = {}
        self._held: dict[Hashable, tuple[int, Answer[T]]] = {}

    def get(self, key: Hashable, ask: Callable[[], T]) -> Answer[T]:
        """The answer to a question. Of several callers one asks, and the others wait for it; another key waits for none.

        Args:
            key: names the question.
            ask: asks it; a `TidegateError` that it raises is part of the answer.
        """
        with self._lock:
            asking = self._asking.setdefault(key, Lock())
        with asking:
            asked_at_ms, held = self._held.get(key, (0, None))
            if held is not None and self._now_ms() - asked_at_ms < self._keep_ms:
                return held
            try:
                answer = Answer(ask(), self._now_ms())
            except TidegateError as error:
                answer = replace(held or Answer(None, self._now_ms()), error=error)
            with self._lock:
                self._held.pop(key, None)
                self._held[key] = self._now_ms(), answer
                for old in list(self._held)[:-MOST]:
                    del self._held[old]
                    self._asking.pop(old, None)
            return answer

"""Waiting for a server that is away, inside one try of a task, so that an absence does not use up the task's retries.

    the server is away          the step is done again after a pause that doubles, with jitter, up to `LONGEST_S`
    it answers again            the step goes on
    it stays away for `for_s`   its error is raised, and the try fails as any other

A step must be one that can be done again: a plan finds its saved range, a load its receipt. The time counts from the first
absence and is not renewed in the same try, so a server that comes and goes cannot hold a task for ever. Pure: clock, sleep and
jitter are passed in.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from tidegate.core.model.errors import BrokerUnavailable, SinkUnavailable, SparkUnavailable, TidegateError

T = TypeVar("T")
AWAY = (BrokerUnavailable, SinkUnavailable, SparkUnavailable)
"""The errors of a server that is away; every other error concerns what was asked of it."""
FIRST_S = 1.0
LONGEST_S = 15.0


def is_away(error: TidegateError) -> bool:
    """Whether the error means that a server is away."""
    return isinstance(error, AWAY)


@dataclass(kw_only=True)
class Patience:
    """How long one try waits for servers that are away; reports one line when a server goes, and one when it is back.

    It waits `for_s` seconds from the first absence; 0 does not wait. `tell` takes the lines. `sleep` may end the waiting by
    what it raises. `spread` is jitter, from 0 to 1: tasks that wait for one server must not come back at the same instant.
    `show` takes what is waited for, and None when nothing is any more.
    """

    for_s: float
    tell: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    spread: Callable[[], float] = random.random
    show: Callable[[str | None], None] = lambda _: None
    _deadline: float | None = field(default=None, init=False)
    _away: TidegateError | None = field(default=None, init=False)
    _since: float = field(default=0.0, init=False)
    _pause: float = field(default=FIRST_S, init=False)

    def through(self, step: Callable[[], T], *, waits_for: Callable[[TidegateError], bool] = is_away) -> T:
        """What the step returns, once the servers that it needs answer.

        Raises TidegateError: what the step raised, where `waits_for` is false, or the time is over.
        """
        while True:
            try:
                done = step()
            except TidegateError as error:
                if not waits_for(error) or not self._may_wait(error):
                    raise
                self._rest()
            else:
                self.answered(*AWAY)
                return done

    def answered(self, *kinds: type[TidegateError]) -> None:
        """Servers of these kinds answer: to be called by a step as soon as it knows."""
        if isinstance(self._away, kinds):
            self.tell(f"It answers again after {self.clock() - self._since:.0f} s; going on")
            self.show(None)
            self._away = None

    def _may_wait(self, error: TidegateError) -> bool:
        now = self.clock()
        if self._deadline is None:
            self._deadline = now + self.for_s
        if now >= self._deadline:
            return False
        if type(self._away) is not type(error):
            left = f"{self._deadline - now:.0f} s"
            self.tell(f"{type(error).__name__}: {error}. Waiting for it, up to {left}; this does not count as a failed try")
            self.show(f"{type(error).__name__}: {error}")
            self._away, self._since, self._pause = error, now, FIRST_S
        return True

    def _rest(self) -> None:
        left = (self._deadline or 0.0) - self.clock()
        self.sleep(max(0.0, min(self._pause * (0.5 + self.spread() / 2), left)))
        self._pause = min(self._pause * 2, LONGEST_S)

"""The phases of a load: a line in the task's log when each begins, and the seconds that it took."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)


class Phases:
    """Times phases by name; those that are entered several times are added up.

    `seconds` holds what each phase that was entered has taken so far.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._latest = ""

    @contextmanager
    def __call__(self, name: str, message: str) -> Iterator[None]:
        """Time what runs inside, and log the message unless the same phase goes on."""
        if name != self._latest:
            log.info(message)
        self._latest = name
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - started, 4)

"""How the platform reports its progress: one callable, which a terminal, a log or a test brings."""

from __future__ import annotations

import threading
from collections.abc import Callable

Report = Callable[[str, str], None]
"""Called with a phase (`kafka`, `jars`, ...) and its state (`starting`, `running`, `failed`, ...), never by two at once."""


def silent(_phase: str, _state: str) -> None:
    """Report to nobody."""


def one_at_a_time(report: Report) -> Report:
    """The same report, for servers that start in several threads: a renderer needs no lock of its own."""
    lock = threading.Lock()

    def locked(phase: str, state: str) -> None:
        with lock:
            report(phase, state)

    return locked

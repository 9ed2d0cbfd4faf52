"""What an active run waits for: a slot of a pool, a retry, or a server that is away."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """A task of a run, as Airflow has it.

    Attributes:
        name: its id, with the map index where it is mapped.
        state: as Airflow names it.
        pool: the pool that it needs a slot of.
        retry_at_ms: when it is tried again (epoch ms); None where that is not known, or it is not.
        retry_reason: why.
        away: what the task said of a server that it waits for; None where it waits for none.
    """

    name: str
    state: str
    pool: str
    retry_at_ms: int | None = None
    retry_reason: str | None = None
    away: str | None = None


@dataclass(frozen=True)
class Slots:
    """How many slots a pool has, and how many are taken; -1 is no limit, None that there is no such pool."""

    pool: str
    total: int | None
    taken: int = 0

    def why_not(self) -> str | None:
        """Why a task that needs a slot has to wait; None where it does not."""
        if self.total is None:
            return f"the pool {self.pool}, which does not exist"
        if self.total == 0:
            return f"a slot of the pool {self.pool}, which has none"
        full = 0 <= self.total <= self.taken
        return f"a slot of the pool {self.pool} ({self.taken} of {self.total} taken)" if full else None


def waits_for(tasks: Iterable[Task], slots: Callable[[str], Slots], *, now_ms: int) -> str | None:
    """One line on the first task that waits; None where none does, or where Airflow is about to start it.

    Args:
        tasks: of one run.
        slots: those of a pool. A task that is queued has its slot.
        now_ms: the time, epoch ms.
    """
    for task in tasks:
        if task.state == "running" and task.away is not None:
            return f"{task.name} waits for a server: {task.away}"
        if task.state == "up_for_retry":
            when = "" if task.retry_at_ms is None else f" in {max(0, round((task.retry_at_ms - now_ms) / 1000))} s"
            reason = "" if task.retry_reason is None else f" ({task.retry_reason})"
            return f"{task.name} is tried again{when}{reason}"
        if task.state == "scheduled" and (why := slots(task.pool).why_not()) is not None:
            return f"{task.name} waits for {why}"
    return None

"""What keeps tasks from running: slots of pools, retries, servers that are away, receivers that hold slots for hours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tidegate.core.config.names import DEFAULT_POOL
from tidegate.core.config.pipeline import pool_command

RECEIVERS = "Instances of Tidegate receivers"
SHORT_TASKS = 6
"""Tasks of pipelines that a piece of advice leaves room for."""
STANDS_STILL = {
    "scheduler": "no run and no task starts",
    "dag_processor": "Airflow does not read changed or new files of pipelines",
    "triggerer": "pipelines that are scheduled by lag start no run, and deferred tasks wait",
}


class Lasting(Protocol):
    """What has tasks that run for hours."""

    @property
    def pool(self) -> str:
        """Their Airflow pool."""
        ...

    @property
    def slots(self) -> int:
        """How many run at the same time."""
        ...


@dataclass(frozen=True, kw_only=True)
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


def receiver_slots(receivers: Iterable[Lasting]) -> dict[str, int]:
    """The slots of each pool that receivers take, by the pool."""
    taken = Counter[str]()
    for receiver in receivers:
        taken[receiver.pool] += receiver.slots
    return dict(sorted(taken.items()))


def crowding(
    slots: Mapping[str, int], *, held: Callable[[str], int | None], parallelism: Callable[[], int | None]
) -> list[str]:
    """A sentence on each limit of Airflow that receivers reach; none where all fit, and pipelines beside them.

    Args:
        slots: what receivers take of each pool, by the pool.
        held: the slots that a pool has, -1 where it has no limit; None: there is no such pool.
        parallelism: the tasks that Airflow runs at the same time; None where that is not known. Asked only where there are any.
    """
    said = list[str]()
    for pool, taken in slots.items():
        has = held(pool)
        if pool == DEFAULT_POOL:
            if has is not None and 0 <= has <= taken:
                said.append(
                    f"receivers take {taken} of the {has} slots of {pool}, which plans and commits need, too: pipelines stand "
                    f"still. Give receivers a pool of their own (`workers.pool`), or raise it to {taken + SHORT_TASKS}"
                )
        elif has is None or 0 <= has < taken:
            what = "does not exist" if has is None else f"has {has}"
            said.append(
                f"receivers need {taken} slots of the pool {pool}, which {what}: instances wait. "
                f"Run `{pool_command(pool, taken, RECEIVERS)}`"
            )
    total, most = sum(slots.values()), parallelism() if slots else None
    if most is not None and 0 < most <= total:
        said.append(
            f"receivers take {total} of the {most} tasks that Airflow runs at the same time: loads stay queued. "
            f"Raise [core] parallelism to {total + SHORT_TASKS}; on the embedded platform, `tidegate down` and `up` do"
        )
    return said


def dead_servers(health: Mapping[str, Any]) -> list[str]:
    """A sentence on each server that does not run. One that never ran is not missed.

    Args:
        health: as Airflow's `/api/v2/monitor/health`.
    """
    said = []
    for name, effect in STANDS_STILL.items():
        about = health.get(name) or {}
        if about.get("status") == "unhealthy":
            last = about.get(f"latest_{name}_heartbeat")
            since = f" (last heartbeat {last})" if last else ""
            said.append(f"Airflow's {name.replace('_', ' ')} does not run{since}: {effect}. Start it, or see its log")
    return said

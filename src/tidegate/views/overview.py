"""All pipelines at a glance: how far each is, what its last batch took, and what keeps it from going on.

Tasks wait for slots of pools, retries, servers that are away, and receivers, which hold slots for hours.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from tidegate.core.audit.lag import TotalLag
from tidegate.core.config.names import DEFAULT_POOL
from tidegate.core.config.pipeline import pool_command
from tidegate.core.model.ranges import total_count
from tidegate.core.planning.run_notes import failed_runs, since_success
from tidegate.core.rates import BatchTiming
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.saved_range import SavedRange

Trouble = Literal["unreadable", "file", "stopped", "losing", "late", "paused"]
"""Saved state cannot be read; its file cannot be read; the newest run that ended has failed; retention deletes unread records
soon; the last batch took longer than the interval; its DAG is paused."""
WORST_FIRST: tuple[Trouble | None, ...] = ("unreadable", "file", "stopped", "losing", "late", None, "paused")
SOON_S = 3600.0
"""Time left until retention deletes unread records that is too short, where two intervals are not longer."""
COMMAND = re.compile(r"`((?:tidegate|airflow) [^`]+)`")
ACTIVE = ("running", "queued")
RECEIVERS = "Instances of Tidegate receivers"
SHORT_TASKS = 6
"""Tasks of pipelines that a piece of advice leaves room for."""
STANDS_STILL = {
    "scheduler": "no run and no task starts",
    "dag_processor": "Airflow does not read changed or new files of pipelines",
    "triggerer": "pipelines that are scheduled by lag start no run, and deferred tasks wait",
}


@dataclass(frozen=True, kw_only=True)
class Pending:
    """A saved range of the next batch, which the next run adopts where its own run does not load it."""

    seq: int
    run_id: str
    offsets: int


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The newest run that failed since the last success, why, and what to run then: what the fix names, or another run."""

    run_id: str
    why: str
    command: str


@dataclass(frozen=True, kw_only=True)
class ActiveRun:
    """A run that is queued or running, since when (epoch ms)."""

    run_id: str
    state: str
    since_ms: int


@dataclass(frozen=True, kw_only=True)
class PipelineRow:
    """One pipeline; None is what is not known, or what there is none of.

    Attributes:
        table: the table that it loads.
        seq: its last batch; 0 before the first.
        last: what that took.
        records_per_s: of the batches that are known, over their runs.
        interval_s: seconds between two runs; None where they start when there is something to read.
        trouble: what needs attention most.
        faults: saved state that cannot be read.
        lag_at_ms: when the lag was measured (epoch ms).
        lag_error: why there is no newer lag.
        lag_soon: whether a newer one is on its way.
        lag_points: records behind when each of the last batches was planned, the oldest first.
        waiting: what its active run waits for.
        file_error: why its file cannot be read.
    """

    pipeline: str
    table: str = ""
    paused: bool = False
    seq: int
    last: BatchTiming | None
    records_per_s: float | None
    interval_s: float | None = None
    pending: Pending | None
    failure: Failure | None
    run: ActiveRun | None
    trouble: Trouble | None = None
    faults: tuple[str, ...] = ()
    lag: TotalLag | None = None
    lag_at_ms: int | None = None
    lag_error: str | None = None
    lag_soon: bool = False
    lag_points: tuple[int, ...] = ()
    waiting: str | None = None
    file_error: str | None = None


def pipeline_row(
    cursor: Cursor, runs: Sequence[Mapping[str, Any]] = (), pending: SavedRange | None = None, **known: Any
) -> PipelineRow:
    """A pipeline at a glance.

    The cursor is an empty one where it is not known. `runs` are its newest DAG runs, as Airflow's REST API lists them, the
    oldest first; `since_ms` is when each was queued. `known` of the row is shown as it is.
    """
    timings, failed = cursor.pace.timings, failed_runs(since_success(runs))
    seconds, load = sum(timing.run_ms for timing in timings) / 1000, None if pending is None else pending.load
    row = PipelineRow(
        pipeline=cursor.pipeline,
        seq=cursor.seq,
        last=cursor.pace.timing,
        records_per_s=sum(timing.records for timing in timings) / seconds if seconds else None,
        pending=None if load is None else Pending(seq=load.seq, run_id=load.run_id, offsets=total_count(load.ranges)),
        failure=next((_failure(cursor.pipeline, *each) for each in reversed(failed.items())), None),
        run=active_run(runs),
        **known,
    )
    return replace(row, trouble=_trouble(row))


def active_run(runs: Sequence[Mapping[str, Any]]) -> ActiveRun | None:
    """The first run that is queued or running."""
    active = (run for run in runs if run["state"] in ACTIVE)
    return next((ActiveRun(run_id=r["dag_run_id"], state=r["state"], since_ms=r["since_ms"]) for r in active), None)


def _failure(pipeline: str, run_id: str, why: str) -> Failure:
    named = COMMAND.search(why)
    command = f"airflow dags trigger {shlex.quote(pipeline)}" if named is None else named[1]
    return Failure(run_id=run_id, why=why, command=command)


def _trouble(row: PipelineRow) -> Trouble | None:
    if row.faults:
        return "unreadable"
    if row.file_error is not None:
        return "file"
    if row.failure is not None:
        return "stopped"
    left = None if row.lag is None else row.lag.retention_left_s
    if left is not None and left < max(SOON_S, 2 * (row.interval_s or 0)):
        return "losing"
    if row.paused:
        return "paused"
    late = row.last is not None and row.interval_s is not None and row.last.run_ms > 1000 * row.interval_s
    return "late" if late else None


def by_trouble(rows: Iterable[PipelineRow]) -> tuple[PipelineRow, ...]:
    """Those that need attention first."""
    return tuple(sorted(rows, key=lambda each: (WORST_FIRST.index(each.trouble), each.pipeline)))


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

    A task that is queued has its slot.
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

    `slots` is what receivers take of each pool. `held` says what a pool has: -1 is no limit, None that there is no such pool.
    `parallelism` is how many tasks Airflow runs at the same time, asked only where there are any.
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

    `health` is as of Airflow's `/api/v2/monitor/health`.
    """
    said = []
    for name, effect in STANDS_STILL.items():
        about = health.get(name) or {}
        if about.get("status") == "unhealthy":
            last = about.get(f"latest_{name}_heartbeat")
            since = f" (last heartbeat {last})" if last else ""
            said.append(f"Airflow's {name.replace('_', ' ')} does not run{since}: {effect}. Start it, or see its log")
    return said

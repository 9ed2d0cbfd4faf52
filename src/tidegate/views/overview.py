"""All pipelines at a glance: how far each is, what its last batch took, and what keeps it from going on.

Tasks wait for slots of pools, retries, servers that are away, and receivers, which hold slots for hours.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

Trouble = Literal["losing", "unreadable", "file", "stopped", "waiting", "late", "paused"]
"""Retention deletes unread records soon; saved state cannot be read; its file cannot be read; the newest run that ended has
failed, or the next one will; its run waits, or records do, behind a transaction; the last batch took longer than the interval;
its DAG is paused."""
WORST_FIRST: tuple[Trouble | None, ...] = ("losing", "unreadable", "file", "stopped", "waiting", "late", None, "paused")
SOON_S = 3600.0
"""Time left until retention deletes unread records that is too short, where two intervals are not longer."""
NOBODY_READS_S = 86_400.0
"""The same where no run will read them: somebody has to act first."""
HANGS_S = 900.0
"""An open transaction that is older than brokers let one be by default: nobody reads what is behind it until somebody acts."""
COMMAND = re.compile(r"`((?:tidegate|airflow) [^`]+)`")
TO_FILL_IN = re.compile(r"\b[A-Z]{3,}\b")
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
    """The newest run that failed since the last success, since when it ran (epoch ms), and why."""

    run_id: str
    since_ms: int
    why: str


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
        loses_in_s: seconds until retention deletes records that no run will have read by then.
        says: what is so, in one sentence; the whole of an error is there too.
        command: what to run then.
        faults: saved state that cannot be read.
        lag_at_ms: when the lag was measured (epoch ms).
        lag_error: why there is no newer lag.
        lag_soon: whether a newer one is on its way.
        refusal: why brokers or the table will refuse the next run.
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
    loses_in_s: float | None = None
    says: str = ""
    command: str | None = None
    faults: tuple[str, ...] = ()
    lag: TotalLag | None = None
    lag_at_ms: int | None = None
    lag_error: str | None = None
    lag_soon: bool = False
    refusal: str | None = None
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
    since = {str(run["dag_run_id"]): int(run["since_ms"]) for run in runs}
    row = PipelineRow(
        pipeline=cursor.pipeline,
        seq=cursor.seq,
        last=cursor.pace.timing,
        records_per_s=sum(timing.records for timing in timings) / seconds if seconds else None,
        pending=None if load is None else Pending(seq=load.seq, run_id=load.run_id, offsets=total_count(load.ranges)),
        failure=next((Failure(run_id=i, since_ms=since[i], why=why) for i, why in reversed(failed.items())), None),
        run=active_run(runs),
        **known,
    )
    row = replace(row, loses_in_s=_loses_in_s(row))
    row = replace(row, trouble=_trouble(row))
    says, command = _said(row)
    return replace(row, says=says, command=command)


def active_run(runs: Sequence[Mapping[str, Any]]) -> ActiveRun | None:
    """The first run that is queued or running."""
    active = (run for run in runs if run["state"] in ACTIVE)
    return next((ActiveRun(run_id=r["dag_run_id"], state=r["state"], since_ms=r["since_ms"]) for r in active), None)


def _loses_in_s(row: PipelineRow) -> float | None:
    left = None if row.lag is None else row.lag.retention_left_s
    if row.lag is None or left is None:
        return None
    stops = row.failure is not None or row.refusal is not None or row.faults or row.file_error is not None
    if stops or row.paused or _hangs(row):
        return left if left < NOBODY_READS_S else None
    interval_s = row.interval_s or 0
    # a topic may keep its records for less than an hour, and each run read them in time: by half of it, where none is due
    is_behind = (row.lag.seconds_behind or 0) >= (2 * interval_s or left) or left < interval_s
    return left if is_behind and left < max(SOON_S, 2 * interval_s) else None


def _hangs(row: PipelineRow) -> bool:
    """Whether records wait behind a transaction that nobody ends."""
    return row.lag is not None and row.lag.open_transaction is not None and (row.lag.open_s or 0) > HANGS_S


def _trouble(row: PipelineRow) -> Trouble | None:
    late = row.last is not None and row.interval_s is not None and row.last.run_ms > 1000 * row.interval_s
    held: dict[Trouble, bool] = {
        "losing": row.loses_in_s is not None,
        "unreadable": bool(row.faults),
        "file": row.file_error is not None,
        "stopped": row.failure is not None or row.refusal is not None,
        "waiting": row.waiting is not None or _hangs(row),
        "paused": row.paused,
        "late": late,
    }
    return next((trouble for trouble, holds in held.items() if holds), None)


def _said(row: PipelineRow) -> tuple[str, str | None]:
    """One sentence on what keeps a pipeline from going on, and the command that continues it, which the sentence may name."""
    says, command = next(_reasons(row), ("", None))
    named = COMMAND.search(says)
    if named is None:
        return says, command
    # one of several ways, or one to be completed, is for somebody who has read the sentence
    whole = named[1].replace("PIPELINE", shlex.quote(row.pipeline))
    is_choice = " or " in says[: named.start()].rpartition(". ")[2] or TO_FILL_IN.search(whole)
    return says, None if is_choice else whole


def _reasons(row: PipelineRow) -> Iterator[tuple[str, str | None]]:
    """The most important one first."""
    name = shlex.quote(row.pipeline)
    for fault in (*row.faults, *filter(None, [row.file_error])):
        yield fault, "tidegate check"
    if row.waiting is not None:
        yield f"{row.waiting.rstrip('.')}.", None
    # a run of what is refused would fail again
    next_step = f"tidegate {'start' if row.refusal is None else 'plan'} {name}"
    if row.failure is not None:
        why = f"{row.failure.why} Its DAG is paused." if row.paused else row.failure.why
        yield why, next_step if row.run is None or row.paused else None
    if row.refusal is not None:
        yield row.refusal, f"tidegate plan {name}"
    if row.paused:
        yield "Its DAG is paused.", next_step
    if row.lag is not None and row.lag.open_transaction is not None:
        yield f"{row.lag.open_transaction}.", None
    if row.trouble == "losing":
        yield "Unread records expire before runs read them.", f"tidegate plan {name}"
    if row.trouble == "late" and row.last is not None and row.interval_s is not None:
        yield (
            f"The last run took {row.last.run_ms / 1000:.0f} s; one starts each {row.interval_s:g} s.",
            f"tidegate plan {name}",
        )
    if row.lag_error is not None:
        yield f"{'There is no newer lag' if row.lag else 'Lag and retention are not known'}: {row.lag_error}", None


def by_trouble(rows: Iterable[PipelineRow]) -> tuple[PipelineRow, ...]:
    """Those that need attention first: by the time until records are lost, then by what stands still."""

    def urgency(row: PipelineRow) -> tuple[float, int, str]:
        loses_in_s = float("inf") if row.loses_in_s is None else row.loses_in_s
        return loses_in_s, WORST_FIRST.index(row.trouble), row.pipeline

    return tuple(sorted(rows, key=urgency))


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
    """How many slots a pool has, and how many are taken; -1 is no limit, None that there is no such pool.

    `needed` is what it is to have; None where that is not known.
    """

    pool: str
    total: int | None
    taken: int = 0
    needed: int | None = None

    def why_not(self) -> str | None:
        """Why a task that needs a slot has to wait; None where it does not."""
        make = "" if self.needed is None else f". Run `{pool_command(self.pool, self.needed)}`"
        if self.total is None:
            return f"the pool {self.pool}, which does not exist{make}"
        if self.total == 0:
            return f"a slot of the pool {self.pool}, which has none{make}"
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

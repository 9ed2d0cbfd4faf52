"""All pipelines at a glance: how far each is, what its last batch took, and what keeps it from going on."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tidegate.core.audit.lag import TotalLag
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

    Args:
        cursor: how far it is, and what its last batches took; an empty one where it is not known.
        runs: its newest DAG runs, as Airflow's REST API lists them, the oldest first; `since_ms` is when each was queued.
        pending: a saved range of the next batch.
        known: of the row, what is shown as it is.
    """
    timings, failed = cursor.pace.timings, failed_runs(since_success(runs))
    seconds = sum(timing.run_ms for timing in timings) / 1000
    row = PipelineRow(
        pipeline=cursor.pipeline,
        seq=cursor.seq,
        last=cursor.pace.timing,
        records_per_s=sum(timing.records for timing in timings) / seconds if seconds else None,
        pending=None if pending is None else _pending(pending),
        failure=next((_failure(cursor.pipeline, *each) for each in reversed(failed.items())), None),
        run=active_run(runs),
        **known,
    )
    return replace(row, trouble=_trouble(row))


def active_run(runs: Sequence[Mapping[str, Any]]) -> ActiveRun | None:
    """The first run that is queued or running."""
    active = (run for run in runs if run["state"] in ACTIVE)
    return next((ActiveRun(run_id=r["dag_run_id"], state=r["state"], since_ms=r["since_ms"]) for r in active), None)


def _pending(saved: SavedRange) -> Pending:
    return Pending(seq=saved.load.seq, run_id=saved.load.run_id, offsets=total_count(saved.load.ranges))


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

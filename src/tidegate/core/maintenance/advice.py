"""When a table needs maintenance: what its newest commits say of it, which costs no further question."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.core.config.pipeline import MIB, Maintenance, Pipeline
from tidegate.core.config.schedules import DAY_S
from tidegate.core.state.history import TableHistory

MANY_FILES = 1000
"""Fewer data files than this need no compaction, however small they are. Those that a whole compaction has left do not count:
each partition of the table keeps a few small ones."""
MERGED = 5
"""Small files of one partition that Iceberg merges; it leaves fewer as they are."""
SMALL = 8
"""A table needs compaction where these files are, on average, smaller than this part of the target."""
GRACE_S = 2 * DAY_S
"""Snapshots wait for the next run of the maintenance, which is mostly nightly, before they are a reason for advice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """What there is to maintain. None where the table does not count its files.

    `files` are the data files of the current state, and `file_bytes` their size together; `expirable` are those snapshots that
    maintenance would expire.
    """

    files: int | None
    file_bytes: int | None
    snapshots: int
    expirable: int

    def __str__(self) -> str:
        """In words."""
        mean = f" of {_size((self.file_bytes or 0) / self.files)} on average" if self.files else ""
        files = "" if self.files is None else f"{self.files:,} data files{mean} and "
        return f"{files}{self.snapshots:,} snapshots, {self.expirable:,} of which may expire"


def _size(count: float) -> str:
    """Bytes, in words."""
    return f"{count / MIB:.1f} MiB" if count >= MIB else f"{count / (MIB >> 10):.1f} KiB"


def state_of(history: TableHistory, maintenance: Maintenance, *, now_ms: int) -> TableState:
    """What there is to maintain in a table."""
    before_ms = now_ms - maintenance.keep * 1000
    old = sum(commit.committed_at_ms < before_ms for commit in history.commits[maintenance.keep_snapshots :])
    return TableState(files=history.files.count, file_bytes=history.files.size, snapshots=len(history.commits), expirable=old)


def advice(pipeline: Pipeline, history: TableHistory, *, now_ms: int) -> str | None:
    """Why the table of a pipeline needs maintenance, and what to do; None where it does not."""
    maintenance = pipeline.maintenance or Maintenance()
    left, left_bytes = history.files.compacted
    new, new_bytes = (history.files.count or 0) - left, max(0, (history.files.size or 0) - left_bytes)
    is_cut_up = (
        new >= max(MANY_FILES, MERGED * history.files.partitions) and new_bytes / new < maintenance.target_file_bytes / SMALL
    )
    overdue = state_of(history, maintenance, now_ms=now_ms - GRACE_S * 1000).expirable
    if not is_cut_up and not (history.files.may_expire and overdue > maintenance.keep_snapshots):
        return None
    state = state_of(history, maintenance, now_ms=now_ms)
    if pipeline.maintenance is None:
        other = " or in that of another pipeline of the table" if pipeline.sink.shared_with else ""
        do = f"set `maintenance` in {pipeline.name}.yaml{other}"
    elif maintenance.schedule is None:
        do = f"trigger {pipeline.maintain_dag}, or set maintenance.schedule"
    else:
        do = f"see whether {pipeline.maintain_dag} is paused, and its runs; if they succeed, schedule it more often"
    return f"{pipeline.sink.table} needs maintenance: it has {state}; {do}"

"""All pipelines at a glance: how far each is, what its last batch took, and what keeps it from going on."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tidegate.core.audit.views.lag import TotalLag
from tidegate.core.errors import StateCorrupt
from tidegate.core.offsets.ranges import total_count
from tidegate.core.rates import BatchTiming
from tidegate.core.schedule.run_notes import failed_runs, since_success
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger, Listing

Trouble = Literal["unreadable", "file", "stopped", "losing", "late", "paused"]
"""Saved state cannot be read; its file cannot be read; the newest run that ended has failed; retention deletes unread records
soon; the last batch took longer than the interval; its DAG is paused."""
WORST_FIRST: tuple[Trouble | None, ...] = ("unreadable", "file", "stopped", "losing", "late", None, "paused")
SOON_S = 3600.0
"""Time left until retention deletes unread records that is too short, where two intervals are not longer."""
COMMAND = re.compile(r"`((?:tidegate|airflow) [^`]+)`")
ACTIVE = ("running", "queued")


@dataclass(frozen=True)
class Pending:
    """A saved range of the next batch, which the next run adopts where its own run does not load it."""

    seq: int
    run_id: str
    offsets: int

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"seq": self.seq, "run_id": self.run_id, "offsets": self.offsets}


@dataclass(frozen=True)
class Overview:
    """One pipeline.

    Attributes:
        pipeline: its name.
        table: the table that it loads.
        paused: whether its DAG is paused.
        seq: batches that are committed.
        timing: of the last batch; None where it is not known.
        records_per_s: of the last batches that are known, over the time of their runs; None without any.
        interval_s: seconds between two runs; None where they start when there is something to read.
        pending: the saved range of the next batch; None where there is none.
        failure: the id of the run that failed since the last success, the newest, and why; None where none has.
        run: of the active run: its id, its state and since when (epoch ms).
        faults: saved state that cannot be read, one message each.
        lag: how far behind it is, and when that was measured (epoch ms); None where it is not known.
        lags: how many records were behind when each of its last batches was planned, the oldest first.
        waiting: what its active run waits for; None where it waits for nothing.
        file_error: why its file cannot be read; None where it can.
    """

    pipeline: str
    table: str = ""
    paused: bool = False
    seq: int = 0
    timing: BatchTiming | None = None
    records_per_s: float | None = None
    interval_s: float | None = None
    pending: Pending | None = None
    failure: tuple[str, str] | None = None
    run: tuple[str, str, int] | None = None
    faults: tuple[str, ...] = ()
    lag: tuple[TotalLag, int] | None = None
    lags: tuple[int, ...] = ()
    waiting: str | None = None
    file_error: str | None = None

    @property
    def trouble(self) -> Trouble | None:
        """What needs attention most; None where nothing does."""
        if self.faults:
            return "unreadable"
        if self.file_error is not None:
            return "file"
        if self.failure is not None:
            return "stopped"
        if self.losing:
            return "losing"
        if self.paused:
            return "paused"
        late = self.timing is not None and self.interval_s is not None and self.timing.run_ms > self.interval_s * 1000
        return "late" if late else None

    @property
    def losing(self) -> bool:
        """Whether retention deletes records soon that are not read yet."""
        left = None if self.lag is None else self.lag[0].retention_left_s
        return left is not None and left < max(SOON_S, 2 * (self.interval_s or 0))

    @property
    def command(self) -> str | None:
        """What to run after a failure: what the fix names, or another run; None where nothing has failed."""
        if self.failure is None:
            return None
        named = COMMAND.search(self.failure[1])
        return f"airflow dags trigger {shlex.quote(self.pipeline)}" if named is None else named[1]

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        timing = self.timing
        return {
            "pipeline": self.pipeline,
            "table": self.table,
            "paused": self.paused,
            "seq": self.seq,
            "last": None if timing is None else timing_to_json(timing),
            "records_per_s": self.records_per_s,
            "interval_s": self.interval_s,
            "pending": None if self.pending is None else self.pending.to_json(),
            "failure": None
            if self.failure is None
            else {"run_id": self.failure[0], "why": self.failure[1], "command": self.command},
            "run": None if self.run is None else dict(zip(("run_id", "state", "since_ms"), self.run, strict=True)),
            "trouble": self.trouble,
            "faults": list(self.faults),
            "lag": None if self.lag is None else {**self.lag[0].to_json(), "at_ms": self.lag[1]},
            "lag_points": list(self.lags),
            "waiting": self.waiting,
            "file_error": self.file_error,
        }


def timing_to_json(timing: BatchTiming) -> dict[str, Any]:
    """What a batch took, as pages show it: seconds, and when it was committed (epoch ms)."""
    return {
        "records": timing.records,
        "bound": timing.bound,
        "run_s": timing.run_ms / 1000,
        "load_s": timing.load_ms / 1000,
        "delay_s": timing.scheduling_delay_ms / 1000,
        "ended_at_ms": timing.ended_at_ms,
    }


def overview(
    ledger: Ledger, listing: Listing, *, table: str, paused: bool, interval_s: float | None, runs: Sequence[Mapping[str, Any]]
) -> Overview:
    """How a pipeline does, by its saved state and its runs.

    Args:
        ledger: its saved state.
        listing: of its keys.
        table: the table that it loads.
        paused: whether its DAG is paused.
        interval_s: seconds between two runs, where that is fixed.
        runs: its newest DAG runs, as Airflow's REST API lists them, the oldest first; `since_ms` is when each was queued.

    Raises:
        StateUnavailable: the store does not answer.
    """
    faults: list[str] = []
    cursor, pending = Cursor(ledger.pipeline), None
    try:
        cursor = ledger.cursor() if listing.has_cursor else cursor
        saved = [ledger.saved_range(key.key) for key in listing.of_seq(cursor.seq + 1)[:1]]
        pending = next((Pending(each.load.seq, each.load.run_id, total_count(each.load.ranges)) for each in saved), None)
    except StateCorrupt as error:
        faults.append(str(error))
    failures = failed_runs(since_success(runs))
    active = [run for run in runs if run["state"] in ACTIVE]
    return Overview(
        ledger.pipeline,
        table,
        paused,
        seq=cursor.seq,
        timing=cursor.pace.timing,
        records_per_s=_rate(cursor.pace.timings),
        interval_s=interval_s,
        pending=pending,
        failure=next(reversed(failures.items()), None),
        run=next(((str(r["dag_run_id"]), str(r["state"]), int(r["since_ms"])) for r in active), None),
        faults=tuple(faults),
    )


def by_trouble(overviews: Iterable[Overview]) -> list[Overview]:
    """Those that need attention first."""
    return sorted(overviews, key=lambda each: (WORST_FIRST.index(each.trouble), each.pipeline))


def _rate(timings: Sequence[BatchTiming]) -> float | None:
    seconds = sum(timing.run_ms for timing in timings) / 1000
    return sum(timing.records for timing in timings) / seconds if seconds else None

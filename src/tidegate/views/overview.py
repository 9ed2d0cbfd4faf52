"""All pipelines at a glance: how far each is, what its last batch took, and what keeps it from going on."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
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


@dataclass(frozen=True)
class Overview:
    """One pipeline.

    Attributes:
        cursor: how far it is, and what its last batches took; an empty one where it is not known.
        table: the table that it loads.
        interval_s: seconds between two runs; None where they start when there is something to read.
        paused: whether its DAG is paused.
        runs: its newest DAG runs, as Airflow's REST API lists them, the oldest first; `since_ms` is when each was queued.
        pending: a saved range of the next batch, which the next run adopts where its own run does not load it.
        lag: how far behind it is, and when that was measured (epoch ms); None where it is not known.
        waiting: what its active run waits for; None where it waits for nothing.
        faults: saved state that cannot be read, one message each.
        file_error: why its file cannot be read; None where it can.
    """

    cursor: Cursor
    table: str = ""
    interval_s: float | None = None
    _: KW_ONLY
    paused: bool = False
    runs: Sequence[Mapping[str, Any]] = ()
    pending: SavedRange | None = None
    lag: tuple[TotalLag, int] | None = None
    waiting: str | None = None
    faults: tuple[str, ...] = ()
    file_error: str | None = None

    @property
    def pipeline(self) -> str:
        """Its name."""
        return self.cursor.pipeline

    @property
    def failure(self) -> tuple[str, str] | None:
        """The id of the newest run that failed since the last success, and why; None where none has."""
        return next(reversed(failed_runs(since_success(self.runs)).items()), None)

    @property
    def run(self) -> Mapping[str, Any] | None:
        """The active run."""
        return next((run for run in self.runs if run["state"] in ACTIVE), None)

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
        timing, interval_s = self.cursor.pace.timing, self.interval_s
        late = timing is not None and interval_s is not None and timing.run_ms > interval_s * 1000
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
        timing, failure, run, pending = self.cursor.pace.timing, self.failure, self.run, self.pending
        return {
            "pipeline": self.pipeline,
            "table": self.table,
            "paused": self.paused,
            "seq": self.cursor.seq,
            "last": timing and timing_to_json(timing),
            "records_per_s": _rate(self.cursor.pace.timings),
            "interval_s": self.interval_s,
            "pending": pending
            and {"seq": pending.load.seq, "run_id": pending.load.run_id, "offsets": total_count(pending.load.ranges)},
            "failure": failure and {"run_id": failure[0], "why": failure[1], "command": self.command},
            "run": run and {"run_id": run["dag_run_id"], "state": run["state"], "since_ms": run["since_ms"]},
            "trouble": self.trouble,
            "faults": list(self.faults),
            "lag": self.lag and {**self.lag[0].to_json(), "at_ms": self.lag[1]},
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


def by_trouble(overviews: Iterable[Overview]) -> list[Overview]:
    """Those that need attention first."""
    return sorted(overviews, key=lambda each: (WORST_FIRST.index(each.trouble), each.pipeline))


def _rate(timings: Sequence[BatchTiming]) -> float | None:
    seconds = sum(timing.run_ms for timing in timings) / 1000
    return sum(timing.records for timing in timings) / seconds if seconds else None

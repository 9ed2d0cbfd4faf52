"""One batch in full: what was planned and why, what loaded it, and what that took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.core.load.receipt import Receipt
from tidegate.core.rates import BatchTiming
from tidegate.core.schedule.lifecycle import State, state_of
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.saved_range import SavedRange


@dataclass(frozen=True)
class BatchView:
    """One batch.

    Attributes:
        saved: its saved range.
        state: how far it is.
        loads: the receipts of its loads, the oldest first.
        timing: what it took; None where that is not known any more.
        who: who or what triggered its run; None where that is not known.
    """

    saved: SavedRange
    state: State
    loads: tuple[Receipt, ...] = ()
    timing: BatchTiming | None = None
    who: str | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        saved, newest = self.saved, self.loads[-1] if self.loads else None
        reasons = {d.topic_partition: d for d in saved.decisions}
        return {
            "seq": saved.seq,
            "state": str(self.state),
            "run_id": saved.run_id,
            "planned_at_ms": saved.planned_at_ms,
            "who": self.who,
            "rows": None if newest is None else newest.rows,
            "transform": None if newest is None else newest.load.transform,
            "adopted_from": saved.adopted_from,
            "limits": dict(saved.limits),
            "rate": None if saved.rate is None else saved.rate.to_json(),
            "partitions": [
                {
                    "topic": r.topic,
                    "partition": r.partition,
                    "from": r.from_offset,
                    "until": r.until_offset,
                    "from_reason": reason.from_reason if (reason := reasons.get(r.topic_partition)) else None,
                    "until_reason": reason.until_reason if reason else None,
                }
                for r in saved.ranges
            ],
            "loads": [
                {
                    "run_id": load.load.run_id,
                    "replay": load.load.replay,
                    "rows": load.rows,
                    "kept": load.kept,
                    # larger than the whole numbers that JavaScript has
                    "snapshot": str(load.snapshot),
                    "committed_at_ms": load.committed_at_ms,
                    "transform": load.load.transform,
                }
                for load in self.loads
            ],
            "timing": None if self.timing is None else self.timing.to_json(),
        }


def batch_view(saved: SavedRange, cursor: Cursor, receipts: Sequence[Receipt], who: str | None = None) -> BatchView:
    """A batch by its saved range.

    Args:
        saved: the range.
        cursor: how far the pipeline has come.
        receipts: those of the pipeline, the oldest commit first; replays are left out.
        who: who or what triggered its run.
    """
    loads = tuple(r for r in receipts if r.load.replay is None and r.load.seq == saved.seq)
    return BatchView(
        saved,
        state_of(saved=True, landed=bool(loads), committed=saved.seq <= cursor.seq),
        loads,
        cursor.timing if saved.seq == cursor.seq else None,
        who,
    )

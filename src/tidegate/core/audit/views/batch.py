"""One batch in full: what was planned and why, what loaded it, and what that took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.core.audit.views.load_answer import LoadAnswer
from tidegate.core.config.names import BACKFILL_RUN, REPLAY_DAG
from tidegate.core.load.receipt import Receipt
from tidegate.core.offsets.algebra import common
from tidegate.core.offsets.ranges import range_to_json, total_count
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
        replays: the receipts of later loads of its offsets that no schedule made, the oldest first.
        answer: what its newest load handed on; None where that is not known any more.
    """

    saved: SavedRange
    state: State
    loads: tuple[Receipt, ...] = ()
    timing: BatchTiming | None = None
    who: str | None = None
    replays: tuple[Receipt, ...] = ()
    answer: LoadAnswer | None = None

    def explained(self) -> list[str]:
        """What was adopted, replaced or loaded again, and why, in sentences."""
        saved, told = self.saved, []
        if saved.why.adopted_from is not None:
            told.append(
                f"Run {saved.why.adopted_from} saved the range and did not commit it. Run {saved.load.run_id} adopted it."
            )
        if len(self.loads) > 1:
            told.append(f"It was loaded {len(self.loads)} times. Each load replaced the rows of the one before.")
        if self.loads and self.loads[-1].kept:
            kept = f"{self.loads[-1].kept:,}"
            told.append(f"{kept} older rows of the same data files were written again, unchanged, by the newest load.")
        if self.answer is not None and self.answer.landed_before:
            told.append("An earlier try of the load had written the rows. The last try found its receipt, and wrote nothing.")
        if lost := total_count(saved.skipped):
            told.append(f"{lost:,} offsets before it were deleted by retention, and skipped, as somebody accepted.")
        recreated = sorted({d.topic_partition.topic for d in saved.why.decisions if d.from_reason == "recreated"})
        told += [f"Topic {topic} had been deleted and created again. It is read from its beginning." for topic in recreated]
        told += [
            f"{total_count(common(r.load.ranges, saved.load.ranges)):,} of its offsets were loaded again "
            f"by run {r.load.run_id}, by {r.write.transform}."
            for r in self.replays
        ]
        return told

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        saved, newest = self.saved, self.loads[-1] if self.loads else None
        reasons = {d.topic_partition: d for d in saved.why.decisions}
        return {
            "seq": saved.load.seq,
            "state": str(self.state),
            "run_id": saved.load.run_id,
            "planned_at_ms": saved.planned_at_ms,
            "who": self.who,
            "rows": None if newest is None else newest.rows,
            "transform": None if newest is None else newest.write.transform,
            "adopted_from": saved.why.adopted_from,
            "limits": dict(saved.why.limits),
            "rate": None if saved.why.rate is None else saved.why.rate.to_json(),
            "partitions": [
                {
                    **range_to_json(r),
                    "from_reason": reason.from_reason if (reason := reasons.get(r.topic_partition)) else None,
                    "until_reason": reason.until_reason if reason else None,
                }
                for r in saved.load.ranges
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
                    "transform": load.write.transform,
                }
                for load in self.loads
            ],
            "timing": None if self.timing is None else self.timing.to_json(),
            "load": None if self.answer is None else self.answer.to_json(),
            "replays": [
                {
                    "run_id": replay.load.run_id,
                    "dag_id": replay_dag_of(replay),
                    "chunk": replay.load.seq,
                    "rows": replay.rows,
                    "committed_at_ms": replay.committed_at_ms,
                    "transform": replay.write.transform,
                    "snapshot": str(replay.snapshot),
                    "partitions": [range_to_json(r) for r in common(replay.load.ranges, saved.load.ranges)],
                }
                for replay in self.replays
            ],
            "explained": self.explained(),
        }


def replay_dag_of(receipt: Receipt) -> str:
    """The id of the DAG whose run replayed: a date backfill is a run of the pipeline's own DAG."""
    load = receipt.load
    return load.pipeline if load.run_id.startswith(BACKFILL_RUN) else f"{load.pipeline}{REPLAY_DAG}"


def batch_view(
    saved: SavedRange,
    cursor: Cursor,
    receipts: Sequence[Receipt],
    who: str | None = None,
    answer: LoadAnswer | None = None,
) -> BatchView:
    """A batch by its saved range.

    Args:
        saved: the range.
        cursor: how far the pipeline has come.
        receipts: those of the pipeline, the oldest commit first.
        who: who or what triggered its run.
        answer: what its newest load handed on.
    """
    replays = (r for r in receipts if r.load.replay is not None)
    loads = tuple(r for r in receipts if r.load.replay is None and r.load.seq == saved.load.seq)
    return BatchView(
        saved,
        state_of(saved=True, landed=bool(loads), committed=saved.load.seq <= cursor.seq),
        loads,
        cursor.pace.timing if saved.load.seq == cursor.seq else None,
        who,
        tuple(r for r in replays if _same_topics(r, saved) and common(r.load.ranges, saved.load.ranges)),
        answer,
    )


def _same_topics(receipt: Receipt, saved: SavedRange) -> bool:
    """Whether no topic was deleted and created again between the two."""
    ids = receipt.load.topic_ids
    return all(ids.get(topic, known) == known for topic, known in saved.load.topic_ids.items())

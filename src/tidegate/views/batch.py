"""One batch in full: what was planned and why, what loaded it, and what that took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from tidegate.core.config.names import BACKFILL_RUN, REPLAY_DAG
from tidegate.core.model.counts import is_whole
from tidegate.core.model.fields import View
from tidegate.core.model.ranges import common, range_to_json, total_count
from tidegate.core.rates import BatchTiming
from tidegate.core.rates.checks import is_number
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.jobs import COLD_S
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.saved_range import SavedRange
from tidegate.views.entries import Entry, entries
from tidegate.views.range_map import Mark


@dataclass(frozen=True, kw_only=True)
class LoadAnswer(View):
    """What one load took and saw; None is what is not known.

    Attributes:
        seconds: by phase.
        records: read from Kafka.
        rows: written.
        repeats: of the records, left out as repeats.
        errors: of the rows, broken records.
        spark_age_s: how long the Spark application had been running when the load began.
        landed_before: whether nothing was written, since an earlier try had landed.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    records: int | None = None
    rows: int | None = None
    repeats: int | None = None
    errors: int | None = None
    spark_age_s: float | None = None
    landed_before: bool = False

    @staticmethod
    def of(answer: object) -> LoadAnswer | None:
        """The answer that a load task handed on; None where it is none. No batch depends on what is read here."""
        if not isinstance(answer, Mapping) or not isinstance(answer.get("observed"), Mapping):
            return None
        seen, seconds = answer["observed"], answer.get("seconds")
        counts = {name: seen.get(name) for name in ("records", "rows", "repeats", "errors")}
        age = answer.get("spark_age_s")
        return LoadAnswer(
            seconds={str(k): float(v) for k, v in seconds.items() if is_number(v)} if isinstance(seconds, Mapping) else {},
            **{name: value if is_whole(value) else None for name, value in counts.items()},
            spark_age_s=age if is_number(age) else None,
            landed_before=answer.get("landed_before") is True,
        )

    @property
    def marks(self) -> frozenset[Mark]:
        """What of it is worth seeing in a range map."""
        marks: set[Mark] = set()
        if self.errors:
            marks.add("errors")
        if self.spark_age_s is not None and self.spark_age_s < COLD_S:
            marks.add("cold")
        return frozenset(marks)


@dataclass(frozen=True)
class BatchView:
    """One batch.

    Attributes:
        saved: its saved range.
        entry: how far it is, and its loads.
        timing: what it took; None where that is not known any more.
        replays: the receipts of later loads of its offsets that no schedule made, the oldest first.
        answer: what its newest load handed on; None where that is not known any more.
    """

    saved: SavedRange
    _: KW_ONLY
    entry: Entry
    timing: BatchTiming | None = None
    replays: tuple[Receipt, ...] = ()
    answer: LoadAnswer | None = None

    def explained(self) -> list[str]:
        """What was adopted, replaced or loaded again, and why, in sentences."""
        saved, receipts, told = self.saved, self.entry.receipts, list[str]()
        if saved.why.adopted_from is not None:
            told.append(
                f"Run {saved.why.adopted_from} saved the range and did not commit it. Run {saved.load.run_id} adopted it."
            )
        if len(receipts) > 1:
            told.append(f"It was loaded {len(receipts)} times. Each load replaced the rows of the one before.")
        if receipts and receipts[-1].kept:
            kept = f"{receipts[-1].kept:,}"
            told.append(f"{kept} older rows of the same data files were written again, unchanged, by the newest load.")
        if self.answer is not None and self.answer.landed_before:
            told.append("An earlier try of the load had written the rows. The last try found its receipt, and wrote nothing.")
        if lost := total_count(saved.skipped):
            told.append(f"{lost:,} offsets before it were deleted by retention, and skipped, as somebody accepted.")
        told += [
            f"Topic {topic} had been deleted and created again. It is read from its beginning."
            for topic in sorted(self.entry.recreated)
        ]
        told += [
            f"{total_count(common(r.load.ranges, saved.load.ranges)):,} of its offsets were loaded again "
            f"by run {r.load.run_id}, by {r.write.transform}."
            for r in self.replays
        ]
        return told

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        why, ranges = self.saved.why, self.saved.load.ranges
        reasons = {d.topic_partition: {"from_reason": d.from_reason, "until_reason": d.until_reason} for d in why.decisions}
        unknown = {"from_reason": None, "until_reason": None}
        return {
            **self.entry.to_json(),
            "limits": dict(why.limits),
            "rate": why.rate and why.rate.to_json(),
            "partitions": [range_to_json(r) | reasons.get(r.topic_partition, unknown) for r in ranges],
            "loads": [_load_to_json(receipt) for receipt in self.entry.receipts],
            "timing": self.timing and self.timing.to_json(),
            "load": self.answer and self.answer.to_json(),
            "replays": [
                {
                    **_load_to_json(replay),
                    "dag_id": replay_dag_of(replay),
                    "partitions": [range_to_json(r) for r in common(replay.load.ranges, ranges)],
                }
                for replay in self.replays
            ],
            "explained": self.explained(),
        }


def _load_to_json(receipt: Receipt) -> dict[str, Any]:
    return {
        "run_id": receipt.load.run_id,
        "replay": receipt.load.replay,
        "seq": receipt.load.seq,
        "rows": receipt.rows,
        "kept": receipt.kept,
        # larger than the whole numbers that JavaScript has
        "snapshot": str(receipt.snapshot),
        "committed_at_ms": receipt.committed_at_ms,
        "transform": receipt.write.transform,
    }


def replay_dag_of(receipt: Receipt) -> str:
    """The id of the DAG whose run replayed: a date backfill is a run of the pipeline's own DAG."""
    load = receipt.load
    return load.pipeline if load.run_id.startswith(BACKFILL_RUN) else f"{load.pipeline}{REPLAY_DAG}"


def batch_view(
    saved: SavedRange,
    cursor: Cursor,
    receipts: Sequence[Receipt],
    who: Mapping[str, str] | None = None,
    answer: LoadAnswer | None = None,
) -> BatchView:
    """A batch by its saved range.

    Args:
        saved: the range.
        cursor: how far the pipeline has come.
        receipts: those of the pipeline, the oldest commit first.
        who: who or what triggered its run, by run id.
        answer: what its newest load handed on.
    """
    seq = saved.load.seq
    (entry,) = entries([saved], (r for r in receipts if r.load.replay is None and r.load.seq == seq), cursor, who)
    replays = (r for r in receipts if r.load.replay is not None and _same_topics(r, saved))
    again = tuple(r for r in replays if common(r.load.ranges, saved.load.ranges))
    return BatchView(saved, entry=entry, timing=cursor.pace.timing if seq == cursor.seq else None, replays=again, answer=answer)


def _same_topics(receipt: Receipt, saved: SavedRange) -> bool:
    """Whether no topic was deleted and created again between the two."""
    ids = receipt.load.topic_ids
    return all(ids.get(topic, known) == known for topic, known in saved.load.topic_ids.items())

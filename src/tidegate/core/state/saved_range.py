"""The saved range: the plan of one DAG run, with the reason for each bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tidegate.core.offsets.ranges import (
    OffsetRange,
    TopicPartition,
    offsets_from_json,
    offsets_to_json,
    ranges_from_json,
    ranges_to_json,
    selection_from_json,
    selection_to_json,
)
from tidegate.core.state.codec import Shape
from tidegate.core.state.cursor import Positions

FromReason = Literal[
    "cursor", "earliest", "latest", "timestamp", "offsets", "new partition", "accepted loss", "recreated", "rebuilt"
]
UntilReason = Literal["log end", "until", "max_rate_per_partition", "max_bytes", "max_records", "rebuilt"]


@dataclass(frozen=True, order=True)
class Decision:
    """Why one partition's range is what it is."""

    topic_partition: TopicPartition
    from_reason: FromReason
    until_reason: UntilReason


@dataclass(frozen=True)
class SavedRange:
    """The plan of one DAG run, made durable before any work: written once, never changed.

    `limits` are the limits in force when it was planned; `jumped` and `retired` as in `Plan`; `adopted_from` is the run whose
    uncommitted range this run took over; `generation` is the cursor's. `others` are the cursor's positions of the partitions
    that the batch does not read, so that its receipt has the whole cursor. `absent` is what an operator accepted to be
    missing in the table when it was planned, `present` what of the cursor's absent ranges the table held then.
    """

    pipeline: str
    seq: int
    run_id: str
    ranges: tuple[OffsetRange, ...]
    decisions: tuple[Decision, ...]
    topic_ids: Mapping[str, str]
    limits: Mapping[str, Any]
    planned_at_ms: int
    jumped: Mapping[TopicPartition, int] = field(default_factory=dict)
    retired: tuple[TopicPartition, ...] = ()
    adopted_from: str | None = None
    generation: int = 0
    others: Positions | None = None
    absent: tuple[OffsetRange, ...] = ()
    present: tuple[OffsetRange, ...] = ()

    @property
    def skipped(self) -> tuple[OffsetRange, ...]:
        """The offsets that it passes over, since retention took them and somebody accepted the loss."""
        lost = {d.topic_partition for d in self.decisions if d.from_reason == "accepted loss"}
        return tuple(
            OffsetRange(r.topic, r.partition, self.jumped[r.topic_partition], r.from_offset)
            for r in self.ranges
            if r.topic_partition in lost and r.topic_partition in self.jumped
        )

    @property
    def to_load(self) -> tuple[OffsetRange, ...]:
        """The ranges that hold records."""
        return tuple(r for r in self.ranges if r.count)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; decisions are grouped by reason, since thousands of partitions share a few."""
        reasons: dict[str, dict[str, list[int]]] = {}
        for d in sorted(self.decisions):
            tp = d.topic_partition
            reasons.setdefault(f"{d.from_reason} to {d.until_reason}", {}).setdefault(tp.topic, []).append(tp.partition)
        return {
            "pipeline": self.pipeline,
            "seq": self.seq,
            "run_id": self.run_id,
            "ranges": ranges_to_json(self.ranges),
            "reasons": reasons,
            "topic_ids": dict(self.topic_ids),
            "limits": dict(self.limits),
            "planned_at_ms": self.planned_at_ms,
            "jumped": offsets_to_json(self.jumped),
            "retired": [[tp.topic, tp.partition] for tp in self.retired],
            "adopted_from": self.adopted_from,
            "generation": self.generation,
            "others": None if self.others is None else self.others.to_json(),
            "absent": selection_to_json(self.absent),
            "present": selection_to_json(self.present),
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> SavedRange:
        """The inverse of `to_json`.

        Raises:
            StateCorrupt: the value is not what `to_json` makes.
        """
        with Shape("a saved range has the wrong shape", "It is written once by the plan task and never edited"):
            decisions = []
            for reason, topics in value["reasons"].items():
                from_reason, until_reason = reason.split(" to ")
                decisions += [
                    Decision(TopicPartition(t, p), from_reason, until_reason) for t, numbers in topics.items() for p in numbers
                ]
            return SavedRange(
                pipeline=value["pipeline"],
                seq=value["seq"],
                run_id=value["run_id"],
                ranges=ranges_from_json(value["ranges"]),
                decisions=tuple(sorted(decisions)),
                topic_ids=dict(value["topic_ids"]),
                limits=dict(value["limits"]),
                planned_at_ms=value["planned_at_ms"],
                jumped=offsets_from_json(value["jumped"]),
                retired=tuple(TopicPartition(topic, partition) for topic, partition in value["retired"]),
                adopted_from=value["adopted_from"],
                generation=value.get("generation", 0),
                others=None if value.get("others") is None else Positions.from_json(value["others"]),
                absent=selection_from_json(value.get("absent", {})),
                present=selection_from_json(value.get("present", {})),
            )

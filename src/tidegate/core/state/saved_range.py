"""The saved range: the plan of one DAG run, with the reason for each bound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from tidegate.core.offsets.ranges import OffsetRange, TopicPartition, total_count
from tidegate.core.rates.control import RateBound
from tidegate.core.rates.resources import Resources
from tidegate.core.state.codec import Shape
from tidegate.core.state.cursor import COUNT, POSITIONS, Positions
from tidegate.core.state.fields import (
    LATER,
    MAPPING,
    OFFSETS,
    RANGES,
    SELECTION,
    fields_from_json,
    fields_to_json,
    form,
    named,
    optional,
)

FromReason = Literal[
    "cursor", "earliest", "latest", "timestamp", "offsets", "new partition", "accepted loss", "recreated", "rebuilt"
]
UntilReason = Literal["log end", "until", "backpressure", "max_rate_per_partition", "max_bytes", "max_records", "rebuilt"]


@dataclass(frozen=True, order=True)
class Decision:
    """Why one partition's range is what it is."""

    topic_partition: TopicPartition
    from_reason: FromReason
    until_reason: UntilReason


def _reasons_to_json(decisions: Iterable[Decision]) -> dict[str, dict[str, list[int]]]:
    """Partitions by reason and topic, since thousands of partitions share a few reasons."""
    reasons: dict[str, dict[str, list[int]]] = {}
    for d in sorted(decisions):
        tp = d.topic_partition
        reasons.setdefault(f"{d.from_reason} to {d.until_reason}", {}).setdefault(tp.topic, []).append(tp.partition)
    return reasons


def _reasons_from_json(reasons: Mapping[str, Mapping[str, list[int]]]) -> tuple[Decision, ...]:
    decisions = []
    for reason, topics in reasons.items():
        from_reason, until_reason = reason.split(" to ")
        decisions += [
            Decision(TopicPartition(topic, number), cast("FromReason", from_reason), cast("UntilReason", until_reason))
            for topic, numbers in topics.items()
            for number in numbers
        ]
    return tuple(sorted(decisions))


REASONS = form(_reasons_to_json, _reasons_from_json) | named("reasons")
PARTITIONS = form(
    lambda partitions: [[tp.topic, tp.partition] for tp in partitions],
    lambda pairs: tuple(TopicPartition(topic, partition) for topic, partition in pairs),
)


def records_allowed(bound: int, ranges: Sequence[OffsetRange], decisions: Iterable[Decision]) -> int:
    """What a rate policy's bound allowed a batch.

    Partitions get whole records, so what they get together is a little less than the bound, or more. Where nothing else cut the
    batch, that counts: a batch of all that its partitions were given is full.
    """
    cut_by = {d.until_reason for d in decisions}.difference({"log end"})
    return total_count(ranges) if cut_by == {"backpressure"} else bound


def first_of(ranges: Iterable[OffsetRange], decisions: Iterable[Decision]) -> dict[TopicPartition, int]:
    """The first offset of each partition that a batch of these ranges is the first to read; recreated topics count as new."""
    continued = {d.topic_partition for d in decisions if d.from_reason in ("cursor", "accepted loss")}
    return {r.topic_partition: r.from_offset for r in ranges if r.topic_partition not in continued}


@dataclass(frozen=True)
class SavedRange:
    """The plan of one DAG run, made durable before any work: written once, never changed.

    `limits` are the limits in force when it was planned; `jumped` and `retired` as in `Plan`; `adopted_from` is the run whose
    uncommitted range this run took over; `generation` is the cursor's. `others` are the cursor's positions of the partitions
    that the batch does not read, so that its receipt has the whole cursor. `absent` is what an operator accepted to be
    missing in the table when it was planned, `present` what of the cursor's absent ranges the table held then. `rate` is what
    the rate policy allowed, None where none did. `remaining` counts the records that waited when it was planned and that it
    leaves to later batches. `resources` is what its load gets of Spark, where the pipeline's file says how to find that.
    """

    pipeline: str
    seq: int
    run_id: str
    ranges: tuple[OffsetRange, ...] = field(metadata=RANGES)
    decisions: tuple[Decision, ...] = field(metadata=REASONS)
    topic_ids: Mapping[str, str] = field(metadata=MAPPING)
    limits: Mapping[str, Any] = field(metadata=MAPPING)
    planned_at_ms: int
    jumped: Mapping[TopicPartition, int] = field(default_factory=dict, metadata=OFFSETS)
    retired: tuple[TopicPartition, ...] = field(default=(), metadata=PARTITIONS)
    adopted_from: str | None = None
    generation: int = field(default=0, metadata=LATER)
    others: Positions | None = field(default=None, metadata=POSITIONS | LATER)
    absent: tuple[OffsetRange, ...] = field(default=(), metadata=SELECTION | LATER)
    present: tuple[OffsetRange, ...] = field(default=(), metadata=SELECTION | LATER)
    rate: RateBound | None = field(default=None, metadata=optional(form(RateBound.to_json, RateBound.from_json)) | LATER)
    remaining: int = field(default=0, metadata=COUNT | LATER)
    resources: Resources | None = field(default=None, metadata=optional(form(Resources.to_json, Resources.from_json)) | LATER)

    @property
    def skipped(self) -> tuple[OffsetRange, ...]:
        """The offsets that it passes over, since retention took them and somebody accepted the loss."""
        return tuple(
            OffsetRange(tp.topic, tp.partition, self.jumped[tp], offset)
            for tp, offset in self.resumed.items()
            if tp in self.jumped
        )

    @property
    def begun(self) -> dict[TopicPartition, int]:
        """The first offset of each partition that this range is the first to read; recreated topics count as new."""
        return first_of(self.ranges, self.decisions)

    @property
    def resumed(self) -> dict[TopicPartition, int]:
        """Where partitions go on after a loss that somebody accepted."""
        lost = {d.topic_partition for d in self.decisions if d.from_reason == "accepted loss"}
        return {r.topic_partition: r.from_offset for r in self.ranges if r.topic_partition in lost}

    @property
    def allowed(self) -> int | None:
        """As `records_allowed`; None where no policy bounds the batch."""
        return None if self.rate is None else records_allowed(self.rate.records, self.ranges, self.decisions)

    @property
    def to_load(self) -> tuple[OffsetRange, ...]:
        """The ranges that hold records."""
        return tuple(r for r in self.ranges if r.count)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return fields_to_json(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> SavedRange:
        """The inverse of `to_json`.

        Raises:
            StateCorrupt: the value is not what `to_json` makes.
        """
        with Shape("a saved range has the wrong shape", "It is written once by the plan task and never edited"):
            return fields_from_json(SavedRange, value)

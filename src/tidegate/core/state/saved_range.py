"""The saved range: the plan of one DAG run, with the reason for each bound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from tidegate.core.model.fields import MAPPING, OFFSETS, Record, form, held, named, nested, optional
from tidegate.core.model.ranges import OffsetRange, TopicPartition, total_count
from tidegate.core.rates.advice import Resources
from tidegate.core.rates.control import RateBound
from tidegate.core.state.cursor import COUNT, Position
from tidegate.core.state.receipt import Load

FromReason = Literal[
    "cursor", "earliest", "latest", "timestamp", "offsets", "group", "new partition", "accepted loss", "recreated", "rebuilt"
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


@dataclass(frozen=True, kw_only=True)
class Why:
    """Why a range is what it is, for people.

    `limits` are the limits in force when it was planned, `rate` is what the rate policy allowed, None where none did.
    `adopted_from` is the run whose uncommitted range this run took over.
    """

    decisions: tuple[Decision, ...] = field(default=(), metadata=REASONS)
    limits: Mapping[str, Any] = field(default_factory=dict, metadata=MAPPING)
    rate: RateBound | None = field(default=None, metadata=optional(nested(RateBound)))
    adopted_from: str | None = None


@dataclass(frozen=True, kw_only=True)
class SavedRange(Record):
    """The plan of one DAG run, made durable before any work: written once, never changed.

    `load` is what it loads, and where that leads; it has ranges without offsets too. `jumped` and `retired` are as in `Plan`.
    `remaining` counts the records that waited when it was planned (`planned_at_ms`, epoch ms) and that it leaves to later
    batches. `head` is the table's newest commit then. `resources` is what its load gets of Spark, where the pipeline's file
    says how to find that.
    """

    UNREADABLE = ("a saved range has the wrong shape", "It is written once by the plan task and never edited")

    load: Load = field(metadata=held(Load))
    planned_at_ms: int
    why: Why = field(default_factory=Why, metadata=held(Why))
    jumped: Mapping[TopicPartition, int] = field(default_factory=dict, metadata=OFFSETS)
    retired: tuple[TopicPartition, ...] = field(default=(), metadata=PARTITIONS)
    remaining: int = field(default=0, metadata=COUNT)
    head: int | None = None
    resources: Resources | None = field(default=None, metadata=optional(nested(Resources)))

    def adopted_by(self, run_id: str) -> SavedRange:
        """The same plan, of a run that takes it over."""
        return replace(self, load=replace(self.load, run_id=run_id), why=replace(self.why, adopted_from=self.load.run_id))

    def leading_to(self, after: Position, *, head: int | None) -> SavedRange:
        """The same plan, with where it leads and what it saw of the table."""
        beside = after.beside(self.load.ranges, self.load.topic_ids)
        return replace(self, load=replace(self.load, beside=beside), head=head)

    @property
    def after(self) -> Position:
        """Where the cursor is once this batch is committed (`tidegate.core.planning.commit.leads_to`)."""
        return (self.load.beside or Position()).over(self.load.ranges, self.load.topic_ids)

    @property
    def skipped(self) -> tuple[OffsetRange, ...]:
        """The offsets that it passes over, since retention took them and somebody accepted the loss."""
        lost = {d.topic_partition for d in self.why.decisions if d.from_reason == "accepted loss"}
        return tuple(
            replace(r, from_offset=self.jumped[r.topic_partition], until_offset=r.from_offset)
            for r in self.load.ranges
            if r.topic_partition in lost
        )

    @property
    def allowed(self) -> int | None:
        """As `records_allowed`; None where no policy bounds the batch."""
        rate = self.why.rate
        return None if rate is None else records_allowed(rate.records, self.load.ranges, self.why.decisions)

"""The order that a load carries out, and its answer: values that travel by file or message, never by argv.

`LoadJob` is everything one bounded Spark job needs; `LoadResult` is what it hands back. Both sides of spark-submit and of
Spark Connect use them, so the two ways of running a job cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from tidegate.core.announce.hours import Span
from tidegate.core.config.pipeline import Dedupe, Identity, Split
from tidegate.core.errors import RequestError
from tidegate.core.load.receipt import LoadId, Observed, Receipt
from tidegate.core.offsets.isolation import ISOLATION_LEVELS
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition
from tidegate.core.state.codec import Shape
from tidegate.core.state.cursor import POSITIONS, SPAN, Positions
from tidegate.core.state.fields import LATER, MAPPING, OFFSETS, RANGES, TUPLE, fields_from_json, fields_to_json, form, optional

IDENTITIES = get_args(Identity)
"""What a row is known by: the record it came from, or, where the transform aggregates, the batch that made it."""
COLD_S = 120
"""Seconds for which a Spark application counts as cold: its first loads take longer, since it loads and compiles its code."""


SPLIT = optional(form(Split.to_json, lambda limits: Split(**limits)))
DEDUPE = optional(form(Dedupe.to_json, Dedupe.from_json))


@dataclass(frozen=True, slots=True)
class LoadJob:
    """One bounded job: read `ranges`, apply `transform`, replace exactly those rows in `table`.

    `kafka_options` are Java client names with the prefix `kafka.`, as Spark's source takes them; they may hold secrets, so
    `repr` leaves them out and a file that holds them is readable by its owner only.
    `transform` is `module:function`, importable from the folder `spark_jobs`.
    `redo` asks for a write even where the sink already holds this batch's receipt (somebody cleared the task on purpose).
    `split` cuts large partitions into several Spark tasks; without it each partition is one task.
    `isolation_level` is one of `ISOLATION_LEVELS`; the ranges must end where such a reader can come (the last stable offset,
    or the high watermark). It beats the level in `kafka_options`.
    `contiguous` declares that the topics have no gaps (no transactions, no compaction): the load then fails unless it read as
    many records as the ranges have offsets.
    `topic_ids`, `generation`, `replay` and `others` go into the receipt (`tidegate.core.load.receipt.LoadId`).
    `create` allows the load to create the table; without it a table that is gone is an error, since it held earlier batches.
    `identity` is one of `IDENTITIES`. With `batch` the transform may aggregate: the rows of one batch are replaced as a whole,
    by the column `_batch`. That is `seq`; for a chunk of a replay, whose `seq` is the chunk's number, it is `batch`.
    `shared_with` are the other pipelines that may write into the table; a table of any other is refused.
    `attempt` is what the receipt is known by (`LoadId.attempt`), for whoever looks for it when the answer is lost; it has to be
    new for each run of the job. None: the load makes one up.
    `dedupe` says which records are repeats, and left out; `look_back` is the offset from which each partition is read to find
    them (`tidegate.core.load.repeats.look_back`).
    `hours` is from when until when (epoch ms) the load looks at which hours its records are of; None: it does not look.

    Raises:
        RequestError: the isolation level is none of Kafka's; the identity is none there is; a chunk of a replay does not say
            which batch it replaces, or anything else says so; repeats are left out, and a range has no look-back.
    """

    pipeline: str
    seq: int
    run_id: str
    ranges: tuple[OffsetRange, ...] = field(metadata=RANGES)
    transform: str
    table: str
    kafka_options: Mapping[str, str] = field(repr=False, metadata=MAPPING)
    redo: bool = False
    split: Split | None = field(default=None, metadata=SPLIT | LATER)
    isolation_level: str = field(default="read_committed", metadata=LATER)
    contiguous: bool = field(default=False, metadata=LATER)
    topic_ids: Mapping[str, str] = field(default_factory=dict, metadata=MAPPING | LATER)
    generation: int = field(default=0, metadata=LATER)
    replay: str | None = field(default=None, metadata=LATER)
    identity: str = field(default="origin", metadata=LATER)
    batch: int | None = field(default=None, metadata=LATER)
    others: Positions | None = field(default=None, metadata=POSITIONS | LATER)
    create: bool = field(default=True, metadata=LATER)
    shared_with: tuple[str, ...] = field(default=(), metadata=TUPLE | LATER)
    attempt: str | None = field(default=None, metadata=LATER)
    dedupe: Dedupe | None = field(default=None, metadata=DEDUPE | LATER)
    look_back: Mapping[TopicPartition, int] = field(default_factory=dict, metadata=OFFSETS | LATER)
    hours: Span | None = field(default=None, metadata=SPAN | LATER)

    def __post_init__(self) -> None:
        if self.isolation_level not in ISOLATION_LEVELS:
            raise RequestError(
                f"isolation_level: {self.isolation_level!r} is not one of {', '.join(ISOLATION_LEVELS)}",
                fix="Use read_committed unless records of aborted transactions are wanted",
            )
        if self.identity not in IDENTITIES:
            raise RequestError(f"identity: {self.identity!r} is not one of {', '.join(IDENTITIES)}")
        if (self.batch is not None) != (self.identity == "batch" and self.replay is not None):
            raise RequestError(
                "a chunk of a replay, and nothing else, says which batch it replaces where rows are known by their batch",
                fix="Replay batch by batch, each chunk with the number of its batch",
            )
        if self.dedupe is not None and any(self._since(r) > r.from_offset for r in self.ranges):
            raise RequestError("a load that leaves out repeats says where the look-back of each of its ranges begins")

    def _since(self, r: OffsetRange) -> int:
        return self.look_back.get(r.topic_partition, r.until_offset)

    @property
    def looked_through(self) -> tuple[OffsetRange, ...]:
        """The ranges with their look-backs: what is read to find the repeats among the records of the ranges."""
        return tuple(OffsetRange(r.topic, r.partition, self._since(r), r.until_offset) for r in self.ranges if r.count)

    @property
    def batch_replaced(self) -> int | None:
        """The batch whose rows are replaced; None where rows are known by their origin."""
        if self.identity == "origin":
            return None
        return self.seq if self.batch is None else self.batch

    def load_id(self, transform: str, attempt: str) -> LoadId:
        """What the receipt of one write of this job says, by this version of the transform."""
        return LoadId(
            self.pipeline,
            self.seq,
            self.run_id,
            self.ranges,
            transform,
            attempt,
            self.topic_ids,
            self.generation,
            self.replay,
            self.batch_replaced,
            self.others,
            self.dedupe,
        )

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; holds the secrets of `kafka_options`."""
        return fields_to_json(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> LoadJob:
        """The inverse of `to_json`; an order of an older version, without the later fields, gets their defaults.

        Raises:
            StateCorrupt: the value is not what `to_json` makes.
        """
        with Shape("a load's order cannot be read", "Clear the run's load task to write it anew"):
            return fields_from_json(LoadJob, value)


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a load hands back: the receipt found in the sink after the write, what the job saw, and seconds by phase.

    `landed_before` is True when nothing was written because the sink already held this batch.
    Where the job's own answer was lost, the receipt is all that is known: nothing is observed, and the one phase is `submit`,
    from the job's submission to its end.
    `spark_age_s` is how long the Spark application had been running when the load began; None where that is not known.
    """

    receipt: Receipt = field(metadata=form(Receipt.to_json, Receipt.from_json))
    observed: Observed = field(metadata=form(Observed.to_json, Observed.from_json))
    seconds: Mapping[str, float] = field(metadata=MAPPING)
    landed_before: bool = False
    spark_age_s: float | None = field(default=None, metadata=LATER)

    @property
    def cold(self) -> bool:
        """Whether it is known that the load ran while Spark was cold."""
        return self.spark_age_s is not None and self.spark_age_s < COLD_S

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return fields_to_json(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> LoadResult:
        """The inverse of `to_json`.

        Raises:
            StateCorrupt: the value is not what `to_json` makes.
        """
        with Shape("a load's answer cannot be read", "Clear the run's load task"):
            return fields_from_json(LoadResult, value)

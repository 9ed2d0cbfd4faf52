"""What is ordered of Spark, and its answers: a load, and a step of maintenance. They travel by file or message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from tidegate.core.config.layout import Layout
from tidegate.core.config.pipeline import Contract, Maintenance, Pipeline, Quarantine, Split, Step
from tidegate.core.config.sinks import ICEBERG
from tidegate.core.model.errors import RequestError
from tidegate.core.model.fields import MAPPING, OFFSETS, TUPLE, Record, form, held, nested, optional
from tidegate.core.model.hours import Span
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.model.watermarks import ISOLATION_LEVELS
from tidegate.core.state.cursor import SPAN
from tidegate.core.state.receipt import Load, Observed, Receipt

COLD_S = 120
"""Seconds for which a Spark application counts as cold: its first loads take longer, since it loads and compiles its code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a load reads its records.

    `kafka_options` are Java client names with the prefix `kafka.`, as Spark's source takes them; they may hold secrets, so
    `repr` leaves them out and a file that holds them is readable by its owner only.
    `isolation_level` is one of `ISOLATION_LEVELS`; the ranges must end where such a reader can come (the last stable offset,
    or the high watermark). It beats the level in `kafka_options`.
    `contiguous` declares that the topics have no gaps (no transactions, no compaction): the load then fails unless it read as
    many records as the ranges have offsets.
    `split` cuts large partitions into several Spark tasks; without it each partition is one task.
    `look_back` is the offset from which each partition is read to find repeats (`tidegate.core.load.repeats.look_back`).
    `hours` is from when until when (epoch ms) the load looks at which hours its records are of; None: it does not look.

    Raises RequestError: the isolation level is none of Kafka's.
    """

    kafka_options: Mapping[str, str] = field(repr=False, metadata=MAPPING)
    isolation_level: str = "read_committed"
    contiguous: bool = False
    split: Split | None = field(default=None, metadata=optional(nested(Split)))
    look_back: Mapping[TopicPartition, int] = field(default_factory=dict, metadata=OFFSETS)
    hours: Span | None = field(default=None, metadata=SPAN)

    def __post_init__(self) -> None:
        if self.isolation_level not in ISOLATION_LEVELS:
            raise RequestError(
                f"isolation_level: {self.isolation_level!r} is not one of {', '.join(ISOLATION_LEVELS)}",
                fix="Use read_committed unless records of aborted transactions are wanted",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob(Record):
    """One bounded job: read the ranges of `load`, apply `transform`, replace exactly those rows in `table`, of the kind `sink`.

    `transform` is `module:function`, importable from the folder `spark_jobs`. With a `load.batch` it may aggregate: the rows of
    that batch are replaced as a whole, by the column `_batch`.
    `redo` asks for a write even where the sink already holds this load's receipt (somebody cleared the task on purpose).
    `attempt` is what the receipt is known by (`Write.attempt`), for whoever looks for it when the answer is lost; it has to be
    new for each run of the job. None: the load makes one up.
    `create` allows the load to create the table; without it a table that is gone is an error, since it held earlier batches.
    `layout` is how a table that the load creates is laid out, `contract` what becomes of columns that a table has otherwise.
    `quarantine` is where rejected records go, with the name of its table; None: they stay among the rows.
    `shared_with` are the other pipelines that may write into the table; a table of any other is refused.
    `formerly` are the names that the pipeline had when it loaded into the table.
    `refused` is the error (JSON-ready) that keeps the job from reading: it fails of it, unless it has landed before.

    Raises RequestError: repeats are left out, and a range has no look-back.
    """

    UNREADABLE = ("a load's order cannot be read", "Clear the run's load task and the tasks after it")

    load: Load = field(metadata=held(Load))
    transform: str
    table: str
    reading: Reading = field(metadata=held(Reading))
    redo: bool = False
    attempt: str | None = None
    create: bool = True
    sink: str = ICEBERG.name
    layout: Layout = field(default=Layout(), metadata=nested(Layout))
    contract: Contract = field(default=Contract(), metadata=nested(Contract))
    quarantine: Quarantine | None = field(default=None, metadata=optional(nested(Quarantine)))
    shared_with: tuple[str, ...] = field(default=(), metadata=TUPLE)
    formerly: tuple[str, ...] = field(default=(), metadata=TUPLE)
    refused: dict[str, Any] | None = field(default=None, metadata=optional(MAPPING))

    def __post_init__(self) -> None:
        if self.load.dedupe is not None and any(self._since(r) > r.from_offset for r in self.load.ranges):
            raise RequestError("deduplication needs the start of the look-back of each range")

    def _since(self, r: OffsetRange) -> int:
        return self.reading.look_back.get(r.topic_partition, r.until_offset)

    @staticmethod
    def of(pipeline: Pipeline, load: Load, reading: Reading, *, table: str, **what: Any) -> LoadJob:
        """The job of a load into a table, with what its pipeline says of every load; `what` are further fields."""
        sink = pipeline.sink
        return LoadJob(
            load=load,
            reading=reading,
            table=table,
            sink=sink.kind,
            layout=sink.layout,
            contract=pipeline.contract,
            quarantine=pipeline.quarantined(table),
            shared_with=sink.shared_with,
            **what,
        )

    @property
    def quarantined(self) -> str:
        """The table of rejected records, of a job that has a quarantine."""
        return str(self.quarantine and self.quarantine.table)

    @property
    def names(self) -> tuple[str, ...]:
        """Whose receipts are the pipeline's own."""
        return (self.load.pipeline, *self.formerly)

    @property
    def looked_through(self) -> tuple[OffsetRange, ...]:
        """The ranges with their look-backs: what is read to find the repeats among the records of the ranges."""
        return tuple(replace(r, from_offset=self._since(r)) for r in self.load.nonempty)


@dataclass(frozen=True, slots=True)
class LoadResult(Record):
    """What a load hands back: the receipt found in the sink after the write, what the job saw, and seconds by phase.

    `landed_before` is True when nothing was written because the sink already held this batch.
    Where the job's own answer was lost, the receipt is all that is known: nothing is observed, and the one phase is `submit`,
    from the job's submission to its end.
    `spark_age_s` is how long the Spark application had been running when the load began; None where that is not known.
    """

    UNREADABLE = ("a load's answer cannot be read", "Clear the run's load task and the tasks after it")

    receipt: Receipt = field(metadata=nested(Receipt))
    observed: Observed = field(metadata=form(Observed.to_json, Observed.from_json))
    seconds: Mapping[str, float] = field(metadata=MAPPING)
    _: KW_ONLY
    landed_before: bool = False
    spark_age_s: float | None = None

    @property
    def cold(self) -> bool:
        """Whether it is known that the load ran while Spark was cold."""
        return self.spark_age_s is not None and self.spark_age_s < COLD_S


@dataclass(frozen=True, slots=True)
class MaintenanceJob(Record):
    """One step of the maintenance of a table, of the kind `sink`.

    `compact` merges small files along the columns that identify rows. `expire` keeps the commits of old snapshots, with their
    receipts, in the table of commits, and then removes the snapshots. `remove_orphans` removes files that no snapshot names.
    `now_ms` is the time (epoch ms) that ages are counted from. `quarantine` is the table of its rejected records, if there is
    one, which the step is done for as well.
    """

    UNREADABLE = ("an order of maintenance cannot be read", "Clear the task to write it anew")

    pipeline: str
    table: str
    step: Step
    _: KW_ONLY
    now_ms: int
    sink: str = ICEBERG.name
    maintenance: Maintenance = field(default=Maintenance(), metadata=nested(Maintenance))
    quarantine: str | None = None


@dataclass(frozen=True, slots=True)
class Maintained(Record):
    """What one step did: what it counted, by name, and what has to be known beside that."""

    UNREADABLE = ("an answer of maintenance cannot be read", "Clear the task to run it again")

    step: Step
    counts: Mapping[str, int] = field(default_factory=dict, metadata=MAPPING)
    warning: str | None = None

    def __str__(self) -> str:
        """One line."""
        counted = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in self.counts.items())
        return f"{self.step}: {counted}" + (f". {self.warning}" if self.warning else "")

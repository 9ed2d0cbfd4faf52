"""What a pipeline file holds: one dataclass field for each setting, with its type, default, rule and documentation.

Validation (`parse`), the JSON Schema (`schema`) and docs/settings.md (`reference`) are all made from these fields.

Pure: the standard library only.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from tidegate.core.announce.hours import PERIODS, Every
from tidegate.core.config import values
from tidegate.core.config.lag_schedule import LagSchedule, NoRunThatSkips
from tidegate.core.config.maintenance import Maintenance
from tidegate.core.config.model import ExactlyOne, NotAbove, Relation, Requires, section, setting
from tidegate.core.config.names import MAINTAIN_DAG, REPLAY_DAG
from tidegate.core.config.rate_settings import BoundWithinLimits, SettingsOfPolicy
from tidegate.core.config.rules import FLAG, choice
from tidegate.core.config.schedules import shortest_gap_s
from tidegate.core.config.sinks import ICEBERG, FitsSink, SinkKind
from tidegate.core.config.times import Start
from tidegate.core.offsets.isolation import IsolationLevel
from tidegate.core.offsets.splitting import check_limits
from tidegate.core.rates.aiming import AimingPolicy
from tidegate.core.rates.control import RateControl
from tidegate.core.receivers.records import IDEMPOTENCY_KEY

USUAL_INTERVAL_S = 60.0
"""Seconds between two runs of a pipeline whose schedule has no fixed times."""

OnDeleted = Literal["stop", "retire"]
PolicyName = Literal["static", "pid", "fixed_point", "target"]
Identity = Literal["origin", "batch"]
RowsPerRecord = Literal["one", "any"]


@dataclass(frozen=True)
class Source:
    """Where the records come from: exactly one of `topics`, `pattern` and `assign`."""

    topics: tuple[str, ...] | None = setting(values.TOPICS, "Topics to read, with all their partitions.", None)
    pattern: str | None = setting(
        values.PATTERN,
        "Regular expression of the topics to read. It must match the whole name. Topics that are created later are included.",
        None,
    )
    exclude: tuple[str, ...] = setting(
        values.PATTERNS, "Regular expressions of topics that are not read although `pattern` matches them.", ()
    )
    assign: Mapping[str, tuple[int, ...]] | None = setting(
        values.ASSIGN, "Partitions to read, by topic. No others are read.", None
    )
    connection: str = setting(
        values.CONNECTION,
        "Airflow connection of the Kafka brokers. Its extra uses the setting names of librdkafka.",
        "kafka_default",
    )
    start: Start = setting(
        values.START,
        "Where the first batch starts. Partitions that are created later start at their earliest offset.",
        "earliest",
    )
    isolation_level: IsolationLevel = setting(
        choice(IsolationLevel),
        "With read_committed, a batch ends before the first open transaction and leaves out the records of aborted ones.",
        "read_committed",
    )
    on_deleted: OnDeleted = setting(
        choice(OnDeleted),
        "What happens when a partition or topic of the cursor is deleted or no longer in this file: "
        "stop fails the run, retire removes it from the cursor.",
        "stop",
    )
    contiguous: bool = setting(
        FLAG,
        "Declares that the topics have no gaps: they are neither compacted nor transactional. "
        "A load then fails unless it reads a record for every offset.",
        False,
    )

    RELATIONS: ClassVar[tuple[Relation, ...]] = (
        ExactlyOne(("topics", "pattern", "assign")),
        Requires({"exclude": "pattern"}),
    )

    def __str__(self) -> str:
        """What is read, in short."""
        if self.assign is not None:
            return ", ".join(f"{topic}{list(partitions)}" for topic, partitions in self.assign.items())
        return ", ".join(self.topics) if self.topics is not None else f"/{self.pattern}/"


@dataclass(frozen=True)
class Limits:
    """How many records a batch takes, and when a run is skipped."""

    max_records: int | None = setting(
        values.POSITIVE,
        "Most records of a batch, divided among the partitions in proportion to their lag. "
        "Without it, a batch takes all records up to the end of the log.",
        None,
    )
    min_records: int | None = setting(values.POSITIVE, "Runs are skipped while fewer records than this are unread.", None)
    max_delay_s: float | None = setting(
        values.SECONDS,
        "Seconds after the last batch was planned from which on a run is not skipped for `min_records`.",
        None,
    )
    max_rate_per_partition: int | None = setting(
        values.POSITIVE,
        "Most records per second of each partition. A batch takes at most this rate times `interval_s`.",
        None,
    )
    min_rate_per_partition: int = setting(
        values.POSITIVE,
        "Records of each partition that a batch may take in any case, even beyond `max_rate_per_partition`.",
        1,
    )
    interval_s: float | None = setting(
        values.INTERVAL,
        "Seconds between two runs: a rate is multiplied by it, and with `backpressure` a run fits into it. "
        "The default is the shortest time between two runs of `schedule`, at most a day, or 60 where it has no fixed times.",
        None,
    )
    max_bytes: int | None = setting(
        values.POSITIVE, "Most bytes of a batch, estimated from the mean record size of the last batch.", None
    )

    RELATIONS: ClassVar[tuple[Relation, ...]] = (Requires({"max_delay_s": "min_records"}),)


@dataclass(frozen=True)
class Backpressure:
    """Which policy decides how many records a batch may hold, and its settings."""

    policy: PolicyName = setting(
        choice(PolicyName),
        "How the bound of a batch is found. static: it is max_records. pid: by Spark's PIDRateEstimator. "
        "fixed_point: what the speed of the last batch loads in the target time. "
        "target: the same, with the overhead of a run estimated as well.",
        "static",
    )
    max_records: int | None = setting(values.RECORDS, "static: the bound. Without it, there is none.", None)
    initial_rate: float | None = setting(
        values.RATE, "pid: records per second of the first batch. The default is 1000, or `min_rate` if that is higher.", None
    )
    min_rate: float | None = setting(
        values.RATE,
        "pid: the least records per second that it may decide. The default is 100, or `initial_rate` if that is lower.",
        None,
    )
    proportional: float | None = setting(values.GAIN, "pid: gain of the last error. The default is 1.", None)
    integral: float | None = setting(values.GAIN, "pid: gain of the scheduling delay. The default is 0.2.", None)
    derivative: float | None = setting(values.GAIN, "pid: gain of the error's change. The default is 0.", None)
    utilization: float | None = setting(
        values.SHARE, "fixed_point and target: share of the interval that a full run takes. The default is 0.9.", None
    )
    initial_records: int | None = setting(
        values.RECORDS,
        "fixed_point and target: the first bound. The default is 1000 records for each second of the interval.",
        None,
    )

    RELATIONS: ClassVar[tuple[Relation, ...]] = (SettingsOfPolicy(),)

    @property
    def settings(self) -> dict[str, Any]:
        """The policy and what is set of its settings, as `make_rate_policy` takes them."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Split:
    """How a run is cut into Spark tasks, so that a large partition does not keep one core busy alone.

    Spark does the arithmetic, which is that of `tidegate.core.offsets.splitting.split_ranges`.

    Raises:
        RequestError: a limit is not a whole number of at least 1.
    """

    min_partitions: int | None = setting(values.POSITIVE, "Minimum number of Spark tasks of a load, approximately.", None)
    max_records_per_partition: int | None = setting(values.POSITIVE, "Most offsets of one Spark task.", None)

    def __post_init__(self) -> None:
        check_limits(**self.to_json())

    def to_json(self) -> dict[str, int | None]:
        """JSON-ready."""
        limits: dict[str, int | None] = asdict(self)
        return limits


@dataclass(frozen=True)
class Dedupe:
    """Which records are repeats of earlier ones, and are left out (`tidegate.core.load.repeats`)."""

    window: int = setting(
        values.OFFSETS,
        "A record is left out if an earlier record of its partition, at most this many offsets before it, has the same key. "
        "Each load reads so many offsets of each partition in addition.",
    )
    key: str = setting(
        values.RECORD_HEADER,
        "Record header that holds the key. A record without it, or with an empty one, is never left out.",
        IDEMPOTENCY_KEY,
    )

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Dedupe:
        """The inverse of `to_json`.

        Raises:
            KeyError, ValueError, TypeError: the value has another shape.
        """
        return Dedupe(int(value["window"]), str(value["key"]))


@dataclass(frozen=True)
class Announce:
    """Which events tell other DAGs that an hour, or a day, of the records' timestamps is complete, or has changed.

    Durations are in seconds here, whatever the file writes.
    """

    every: Every = setting(choice(Every), "What is announced: each hour, or each day (UTC).", "hour")
    grace: float = setting(
        values.GRACE,
        "How long after its timestamp a record may be written to Kafka. An hour that no later record completes is complete so "
        "long after its end.",
        900,
    )

    @property
    def period_ms(self) -> int:
        """The length of what is announced, ms."""
        return PERIODS[self.every]

    @property
    def grace_ms(self) -> int:
        """`grace` in ms."""
        return int(self.grace * 1000)


@dataclass(frozen=True)
class Sink:
    """Where the rows go."""

    kind: ClassVar[SinkKind] = ICEBERG
    table: str = setting(values.TABLE_NAME, "Iceberg table, with its Spark catalog and namespace.")
    pool: str | None = setting(
        values.POOL_NAME,
        "Airflow pool of the loads into this table. The default is `tidegate_` and the table's name, with _ for each dot.",
        None,
    )
    slots: int = setting(values.SLOTS, "Slots of the pool: the number of loads into this table at the same time.", 4)
    shared_with: tuple[str, ...] = setting(
        values.OTHER_PIPELINES,
        "Other pipelines that write into this table, from other topics or partitions. "
        "Without it, the table belongs to this pipeline alone.",
        (),
    )


@dataclass(frozen=True)
class Replay:
    """Tables and transforms that a replay may use in addition to the pipeline's own."""

    tables: tuple[str, ...] = setting(
        values.TABLES,
        "Further tables that a replay may write into. "
        "The sink's table, and tables whose names begin with its name and `_trial`, are always allowed.",
        (),
    )
    transforms: tuple[str, ...] = setting(
        values.FUNCTIONS, "Further transforms that a replay may use, such as the next version.", ()
    )


@dataclass(frozen=True)
class Spark:
    """Which Spark runs the loads."""

    connection: str = setting(
        values.CONNECTION,
        "Airflow connection of Spark. With type spark_connect, loads run in a running Spark Connect server; "
        "with type spark, each load is submitted by spark-submit.",
        "spark_connect_default",
    )
    cores: int | None = setting(
        values.CORES,
        "Cores of each executor (spark-submit), or of the Spark Connect server. With it, a load has as many Spark tasks as its "
        "records are worth, unless `split` says otherwise.",
        None,
    )
    min_executors: int | None = setting(values.EXECUTORS, "spark-submit: least executors of a load. The default is 1.", None)
    max_executors: int | None = setting(
        values.EXECUTORS,
        "spark-submit: most executors of a load. With it, a load gets as many as its records need to fit into the interval, "
        "by what earlier batches took.",
        None,
    )

    RELATIONS: ClassVar[tuple[Relation, ...]] = (
        Requires({"min_executors": "max_executors"}),
        NotAbove("min_executors", "max_executors"),
    )


@dataclass(frozen=True)
class Pipeline:
    """One pipeline: topics, a transform, a table, a schedule. The file's name is the pipeline's and the DAG's name."""

    name: str
    source: Source = section(Source, "Where the records come from: exactly one of topics, pattern and assign.", required=True)
    transform: str = setting(values.FUNCTION, "Function in spark_jobs, DataFrame -> DataFrame, that makes rows of records.")
    sink: Sink = section(Sink, "Where the rows go: the table.", required=True)
    rows_per_record: RowsPerRecord = setting(
        choice(RowsPerRecord),
        "Rows that the transform makes of a record: exactly one, or any number. "
        "With one, `tidegate ledger verify` checks every offset.",
        "one",
    )
    description: str = setting(values.DESCRIPTION, "Description of the DAG in the Airflow UI.", "")
    schedule: str | LagSchedule | None = setting(
        values.SCHEDULE,
        "When runs start: at times, or when there is something to read. Without it, runs start only when they are triggered.",
        None,
        mapping=LagSchedule,
    )
    tags: tuple[str, ...] = setting(values.TAGS, "Tags of the DAG in the Airflow UI, in addition to `tidegate`.", ())
    catch_up: bool = setting(
        FLAG,
        "Starts the next run as soon as a run has ended that left records behind, until no more wait than one batch takes.",
        False,
    )
    limits: Limits = section(Limits, "How many records a batch takes, and when a run is skipped.")
    backpressure: Backpressure = section(Backpressure, "Which policy decides how many records a batch may hold.")
    dedupe: Dedupe | None = setting(
        values.SETTINGS,
        "Leaves out the records that a sender has repeated. Without it, each record is loaded.",
        None,
        mapping=Dedupe,
    )
    announce: Announce | None = setting(
        values.SETTINGS,
        "Announces the hours of the records' timestamps that are complete, and those that late records and replays change, as "
        "partition events of the asset `tidegate/<pipeline>/hours`. Without it, none is announced. "
        "`{}` announces with the defaults.",
        None,
        mapping=Announce,
    )
    split: Split = section(Split, "How a batch is cut into Spark tasks.")
    group: str | None = setting(
        values.GROUP,
        "Consumer group under which lag tools see the pipeline. The default is `tidegate-` and the pipeline's name.",
        None,
    )
    spark: Spark = section(Spark, "Which Spark runs the loads.")
    retries: int = setting(values.RETRIES, "Retries of a task, after errors that a retry can resolve.", 3)
    retry_delay_s: float = setting(values.SECONDS, "Seconds before the first retry. The delay doubles with each retry.", 10)
    wait_s: float = setting(
        values.SECONDS,
        "Seconds that a task waits for servers that do not answer (Kafka, Spark, the catalog) before its try fails.",
        600,
    )
    timeout_s: int | None = setting(
        values.TIMEOUT, "Seconds after which a run fails, whatever it waits for. The next run takes over its range.", None
    )
    identity: Identity = setting(
        choice(Identity),
        "What a row is identified by: the record it was made of (origin), or, for a transform that aggregates, its batch.",
        "origin",
    )
    replay: Replay = section(Replay, "Tables and transforms that a replay may use in addition to the pipeline's own.")
    maintenance: Maintenance | None = setting(
        values.SETTINGS,
        "Merges small files of the table, and expires its old snapshots. Without it, the table is not maintained. "
        "`{}` is maintenance with the defaults.",
        None,
        mapping=Maintenance,
    )
    keep_ranges: int = setting(
        values.POSITIVE, "Saved ranges that are kept as Variables. Older ones remain in the table's snapshots.", 1000
    )

    RELATIONS: ClassVar[tuple[Relation, ...]] = (FitsSink(), BoundWithinLimits(), NoRunThatSkips())

    @property
    def interval_s(self) -> float:
        """Seconds between two runs."""
        return USUAL_INTERVAL_S if self.fixed_interval_s is None else self.fixed_interval_s

    @property
    def fixed_interval_s(self) -> float | None:
        """Seconds between two runs, by the file; None where it fixes none."""
        if self.limits.interval_s is not None or not isinstance(self.schedule, str):
            return self.limits.interval_s
        return shortest_gap_s(self.schedule)

    @property
    def utilization(self) -> float:
        """Share of the interval that a full run is to take."""
        return self.backpressure.utilization or AimingPolicy.utilization

    @property
    def rate_control(self) -> RateControl | None:
        """What bounds a batch by earlier ones; None where nothing does.

        Raises:
            ConfigError: its settings contradict each other; a pipeline that was parsed does not raise it.
        """
        settings = self.backpressure.settings
        return None if settings == {"policy": "static"} else RateControl(settings, self.interval_s)

    @property
    def replay_dag(self) -> str:
        """The DAG that replays this pipeline."""
        return f"{self.name}{REPLAY_DAG}"

    @property
    def maintain_dag(self) -> str:
        """The DAG that maintains this pipeline's table, where the file has `maintenance`."""
        return f"{self.name}{MAINTAIN_DAG}"

    @property
    def hours_asset(self) -> str:
        """The asset whose partition events are the hours, where the file has `announce`. No name of a table has a slash."""
        return f"tidegate/{self.name}/hours"

    @property
    def trials(self) -> str:
        """The prefix of the names of tables that a replay may always write into."""
        return f"{self.sink.table}_trial"

    def writes(self, table: str) -> bool:
        """Whether a run or a replay of this pipeline may write into the table."""
        trial = table.startswith(self.trials) and "." not in table.removeprefix(self.trials)
        return trial or table in (self.sink.table, *self.replay.tables)

    @property
    def pool(self) -> str:
        """The Airflow pool that the loads into this pipeline's sink share."""
        return self.sink.pool or f"tidegate_{self.sink.table.replace('.', '_')}"

    @property
    def consumer_group(self) -> str:
        """The consumer group under which the brokers know how far the pipeline has come."""
        return self.group or f"tidegate-{self.name}"


POOL_DESCRIPTION = "Loads into one Tidegate sink at the same time"


def pool_command(name: str, slots: int) -> str:
    """The Airflow command that makes a sink's pool."""
    return shlex.join(
        ("airflow", "pools", "set", *(["--"] if name.startswith("-") else []), name, str(slots), POOL_DESCRIPTION)
    )

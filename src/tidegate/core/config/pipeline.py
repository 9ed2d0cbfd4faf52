"""What a pipeline file holds: one dataclass field for each setting, with its type, default and documentation.

Validation (`parse`), the JSON Schema (`declared`) and docs/settings.md are all made from these fields.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from typing import Any, ClassVar, Literal

from tidegate.core.config import values
from tidegate.core.config.declared import FileName, OptionalSection, Settings, TakenBy, TextOrSection
from tidegate.core.config.layout import Layout, PartitionField
from tidegate.core.config.names import COMMITS_TABLE, IDEMPOTENCY_KEY, MAINTAIN_DAG, QUARANTINE, REPLAY_DAG, matches
from tidegate.core.config.schedules import DAY_S, mean_gap_s, shortest_gap_s
from tidegate.core.config.sinks import ICEBERG, KINDS
from tidegate.core.config.values import StartOffsets
from tidegate.core.model.counts import check_limits
from tidegate.core.model.errors import ConfigError, did_you_mean
from tidegate.core.model.fields import TUPLE
from tidegate.core.model.hours import PERIODS, Every
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.model.watermarks import IsolationLevel
from tidegate.core.rates.control import RateControl
from tidegate.core.rates.policies import POLICIES, AimingPolicy, make_rate_policy, settings_of

Step = Literal["compact", "expire", "remove_orphans"]
"""What is done to a table, one after the other."""

MIB = 1 << 20
DATA_PATH = "write.data.path"
"""The property of an Iceberg table that says where its data files are."""


@dataclass(frozen=True)
class Maintenance(Settings):
    """When a table is maintained, and what is kept. Durations are in seconds here, whatever the file writes.

    Loads and replays refer to the snapshot that they have looked at, and Iceberg does not tell files that are being written
    from orphans. So the rules of the settings allow nothing to be removed that is younger than a day.
    """

    schedule: values.Times | None = None
    """When the table is maintained. Without it, only when triggered."""
    target_file_bytes: values.FileBytes = 128 * MIB
    """Size of merged data files. Files of 75 % to 180 % of it stay as they are."""
    max_files: values.Files = 10_000
    """Most data files that one run merges."""
    _: KW_ONLY
    keep_snapshots: values.Snapshots = 1000
    """Newest snapshots that never expire."""
    keep: values.Age = 5 * DAY_S
    """Younger snapshots never expire."""
    keep_orphans: values.Age | None = None
    """Removes older files of the table's data folder that no snapshot names. Set it only if the folder holds no other table."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """What is done, in this order."""
        return ("compact", "expire") if self.keep_orphans is None else ("compact", "expire", "remove_orphans")


@dataclass(frozen=True)
class LagSchedule(Settings):
    """When a run starts: as soon as one of the two holds. Durations are in seconds here, whatever the file writes."""

    lag: values.Positive | None = None
    """A run starts when at least this many records are unread."""
    max_delay: values.MaxDelay | None = None
    """A run starts when a record has been unread for this long."""
    poll: values.Poll = 5
    """How often the brokers are asked for the ends of the log."""

    SCHEMA: ClassVar = {"anyOf": [{"required": ["lag"]}, {"required": ["max_delay"]}]}

    def faults(self) -> Iterator[tuple[str, str]]:
        """As the base class says."""
        if self.lag is None and self.max_delay is None:
            yield "lag", "expected at least one of lag and max_delay, got none"


STATED_BOUNDS = {"max_records", "initial_records", "initial_rate", "min_rate"}
"""Settings of a policy that state the first bound, or the least."""
USUAL_INTERVAL_S = 60.0
"""Seconds between two runs of a pipeline whose schedule has no fixed times."""

OnDeleted = Literal["stop", "retire"]
PolicyName = Literal["static", "pid", "fixed_point", "target"]
Identity = Literal["origin", "batch"]
RowsPerRecord = Literal["one", "any"]
NewColumns = Literal["evolve", "freeze", "discard"]
OtherTypes = Literal["widen", "freeze", "quarantine"]
MissingValues = Literal["quarantine"] | None


@dataclass(frozen=True)
class Source(Settings):
    """Where the records come from: exactly one of `topics`, `pattern` and `assign`."""

    topics: values.Topics | None = None
    """Topics to read, with all their partitions."""
    pattern: values.Regex | None = None
    """Topics to read, including later ones, by their whole name."""
    exclude: values.Regexes = ()
    """Topics that are not read although `pattern` matches them."""
    _: KW_ONLY
    assign: values.Assign | None = None
    """The only partitions to read, by topic."""
    connection: values.Connection = "kafka_default"
    """Airflow connection of the brokers."""
    start: values.FirstOffsets = "earliest"
    """Where the first batch starts, and a topic that is added to the file. New partitions, and later matches of `pattern`,
    start at the earliest offset."""
    isolation_level: IsolationLevel = "read_committed"
    """With read_committed, a batch ends before the first open transaction and leaves out aborted records."""
    on_deleted: OnDeleted = "stop"
    """If a partition or topic is deleted or left out of this file: stop fails the run, retire removes it from the cursor."""
    contiguous: values.Flag = False
    """The topics are neither compacted nor transactional: a load fails unless it reads every offset."""

    REQUIRES: ClassVar = {"exclude": "pattern"}
    SCHEMA: ClassVar = {"oneOf": [{"required": ["topics"]}, {"required": ["pattern"]}, {"required": ["assign"]}]}

    def faults(self) -> Iterator[tuple[str, str]]:
        """As the base class says."""
        given = [name for name in ("topics", "pattern", "assign") if getattr(self, name) is not None]
        if len(given) != 1:
            holds = f"{len(given)} ({', '.join(given)})" if given else "0"
            yield given[1] if given else "topics", f"expected exactly one of topics, pattern and assign, got {holds}"
        elif isinstance(self.start, StartOffsets):
            for topic in dict.fromkeys(tp.topic for tp in self.start.offsets if not self.reads(tp)):
                hint = "" if self.names(topic) else did_you_mean(topic, self.named)
                yield f"start.offsets.{topic}", f"the pipeline reads only {self}{hint}"

    @property
    def named(self) -> tuple[str, ...]:
        """The topics that the file names; none where it has a pattern."""
        return tuple(self.topics or self.assign or ())

    def names(self, topic: str) -> bool:
        """Whether the topic is one of those that are read."""
        return topic in self.named if self.pattern is None else matches(topic, self.pattern, self.exclude)

    def reads(self, tp: TopicPartition) -> bool:
        """Whether the partition is one of those that are read."""
        return self.names(tp.topic) and (self.assign is None or tp.partition in self.assign[tp.topic])

    def __str__(self) -> str:
        """What is read, in short."""
        if self.assign is not None:
            return ", ".join(f"{topic}{list(partitions)}" for topic, partitions in self.assign.items())
        return ", ".join(self.topics) if self.topics is not None else f"/{self.pattern}/"


@dataclass(frozen=True)
class Limits(Settings):
    """How many records a batch takes, and when a run is skipped."""

    max_records: values.Positive | None = None
    """Most records of a batch, shared by the partitions in proportion to their lag."""
    min_records: values.Positive | None = None
    """Runs are skipped while fewer records are unread."""
    max_delay_s: values.Seconds | None = None
    """Seconds since the last plan after which `min_records` no longer skips runs."""
    _: KW_ONLY
    max_rate_per_partition: values.Positive | None = None
    """Most records per second of `interval_s` that a batch takes of each partition."""
    min_rate_per_partition: values.Positive = 1
    """Records of each partition that a batch may take in any case."""
    interval_s: values.Interval | None = None
    """Seconds between two runs, for rates and `backpressure`. The default is the shortest time between runs of `schedule`, at
    most a day, or 60 without fixed times."""
    max_bytes: values.Positive | None = None
    """Most bytes of a batch, by the mean record size of the last batch."""

    REQUIRES: ClassVar = {"max_delay_s": "min_records"}


@dataclass(frozen=True)
class Backpressure(Settings):
    """Which policy decides how many records a batch may hold, and its settings."""

    policy: PolicyName = "static"
    """How a batch is bounded. static: by max_records. pid: as by Spark's PIDRateEstimator. fixed_point: by the last batch's
    speed. target: by a run's speed and overhead."""
    max_records: values.Records | None = None
    """static: the bound; none by default."""
    _: KW_ONLY
    initial_rate: values.Rate | None = None
    """pid: records per second of the first batch. By default 1000, or `min_rate` if higher."""
    min_rate: values.Rate | None = None
    """pid: least records per second. By default 100, or `initial_rate` if lower."""
    proportional: values.Gain | None = None
    """pid: gain of the last error, 1 by default."""
    integral: values.Gain | None = None
    """pid: gain of the scheduling delay, 0.2 by default."""
    derivative: values.Gain | None = None
    """pid: gain of the error's change, 0 by default."""
    utilization: values.Share | None = None
    """fixed_point and target: share of the interval that a full run takes, 0.9 by default."""
    initial_records: values.Records | None = None
    """fixed_point and target: the first bound, 1000 records per second by default."""

    TAKEN: ClassVar = TakenBy("policy", {name: settings_of(name) for name in POLICIES}, usual="static")

    def faults(self) -> Iterator[tuple[str, str]]:
        """As the base class says: what the policy itself says."""
        own = {"policy", *settings_of(self.policy)}
        try:
            make_rate_policy({name: value for name, value in self.settings.items() if name in own}, interval_s=USUAL_INTERVAL_S)
        except ConfigError as error:
            yield "", str(error)

    @property
    def settings(self) -> dict[str, Any]:
        """The policy and what is set of its settings, as `make_rate_policy` takes them."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Split(Settings):
    """How a run is cut into Spark tasks, so that a large partition does not keep one core busy alone.

    Spark does the arithmetic, which is that of `tidegate.core.model.splitting.split_ranges`.

    Raises RequestError: a limit is not a whole number of at least 1.
    """

    min_partitions: values.Positive | None = None
    """Minimum number of Spark tasks of a load, approximately."""
    max_records_per_partition: values.Positive | None = None
    """Most offsets of one Spark task."""

    def __post_init__(self) -> None:
        check_limits(asdict(self))


@dataclass(frozen=True)
class Dedupe(Settings):
    """Which records are repeats of earlier ones, and are left out (`tidegate.core.load.repeats`)."""

    window: values.Offsets
    """Offsets to look back: a record is left out if one within them has the same key."""
    key: values.RecordHeader = IDEMPOTENCY_KEY
    """Record header with the key. A record without a key is never left out."""


@dataclass(frozen=True)
class Announce(Settings):
    """Which events tell other DAGs that an hour, or a day, of the records' timestamps is complete, or has changed.

    Durations are in seconds here, whatever the file writes.
    """

    every: Every = "hour"
    """Each hour, or each day (UTC)."""
    grace: values.Grace = 900
    """How long after its timestamp a record may be written to Kafka."""

    @property
    def period_ms(self) -> int:
        """The length of what is announced, ms."""
        return PERIODS[self.every]

    @property
    def grace_ms(self) -> int:
        """`grace` in ms."""
        return int(self.grace * 1000)


@dataclass(frozen=True)
class Sink(Settings):
    """Where the rows go."""

    table: values.Table
    """Iceberg table, with its Spark catalog and namespace."""
    pool: values.Pool | None = None
    """Airflow pool of the loads; by default `tidegate_` and the table's name, with _ for each dot."""
    slots: values.Slots = 1
    """Slots of the pool: simultaneous loads into this table. With more than one, a load writes again if another commits
    first."""
    _: KW_ONLY
    shared_with: values.PipelineNames = ()
    """Other pipelines that write into this table, from other topics or partitions."""
    kind: values.SinkName = ICEBERG.name
    """Kind of the table."""
    partition_by: values.PartitionBy = ()
    """Partition fields of a new table, before those of the records' topic and partition."""
    sort_by: values.SortBy = ()
    """Order of the rows within a data file of a new table."""
    properties: values.TableProperties = field(default_factory=dict)
    """Further properties of a new table."""
    format_version: values.FormatVersion = 2
    """Version of Iceberg's format of a new table."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """As the base class says."""
        columns = [PartitionField.parse(text).column.lower() for text in self.partition_by]
        for column in sorted({one for one in columns if columns.count(one) > 1}):
            yield "partition_by", f"{column} is in two fields, and a table has one for a column; remove the other"

    @property
    def layout(self) -> Layout:
        """How a new table is laid out."""
        return Layout(
            partition_by=self.partition_by, sort_by=self.sort_by, properties=self.properties, format_version=self.format_version
        )


@dataclass(frozen=True)
class Contract(Settings):
    """What a load does where the transform makes other columns than the table has."""

    columns: NewColumns = "evolve"
    """Columns that the table does not have. evolve: they are added. freeze: the load fails. discard: they are not written."""
    types: OtherTypes = "widen"
    """Wider types, and required columns that the transform does not make. widen: the table's column takes them. freeze: the
    load fails. quarantine: records with numbers that do not fit the table's types are rejected."""
    missing: MissingValues = None
    """quarantine: records without a value in a column that the table requires (NOT NULL) are rejected."""

    @property
    def rejects(self) -> bool:
        """Whether records that do not fit are rejected."""
        return "quarantine" in (self.types, self.missing)


@dataclass(frozen=True)
class Quarantine(Settings):
    """Where the records of a load go that are rejected, with their bytes and the reason."""

    table: values.Table | None = None
    """Table of the rejected records; by default, and for a replay into another table, `<table>_quarantine`."""
    budget: values.Budget = 1.0
    """Share of a load's offsets that may be rejected. Beyond it, the load fails before it writes."""
    on: values.RejectedBy = field(default=("decode", "contract", "transform"), metadata=TUPLE)
    """What rejects records. decode: the format's `_error`, which the table then does not have. contract: what `contract` says.
    transform: its `reject`."""


@dataclass(frozen=True)
class Replay(Settings):
    """Tables and transforms that a replay may use in addition to the pipeline's own."""

    tables: values.Tables = ()
    """Tables that replays may write into, beside the sink's and `<table>_trial…`."""
    transforms: values.Functions = ()
    """Transforms that replays may use, beside the pipeline's."""


@dataclass(frozen=True)
class Spark(Settings):
    """Which Spark runs the loads."""

    connection: values.Connection = "spark_connect_default"
    """Airflow connection of Spark: type spark_connect for a Spark Connect server, type spark for spark-submit."""
    cores: values.Cores | None = None
    """Cores of an executor (spark-submit), or of the Spark Connect server. With it, the number of Spark tasks follows the
    records, unless `split` is set."""
    min_executors: values.Executors | None = None
    """spark-submit: least executors of a load, 1 by default."""
    _: KW_ONLY
    max_executors: values.Executors | None = None
    """spark-submit: most executors of a load, which gets as many as fit it into the interval."""

    REQUIRES: ClassVar = {"min_executors": "max_executors"}

    def faults(self) -> Iterator[tuple[str, str]]:
        """As the base class says."""
        least, most = self.min_executors, self.max_executors
        if least is not None and most is not None and least > most:
            yield "min_executors", f"{least} is above max_executors {most}; lower it, or raise the other"


@dataclass(frozen=True)
class Pipeline(Settings):
    """One pipeline: topics, a transform, a table, a schedule. The file's name is the pipeline's and the DAG's name."""

    name: FileName
    source: Source
    transform: values.Function
    """Function in spark_jobs, DataFrame -> DataFrame."""
    _: KW_ONLY
    sink: Sink
    rows_per_record: RowsPerRecord = "one"
    """Rows of a record. With one, `tidegate ledger verify` checks every offset."""
    description: values.Description = ""
    """Description of the DAG in the Airflow UI."""
    schedule: TextOrSection[values.Schedule, LagSchedule] | None = None
    """When runs start: at times, or by lag. Without it, only when triggered."""
    tags: values.Tags = ()
    """Further tags of the DAG in the Airflow UI."""
    owner: values.Owner | None = None
    """Owner of its tasks in the Airflow UI."""
    catch_up: values.Flag = False
    """Starts the next run at once after a run that left records behind."""
    limits: Limits = field(default_factory=Limits)
    backpressure: Backpressure = field(default_factory=Backpressure)
    dedupe: OptionalSection[Dedupe] = None
    """Leaves out records that a sender has repeated."""
    announce: OptionalSection[Announce] = None
    """Announces complete and changed hours as partition events of the asset `tidegate/<pipeline>/hours`."""
    split: Split = field(default_factory=Split)
    group: values.Group | None = None
    """Consumer group for lag tools; by default `tidegate-<pipeline>`."""
    spark: Spark = field(default_factory=Spark)
    retries: values.Retries = 3
    """Retries of a task, where one can help."""
    retry_delay_s: values.Seconds = 10
    """Seconds before the first retry; doubles with each retry."""
    wait_s: values.Seconds = 600
    """Seconds that a try waits for servers that do not answer."""
    timeout_s: values.Timeout | None = None
    """Seconds after which a run fails; each load fails after a day."""
    identity: Identity = "origin"
    """What identifies a row: its record (origin), or, for transforms that aggregate, its batch."""
    contract: Contract = field(default_factory=Contract)
    quarantine: OptionalSection[Quarantine] = None
    """Keeps rejected records in a table of their own."""
    replay: Replay = field(default_factory=Replay)
    maintenance: OptionalSection[Maintenance] = None
    """Merges small files of the table, and expires its old snapshots."""
    keep_ranges: values.Positive = 1000
    """Saved ranges that are kept as Variables."""

    SCHEMA: ClassVar = {
        "not": {
            "required": ["schedule", "limits"],
            "properties": {"schedule": {"type": "object"}, "limits": {"required": ["min_records"]}},
        }
    }

    def faults(self) -> Iterator[tuple[str, str]]:
        """As the base class says."""
        unfit, control, most = KINDS[self.sink.kind].fault(self.identity), self.rate_control, self.limits.max_records
        if unfit:
            yield "sink", unfit
        stated = control is not None and STATED_BOUNDS & control.settings.keys()
        first = control.bound({}) if control is not None and stated else None
        if most is not None and first is not None and first.records > most:
            bound = f"its first bound of {first.records} records"
            yield "backpressure", f"{bound} is above limits.max_records {most}; lower one"
        if self.quarantine is not None and self.identity == "batch":
            yield "quarantine", "rows of `identity: batch` are made of many records, none of which can be rejected; remove it"
        if self.contract.rejects and (self.quarantine is None or "contract" not in self.quarantine.on):
            how = "add `quarantine: {}`" if self.quarantine is None else "add contract to quarantine.on"
            yield "contract", f"records that it rejects go to a quarantine; {how}"
        aside = self.quarantine_table
        if aside and (self.writes(aside) or aside.lower() == f"{self.sink.table}{COMMITS_TABLE}".lower()):
            yield "quarantine.table", f"{aside} is a table of rows or of commits; choose another one"
        if self.maintenance is not None and self.maintenance.keep_orphans is not None and DATA_PATH in self.sink.properties:
            why = f"tables of replays have their files in {DATA_PATH} of sink.properties, too, where they look like orphans"
            yield "maintenance.keep_orphans", f"{why}; leave it out"
        if isinstance(self.schedule, LagSchedule) and self.limits.min_records is not None:
            why = "would skip runs that schedule starts for what is unread"
            yield "limits.min_records", f"{why}; remove it, and set schedule.lag"

    @property
    def interval_s(self) -> float:
        """Seconds between two runs."""
        return USUAL_INTERVAL_S if self.fixed_interval_s is None else self.fixed_interval_s

    @property
    def fixed_interval_s(self) -> float | None:
        """The fewest seconds between two runs, by the file; None where it fixes none."""
        return self._interval_s(shortest_gap_s)

    @property
    def mean_interval_s(self) -> float | None:
        """The same on average, by the file; None where a day may have none of its runs."""
        return self._interval_s(mean_gap_s)

    def _interval_s(self, of_schedule: Callable[[str], float | None]) -> float | None:
        stated = self.limits.interval_s
        return of_schedule(self.schedule) if stated is None and isinstance(self.schedule, str) else stated

    @property
    def utilization(self) -> float:
        """Share of the interval that a full run is to take."""
        return self.backpressure.utilization or AimingPolicy.utilization

    @property
    def rate_control(self) -> RateControl | None:
        """What bounds a batch by earlier ones; None where nothing does.

        Raises ConfigError: its settings contradict each other; a pipeline that was parsed does not raise it.
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

    def quarantined(self, table: str) -> Quarantine | None:
        """Where records go that a load into the table rejects, with the name of that table; None: they stay among the rows."""
        if self.quarantine is None:
            return None
        named = self.quarantine.table if table == self.sink.table else None
        return replace(self.quarantine, table=named or f"{table}{QUARANTINE}")

    @property
    def quarantine_table(self) -> str | None:
        """The table of the records that loads into the sink's table reject; None where there is none."""
        aside = self.quarantined(self.sink.table)
        return None if aside is None else aside.table

    @property
    def pool(self) -> str:
        """The Airflow pool that the loads into this pipeline's sink share."""
        return self.sink.pool or f"tidegate_{self.sink.table.replace('.', '_')}"

    @property
    def consumer_group(self) -> str:
        """The consumer group under which the brokers know how far the pipeline has come."""
        return self.group or f"tidegate-{self.name}"


POOL_DESCRIPTION = "Loads into one Tidegate sink at the same time"


def pool_command(name: str, slots: int, description: str = POOL_DESCRIPTION) -> str:
    """The Airflow command that makes a pool: a sink's, unless it is described as another one."""
    return shlex.join(("airflow", "pools", "set", *(["--"] if name.startswith("-") else []), name, str(slots), description))

"""A pipeline's YAML, validated into frozen dataclasses.

Each setting is one dataclass field with one `Rule`: what is accepted, what to say when it is not, and its JSON Schema. The
validator, the schema that editors use and the reference in the docs are all made from these fields, so they cannot disagree.
Every fault of a file is reported at once, as `file: path.to.setting: expected …, got …`. What is accepted here is accepted by
Airflow, Kafka and their databases: one file that they refuse must not stop the others.

Pure: this module takes mappings; reading YAML is the caller's.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import re
import reprlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from datetime import UTC, date, datetime
from typing import Any, ClassVar, Literal, TypeVar, cast

from tidegate.core.config.patterns import ends_soon
from tidegate.core.config.schedules import PRESETS, is_schedule
from tidegate.core.errors import ConfigError, TidegateError
from tidegate.core.offsets.ranges import TopicPartition, offsets_from_json
from tidegate.core.offsets.splitting import check_limits

IsolationLevel = Literal["read_committed", "read_uncommitted"]


@dataclass(frozen=True)
class StartTime:
    """A start that is not an offset yet: the first record at or after a time (epoch ms)."""

    timestamp_ms: int


@dataclass(frozen=True)
class StartOffsets:
    """A start at explicit offsets; partitions that are not named start at their earliest."""

    offsets: Mapping[TopicPartition, int]


Start = Literal["earliest", "latest"] | StartTime | StartOffsets

# Airflow masks the value of a Variable whose key contains one of these (its `DEFAULT_SENSITIVE_FIELDS`, without those that
# contain another), and a pipeline's name is part of its keys.
MASKED_WORDS = (
    "access_key",
    "api_key",
    "apikey",
    "auth_header",
    "authorization",
    "bearer",
    "connection_string",
    "dsn",
    "keyfile_dict",
    "passphrase",
    "passwd",
    "password",
    "private_key",
    "proxies",
    "proxy",
    "secret",
    "service_account",
    "service_key",
    "token",
    "webhook_url",
)


REPLAY_DAG = "__replay"
"""What follows a pipeline's name in the name of the DAG that replays it."""


@dataclass(frozen=True)
class Rule:
    """What one setting accepts: `expected` in words, `accepts` as a predicate, `schema` as JSON Schema."""

    expected: str
    accepts: Callable[[Any], bool]
    schema: Mapping[str, Any]
    convert: Callable[[Any], Any] = lambda value: value


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _names(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) > 0
        and all(isinstance(v, str) and TOPIC.fullmatch(v) for v in value)
        and len(set(value)) == len(value)
    )


def _matches(pattern: re.Pattern[str]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def _list_of(pattern: re.Pattern[str], expected: str) -> Rule:
    return Rule(
        expected,
        lambda v: isinstance(v, list) and all(map(_matches(pattern), v)) and len(set(v)) == len(v),
        {"type": "array", "items": {"type": "string", "pattern": f"^{pattern.pattern}$"}, "uniqueItems": True},
        tuple,
    )


TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
PIPELINE = re.compile(r"[a-z][a-z0-9_]{0,59}")
TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*){2,}")
TRANSFORM = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*")

# The most that Airflow's columns, Kafka's protocol and a timedelta take.
LONGEST_DAG_TEXT = 1000
LONGEST_GROUP = 255
LONGEST_ID = 250  # of an Airflow connection, and of a module with its function
LONGEST_POOL = 256
LONGEST_TABLE = LONGEST_POOL - len("tidegate_")
LONGEST_TAG = 100
MOST_INT32 = 2**31 - 1
MOST_INT64 = 2**63 - 1
MOST_RETRIES = 1000
MOST_SECONDS = 366 * 24 * 3600
LAST_MS = 253_402_300_799_999  # of the year 9999


def _is_text(value: Any, longest: int, shortest: int = 0) -> bool:
    """A text that every database stores: no NUL, nothing that UTF-8 cannot encode."""
    return (
        isinstance(value, str)
        and shortest <= len(value.strip())
        and len(value) <= longest
        and _STORED.fullmatch(value) is not None
    )


_STORED = re.compile("[^\x00\ud800-\udfff]*")


def _text(expected: str, longest: int, shortest: int = 0) -> Rule:
    schema = {"type": "string", "maxLength": longest, **({"minLength": shortest} if shortest else {})}
    return Rule(f"{expected} of at most {longest} characters", lambda v: _is_text(v, longest, shortest), schema)


def _integer(expected: str, least: int, most: int) -> Rule:
    return Rule(expected, lambda v: _whole(v) and least <= v <= most, {"type": "integer", "minimum": least, "maximum": most})


POSITIVE = Rule("a positive integer", lambda v: _whole(v) and v > 0, {"type": "integer", "minimum": 1})
SLOTS = _integer("a positive integer below 2^31", 1, MOST_INT32)
RETRIES = _integer(f"a whole number, 0 or more and at most {MOST_RETRIES}", 0, MOST_RETRIES)
SECONDS = Rule(
    f"a number of seconds from 0 to {MOST_SECONDS} (366 days)",
    lambda v: isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v) and 0 <= v <= MOST_SECONDS,
    {"type": "number", "minimum": 0, "maximum": MOST_SECONDS},
)
TIMEOUT = _integer(f"a positive integer, at most {MOST_SECONDS} seconds (366 days)", 1, MOST_SECONDS)
DESCRIPTION = _text("a text", LONGEST_DAG_TEXT)
GROUP = _text("the name of a consumer group", LONGEST_GROUP, 1)
CONNECTION = _text("the id of an Airflow connection", LONGEST_ID, 1)
POOL_NAME = Rule(
    f"the name of an Airflow pool of at most {LONGEST_POOL} characters",
    # a name of dots is no part of a URL, by which commands ask for the pool
    lambda v: _is_text(v, LONGEST_POOL, 1) and v not in (".", ".."),
    {"type": "string", "minLength": 1, "maxLength": LONGEST_POOL, "not": {"enum": [".", ".."]}},
)
TAGS = Rule(
    f"a list of texts of 1 to {LONGEST_TAG} characters",
    lambda v: isinstance(v, list) and all(_is_text(t, LONGEST_TAG, 1) for t in v),
    {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": LONGEST_TAG}},
    tuple,
)
TOPICS = Rule(
    "a list of different topic names, such as [orders]",
    _names,
    {"type": "array", "items": {"type": "string", "pattern": f"^{TOPIC.pattern}$"}, "minItems": 1, "uniqueItems": True},
    tuple,
)


def _start(value: Any) -> Start | None:
    """The start that a YAML value means, or None."""
    if value in ("earliest", "latest"):
        return cast("Start", value)
    if not isinstance(value, Mapping) or len(value) != 1:
        return None
    (kind, what), *_ = value.items()
    try:
        if kind == "timestamp":
            at = epoch_ms(what)
            return StartTime(at) if 0 <= at <= LAST_MS else None
        if kind == "offsets":
            offsets = offsets_from_json(what)
            return StartOffsets(offsets) if all(map(_is_position, offsets, offsets.values())) else None
    except (ValueError, TypeError, AttributeError, OverflowError, TidegateError):
        return None
    return None


def _is_position(tp: TopicPartition, offset: int) -> bool:
    return bool(TOPIC.fullmatch(tp.topic)) and tp.partition <= MOST_INT32 and offset <= MOST_INT64


def epoch_ms(value: Any) -> int:
    """A time as epoch ms: already so, or an ISO text, a date or a time of YAML, in UTC unless it says otherwise.

    Raises:
        ValueError, TypeError: it is none of these.
    """
    if _whole(value) and value >= 0:
        return int(value)
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)
    if isinstance(value, date):
        return int(datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp() * 1000)
    raise TypeError(value)


def _is_regex(value: Any) -> bool:
    return _is_text(value, LONGEST_DAG_TEXT, 1) and ends_soon(value)


def _is_assignment(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and bool(value)
        and all(isinstance(topic, str) and TOPIC.fullmatch(topic) for topic in value)
        and all(
            isinstance(n, list) and n and all(_whole(p) and 0 <= p <= MOST_INT32 for p in n) and len(set(n)) == len(n)
            for n in value.values()
        )
    )


START = Rule(
    '"earliest", "latest", {timestamp: 2013-01-01T00:00:00Z} or {offsets: {orders: {"0": 1000}}}',
    lambda v: _start(v) is not None,
    {
        "oneOf": [
            {"enum": ["earliest", "latest"]},
            {
                "type": "object",
                "required": ["timestamp"],
                "additionalProperties": False,
                "properties": {"timestamp": {"type": ["string", "integer"]}},
            },
            {
                "type": "object",
                "required": ["offsets"],
                "additionalProperties": False,
                "properties": {
                    "offsets": {
                        "type": "object",
                        "additionalProperties": {
                            "type": "object",
                            "additionalProperties": {"type": "integer", "minimum": 0},
                        },
                    }
                },
            },
        ]
    },
    _start,
)
REGEX = "without a repetition inside a repetition, and with at most 4 of * and +"
PATTERN = Rule(f"a regular expression {REGEX}", _is_regex, {"type": "string", "minLength": 1, "format": "regex"})
PATTERNS = Rule(
    f"a list of regular expressions {REGEX}",
    lambda v: isinstance(v, list) and all(map(_is_regex, v)),
    {"type": "array", "items": {"type": "string", "minLength": 1, "format": "regex"}},
    tuple,
)
ASSIGN = Rule(
    "partitions by topic, such as {orders: [0, 3]}",
    _is_assignment,
    {
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"pattern": f"^{TOPIC.pattern}$"},
        "additionalProperties": {
            "type": "array",
            "items": {"type": "integer", "minimum": 0, "maximum": MOST_INT32},
            "minItems": 1,
            "uniqueItems": True,
        },
    },
    lambda v: {topic: tuple(sorted(numbers)) for topic, numbers in v.items()},
)
ISOLATION = Rule(
    '"read_committed" or "read_uncommitted"',
    lambda v: v in ("read_committed", "read_uncommitted"),
    {"enum": ["read_committed", "read_uncommitted"]},
)
ON_DELETED = Rule('"stop" or "retire"', lambda v: v in ("stop", "retire"), {"enum": ["stop", "retire"]})
ROWS = Rule('"one" or "any"', lambda v: v in ("one", "any"), {"enum": ["one", "any"]})
IDENTITY = Rule('"origin" or "batch"', lambda v: v in ("origin", "batch"), {"enum": ["origin", "batch"]})
FLAG = Rule("true or false", lambda v: isinstance(v, bool), {"type": "boolean"})


TABLE_NAME = Rule(
    f'catalog.namespace.table of at most {LONGEST_TABLE} characters, such as "lake.demo.flights"',
    lambda v: isinstance(v, str) and len(v) <= LONGEST_TABLE and TABLE.fullmatch(v) is not None,
    {"type": "string", "maxLength": LONGEST_TABLE, "pattern": f"^{TABLE.pattern}$"},
)
FUNCTION = Rule(
    f'module:function of at most {LONGEST_ID} characters, such as "transforms.flights:flights"',
    lambda v: isinstance(v, str) and len(v) <= LONGEST_ID and TRANSFORM.fullmatch(v) is not None,
    {"type": "string", "maxLength": LONGEST_ID, "pattern": f"^{TRANSFORM.pattern}$"},
)
OTHER_PIPELINES = _list_of(PIPELINE, "a list of different names of pipelines, such as [orders]")
TABLES = _list_of(TABLE, "a list of different tables, such as [lake.demo.flights_new]")
FUNCTIONS = _list_of(TRANSFORM, 'a list of different functions, such as ["transforms.flights:flights"]')
SCHEDULE = Rule(
    f"five cron fields (minute 0-59, hour 0-23, day, month, weekday 0-7), one of {', '.join(PRESETS)}, or nothing",
    lambda v: v is None or (isinstance(v, str) and is_schedule(v)),
    {"type": ["string", "null"]},
)


def setting(rule: Rule, doc: str, default: Any = MISSING) -> Any:
    """A dataclass field with its rule and its sentence for the docs; without a default it is required."""
    metadata = {"rule": rule, "doc": doc}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


def section(kind: type, doc: str, *, required: bool = False) -> Any:
    """A dataclass field that is itself a group of settings."""
    metadata = {"section": kind, "doc": doc}
    return field(metadata=metadata) if required else field(default_factory=kind, metadata=metadata)


@dataclass(frozen=True)
class Source:
    """Where the records come from: exactly one of `topics`, `pattern` and `assign`."""

    topics: tuple[str, ...] | None = setting(TOPICS, "topics to read, with all their partitions", None)
    pattern: str | None = setting(PATTERN, "topics whose whole name matches, also those that appear later", None)
    exclude: tuple[str, ...] = setting(PATTERNS, "topics that the pattern must not take", ())
    assign: Mapping[str, tuple[int, ...]] | None = setting(ASSIGN, "these partitions and no others", None)
    connection: str = setting(CONNECTION, "Airflow connection of the brokers (librdkafka names in its extra)", "kafka_default")
    start: Start = setting(
        START, "where the first run starts; partitions that appear later start at their earliest", "earliest"
    )
    isolation_level: IsolationLevel = setting(
        ISOLATION, "whether a run ends before open transactions, and leaves aborted records out", "read_committed"
    )
    on_deleted: Literal["stop", "retire"] = setting(ON_DELETED, "what to do when a partition or topic is gone", "stop")
    contiguous: bool = setting(
        FLAG, "the topics have no gaps (neither compacted nor transactional): a load must read every offset", False
    )

    SCHEMA: ClassVar[Mapping[str, Any]] = {
        "oneOf": [{"required": [name]} for name in ("topics", "pattern", "assign")],
        "dependentRequired": {"exclude": ["pattern"]},
    }

    def __str__(self) -> str:
        """What is read, in short."""
        if self.assign is not None:
            return ", ".join(f"{topic}{list(numbers)}" for topic, numbers in self.assign.items())
        return ", ".join(self.topics) if self.topics is not None else f"/{self.pattern}/"

    def faults(self) -> list[tuple[str, str]]:
        """What is wrong between settings: the setting, and a sentence."""
        named = [name for name in ("topics", "pattern", "assign") if getattr(self, name) is not None]
        found = []
        if len(named) != 1:
            found.append(
                (named[1] if named else "topics", f"expected exactly one of topics, pattern and assign, got {len(named)}")
            )
        if self.exclude and self.pattern is None:
            found.append(("exclude", "goes with pattern, and there is none"))
        return found


@dataclass(frozen=True)
class Limits:
    """How much one run takes, and when a run is worth while."""

    max_records: int | None = setting(
        POSITIVE, "records of one run, shared out by lag; without it a run takes all there is", None
    )
    min_records: int | None = setting(POSITIVE, "runs are skipped until so many records wait", None)
    max_delay_s: float | None = setting(SECONDS, "seconds after which a run no longer waits for min_records", None)
    max_rate_per_partition: int | None = setting(POSITIVE, "records/s of each partition, times interval_s", None)
    min_rate_per_partition: int = setting(POSITIVE, "records of each partition in a run, whatever the maximum says", 1)
    interval_s: float = setting(SECONDS, "seconds that a rate is multiplied with: the time between runs", 60)
    max_bytes: int | None = setting(POSITIVE, "bytes of one run, by the mean size of the records of the last one", None)

    SCHEMA: ClassVar[Mapping[str, Any]] = {"dependentRequired": {"max_delay_s": ["min_records"]}}

    def faults(self) -> list[tuple[str, str]]:
        """What is wrong between settings: the setting, and a sentence."""
        alone = self.max_delay_s is not None and self.min_records is None
        return [("max_delay_s", "goes with min_records, and there is none")] if alone else []


@dataclass(frozen=True)
class Split:
    """How a run is cut into Spark tasks, so that a large partition does not keep one core busy alone.

    Spark does the arithmetic, which is that of `tidegate.core.offsets.splitting.split_ranges`.

    Raises:
        RequestError: a limit is not a whole number of at least 1.
    """

    min_partitions: int | None = setting(POSITIVE, "about so many tasks at least", None)
    max_records_per_partition: int | None = setting(POSITIVE, "offsets of one task at most", None)

    def __post_init__(self) -> None:
        check_limits(**self.to_json())

    def to_json(self) -> dict[str, int | None]:
        """JSON-ready."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Sink:
    """Where the rows go."""

    table: str = setting(TABLE_NAME, "Iceberg table, with the Spark catalog it is in")
    pool: str | None = setting(
        POOL_NAME, "Airflow pool of the loads into this table; made from the table's name by default", None
    )
    slots: int = setting(SLOTS, "loads into this table at the same time", 4)
    shared_with: tuple[str, ...] = setting(
        OTHER_PIPELINES,
        "other pipelines that write into this table too, from other topics; without it the table is one's own",
        (),
    )


@dataclass(frozen=True)
class Replay:
    """What a replay may use beside the pipeline's own table and transform."""

    tables: tuple[str, ...] = setting(
        TABLES,
        "more tables that a replay may write into; always allowed are the sink's table and those named <table>_trial…",
        (),
    )
    transforms: tuple[str, ...] = setting(FUNCTIONS, "more transforms that a replay may use, such as the next version", ())


@dataclass(frozen=True)
class Spark:
    """What runs the jobs."""

    connection: str = setting(
        CONNECTION,
        "Airflow connection: spark_connect runs through a warm server, spark through spark-submit",
        "spark_connect_default",
    )


@dataclass(frozen=True)
class Pipeline:
    """One pipeline: topics, a transform, a table, a schedule. The file's name is the pipeline's and the DAG's name."""

    name: str
    source: Source = section(Source, "where the records come from", required=True)
    transform: str = setting(FUNCTION, "DataFrame -> DataFrame function in spark_jobs")
    sink: Sink = section(Sink, "where the rows go", required=True)
    rows_per_record: Literal["one", "any"] = setting(
        ROWS, "rows that the transform makes of a record: one (verify then looks at every offset), or any number", "one"
    )
    description: str = setting(DESCRIPTION, "one sentence, shown in the Airflow UI", "")
    schedule: str | None = setting(SCHEDULE, "when runs start; without it only by hand", None)
    tags: tuple[str, ...] = setting(TAGS, "tags in the Airflow UI, beside `tidegate`", ())
    limits: Limits = section(Limits, "how much one run takes")
    split: Split = section(Split, "how a run is cut into Spark tasks")
    group: str | None = setting(GROUP, "consumer group that lag tools see; tidegate-<pipeline> by default", None)
    spark: Spark = section(Spark, "what runs the jobs")
    retries: int = setting(RETRIES, "tries after the first, where an error says that trying again can help", 3)
    retry_delay_s: float = setting(SECONDS, "seconds before the first retry; doubled with each further one", 10)
    wait_s: float = setting(
        SECONDS, "seconds that a task waits for a server that is away (Kafka, Spark, the catalog) before its try fails", 600
    )
    timeout_s: int | None = setting(
        TIMEOUT, "seconds after which a run has failed, whatever it waits for; the next run takes up its range", None
    )
    identity: Literal["origin", "batch"] = setting(
        IDENTITY,
        "what a row is known by: the record it came from, or, where the transform aggregates, its batch",
        "origin",
    )
    replay: Replay = section(Replay, "what a replay may use beside the pipeline's own table and transform")
    keep_ranges: int = setting(POSITIVE, "saved ranges kept as Variables; older ones stay in the table's history", 1000)

    @property
    def replay_dag(self) -> str:
        """The DAG that replays this pipeline."""
        return f"{self.name}{REPLAY_DAG}"

    @property
    def trials(self) -> str:
        """What the names of the tables that a replay may always write into begin with."""
        return f"{self.sink.table}_trial"

    def writes(self, table: str) -> bool:
        """Whether a run or a replay of this pipeline may write into the table."""
        trial = table.startswith(self.trials) and "." not in table.removeprefix(self.trials)
        return trial or table in (self.sink.table, *self.replay.tables)

    @property
    def pool(self) -> str:
        """The Airflow pool that the loads of this pipeline's sink share."""
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


T = TypeVar("T")


def parse_pipeline(name: str, settings: object, *, file: str, found: Sequence[str] = ()) -> Pipeline:
    """A validated pipeline from a YAML mapping.

    Args:
        name: the pipeline's name, taken from the file's name.
        settings: what the YAML holds.
        file: how errors name the file.
        found: faults that the caller found before, as whole lines.

    Raises:
        ConfigError: with every fault, one a line; `fields["faults"]` counts them.
    """
    faults = list(found)
    if not PIPELINE.fullmatch(name):
        faults.append(
            f'{file}: the file\'s name: expected {PIPELINE.pattern} (lower-case letters, digits, _; at most 60), got "{name}"'
        )
    if name.endswith(REPLAY_DAG):
        faults.append(f'{file}: the file\'s name: expected a name without "{REPLAY_DAG}" at its end, got "{name}"')
    faults.extend(
        f'{file}: the file\'s name: expected a name without "{word}" (Airflow masks Variables with it in the key), got "{name}"'
        for word in MASKED_WORDS
        if word in name
    )
    pipeline = None
    if isinstance(settings, Mapping):
        pipeline = _section(Pipeline, settings, "", file, faults, name=name)
    else:
        faults.append(f"{file}: expected a mapping of settings, got {_shown(settings)}")
    if faults or pipeline is None:
        raise ConfigError("\n".join(faults), file=file, faults=len(faults))
    return pipeline


def _section(kind: type[T], settings: Mapping[Any, Any], path: str, file: str, faults: list[str], **given: Any) -> T | None:
    known = {f.name: f for f in dataclasses.fields(cast("Any", kind)) if f.metadata}
    before = len(faults)
    for key in settings:
        if key not in known:
            close = difflib.get_close_matches(str(key)[:80], known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            faults.append(
                f"{file}: {path}{str(key)[:80]}: not a setting here, expected one of {', '.join(sorted(known))}{hint}"
            )
    values: dict[str, Any] = dict(given)
    for name, known_field in known.items():
        required = known_field.default is MISSING and known_field.default_factory is MISSING
        if name not in settings:
            if required:
                faults.append(f"{file}: {path}{name}: required ({known_field.metadata['doc']}), and missing")
            continue
        value = settings[name]
        if "section" in known_field.metadata:
            if isinstance(value, Mapping):
                values[name] = _section(known_field.metadata["section"], value, f"{path}{name}.", file, faults)
            else:
                faults.append(f"{file}: {path}{name}: expected a mapping of settings, got {_shown(value)}")
            continue
        rule: Rule = known_field.metadata["rule"]
        nothing = value is None and known_field.default is None
        if not nothing and not rule.accepts(value):
            faults.append(f"{file}: {path}{name}: expected {rule.expected}, got {_shown(value)}")
            continue
        values[name] = None if nothing else rule.convert(value)
    if len(faults) > before:
        return None
    made = kind(**values)
    faults.extend(f"{file}: {path}{name}: {fault}" for name, fault in getattr(made, "faults", list)())
    return made if len(faults) == before else None


def _shown(value: object) -> str:
    """The value in short, whatever YAML made of it: keys of any type, lists that hold themselves, aliases of aliases."""
    text = ""
    try:
        for piece in json.JSONEncoder(default=str, ensure_ascii=False).iterencode(value):
            text += piece
            if len(text) > 80:
                break
    except (TypeError, ValueError, RecursionError):
        text = reprlib.repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a pipeline file, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tidegate pipeline",
        **_section_schema(Pipeline),
    }


def _section_schema(kind: type) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for known in dataclasses.fields(cast("Any", kind)):
        if not known.metadata:
            continue
        if "section" in known.metadata:
            properties[known.name] = {**_section_schema(known.metadata["section"]), "description": known.metadata["doc"]}
        else:
            properties[known.name] = {**_or_null(known), "description": known.metadata["doc"]}
            if known.default not in (MISSING, None):
                properties[known.name]["default"] = list(known.default) if isinstance(known.default, tuple) else known.default
        if known.default is MISSING and known.default_factory is MISSING:
            required.append(known.name)
    between = getattr(kind, "SCHEMA", {})
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": sorted(required), **between}


def _or_null(known: dataclasses.Field[Any]) -> dict[str, Any]:
    schema = dict(known.metadata["rule"].schema)
    if known.default is None and isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
    return schema

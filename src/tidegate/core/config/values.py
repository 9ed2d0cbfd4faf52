"""The kinds of values in a pipeline or receiver file: names, limits, patterns, durations, schedules, starts.

The bounds are those of Airflow's columns, Kafka's protocol and Python's timedelta, so that one file's value never fails in a
place where it stops the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator

from tidegate.core.config.declared import Expected, listed
from tidegate.core.config.layout import (
    FORMAT_VERSIONS,
    OWN_FIELDS,
    PARTITION_FIELD,
    SORT_FIELD,
    is_property,
    partition_field,
    sort_field,
)
from tidegate.core.config.names import (
    LONGEST_GROUP,
    LONGEST_ID,
    LONGEST_POOL,
    LONGEST_TABLE,
    LONGEST_TAG,
    PIPELINE,
    TABLE,
    TOPIC,
    TRANSFORM,
    ends_soon,
)
from tidegate.core.config.schedules import CONTINUOUS, DAY_S, FIXED_TIMES, PRESETS, is_schedule
from tidegate.core.config.sinks import ICEBERG, KINDS
from tidegate.core.model.errors import TidegateError
from tidegate.core.model.ranges import TopicPartition, offsets_from_json
from tidegate.core.model.times import epoch_ms
from tidegate.core.rates.policy import MOST_RATE, MOST_RECORDS, MOST_SECONDS

LAST_MS = 253_402_300_799_999  # of the year 9999
MOST_INT32 = 2**31 - 1
MOST_INT64 = 2**63 - 1
DURATION = re.compile(r"^[0-9]{1,8}(\.[0-9]{1,3})?(s|m|h|d)$")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True)
class StartTime:
    """A start that is not an offset yet: the first record at or after a time (epoch ms)."""

    timestamp_ms: int


@dataclass(frozen=True)
class StartOffsets:
    """A start at explicit offsets; partitions that are not named start at their earliest."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class StartGroup:
    """A start at the committed offsets of a consumer group; partitions that it has none of start at their earliest."""

    group: str


Start = Literal["earliest", "latest"] | StartTime | StartOffsets | StartGroup


def start_of(value: Any) -> Start | None:
    """The start that a YAML value means; None where it means none."""
    if value in ("earliest", "latest"):
        return cast("Start", value)
    if not isinstance(value, Mapping) or len(value) != 1:
        return None
    (kind, what), *_ = value.items()
    try:
        return STARTS[kind](what)
    except (LookupError, ValueError, TypeError, AttributeError, OverflowError, TidegateError):
        return None


def _start_time(what: Any) -> StartTime | None:
    timestamp_ms = epoch_ms(what)
    return StartTime(timestamp_ms) if 0 <= timestamp_ms <= LAST_MS else None


def _start_offsets(what: Any) -> StartOffsets | None:
    offsets = offsets_from_json(what)
    return StartOffsets(offsets) if all(map(_is_position, offsets, offsets.values())) else None


def _start_group(what: Any) -> StartGroup | None:
    return StartGroup(what) if _NOT_BLANK.fullmatch(what) else None


STARTS: Mapping[object, Callable[[Any], Start | None]] = {
    "timestamp": _start_time,
    "offsets": _start_offsets,
    "group": _start_group,
}


def _is_position(tp: TopicPartition, offset: int) -> bool:
    return bool(TOPIC.fullmatch(tp.topic)) and tp.partition <= MOST_INT32 and offset <= MOST_INT64


def seconds_of(value: Any) -> Any:
    """A text such as `15m` in seconds. Any other value as it is: whether it is a number of seconds, the caller finds out."""
    if isinstance(value, str) and DURATION.fullmatch(value):
        seconds = float(value[:-1]) * _SECONDS[value[-1]]
        return int(seconds) if seconds.is_integer() else seconds
    return value


def share_of(value: Any) -> Any:
    """A text such as `0.1 %` as a share of 1. Any other value as it is: whether it is a share, the caller finds out."""
    return float(value.rstrip("% ")) / 100 if isinstance(value, str) and PERCENT.fullmatch(value) else value


PERCENT = re.compile(r"\d{1,3}(\.\d{1,9})? ?%")
LONGEST_TEXT = 1000
"""Characters of a description or a pattern, which Airflow stores with the DAG."""
MOST_RETRIES = 1000
MOST_GAIN = 1000
MOST_CONNECTIONS = 100_000
MOST_CORES, MOST_EXECUTORS = 100_000, 10_000

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_STORABLE = re.compile(r"[^\x00]*")
"""A text that every database stores; pydantic has refused what UTF-8 cannot encode."""
_NOT_BLANK = re.compile(r"\s*[^\s\x00][^\x00]*")

Flag = Annotated[bool, Expected("true or false")]

Positive = Annotated[int, Expected("a positive integer", ge=1)]
Records = Annotated[int, Expected("a whole number of records from 1 to 2^63 - 1", ge=1, le=MOST_RECORDS)]
Cores = Annotated[int, Expected(f"a whole number of cores from 1 to {MOST_CORES}", ge=1, le=MOST_CORES)]
Executors = Annotated[int, Expected(f"a whole number of executors from 1 to {MOST_EXECUTORS}", ge=1, le=MOST_EXECUTORS)]
Slots = Annotated[int, Expected("a positive integer below 2^31", ge=1, le=MOST_INT32)]
Retries = Annotated[int, Expected(f"an integer from 0 to {MOST_RETRIES}", ge=0, le=MOST_RETRIES)]
Timeout = Annotated[int, Expected(f"a positive integer of at most {MOST_SECONDS} seconds (366 days)", ge=1, le=MOST_SECONDS)]
Offsets = Annotated[int, Expected("a whole number of offsets from 1 to 2^63 - 1", ge=1, le=MOST_RECORDS)]
Instances = Annotated[int, Expected("a whole number of instances from 1 to 1000", ge=1, le=1000)]
Connections = Annotated[int, Expected(f"a whole number of connections from 1 to {MOST_CONNECTIONS}", ge=1, le=MOST_CONNECTIONS)]
FileBytes = Annotated[int, Expected("a whole number of bytes from 2^20 (1 MiB) to 2^40", ge=1 << 20, le=1 << 40)]
Files = Annotated[int, Expected("a whole number of files from 2 to 2^31 - 1", ge=2, le=MOST_INT32)]
Snapshots = Annotated[int, Expected("a whole number of snapshots from 100 to 2^31 - 1", ge=100, le=MOST_INT32)]
Bytes = Annotated[int, Expected("a whole number of bytes from 1 to 2^31 - 1", ge=1, le=MOST_INT32)]
Port = Annotated[int, Expected("a port from 1 to 65535", ge=1, le=65_535)]

Seconds = Annotated[float, Expected(f"a number of seconds from 0 to {MOST_SECONDS} (366 days)", ge=0, le=MOST_SECONDS)]
Interval = Annotated[
    float, Expected(f"a number of seconds above 0 and at most {MOST_SECONDS} (366 days)", gt=0, le=MOST_SECONDS)
]
Share = Annotated[float, Expected("a number above 0 and at most 1", gt=0, le=1)]
Rate = Annotated[float, Expected(f"a number of records/s above 0 and at most {MOST_RATE:.0e}", gt=0, le=MOST_RATE)]
SafeRate = Annotated[float, Expected(f"a number of records/s from 0 to {MOST_RATE:.0e}", ge=0, le=MOST_RATE)]
Gain = Annotated[float, Expected(f"a number from 0 to {MOST_GAIN}", ge=0, le=MOST_GAIN)]


Budget = Annotated[
    float,
    Expected(
        "a share from 0 % to 100 %, such as 0.1 %, or a number from 0 to 1",
        reads=share_of,
        schema={"type": ["number", "string"], "pattern": PERCENT.pattern},
        ge=0,
        le=1,
    ),
]


def _duration(least: float, most: float, bounds: str, examples: str = "30s, 15m or 2h") -> Expected:
    """A duration between two bounds (seconds), both included, in seconds or as a text with its unit; it becomes seconds."""
    return Expected(
        f"a duration {bounds}, such as {examples}, or a number of seconds",
        reads=seconds_of,
        schema={"type": ["number", "string"], "pattern": DURATION.pattern},
        ge=least,
        le=most,
    )


MaxDelay = Annotated[float, _duration(1, MOST_SECONDS, "from 1s to 366d")]
Age = Annotated[float, _duration(DAY_S, MOST_SECONDS, "from 1d to 366d", "5d or 36h")]
Poll = Annotated[float, _duration(1, 3600, "from 1s to 1h")]
Lease = Annotated[float, _duration(10, 7 * 86_400, "from 10s to 7d")]
Pause = Annotated[float, _duration(0, 3600, "from 0s to 1h")]
Grace = Annotated[float, _duration(0, 7 * 86_400, "from 0s to 7d")]
BlockInterval = Annotated[float, _duration(0.01, 60, "from 0.01s to 1m")]


def _text(words: str, longest: int, matches: re.Pattern[str] = _NOT_BLANK, **more: Any) -> Expected:
    return Expected(words, matches=matches, max_length=longest, **more)


Description = Annotated[str, _text(f"a text of at most {LONGEST_TEXT} characters", LONGEST_TEXT, _STORABLE)]
Group = Annotated[str, _text(f"the name of a consumer group of at most {LONGEST_GROUP} characters", LONGEST_GROUP)]
RejectedBy = Annotated[
    tuple[Literal["decode", "contract", "transform"], ...],
    listed("a list of what rejects records: decode, contract and transform", least=1),
]
Connection = Annotated[
    str,
    _text(
        f"the id of an Airflow connection of 1 to {LONGEST_ID} letters, digits, _ and characters of !#()-./:\\ only",
        LONGEST_ID,
        re.compile(r"[\w!#()./:\\-]+"),
    ),
]
Pool = Annotated[
    str,
    # commands ask for the pool by a URL, of which a name of dots cannot be a part
    _text(
        f"the name of an Airflow pool of at most {LONGEST_POOL} characters",
        LONGEST_POOL,
        re.compile(rf"(?!\.{{1,2}}$){_NOT_BLANK.pattern}"),
    ),
]
Tag = Annotated[str, _text(f"a text of 1 to {LONGEST_TAG} characters", LONGEST_TAG)]
Owner = Annotated[
    str,
    _text(f"a text of 1 to {LONGEST_TAG} characters without commas", LONGEST_TAG, re.compile(r"[^,\x00]*[^,\s\x00][^,\x00]*")),
]
Tags = Annotated[tuple[Tag, ...], listed(f"a list of texts of 1 to {LONGEST_TAG} characters", different=False)]
RecordHeader = Annotated[str, _text("the name of a record header of 1 to 250 characters", 250)]
FieldName = Annotated[str, _text("the name of a field of 1 to 250 characters", 250)]
FilePath = Annotated[
    str, _text(f"an absolute path of at most {LONGEST_TEXT} characters", LONGEST_TEXT, re.compile(r"/[^\x00]*"))
]

Address = Annotated[str, _text("a host name or an IP address", 253, re.compile(r"[A-Za-z0-9_.:-]{1,253}"))]
Hosts = Annotated[tuple[Address, ...], listed("a list of different hosts, such as [edge1, edge2]")]
Queue = Annotated[
    str,
    Expected(
        "the name of an Airflow queue of 1 to 100 letters, digits, dots, _ and -", matches=re.compile("[A-Za-z0-9_.-]{1,100}")
    ),
]
Queues = Annotated[tuple[Queue, ...], listed("a list of different Airflow queues, such as [default]", least=1)]
Header = Annotated[str, Expected("the name of an HTTP header, such as Tidegate-Key", matches=re.compile("[A-Za-z0-9-]{1,100}"))]
UrlPath = Annotated[str, Expected("the path of a URL, such as /orders", matches=re.compile("/[A-Za-z0-9_.~/-]{0,199}"))]


def _is_json(value: dict[str, Any]) -> bool:
    try:
        return bool(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return False


Arguments = Annotated[
    dict[str, Any],
    Expected(
        "a mapping of arguments by name, which JSON can hold, such as {url: https://example.org}",
        kind=dict,
        accepts=lambda value: all(isinstance(key, str) and _NAME.fullmatch(key) for key in value) and _is_json(value),
        schema={"propertyNames": {"pattern": f"^{_NAME.pattern}$"}},
    ),
]

Topic = Annotated[
    str, Expected('the name of a topic (1 to 249 letters, digits, dots, _ and -; not "." or "..")', matches=TOPIC)
]
Topics = Annotated[tuple[Topic, ...], listed("a list of different topic names, such as [orders]", least=1)]
Partition = Annotated[int, Expected("the number of a partition, from 0 to 2^31 - 1", ge=0, le=MOST_INT32)]
Partitions = Annotated[
    tuple[Partition, ...],
    listed("a list of different partitions, such as [0, 3]", least=1),
    AfterValidator(lambda value: tuple(sorted(value))),
]
Assign = Annotated[
    dict[Topic, Partitions],
    Expected("partitions by topic, such as {orders: [0, 3]}", min_length=1, schema={"additionalProperties": False}),
]

REGEX = "without a repetition inside a repetition, and with at most 4 of * and +"
Regex = Annotated[str, _text(f"a regular expression {REGEX}", LONGEST_TEXT, schema={"format": "regex"}, accepts=ends_soon)]
Regexes = Annotated[tuple[Regex, ...], listed(f"a list of regular expressions {REGEX}", different=False)]

SinkName = Annotated[
    str, Expected(" or ".join(f'"{name}"' for name in KINDS), accepts=KINDS.__contains__, schema={"enum": list(KINDS)})
]
Table = Annotated[
    str,
    _text(
        f"{ICEBERG.table_form} of at most {LONGEST_TABLE} characters, and no branch or metadata of a table, "
        'such as "lake.demo.flights"',
        LONGEST_TABLE,
        TABLE,
    ),
]
OtherTable = Annotated[str, Expected(f'{ICEBERG.table_form}, such as "lake.demo.flights_new"', matches=TABLE)]
Tables = Annotated[tuple[OtherTable, ...], listed("a list of different tables, such as [lake.demo.flights_new]")]


def _unnamed(pattern: re.Pattern[str]) -> str:
    """JSON Schema writes the names of groups otherwise than Python."""
    return re.sub(r"\?P<\w+>", "", pattern.pattern)


PartitionBy = Annotated[
    tuple[
        Annotated[
            str,
            Expected(
                'a partition field, such as days(event_time), "bucket(16, customer)" or country, and not topic or partition of '
                "the records",
                reads=lambda value: partition_field(value) if isinstance(value, str) else value,
                schema={"pattern": f"^(?!({'|'.join(of.column for of in sorted(OWN_FIELDS))})$)({_unnamed(PARTITION_FIELD)})$"},
            ),
        ],
        ...,
    ],
    listed("a list of different partition fields, such as [days(event_time)]"),
]
SortBy = Annotated[
    tuple[
        Annotated[
            str,
            Expected(
                "a column, with or without asc, desc, nulls first and nulls last, such as customer desc",
                reads=lambda value: sort_field(value) if isinstance(value, str) else value,
                schema={"pattern": f"^({_unnamed(SORT_FIELD)})$"},
            ),
        ],
        ...,
    ],
    listed("a list of different columns, such as [customer, amount desc]"),
]


def _texts(value: Any) -> Any:
    """YAML makes numbers and booleans of what the table keeps as text."""
    if not isinstance(value, dict):
        return value
    return {key: json.dumps(text) if isinstance(text, (bool, int)) else text for key, text in value.items()}


TableProperties = Annotated[
    dict[str, str],
    Expected(
        "properties of the table that are not Tidegate's own, such as {write.parquet.compression-codec: snappy}",
        kind=dict,
        reads=_texts,
        accepts=lambda value: all(is_property(key, text) for key, text in value.items()),
        schema={"additionalProperties": {"type": ["string", "integer", "boolean"]}},
    ),
]
FormatVersion = Annotated[int, Expected("2 or 3", accepts=FORMAT_VERSIONS.__contains__, schema={"enum": list(FORMAT_VERSIONS)})]
Function = Annotated[
    str,
    _text(f'module:function of at most {LONGEST_ID} characters, such as "transforms.flights:flights"', LONGEST_ID, TRANSFORM),
]
OtherFunction = Annotated[str, Expected('module:function, such as "transforms.flights:flights"', matches=TRANSFORM)]
Functions = Annotated[
    tuple[OtherFunction, ...], listed('a list of different functions, such as ["transforms.flights:flights"]')
]
Kind = Annotated[
    str,
    _text(
        f'"http", "tcp_server", "socket", "file", or module:Class of at most {LONGEST_ID} characters',
        LONGEST_ID,
        re.compile(f"(http|tcp_server|socket|file|{TRANSFORM.pattern})"),
    ),
]
PipelineName = Annotated[str, Expected('the name of a pipeline, such as "orders"', matches=PIPELINE)]
PipelineNames = Annotated[tuple[PipelineName, ...], listed("a list of different names of pipelines, such as [orders]")]

_CRON = "five cron fields (minute 0-59, hour 0-23, day, month, weekday 0-7)"
Times = Annotated[
    str,
    Expected(
        f"{_CRON}, one of {', '.join(FIXED_TIMES)}, or nothing",
        accepts=lambda value: value != CONTINUOUS and is_schedule(value),
        schema={"not": {"const": CONTINUOUS}},
    ),
]
Schedule = Annotated[
    str,
    Expected(
        f"{_CRON}, one of {', '.join(PRESETS)}, a mapping such as {{lag: 50000, max_delay: 15m}}, or nothing",
        accepts=is_schedule,
    ),
]


def _only(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object with this property and no other."""
    return {"type": "object", "required": [name], "additionalProperties": False, "properties": {name: schema}}


FirstOffsets = Annotated[
    Start,
    Expected(
        '"earliest", "latest", {timestamp: 2013-01-01T00:00:00Z}, {offsets: {orders: {"0": 1000}}} or {group: orders-reader}',
        kind=Any,
        reads=start_of,
        accepts=lambda start: start is not None,
        schema={
            "oneOf": [
                {"enum": ["earliest", "latest"]},
                _only("timestamp", {"type": ["string", "integer"]}),
                _only("group", {"type": "string", "minLength": 1}),
                _only(
                    "offsets",
                    {
                        "type": "object",
                        "additionalProperties": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}},
                    },
                ),
            ]
        },
    ),
]

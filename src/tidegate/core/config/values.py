"""The rule of each kind of value in a pipeline or receiver file: names, limits, patterns, schedules, starts.

The bounds are those of Airflow's columns, Kafka's protocol and Python's timedelta, so that one file's value never fails in a
place where it stops the others.

Pure: the standard library only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

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
)
from tidegate.core.config.patterns import ends_soon
from tidegate.core.config.rules import (
    Rule,
    is_finite_between,
    is_text,
    list_of,
    mapping_of,
    matching,
    number,
    number_above,
    rule,
    text,
    whole,
)
from tidegate.core.config.schedules import CONTINUOUS, DAY_S, FIXED_TIMES, PRESETS, is_schedule
from tidegate.core.config.sinks import ICEBERG
from tidegate.core.config.times import DURATION, MOST_INT32, seconds_of, start_of
from tidegate.core.rates.checks import MOST_RATE, MOST_RECORDS, MOST_SECONDS

LONGEST_TEXT = 1000
"""Characters of a description or a pattern, which Airflow stores with the DAG."""
MOST_RETRIES = 1000
MOST_GAIN = 1000
MOST_CONNECTIONS = 100_000
MOST_CORES, MOST_EXECUTORS = 100_000, 10_000

_NAME = "[A-Za-z_][A-Za-z0-9_]*"


def _is_name(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(_NAME, value) is not None


def _is_json(value: object) -> bool:
    try:
        return bool(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return False


POSITIVE = whole("a positive integer", 1)
RECORDS = whole("a whole number of records from 1 to 2^63 - 1", 1, MOST_RECORDS)
CORES = whole(f"a whole number of cores from 1 to {MOST_CORES}", 1, MOST_CORES)
EXECUTORS = whole(f"a whole number of executors from 1 to {MOST_EXECUTORS}", 1, MOST_EXECUTORS)
SLOTS = whole("a positive integer below 2^31", 1, MOST_INT32)
RETRIES = whole(f"an integer from 0 to {MOST_RETRIES}", 0, MOST_RETRIES)
SECONDS = number(f"a number of seconds from 0 to {MOST_SECONDS} (366 days)", 0, MOST_SECONDS)
INTERVAL = number_above(f"a number of seconds above 0 and at most {MOST_SECONDS} (366 days)", 0, MOST_SECONDS)
TIMEOUT = whole(f"a positive integer of at most {MOST_SECONDS} seconds (366 days)", 1, MOST_SECONDS)

INSTANCES = whole("a whole number of instances from 1 to 1000", 1, 1000)
CONNECTIONS = whole(f"a whole number of connections from 1 to {MOST_CONNECTIONS}", 1, MOST_CONNECTIONS)
FILE_BYTES = whole("a whole number of bytes from 2^20 (1 MiB) to 2^40", 1 << 20, 1 << 40)
FILES = whole("a whole number of files from 2 to 2^31 - 1", 2, MOST_INT32)
SNAPSHOTS = whole("a whole number of snapshots from 100 to 2^31 - 1", 100, MOST_INT32)
BYTES = whole("a whole number of bytes from 1 to 2^31 - 1", 1, MOST_INT32)
PORT = whole("a port from 1 to 65535", 1, 65_535)

SHARE = number_above("a number above 0 and at most 1", 0, 1)
RATE = number_above(f"a number of records/s above 0 and at most {MOST_RATE:.0e}", 0, MOST_RATE)
SAFE_RATE = number(f"a number of records/s from 0 to {MOST_RATE:.0e}", 0, MOST_RATE)
GAIN = number(f"a number from 0 to {MOST_GAIN}", 0, MOST_GAIN)


def _duration(least: float, most: float, bounds: str, examples: str = "30s, 15m or 2h") -> Rule:
    """A duration between two bounds (seconds), both included, in seconds or as a text with its unit; it becomes seconds."""
    return rule(
        f"a duration {bounds}, such as {examples}, or a number of seconds",
        {"type": ["number", "string"], "minimum": least, "maximum": most, "pattern": DURATION.pattern},
        lambda value: is_finite_between(seconds_of(value), least, most),
        seconds_of,
    )


MAX_DELAY = _duration(1, MOST_SECONDS, "from 1s to 366d")
AGE = _duration(DAY_S, MOST_SECONDS, "from 1d to 366d", "5d or 36h")
POLL = _duration(1, 3600, "from 1s to 1h")
LEASE = _duration(10, 7 * 86_400, "from 10s to 7d")
PAUSE = _duration(0, 3600, "from 0s to 1h")
GRACE = _duration(0, 7 * 86_400, "from 0s to 7d")
BLOCK_INTERVAL = _duration(0.01, 60, "from 0.01s to 1m")

DESCRIPTION = text(f"a text of at most {LONGEST_TEXT} characters", LONGEST_TEXT)
GROUP = text(f"the name of a consumer group of at most {LONGEST_GROUP} characters", LONGEST_GROUP, 1)
CONNECTION = text(f"the id of an Airflow connection of at most {LONGEST_ID} characters", LONGEST_ID, 1)
POOL_NAME = rule(
    f"the name of an Airflow pool of at most {LONGEST_POOL} characters",
    {"type": "string", "minLength": 1, "maxLength": LONGEST_POOL, "not": {"enum": [".", ".."]}},
    # commands ask for the pool by a URL, of which a name of dots cannot be a part
    lambda value: is_text(value, LONGEST_POOL, 1) and value not in (".", ".."),
)
TAGS = list_of(
    text(f"a text of 1 to {LONGEST_TAG} characters", LONGEST_TAG, 1),
    f"a list of texts of 1 to {LONGEST_TAG} characters",
    different=False,
)

ADDRESS = matching(re.compile(r"[A-Za-z0-9_.:-]{1,253}"), "a host name or an IP address", 253)
HOSTS = list_of(ADDRESS, "a list of different hosts, such as [edge1, edge2]")
QUEUES = list_of(
    matching(re.compile(r"[A-Za-z0-9_.-]{1,100}"), "the name of an Airflow queue of 1 to 100 letters, digits, dots, _ and -"),
    "a list of different Airflow queues, such as [default]",
    least=1,
)
OFFSETS = whole("a whole number of offsets from 1 to 2^63 - 1", 1, MOST_RECORDS)
RECORD_HEADER = text("the name of a record header of 1 to 250 characters", 250, 1)
HEADER = matching(re.compile(r"[A-Za-z0-9-]{1,100}"), "the name of an HTTP header, such as Tidegate-Key")
FIELD = text("the name of a field of 1 to 250 characters", 250, 1)
URL_PATH = matching(re.compile(r"/[A-Za-z0-9_.~/-]{0,199}"), "the path of a URL, such as /orders")
FILE_PATH = rule(
    f"an absolute path of at most {LONGEST_TEXT} characters",
    {"type": "string", "maxLength": LONGEST_TEXT, "pattern": "^/"},
    lambda value: is_text(value, LONGEST_TEXT, 1) and value.startswith("/"),
)
SETTINGS = rule("a mapping of settings", {"type": []}, lambda _: False)
"""For a section that may be left out: its settings are the mapping's."""
ARGUMENTS = rule(
    "a mapping of arguments by name, which JSON can hold, such as {url: https://example.org}",
    {"type": "object", "propertyNames": {"pattern": f"^{_NAME}$"}},
    lambda value: isinstance(value, Mapping) and all(_is_name(key) for key in value) and _is_json(value),
)

TOPIC_NAME = matching(TOPIC, 'the name of a topic (1 to 249 letters, digits, dots, _ and -; not "." or "..")')
TOPICS = list_of(TOPIC_NAME, "a list of different topic names, such as [orders]", least=1)
PARTITIONS = list_of(
    whole("the number of a partition, from 0 to 2^31 - 1", 0, MOST_INT32),
    "a list of different partitions, such as [0, 3]",
    least=1,
)
ASSIGN = mapping_of(
    TOPIC_NAME,
    PARTITIONS,
    "partitions by topic, such as {orders: [0, 3]}",
    lambda value: {topic: tuple(sorted(partitions)) for topic, partitions in value.items()},
)

REGEX = "without a repetition inside a repetition, and with at most 4 of * and +"
PATTERN = rule(
    f"a regular expression {REGEX}",
    {"type": "string", "minLength": 1, "format": "regex"},
    lambda value: is_text(value, LONGEST_TEXT, 1) and ends_soon(value),
)
PATTERNS = list_of(PATTERN, f"a list of regular expressions {REGEX}", different=False)

TABLE_NAME = matching(
    TABLE,
    f"{ICEBERG.table_form} of at most {LONGEST_TABLE} characters, and no branch or metadata of a table, "
    'such as "lake.demo.flights"',
    LONGEST_TABLE,
)
TABLES = list_of(
    matching(TABLE, f'{ICEBERG.table_form}, such as "lake.demo.flights_new"'),
    "a list of different tables, such as [lake.demo.flights_new]",
)
FUNCTION = matching(
    TRANSFORM, f'module:function of at most {LONGEST_ID} characters, such as "transforms.flights:flights"', LONGEST_ID
)
KIND = matching(
    re.compile(f"(http|tcp_server|socket|file|{TRANSFORM.pattern})"),
    f'"http", "tcp_server", "socket", "file", or module:Class of at most {LONGEST_ID} characters',
    LONGEST_ID,
)
FUNCTIONS = list_of(
    matching(TRANSFORM, 'module:function, such as "transforms.flights:flights"'),
    'a list of different functions, such as ["transforms.flights:flights"]',
)
PIPELINE_NAME = matching(PIPELINE, 'the name of a pipeline, such as "orders"')
OTHER_PIPELINES = list_of(PIPELINE_NAME, "a list of different names of pipelines, such as [orders]")

_CRON = "five cron fields (minute 0-59, hour 0-23, day, month, weekday 0-7)"
TIMES = rule(
    f"{_CRON}, one of {', '.join(FIXED_TIMES)}, or nothing",
    {"type": ["string", "null"], "not": {"const": CONTINUOUS}},
    lambda value: value is None or (isinstance(value, str) and value != CONTINUOUS and is_schedule(value)),
)
SCHEDULE = rule(
    f"{_CRON}, one of {', '.join(PRESETS)}, a mapping such as {{lag: 50000, max_delay: 15m}}, or nothing",
    {"type": ["string", "null"]},
    lambda value: value is None or (isinstance(value, str) and is_schedule(value)),
)


def _only(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object with this property and no other."""
    return {"type": "object", "required": [name], "additionalProperties": False, "properties": {name: schema}}


START = rule(
    '"earliest", "latest", {timestamp: 2013-01-01T00:00:00Z} or {offsets: {orders: {"0": 1000}}}',
    {
        "oneOf": [
            {"enum": ["earliest", "latest"]},
            _only("timestamp", {"type": ["string", "integer"]}),
            _only(
                "offsets",
                {
                    "type": "object",
                    "additionalProperties": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}},
                },
            ),
        ]
    },
    lambda value: start_of(value) is not None,
    start_of,
)

"""Laws of pipeline files; in one file, since each setting is tried beside the others."""

from __future__ import annotations

import re
import shlex
from contextlib import nullcontext
from datetime import date, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from croniter import croniter  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.config.declared import json_schema
from tidegate.core.config.layout import Layout
from tidegate.core.config.parse import parse_pipeline
from tidegate.core.config.pipeline import POOL_DESCRIPTION, LagSchedule, Pipeline, Sink, Source, pool_command
from tidegate.core.config.schedules import PRESETS, is_schedule, mean_gap_s, shortest_gap_s
from tidegate.core.config.values import LAST_MS, StartGroup, StartOffsets, StartTime
from tidegate.core.model.errors import ConfigError
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.model.times import epoch_ms, utc
from tidegate.pipelines import load_pipeline, load_pipelines

MINIMAL = {"source": {"topics": ["orders"]}, "transform": "transforms.orders:rows", "sink": {"table": "lake.shop.orders"}}
REPO = Path(__file__).parents[2]
LAST = datetime.max.replace(tzinfo=timezone(timedelta(hours=-14)))


def parse(settings: object, name: str = "orders") -> Pipeline:
    return parse_pipeline(name, settings, file="pipelines/orders.yaml")


def start(topic: str) -> dict[str, Any]:
    return {"offsets": {topic: {"0": 5, "3": 5}}}


def test_four_settings_make_a_pipeline() -> None:
    """Everything else has a default. The command that makes a pool survives a shell, though a pool's name is any text."""
    assert parse(MINIMAL) == Pipeline("orders", Source(("orders",)), "transforms.orders:rows", sink=Sink("lake.shop.orders"))
    assert parse(MINIMAL).pool == "tidegate_lake_shop_orders"
    assert parse({**MINIMAL, "sink": {"table": "lake.shop.orders", "pool": "mine"}}).pool == "mine"
    assert parse({**MINIMAL, "source": {"assign": {"orders": [3, 0]}}}).source == Source(assign={"orders": (0, 3)})
    for pool, before in (("tidegate_lake_shop_orders", []), ("ours; it's $HOME", []), ("-fast", ["--"])):
        assert shlex.split(pool_command(pool, 4)) == ["airflow", "pools", "set", *before, pool, "4", POOL_DESCRIPTION]


def laid_out(**layout: object) -> dict[str, Any]:
    return {"sink": {"table": "lake.a.b", **layout}}


def starting(start: object) -> dict[str, Any]:
    return {"source": {"topics": ["a"], "start": start}}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"source": {}}, "source.topics: expected exactly one of topics, pattern and assign, got 0"),
        ({"source": {"topics": ["a"], "pattern": "b"}}, "source.pattern: expected exactly one of"),
        ({"source": {"topics": ["a"], "exclude": ["b"]}}, "source.exclude: requires pattern, which is not set"),
        ({"source": {"topics": ["a", "a"]}}, 'source.topics[1]: "a" is in the list already; remove one of the two'),
        ({"source": {"topics": ["a b"]}}, "source.topics[0]: expected the name of a topic"),
        ({"source": {"assign": {"a": []}}}, "source.assign.a: expected a list of different partitions"),
        ({"source": {"assign": {"a": [0, -1]}}}, "source.assign.a[1]: expected the number of a partition"),
        ({"source": {"assign": {"a": [1, 1]}}}, "source.assign.a[1]: 1 is in the list already"),
        ({"source": {"assign": {".": [0]}}}, "source.assign: expected the name of a topic"),
        ({"source": {"topics": ["a"], "start": "now"}}, 'source.start: expected "earliest", "latest", {timestamp'),
        ({"source": {"topics": ["orders"], "start": start("oders")}}, "source.start.offsets.oders: the pipeline reads only o"),
        ({"source": {"pattern": "o.*", "start": start("a.b")}}, "source.start.offsets.a.b: the pipeline reads only /o.*/"),
        ({"source": {"assign": {"a": [3]}, "start": start("a")}}, "source.start.offsets.a: the pipeline reads only a[3]"),
        ({"limits": {"max_record": 5}}, "limits.max_record: not a setting, expected one of"),
        ({"limits": {"\ud800": 5}}, r"limits.\ud800: not a setting, expected one of"),
        ({"limits": {1: 5}}, "limits.1: not a setting, expected one of"),
        ({"name": "orders"}, "name: not a setting, expected one of announce, backpressure, catch_up, contract, dedupe"),
        ({"dedupe": {}}, "dedupe.window: required, but missing; expected a whole number of offsets"),
        ({"dedupe": None}, "dedupe: expected a mapping of settings"),
        ({"schedule": {"poll": "5s"}}, "schedule.lag: expected at least one of lag and max_delay, got none"),
        ({"schedule": {"lag": 1, "max_delay": "15 minutes"}}, "schedule.max_delay: expected a duration from 1s to 366d"),
        ({"schedule": {"lag": 1, "max_delay": float("nan")}}, "schedule.max_delay: expected a duration"),
        ({"schedule": {"lag": 1, "delay": 1}}, "schedule.delay: not a setting, expected one of lag, max_delay, poll"),
        ({"schedule": [50000]}, "schedule: expected five cron fields"),
        ({"schedule": {"lag": 5}, "limits": {"min_records": 10}}, "limits.min_records: would skip runs that schedule starts"),
        ({"announce": {"every": "minute"}}, 'announce.every: expected "hour" or "day"'),
        ({"sink": {"table": "lake.a.b.branch_audit"}}, "sink.table: expected catalog.namespace.table"),
        ({"sink": {"table": "lake.a.b.c.all_data_files"}}, "sink.table: expected catalog.namespace.table"),
        ({"sink": {"table": f"lake.a.{'b' * 250}"}}, "sink.table: expected catalog.namespace.table of at most 247 characters"),
        (laid_out(partition_by=["weeks(at)"]), "sink.partition_by[0]: expected a partition field, such as days(event_time)"),
        (laid_out(partition_by=["_kafka_topic"]), "sink.partition_by[0]: expected a partition field, such as days(event_time)"),
        (laid_out(partition_by=["day(At)", "bucket(2, at)"]), "sink.partition_by: at is in two fields"),
        (laid_out(sort_by=["a up"]), "sink.sort_by[0]: expected a column, with or without asc, desc"),
        (laid_out(properties={"tidegate.owner.p": "true"}), "sink.properties: expected properties of the table that are not"),
        ({"sink": {"table": "a.b.c", "pool": ".."}}, "sink.pool: expected the name of an Airflow pool"),
        ({"tags": ["x" * 101]}, "tags[0]: expected a text of 1 to 100 characters"),
        ({"description": "x" * 1001}, "description: expected a text of at most 1000 characters"),
        ({"group": " "}, "group: expected the name of a consumer group of at most 255 characters"),
        ({"source": {"topics": ["a"], "connection": "my kafka"}}, "source.connection: expected the id of an"),
        ({"retry_delay_s": 10**9}, "retry_delay_s: expected a number of seconds from 0 to 31622400 (366 days)"),
        ({"backpressure": {"policy": "target", "min_rate": 5}}, "backpressure.min_rate: is no setting of policy target"),
        ({"backpressure": {"initial_records": 5}}, "backpressure.initial_records: is no setting of policy static; remove it"),
        # a name is looked for in the whole file before what is close to it in its own section
        ({"start": "latest"}, "start: not a setting, ...; did you mean source.start?"),
        ({"max_records": 5}, "max_records: not ...; did you mean limits.max_records or backpressure.max_records?"),
        ({"sink": {"table": "a.b.c", "topics": ["a"]}}, "sink.topics: not a setting, ...; did you mean source.topics?"),
        ({"sink": {"table": "a.b.c", "slot": 1}}, "sink.slot: not a setting, ...; did you mean slots?"),
        # what Python holds, and a column of Airflow, a protocol of Kafka or a timedelta does not
        ({"retry_delay_s": float("inf")}, "retry_delay_s: expected"),
        ({"limits": {"interval_s": float("nan")}}, "limits.interval_s: expected"),
        ({"description": "\x00"}, "description: expected"),
        ({"transform": "m:f\n"}, "transform: expected"),
        ({"tags": ["\ud800"]}, "tags[0]: expected"),
        (starting({"timestamp": -1}), "source.start: expected"),
        (starting({"timestamp": "0001-01-01T00:00:00+14:00"}), "source.start: expected"),
        (starting({"timestamp": LAST}), "source.start: expected"),
        (starting({"timestamp": 10**30}), "source.start: expected"),
        (starting({"offsets": {"a": {"0": 2**63}}}), "source.start: expected"),
        (starting({"offsets": {"..": {"0": 1}}}), "source.start: expected"),
    ],
)
def test_a_fault_names_its_setting_and_what_is_allowed(change: dict[str, Any], fault: str) -> None:
    """One of each kind of fault, and the bounds of others' columns."""
    with pytest.raises(ConfigError) as caught:
        parse({**MINIMAL, **change})
    begin, _, end = fault.partition("...")
    assert str(caught.value).startswith(f"pipelines/orders.yaml: {begin}")
    assert str(caught.value).endswith(end)


def test_a_layout_is_read_as_tables_have_it() -> None:
    """Units in the plural, one blank, numbers and booleans of properties as text."""
    asked = laid_out(
        partition_by=["day(at)", "bucket( 4,who)"], sort_by=["a asc"], properties={"a": 1, "b": True}, format_version=3
    )
    fields, properties = ("days(at)", "bucket(4, who)"), {"a": "1", "b": "true"}
    read = parse({**MINIMAL, **asked}).sink.layout
    assert read == Layout(partition_by=fields, sort_by=("a",), properties=properties, format_version=3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"spark": {"min_executors": 3, "max_executors": 2}}, "spark.min_executors: 3 is above max_executors 2"),
        ({"backpressure": {"policy": "pid", "initial_rate": 1, "min_rate": 2}}, "initial_rate 1 is below min_rate 2"),
        ({"backpressure": {"policy": "target", "initial_records": 500}}, "500 records is above limits.max_records 400"),
        ({"backpressure": {"max_records": 401}}, "bound of 401 records is above limits.max_records 400"),
        ({"backpressure": {"policy": "pid", "initial_rate": 10}}, "bound of 3000 records is above limits.max_records 400"),
    ],
)
def test_limits_that_contradict_each_other_are_refused(change: dict[str, Any], words: str) -> None:
    """What nobody stated contradicts nothing: a default bound is cut by `max_records`."""
    made = {**MINIMAL, "limits": {"max_records": 400}, "schedule": "*/5 * * * *", **change}
    with pytest.raises(ConfigError, match=re.escape(words)):
        parse(made)
    stated = {name: value for name, value in change.get("backpressure", {}).items() if name == "policy"}
    assert parse({**made, "backpressure": stated, "spark": {}}).backpressure.settings["policy"]


def test_any_value_is_shown_in_short() -> None:
    """Lists that hold themselves, keys that are dates, aliases of aliases."""
    endless: list[object] = []
    endless.append(endless)
    bomb: object = ["x"] * 9
    for _ in range(40):
        bomb = [bomb] * 9
    for value in (endless, {date(2013, 1, 1): 1}, bomb):
        with pytest.raises(ConfigError) as caught:
            parse({**MINIMAL, "description": value, "tags": value})
        lines = str(caught.value).splitlines()
        assert {line.split(": ")[1].split("[")[0] for line in lines} == {"description", "tags"}
        assert max(map(len, lines)) < 300


@pytest.mark.parametrize(
    ("source", "faults", "more"),
    [
        ({"topics": ["a b", "a", "c d"]}, 2, 0),
        ({"topics": ["a b"] * 12}, 6, 7),
        ({"assign": {"a": [-1] * 5, **{f"a {n}": [0] for n in range(11)}}}, 6, 11),
    ],
)
def test_each_entry_that_is_at_fault_is_named_up_to_five_of_a_list(source: dict[str, object], faults: int, more: int) -> None:
    """Entries that are accepted are not; the rest is counted."""
    with pytest.raises(ConfigError) as caught:
        parse({**MINIMAL, "source": source})
    lines = str(caught.value).splitlines()
    assert len(lines) == caught.value.fields["faults"] == faults
    assert not more or lines[-1].endswith(f": entries that are not valid beside these: {more}")


def test_what_is_missing_is_named_with_what_is_expected() -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"source": {"topics": ["a"]}})
    form = 'module:function of at most 250 characters, such as "transforms.flights:flights"'
    assert str(caught.value).splitlines() == [
        f"pipelines/orders.yaml: transform: required, but missing; expected {form}",
        "pipelines/orders.yaml: sink: required, but missing; expected a mapping of settings. Where the rows go.",
    ]


NEVER = [
    "61 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *", "* * * * 8", "*/0 * * * *", "? * * * *",
    "5-5 * * * *", "0 0 31 2 *", "0 0 30,31 feb *", "0 0 31 4,6 *", "0 0 * * mon,1#2", "0 0 * * 5#6", "0 0 * * L9",
    "0 0 1 * 1#1", "0 0 * 2 1#5", "0 0 L-3 * *", "* * * *", "* * * * * *", "@never", "0 0 * foo *", "0 0 1-x * *",
    "x * * * *", "0 0 * * L",
]  # fmt: skip
RUNS = [
    "0 22-4 * * *", "*/70 * * * *", "5/15 * * * *", "1-5/2 * * * *", "0 0 ? * ?", "0 0 L * *", "0 0 L,15 * *",
    "0 0 * jan-mar *", "0 0 * * FRI-MON", "0 0 * * 7",
    "0 0 * * L5", "0 0 * * sat#1,1#5", "0 0 29 2 *", "0 0 31 2 MON", "0 0 * 11-2 *",
]  # fmt: skip


@pytest.mark.parametrize("schedule", NEVER + RUNS)
def test_a_schedule_is_refused_if_it_has_no_next_run(schedule: str) -> None:
    """Numbers out of range, days that no month has, and forms that croniter, which Airflow uses, does not read."""
    with pytest.raises(ConfigError, match="five cron fields") if schedule in NEVER else nullcontext():
        assert parse({**MINIMAL, "schedule": schedule}).schedule == schedule
        assert croniter(schedule, datetime(2026, 1, 1)).get_next(datetime)  # noqa: DTZ001 - any time


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({"lag": 50000, "max_delay": "15m"}, LagSchedule(50000, 900)),
        ({"max_delay": 90.5, "poll": "1.5s"}, LagSchedule(None, 90.5, 1.5)),
        ({"lag": 1, "max_delay": None, "poll": 3600}, LagSchedule(1, None, 3600)),
    ],
)
def test_a_schedule_by_lag_has_its_durations_in_seconds(schedule: dict[str, Any], expected: LagSchedule) -> None:
    assert parse({**MINIMAL, "schedule": schedule}).schedule == expected


ITEMS = st.from_regex(
    r"(\*|\?|L|[0-9]{1,2}|mon|FRI|feb|jan)(-([0-9]{1,2}|mon|jan|dec))?(/[0-9]{1,2})?|[0-7]#[1-6]|L[0-7]", fullmatch=True
)
FIELDS = st.just("*") | st.lists(ITEMS, min_size=1, max_size=3).map(",".join)


@given(st.lists(FIELDS, min_size=5, max_size=5).map(" ".join))
def test_whatever_schedule_is_accepted_has_a_next_run(schedule: str) -> None:
    """The grammar here is a part of croniter's."""
    if is_schedule(schedule):
        assert croniter(schedule, datetime(2026, 1, 1)).get_next(datetime)  # noqa: DTZ001 - any time


@pytest.mark.parametrize(
    ("schedule", "gap_s"),
    [
        (None, 60), ("@continuous", 60), ("@hourly", 3600), ("@daily", 86400), ("@weekly", 86400), ("* * * * *", 60),
        ("*/5 * * * *", 300), ("0 * * * *", 3600), ("50,55 * * * *", 300), ("59,0 * * * *", 60), ("0 6 * * *", 86400),
        ("0 6,8 * * *", 7200), ("30 23,0 * * *", 3600), ("55,5 23,0 * * *", 600), ("0 0 1 1 *", 86400),
    ],
)  # fmt: skip
def test_the_interval_of_a_pipeline_is_the_shortest_time_between_its_runs(schedule: str | None, gap_s: int) -> None:
    """At most a day; a minute where the schedule has no fixed times; and what the file states goes before."""
    assert parse({**MINIMAL, "schedule": schedule}).interval_s == gap_s
    assert parse({**MINIMAL, "schedule": schedule, "limits": {"interval_s": 7}}).interval_s == 7


@given(st.lists(FIELDS, min_size=2, max_size=2).map(lambda fields: f"{' '.join(fields)} * * *"))
def test_no_two_runs_are_closer_than_the_shortest_gap(schedule: str) -> None:
    """And two of a day are as close, as croniter reads the schedule."""
    if is_schedule(schedule):
        runs = croniter(schedule, datetime(2026, 1, 1))  # noqa: DTZ001 - any time
        gaps = [later - earlier for earlier, later in pairwise(runs.get_next(float) for _ in range(24 * 60 + 2))]
        assert shortest_gap_s(schedule) == min(gaps)


@given(st.lists(FIELDS, min_size=2, max_size=2).map(" ".join))
def test_runs_lie_as_far_apart_as_their_number_in_a_day_says(fields: str) -> None:
    """Nothing is said of a schedule with days that have none of its runs: the next one may be weeks away."""
    if is_schedule(f"{fields} * * *"):
        start = datetime(2026, 1, 1)  # noqa: DTZ001 - any time
        runs = croniter(f"{fields} * * *", start - timedelta(seconds=1))
        in_a_day = sum(runs.get_next(datetime) < start + timedelta(days=1) for _ in range(24 * 60))
        assert mean_gap_s(f"{fields} * * *") == pytest.approx(24 * 3600 / in_a_day)
    assert [mean_gap_s(f"0 6 {days}") for days in ("* * 1", "1 * *", "* 2 *", "? * *")] == [None, None, None, 86_400.0]
    presets = {preset: mean_gap_s(preset) for preset in PRESETS}
    assert {preset: gap for preset, gap in presets.items() if gap} == {"@hourly": 3600.0, "@daily": 86_400.0}
    assert parse({**MINIMAL, "schedule": "@weekly"}).mean_interval_s is None
    assert parse({**MINIMAL, "schedule": "@weekly", "limits": {"interval_s": 7}}).mean_interval_s == 7


ENDLESS = [
    "(", "*", "(a+)+$", "(ab|a.)*x", "(a?){50}", "a?" * 30, ".*.*.*.*.*", "(a{1,3}){1,60}", "(?>a+)+", "((a|b?)c)*",
    "a{99999999999}",
]  # fmt: skip
SHORT = [
    ".*", "orders-.*", "(eu|us)-.*-(orders|items)", "orders(-[a-z]+)?", "(?!x).*", "[a-z]{1,40}-.*", ".*a.*b.*c.*",
    "(a)?(?(1)b|c*)", "(?i:a)b+", "(.)\\1", "[ab]*", "(?:ab){3}",
]  # fmt: skip


@pytest.mark.parametrize("pattern", ENDLESS + SHORT)
def test_a_pattern_whose_match_may_never_end_is_refused(pattern: str) -> None:
    """By `check`, not by a plan that hangs. What the others do with a long name is known at once."""
    for source in ({"pattern": pattern}, {"pattern": "a", "exclude": [pattern]}):
        refused = pytest.raises(ConfigError, match="without a repetition inside a repetition")
        with refused if pattern in ENDLESS else nullcontext():
            assert repr(pattern) in repr(parse({**MINIMAL, "source": source}).source)
            re.fullmatch(pattern, "orders-" * 35 + "!")


def test_a_key_that_is_there_twice_is_a_fault_with_its_line(tmp_path: Path) -> None:
    """YAML would silently take the last one."""
    file = tmp_path / "orders.yaml"
    file.write_text("transform: m:f\nsink: {table: lake.a.b, table: lake.a.c}\nsource: {topics: [a]}\ntransform: m:g\n")
    with pytest.raises(ConfigError) as caught:
        load_pipeline(file)
    assert [line.split("orders.yaml: ")[1].split(";")[0] for line in sorted(str(caught.value).splitlines())] == [
        'line 2: the key "table" is repeated', 'line 4: the key "transform" is repeated',
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "source: &topics {topics: [orders]}\ntransform: m:f\nsink: {table: lake.a.b}\n",
        "\ufeffsource: {topics: [orders]}\ntransform: m:f\nsink: {table: lake.a.b}\n",
        "sink: {<<: &s {table: lake.a.b}}\nsource: {topics: &t [orders]}\ntransform: m:f\nreplay: {tables: []}\n",
        "transform: m:f\nsink: {<<: {table: lake.a.c}, table: lake.a.b}\nsource: {topics: [orders]}\n",
    ],
    ids=["anchor", "mark of its byte order", "merge key", "replaced by a merge key"],
)
def test_what_yaml_has_and_few_write_is_read(tmp_path: Path, text: str) -> None:
    """Anchors, merge keys, and the mark that some editors begin a file with."""
    file = tmp_path / "orders.yaml"
    file.write_text(text, encoding="utf-8")
    assert load_pipeline(file) == Pipeline("orders", Source(("orders",)), "m:f", sink=Sink("lake.a.b"))


@pytest.mark.parametrize(
    ("start", "meaning"),
    [
        ("latest", "latest"),
        ({"timestamp": 1357034400000}, StartTime(1357034400000)),
        ({"timestamp": "2013-01-01T10:00:00Z"}, StartTime(1357034400000)),
        ({"timestamp": "2013-01-01T10:00:00"}, StartTime(1357034400000)),
        ({"timestamp": datetime(2013, 1, 1, 11, tzinfo=timezone(timedelta(hours=1)))}, StartTime(1357034400000)),
        ({"timestamp": date(2013, 1, 1)}, StartTime(1356998400000)),
        ({"offsets": {"orders": {"0": 5}}}, StartOffsets({TopicPartition("orders", 0): 5})),
        ({"group": "orders reader"}, StartGroup("orders reader")),
    ],
)
def test_starts_of_all_kinds_are_read_and_none_of_them_is_an_offset_yet(start: object, meaning: object) -> None:
    assert parse({**MINIMAL, "source": {"topics": ["orders"], "start": start}}).source.start == meaning


@given(st.integers(0, LAST_MS))
def test_a_time_that_is_shown_reads_as_itself(at_ms: int) -> None:
    """ISO 8601, with a fraction only where there is one."""
    assert epoch_ms(utc(at_ms)) == at_ms
    assert [utc(0), utc(1_357_034_400_120)] == ["1970-01-01T00:00:00Z", "2013-01-01T10:00:00.120Z"]
    assert utc(10**18) == "1000000000000000000 (epoch ms)"


@pytest.mark.parametrize(
    ("source", "read"),
    [
        (Source(("a", "ab")), ["a-0", "a-1", "ab-0", "ab-1"]),
        (Source(pattern="a.*", exclude=(".b",)), ["a-0", "a-1"]),
        (Source(pattern="a"), ["a-0", "a-1"]),
        (Source(assign={"a": (1,), "c": (0,)}), ["a-1"]),
    ],
    ids=str,
)
def test_a_source_reads_the_partitions_that_it_names(source: Source, read: list[str]) -> None:
    """Of whole names; by a pattern none that is excluded, by an assignment none but those."""
    held = [TopicPartition(topic, number) for topic in ("a", "ab", "b") for number in (0, 1)]
    assert [str(tp) for tp in held if source.reads(tp)] == read


NAMES = ["Orders", "1st", "a-b", "", "x" * 61, "my_secret_orders", "token", "kids_dsn", "bearer", "orders__replay", "\udcff"]


@pytest.mark.parametrize(
    ("name", "settings", "fault"),
    [
        *((name, MINIMAL, "file's name") for name in NAMES),
        *(("orders", settings, "expected a mapping of settings") for settings in (None, ["text"], "text")),
    ],
)
def test_names_that_keys_cannot_carry_and_files_without_settings_are_refused(name: str, settings: object, fault: str) -> None:
    """Keys compare loosely on some databases, and Airflow masks some words. An empty file is not an empty pipeline."""
    with pytest.raises(ConfigError, match=fault):
        parse(settings, name)


def test_every_pipeline_of_this_repo_is_valid() -> None:
    """Also by the editor's schema."""
    found = load_pipelines(REPO / "dags" / "pipelines")
    assert found
    for file, pipeline in found.items():
        assert isinstance(pipeline, Pipeline), pipeline
        jsonschema.validate(yaml.safe_load(file.read_text()), json_schema(Pipeline))


def test_a_broken_file_leaves_the_others(tmp_path: Path) -> None:
    """Each file is a pipeline or an error; one of another ending is named, since its DAG would never appear."""
    (tmp_path / "good.yaml").write_text(yaml.safe_dump(MINIMAL))
    (tmp_path / "bad.yaml").write_text("source: [")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\xfa")
    for other in ("short.yml", "large.YAML", "notes.txt"):
        (tmp_path / other).write_text(yaml.safe_dump(MINIMAL))
    found = load_pipelines(tmp_path)
    assert isinstance(found.pop(tmp_path / "good.yaml"), Pipeline)
    for name, told in (("bad", "not valid YAML"), ("binary", "cannot be read"), ("short", "rename it to short.yaml")):
        assert told in next(str(error) for file, error in found.items() if file.stem == name)
    assert len(found) == 4
    assert all(isinstance(error, ConfigError) for error in found.values())
    with pytest.raises(ConfigError, match="cannot be read"):
        load_pipeline(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("source: {topics: [a]\nsink: 1\n", "not valid YAML: line 2, column 1: expected ',' or '}', but got"),
        ("source:\n\ttopics: [a]\n", r"not valid YAML: line 2, column 1: found character '\\t' that cannot"),
        *((f"group: {sign}a\n", rf"not valid YAML: line 1, .*; quote the value that begins with \{sign}$") for sign in "*@!%"),
        ("schedule: */5 * * * *\n", r".* line 1, .*; quote the value that begins with \*$"),
        ("group: & co\n", r".*; quote the value that begins with &$"),
        ("group: [`a`]\n", r".*; quote the value that begins with `$"),
        ("source: 2013-13-45\n", r"not valid YAML: month must be in 1..12"),
        ("# nothing yet\n", r"is empty; source, transform and sink are required"),
        # PyYAML lets errors of Python through
        *((text, "") for text in ("a: !!int ''", "[" * 1000, "? [a]\n: 1", "a: &a [*a]", "!!python/none")),
    ],
)
def test_any_text_is_a_pipeline_or_a_fault_of_one_line(tmp_path: Path, text: str, told: str) -> None:
    """What is no YAML is told by line, and an empty file as empty."""
    (tmp_path / "cut.yaml").write_text(text)
    with pytest.raises(ConfigError, match=f"cut.yaml: {told}") as caught:
        load_pipeline(tmp_path / "cut.yaml")
    assert "\n" not in str(caught.value) or not told


def test_pipelines_that_share_a_pool_have_the_fewest_slots_that_one_gives_it(tmp_path: Path) -> None:
    """Whoever makes the pool, and whoever divides it, takes the same number."""
    for name, slots in {"one": 6, "two": 2, "alone": 5}.items():
        sink = {"table": f"lake.shop.{name}", "pool": "own" if name == "alone" else "shared", "slots": slots}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({**MINIMAL, "sink": sink}))
    found = {file.stem: p.sink.slots for file, p in load_pipelines(tmp_path).items() if isinstance(p, Pipeline)}
    assert found == {"one": 2, "two": 2, "alone": 5}

"""Laws of pipeline files."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config import Limits, Pipeline, Sink, Source, StartOffsets, StartTime, json_schema, parse_pipeline
from tidegate.errors import ConfigError
from tidegate.pipelines import load_pipeline, load_pipelines
from tidegate.ranges import TopicPartition

MINIMAL = {"source": {"topics": ["orders"]}, "transform": "transforms.orders:rows", "sink": {"table": "lake.shop.orders"}}
REPO = Path(__file__).parents[2]


def parse(settings: object, name: str = "orders") -> Pipeline:
    return parse_pipeline(name, settings, file="pipelines/orders.yaml")


def test_four_settings_make_a_pipeline() -> None:
    """Everything else has a default."""
    assert parse(MINIMAL) == Pipeline("orders", Source(("orders",)), "transforms.orders:rows", Sink("lake.shop.orders"))
    assert parse(MINIMAL).pool == "tidegate_lake_shop_orders"
    assert parse({**MINIMAL, "sink": {"table": "lake.shop.orders", "pool": "mine"}}).pool == "mine"


def test_a_fault_names_file_setting_expectation_and_value() -> None:
    """The sentence of the issue."""
    with pytest.raises(ConfigError) as caught:
        parse({**MINIMAL, "limits": {"max_records": "lots"}})
    assert str(caught.value) == 'pipelines/orders.yaml: limits.max_records: expected a positive integer, got "lots"'


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"source": {}}, "exactly one of topics, pattern and assign, got 0"),
        ({"source": {"topics": []}}, "list of different topic names"),
        ({"source": {"topics": ["a", "a"]}}, "list of different topic names"),
        ({"source": {"topics": ["a b"]}}, "list of different topic names"),
        ({"source": {"topics": "a"}}, "list of different topic names"),
        ({"source": {"topics": ["a"], "start": "now"}}, 'expected "earliest", "latest", {timestamp'),
        ({"source": {"topics": ["a"], "connection": " "}}, "id of an Airflow connection"),
        ({"source": "a"}, "source: expected a mapping"),
        ({"source": {"topics": ["a"], "pattern": "b"}}, "exactly one of topics, pattern and assign, got 2"),
        ({"source": {"topics": ["a"], "exclude": ["b"]}}, "exclude: goes with pattern"),
        ({"source": {"pattern": 5}}, "a regular expression"),
        ({"source": {"pattern": ""}}, "a regular expression"),
        ({"source": {"assign": {"a": []}}}, "partitions by topic"),
        ({"source": {"assign": {"a": [-1]}}}, "partitions by topic"),
        ({"source": {"assign": {"a": [1, 1]}}}, "partitions by topic"),
        ({"source": {"topics": ["a"], "start": {"timestamp": []}}}, "timestamp: 2013"),
        ({"source": {"topics": ["a"], "start": {"offsets": {"a": {"0": -1}}}}}, "timestamp: 2013"),
        ({"source": {"topics": ["a"], "start": {"when": 1}}}, "timestamp: 2013"),
        ({"source": {"topics": ["a"], "isolation_level": "none"}}, "read_committed"),
        ({"source": {"topics": ["a"], "on_deleted": "skip"}}, '"stop" or "retire"'),
        ({"source": {"topics": ["a"], "contiguous": "yes"}}, "true or false"),
        ({"limits": {"max_delay_s": 5}}, "goes with min_records"),
        ({"split": {"min_partitions": 0}}, "positive integer"),
        ({"limits": {"max_record": 5}}, "did you mean max_records"),
        ({"zzz": 1}, "zzz: not a setting here"),
        ({"limits": {"max_records": True}}, "positive integer"),
        ({"limits": {"max_records": 0}}, "positive integer"),
        ({"sink": {"table": "orders"}}, "catalog.namespace.table"),
        ({"sink": {"table": "lake.a.b", "pool": ""}}, "name of an Airflow pool"),
        ({"transform": "orders"}, "module:function"),
        ({"schedule": "every day"}, "five cron fields"),
        ({"schedule": 5}, "five cron fields"),
        ({"identity": "row"}, '"origin" or "batch"'),
        ({"retries": -1}, "0 or more"),
        ({"retry_delay_s": "x"}, "number of seconds"),
        ({"timeout_s": 0}, "positive integer"),
        ({"tags": [1]}, "list of texts"),
        ({"description": ["x" * 200]}, "..."),
    ],
)
def test_every_setting_refuses_what_it_cannot_take(change: dict[str, object], words: str) -> None:
    """And the editor's schema refuses it too, wherever a schema can say so."""
    settings = {**MINIMAL, **change}
    with pytest.raises(ConfigError) as caught:
        parse(settings)
    assert words in str(caught.value)
    if not {"schedule", "pool"} & {*change, *change.get("sink", {})} and "connection" not in str(change):
        assert not jsonschema.Draft202012Validator(json_schema()).is_valid(settings)


@pytest.mark.parametrize("pattern", ["(", "*"])
def test_a_pattern_that_does_not_compile_is_refused(pattern: str) -> None:
    """Before a broker is asked for its topics."""
    with pytest.raises(ConfigError, match="a regular expression"):
        parse({**MINIMAL, "source": {"pattern": pattern}})


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
    ],
)
def test_starts_of_all_kinds_are_read_and_none_of_them_is_an_offset_yet(start: object, meaning: object) -> None:
    """Words, times (UTC where no zone is given) and offsets, each its own type."""
    assert parse({**MINIMAL, "source": {"topics": ["orders"], "start": start}}).source.start == meaning


def test_sources_tell_what_they_read() -> None:
    """Topics, a pattern, partitions."""
    assert str(parse(MINIMAL).source) == "orders"
    assert str(parse({**MINIMAL, "source": {"pattern": "o.*", "exclude": ["ox"]}}).source) == "/o.*/"
    assigned = parse({**MINIMAL, "source": {"assign": {"orders": [3, 0]}}})
    assert str(assigned.source) == "orders[0, 3]"
    assert assigned.consumer_group == "tidegate-orders"


@pytest.mark.parametrize("schedule", [None, "@continuous", "@daily", "*/5 * * * *", "0 6 * * MON-FRI"])
def test_schedules_are_airflows(schedule: str | None) -> None:
    """Cron, presets, continuous, none."""
    assert parse({**MINIMAL, "schedule": schedule}).schedule == schedule


def test_all_faults_of_a_file_are_told_at_once() -> None:
    """One round of repairs is enough."""
    with pytest.raises(ConfigError) as caught:
        parse({"source": {"topics": []}, "limits": {"max_records": -1}, "colour": "red"}, name="My-Table")
    assert caught.value.fields["faults"] == len(str(caught.value).splitlines()) == 6


@pytest.mark.parametrize(
    "name",
    ["Orders", "1st", "a-b", "", "x" * 61, "my_secret_orders", "token", "kids_dsn", "bearer", "orders__replay"],
)
def test_names_that_keys_cannot_carry_are_refused(name: str) -> None:
    """Keys compare loosely on some databases, and Airflow masks some words."""
    with pytest.raises(ConfigError, match="file's name"):
        parse(MINIMAL, name)


def test_the_replay_dag_is_named_after_the_pipeline() -> None:
    """A name that no pipeline can have."""
    assert parse(MINIMAL, "orders").replay_dag == "orders__replay"


@pytest.mark.parametrize("settings", [None, [], "text"])
def test_a_file_without_settings_is_refused(settings: object) -> None:
    """An empty file is not an empty pipeline."""
    with pytest.raises(ConfigError, match="expected a mapping of settings"):
        parse(settings)


@given(
    st.fixed_dictionaries(
        {}, optional={"limits": st.fixed_dictionaries({}, optional={"max_records": st.none() | st.integers(1)})}
    )
)
def test_schema_and_validator_agree_on_what_is_valid(change: dict[str, object]) -> None:
    """What the editor accepts, the library accepts."""
    settings = {**MINIMAL, **change}
    jsonschema.validate(settings, json_schema())
    assert isinstance(parse(settings).limits, Limits)


def test_the_schema_beside_the_pipelines_is_the_librarys() -> None:
    """`tidegate check --schema` writes it."""
    written = (REPO / "dags" / "pipelines" / "pipeline.schema.json").read_text()
    assert written == json.dumps(json_schema(), indent=2) + "\n"


def test_every_pipeline_of_this_repo_is_valid() -> None:
    """Also by the editor's schema."""
    found = load_pipelines(REPO / "dags" / "pipelines")
    assert found
    for file, pipeline in found.items():
        assert isinstance(pipeline, Pipeline), pipeline
        jsonschema.validate(yaml.safe_load(file.read_text()), json_schema())


def test_a_broken_file_leaves_the_others(tmp_path: Path) -> None:
    """Each file is a pipeline or an error."""
    (tmp_path / "good.yaml").write_text(yaml.safe_dump(MINIMAL))
    (tmp_path / "bad.yaml").write_text("source: [")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\xfa")
    found = {file.stem: value for file, value in load_pipelines(tmp_path).items()}
    assert isinstance(found["good"], Pipeline)
    assert isinstance(found["bad"], ConfigError)
    assert "not valid YAML" in str(found["bad"])
    assert "cannot be read" in str(found["binary"])
    with pytest.raises(ConfigError, match="cannot be read"):
        load_pipeline(tmp_path / "none.yaml")

"""Laws of the DAGs that the pipeline files become; in one file, since all of them parse the same folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from unittest import mock
from zoneinfo import ZoneInfo

import pytest
import structlog
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.dag_processing.processor import _serialize_dags
from airflow.models.dagrun import DagRun
from airflow.sdk import RetryAction
from airflow.sdk.definitions.param import process_params
from airflow.sdk.exceptions import AirflowTaskTimeout
from airflow.serialization.serialized_objects import DagSerialization
from airflow.task.priority_strategy import validate_and_load_priority_weight_strategy
from airflow.utils.types import DagRunType
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.airflow.dags import _validate, maintain_dag, pipeline_dag, replay_dag
from tidegate.airflow.operators.load import LoadOperator
from tidegate.airflow.operators.plan import _interval, _request
from tidegate.airflow.operators.tasks import RetryWhatCanHeal
from tidegate.core.config.declared import members
from tidegate.core.config.names import DOCTOR_DAG
from tidegate.core.config.parse import parse_pipeline
from tidegate.core.config.pipeline import LagSchedule, Pipeline, Sink, Source
from tidegate.core.model.errors import BrokerUnavailable, ConfigError, TopicNotFound
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.planning.run import Request

DOCTOR = f"{DOCTOR_DAG}flights"
OWN = {"flights", "flights__replay", DOCTOR}
"""The DAGs of this repo's one pipeline."""
REPO = Path(__file__).parents[2]
PIPELINE = Pipeline("p", Source(("t",)), "m:f", sink=Sink("lake.a.b"))


class Parsed(NamedTuple):
    """DAGs, their serialized form and the import errors, as Airflow's DAG processor makes them."""

    dags: dict[str, Any]
    serialized: dict[str, Any]
    errors: dict[str, str]


def parse(dags: Path) -> Parsed:
    bag = DagBag(dags, bundle_path=dags, bundle_name="dags")
    serialized, errors = _serialize_dags(bag, structlog.get_logger())
    return Parsed(bag.dags, {dag.data["dag"]["dag_id"]: dag.data["dag"] for dag in serialized}, {**bag.import_errors, **errors})


@pytest.fixture
def dags(tmp_path: Path) -> Path:
    """A copy of this repo's DAG folder."""
    return Path(shutil.copytree(REPO / "dags", tmp_path / "dags", ignore=shutil.ignore_patterns("__pycache__")))


@pytest.fixture(scope="module")
def parsed() -> Parsed:
    """This repo's DAG folder, for tests that change nothing of it."""
    return parse(REPO / "dags")


def test_every_pipeline_parses_with_no_connection_defined(parsed: Parsed) -> None:
    """Two DAGs for each pipeline file, one that examines the installation, and no import error."""
    assert parsed.errors == {}
    names = {f.stem for f in (REPO / "dags" / "pipelines").glob("*.yaml")}
    assert set(parsed.dags) == set(parsed.serialized) == names | {f"{name}__replay" for name in names} | {DOCTOR}


def test_a_dag_is_plan_then_load_then_commit_and_one_run_at_a_time(parsed: Parsed) -> None:
    """Catch-up would plan runs of the past, parallel runs would race for the cursor."""
    dag = parsed.dags["flights"]
    assert [t.task_id for t in dag.topological_sort()] == ["plan", "load", "commit"]
    assert dag.get_task("load").upstream_task_ids == {"plan"}
    assert dag.get_task("commit").upstream_task_ids == {"load"}
    assert (dag.max_active_runs, dag.catchup) == (1, False)
    assert dag.get_task("load").pool == "tidegate_lake_demo_flights"
    assert "max_records: 100000" in (dag.doc_md or "")


def test_a_run_that_has_begun_comes_before_other_plans_and_chunks_of_replays_come_last(parsed: Parsed) -> None:
    """As Airflow weighs tasks: by its default, many pipelines would plan before the first of them loads."""
    strategy = cast("Any", validate_and_load_priority_weight_strategy)
    own = (parsed.dags["flights"].get_task(name) for name in ("plan", "load", "commit"))
    tasks = [parsed.dags["flights__replay"].get_task("load"), *own]
    weights = [strategy(task.weight_rule).get_weight(SimpleNamespace(task=task)) for task in tasks]
    assert weights == sorted(set(weights))


def test_a_pipeline_that_catches_up_has_a_task_for_it_after_the_commit(dags: Path) -> None:
    """A @continuous schedule starts the next run by itself."""
    file = dags / "pipelines" / "flights.yaml"
    text = f"{file.read_text()}catch_up: true\n"
    for schedule, tasks in (("", ["catch_up"]), ("schedule: '@continuous'\n", [])):
        file.write_text(f"{text}{schedule}")
        dag = parse(dags).dags["flights"]
        assert [t.task_id for t in dag.topological_sort()] == ["plan", "load", "commit", *tasks]
        assert ("| catch_up |" in (dag.doc_md or "")) is bool(tasks)


def test_a_table_that_is_maintained_has_a_dag_of_independent_steps_one_at_a_time(dags: Path) -> None:
    """None of them takes a slot from the loads; a schedule is of one's own, and without one nobody has to unpause it."""
    file = dags / "pipelines" / "flights.yaml"
    text = file.read_text()
    file.write_text(f"{text}maintenance: {{}}\n")
    dag = parse(dags).dags["flights__maintain"]
    above = {task.task_id: task.upstream_task_ids for task in dag.tasks}
    assert above == {"plan": set(), "compact": {"plan"}, "expire": {"plan"}}
    assert (dag.max_active_runs, dag.max_active_tasks, dag.is_paused_upon_creation) == (1, 1, False)
    assert {task.pool for task in dag.tasks} == {"default_pool"}
    file.write_text(f"{text}maintenance: {{schedule: '@daily', keep_orphans: 3d}}\n")
    scheduled, serialized, errors = parse(dags)
    by_weight = sorted(scheduled["flights__maintain"].tasks[1:], key=lambda task: -task.priority_weight)
    assert ([task.task_id for task in by_weight], errors) == (["compact", "expire", "remove_orphans"], {})
    assert serialized["flights__maintain"]["timetable"]["__type"].endswith("CronTriggerTimetable")
    assert serialized["flights__maintain"].get("is_paused_upon_creation") is None


def test_tasks_have_no_copies_of_their_dags_params_and_ask_for_no_callback(parsed: Parsed) -> None:
    """Airflow would validate each copy whenever it reads the file. What a task is given has the DAG's, and the trigger's.

    The DAG processor reads a callback with the run's parameters: one that it cannot read ends it, again after each restart.
    """
    for dag in parsed.dags.values():
        assert dag.params or dag.dag_id == DOCTOR
        assert not dag.has_on_failure_callback
        assert not dag.has_on_success_callback
        for task in dag.tasks:
            assert not task.has_on_failure_callback, task
            assert not task.has_on_retry_callback, task
            assert not task.params
            given = process_params(dag, task, {"max_records": 7}, suppress_exception=False)
            assert given == {**dag.params.dump(), "max_records": 7}


def test_a_timeout_is_the_runs_and_not_the_replays_and_no_load_hangs_for_ever(dags: Path) -> None:
    """A replay takes as long as it takes; a load whose Spark never gets an executor ends after a day."""
    file = dags / "pipelines" / "flights.yaml"
    file.write_text(f"{file.read_text()}timeout_s: 90\n")
    found = parse(dags).dags
    assert [found[name].dagrun_timeout for name in ("flights", "flights__replay")] == [timedelta(seconds=90), None]
    loads = [dag.get_task("load") for dag in found.values() if dag.has_task("load")]
    assert {load.execution_timeout for load in loads} == {timedelta(days=1)}


def test_replays_of_all_pipelines_that_share_a_pool_leave_a_slot_to_the_schedule(dags: Path) -> None:
    """They have equal parts of the other slots, of the fewest where the files do not agree, and the form names the part."""
    text = (dags / "pipelines" / "flights.yaml").read_text()
    pools = {"alone": ("own", 5), "first": ("ours", 5), "second": ("ours", 5), "many": ("odd", 9), "few": ("odd", 3)}
    for name, (pool, slots) in pools.items():
        sink = f"lake.demo.{name}\n  slots: {slots}\n  pool: {pool}"
        (dags / "pipelines" / f"{name}.yaml").write_text(text.replace("lake.demo.flights", sink))
    found = parse(dags).dags
    most = {name: found[f"{name}__replay"].get_task("load").max_active_tis_per_dag for name in pools}
    assert most == {"alone": 4, "first": 2, "second": 2, "many": 1, "few": 1}
    assert "Empty: 2," in str(found["first__replay"].params.get_param("parallel").description)


def test_a_task_makes_the_dags_of_its_own_file_alone_as_they_are_beside_the_others(
    dags: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files that it does not make DAGs of still count: they share pools and tables."""
    text = (dags / "pipelines" / "flights.yaml").read_text()
    sink = "lake.demo.more\n  pool: tidegate_lake_demo_flights\n  slots: 5"
    (dags / "pipelines" / "more.yaml").write_text(f"{text.replace('lake.demo.flights', sink)}\nmaintenance: {{}}\n")
    (dags / "receivers" / "posts.yaml").write_text("kind: http\ntopic: posts\nlisten: {port: 8080}\n")
    every, _, errors = parse(dags)
    assert errors == {}
    of_file = {
        "flights": {"flights", "flights__replay"},
        "flights__replay": {"flights", "flights__replay"},
        "more__maintain": {"more", "more__replay", "more__maintain"},
        "posts__receive": {"posts__receive"},
        DOCTOR: {DOCTOR},
        "none": set(),
    }
    for dag_id, made in of_file.items():
        monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", dag_id)  # as Airflow does before a task
        found = parse(dags).dags
        assert set(found) == made
        for name in made:
            assert DagSerialization.to_dict(found[name]) == DagSerialization.to_dict(every[name])


def test_schedules_of_all_kinds_become_timetables(dags: Path) -> None:
    """Cron, continuous, by lag, none."""
    text = (dags / "pipelines" / "flights.yaml").read_text()
    for name, schedule in {"cron": "'*/5 * * * *'", "endless": "'@continuous'", "lagging": "{lag: 10}"}.items():
        own = text.replace("lake.demo.flights", f"lake.demo.{name}")
        (dags / "pipelines" / f"{name}.yaml").write_text(f"{own}schedule: {schedule}\n")
    _, serialized, errors = parse(dags)
    assert errors == {}
    assert {name: dag["timetable"]["__type"].rsplit(".", 1)[1] for name, dag in serialized.items()} == {
        **{f"{name}__replay": "NullTimetable" for name in ("flights", "cron", "endless", "lagging")},
        "flights": "NullTimetable",
        f"{DOCTOR_DAG}cron": "NullTimetable",
        "cron": "CronTriggerTimetable",
        "endless": "ContinuousTimetable",
        "lagging": "AssetTriggeredTimetable",
    }


REFUSED: dict[str, Any] = {"x": {"schedule": "61 * * * *"}, "y": {"retry_delay_s": inf}, "z": {"tags": ["x" * 200]}}


@pytest.mark.parametrize("by_airflow", [False, True])
def test_what_airflow_refuses_is_the_import_error_of_its_file_whoever_finds_it(
    dags: Path, monkeypatch: pytest.MonkeyPatch, *, by_airflow: bool
) -> None:
    """The rules of files find it first; where they do not, the building of that pipeline's DAGs does."""
    for name, setting in REFUSED.items():
        made = yaml.safe_load((dags / "pipelines" / "flights.yaml").read_text()) | {"sink": {"table": f"lake.demo.{name}"}}
        (dags / "pipelines" / f"{name}.yaml").write_text(yaml.safe_dump(made if by_airflow else made | setting))

    def unchecked(name: str, settings: object, **how: Any) -> Pipeline:
        return replace(parse_pipeline(name, settings, **how), **REFUSED.get(name, {}))

    if by_airflow:
        monkeypatch.setattr("tidegate.pipelines.parse_pipeline", unchecked)
    _, serialized, errors = parse(dags)
    assert (set(serialized), set(errors)) == (OWN, {f"pipelines/{name}.yaml" for name in REFUSED})
    assert {"Airflow refuses this file" in error for error in errors.values()} == {by_airflow}


TEXTS = st.text(max_size=300) | st.sampled_from(
    ["a", "@daily", "* * * * *", "0 0 31 2 *", "m:f", "lake.a.b", "..", "\x00", "\ud800"]
)
NUMBERS = st.integers() | st.floats() | st.sampled_from([0, 1, -1, 2**31, 2**63, 10**400, float("inf"), float("nan")])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS | st.dates() | st.datetimes(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS | st.integers() | st.dates(), inner, max_size=3),
    max_leaves=5,
)
SETTINGS = list(members(Pipeline))


def change(made: dict[str, Any], changes: dict[str, Any]) -> None:
    """Set settings of a file by their names; `part.inner` is one of a section, unless that has become something else."""
    for name, value in changes.items():
        part, _, inner = name.partition(".")
        if not inner:
            made[part] = value
        elif isinstance(made.setdefault(part, {}), dict):
            made[part][inner] = value


@settings(max_examples=3 * settings().max_examples)
@given(st.dictionaries(st.sampled_from(SETTINGS), VALUES, min_size=1, max_size=2))
def test_whatever_a_pipeline_file_may_hold_airflow_takes(changes: dict[str, Any]) -> None:
    """Any value of any setting is a fault that the file's rules name, or part of DAGs that are valid."""
    made: dict[str, Any] = {"source": {"topics": ["t"]}, "transform": "m:f", "sink": {"table": "lake.a.b"}}
    change(made, changes)
    try:
        pipeline = parse_pipeline("p", made, file="p.yaml")
    except ConfigError:
        return
    of_table = [maintain_dag(pipeline, pipeline.maintenance, spark_jobs=Path())] if pipeline.maintenance else []
    for dag in (pipeline_dag(pipeline, spark_jobs=Path()), replay_dag(pipeline, spark_jobs=Path()), *of_table):
        _validate(dag)
        data = DagSerialization.to_dict(dag)
        json.dumps(data, allow_nan=False).encode()
        DagSerialization.from_dict(data)
        assert len(pipeline.pool) <= 256


def test_a_file_that_no_dag_can_be_made_of_is_an_import_error_of_its_own(dags: Path) -> None:
    """By its name, whatever is in it; or since a load would delete the rows of another pipeline in one table."""
    text = (dags / "pipelines" / "flights.yaml").read_text()
    names = ["my orders", "ä", "x" * 245, "flights.old", "-"]
    for name in names:
        (dags / "pipelines" / f"{name}.yaml").write_text(text)
    _, serialized, errors = parse(dags)
    assert (set(serialized), set(errors)) == (OWN, {f"pipelines/{name}.yaml" for name in names})
    (dags / "pipelines" / "again.yaml").write_text(text)
    _, serialized, errors = parse(dags)
    assert (serialized, errors.keys() >= {"pipelines/again.yaml", "pipelines/flights.yaml"}) == ({}, True)
    assert "lake.demo.flights is also the table of pipeline flights" in errors["pipelines/again.yaml"]


def test_a_replay_is_plan_then_a_load_for_each_chunk_then_verify(parsed: Parsed) -> None:
    """By hand only, behind the schedule's own loads, and never paused; no verdict after a load that failed, which says why."""
    dag = parsed.dags["flights__replay"]
    assert [t.task_id for t in dag.topological_sort()] == ["plan", "load", "verify"]
    load = dag.get_task("load")
    assert load.is_mapped
    assert load.pool == "tidegate_lake_demo_flights"
    assert (load.weight_rule, load.priority_weight, load.max_active_tis_per_dag) == ("absolute", 1, 1)
    assert dag.get_task("verify").trigger_rule == "all_success"
    assert dag.is_paused_upon_creation is False


@pytest.mark.parametrize(
    ("dag_id", "field", "accepted", "refused"),
    [
        ("flights", "max_records", [5, 2**63 - 1], [0, "lots", 2**63]),
        ("flights", "until", [{"flights": {"0": 10}}], [{"t": {"0": -1}}, {"t": {"x": 1}}, {"t": {"0": 2**64}}, 5]),
        (
            "flights__replay",
            "offsets",
            [[1000, 2000], [1000, None], {"t": [0, 10]}, {"t": {"0": [0, 10]}}, {"t": {"0": [[0, 10], [20, 30]]}}],
            [
                *({"t": {"0": [-1, 10]}}, {"t": {"0": [1, 2, 3]}}, {"t": {"0": ["a", "b"]}}, {"t": {"zero": [0, 1]}}),
                *({"t": {}}, "all", [0, 2**64], {"t": {"0": [0, 2**64]}}),
            ],
        ),
        ("flights__replay", "from_time", ["2013-03-01T00:00:00Z", "2013-03-01T00:00:00+00:00"], []),
        ("flights__replay", "until_time", [], ["tomorrow"]),
        ("flights__replay", "batches", ["12..18", "12"], ["12-18"]),
        ("flights__replay", "run", ["scheduled__2026-01-01T00:00:00+00:00"], [""]),
        ("flights__replay", "versions", ["<2", "!=3f9a0c12b7de"], ["3"]),
        ("flights__replay", "chunk_size", [5], [0, 2**64]),
        ("flights__replay", "parallel", [], [2**64, "two"]),
        ("flights__replay", "table", ["lake.a.b"], ["a"]),
        ("flights__replay", "transform", [], ["m"]),
        ("flights__replay", "dry_run", [True], ["yes", None, 1]),
        ("flights__replay", "accept_loss", [True], []),
    ],
)
def test_a_form_refuses_what_cannot_be(
    parsed: Parsed, dag_id: str, field: str, accepted: list[Any], refused: list[Any]
) -> None:
    """Before a run exists, by the field's name."""
    params = deepcopy(parsed.dags[dag_id].params)
    for value in accepted:
        params[field] = value
    for value in refused:
        with pytest.raises(ValueError, match=field):
            params[field] = value


def test_fields_of_forms_are_explained_and_have_no_star_and_no_markup(parsed: Parsed) -> None:
    """All are optional: the UI stars each type without null. It shows a plain description word for word.

    What to replay is open at first, which the UI does for the section of this name only; the options come after it.
    """
    fields = {
        dag_id: {name: {"description": p["description"], **p["schema"]["__var"]} for name, p in dag["params"]}
        for dag_id, dag in parsed.serialized.items()
    }
    of_replay = fields["flights__replay"].values()
    assert [field["section"] for field in of_replay] == ["Run Parameters"] * 6 + ["Options"] * 6
    assert all(field["title"] and (field["description"] or field["description_md"]) for field in of_replay)
    for name, field in [*fields["flights"].items(), *fields["flights__replay"].items()]:
        assert "null" in field.get("type", ["null"]), name
        assert "`" not in (field["description"] or ""), name


@pytest.mark.parametrize(
    ("schedule", "interval", "covers"),
    [
        ("0 0 * * *", None, (1, 2)),
        ("@daily", None, (1, 2)),
        ("0 0 * * 0", None, (1, 6)),
        ("0 0 * * *", (1, 2), (1, 2)),
        ("@continuous", (1, 3), (1, 3)),
        (None, None, (1, 1)),
        (LagSchedule(10), None, (1, 1)),
    ],
)
def test_a_backfills_run_covers_its_interval_or_the_time_to_the_next_date(
    schedule: str | LagSchedule | None, interval: tuple[int, int] | None, covers: tuple[int, int]
) -> None:
    """Runs of a cron schedule have an interval without length, unless Airflow is configured otherwise. 1.1.2013: a Tuesday."""

    def day(number: int) -> datetime:
        return datetime(2013, 1, number, tzinfo=UTC)

    start, end = interval or (1, 1)
    dates = {"logical_date": day(1), "data_interval_start": day(start), "data_interval_end": day(end)}
    run = SimpleNamespace(**dates, run_after=day(end).astimezone(ZoneInfo("Europe/Berlin")))
    found, scheduled = _interval(replace(PIPELINE, schedule=schedule), run)
    assert found == tuple(int(day(number).timestamp() * 1000) for number in covers)
    named = DagRun.generate_run_id(run_type=DagRunType.SCHEDULED, logical_date=day(1), run_after=day(end))
    assert scheduled == [named]


@pytest.mark.parametrize(
    ("until", "bound"), [(None, None), ({}, None), ({"t": {}}, None), ({"t": {"0": 5}}, {TopicPartition("t", 0): 5})]
)
def test_an_until_that_names_no_partition_sets_no_bound(until: Any, bound: Any) -> None:
    """A script that sends an empty mapping asks for a run up to the end of the log, like one that sends nothing."""
    assert _request({"max_records": 7, "until": until}) == Request(7, bound)


@pytest.mark.parametrize(
    ("place", "states", "parallel", "waits"),
    [
        *((place, ["running"] * 4, 2, place >= 2) for place in range(4)),
        *((place, ["success", *["running"] * 3], 2, place == 3) for place in (1, 2, 3)),
        (1, ["up_for_retry", "running"], 1, False),
        (50, ["running"] * 51, None, False),
    ],
)
def test_chunks_wait_for_their_turn_and_the_first_never_does(
    monkeypatch: pytest.MonkeyPatch, place: int, states: list[str], parallel: int | None, *, waits: bool
) -> None:
    """At most as many work as were asked for, whichever have ended; without a number nobody waits."""
    load = LoadOperator(task_id="load", chunks=[0], pipeline=PIPELINE, spark_jobs=Path())
    found = {"r": {f"load_{n}": state for n, state in enumerate(states)}}
    ti = SimpleNamespace(map_index=place, dag_id="d", task_id="load", run_id="r", get_task_states=lambda **_: found)
    monkeypatch.setattr("tidegate.airflow.operators.load.time.sleep", mock.Mock(side_effect=InterruptedError))
    with pytest.raises(InterruptedError) if waits else nullcontext():
        load._wait_for_turn({"ti": ti}, parallel)  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("try_number", "max_tries", "cleared"),
    [(1, 3, False), (2, 3, False), (4, 3, False), (2, 4, True), (3, 4, True), (5, 7, True), (6, 7, True)],
)
def test_tries_since_a_clearing_are_told_from_those_before(try_number: int, max_tries: int, *, cleared: bool) -> None:
    """Airflow adds the task's retries to the tries so far; this task has three."""
    load = LoadOperator(task_id="load", pipeline=PIPELINE, spark_jobs=Path(), retries=3)
    ti = SimpleNamespace(try_number=try_number, max_tries=max_tries)
    assert load.cleared({"ti": ti}) is cleared  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("error", "tries", "action", "delay_s"),
    [
        (BrokerUnavailable("away"), 1, RetryAction.RETRY, 10),
        (BrokerUnavailable("away"), 3, RetryAction.RETRY, 40),
        (BrokerUnavailable("away"), 30, RetryAction.RETRY, 600),
        (TopicNotFound("gone"), 1, RetryAction.FAIL, None),
        (ValueError("?"), 1, RetryAction.DEFAULT, None),
        (AirflowTaskTimeout(), 1, RetryAction.FAIL, None),
    ],
)
def test_retries_follow_the_error(error: BaseException, tries: int, action: RetryAction, delay_s: int | None) -> None:
    """What can heal is tried again, ever later; what cannot fails at once; the rest is Airflow's."""
    found = RetryWhatCanHeal(10).evaluate(error, tries, 50)
    assert (found.action, found.retry_delay) == (action, delay_s and timedelta(seconds=delay_s))


def test_parsing_imports_no_client_and_plan_and_commit_neither_spark_nor_pandas(dags: Path) -> None:
    """A fresh process parses the DAGs, a receiver's too, and then loads all that plan and commit use."""
    (dags / "receivers" / "posts.yaml").write_text("kind: http\ntopic: posts\nlisten: {port: 8080}\n")
    code = """
import sys
sys.path.insert(0, "dags")
import tidegate_dags
assert tidegate_dags.posts__receive
print({"aiohttp", "confluent_kafka", "tidegate_receivers.runtime.intake"} & {*sys.modules})
from tidegate.airflow import operators
from tidegate.airflow.store import VariableStore
from tidegate.kafka.brokers import AdminBrokers
from tidegate.sinks.iceberg.catalog import load_table
from tidegate.sinks.iceberg.history import IcebergReader
from pyiceberg.catalog import load_catalog
print({name.split(".")[0] for name in sys.modules} & {"pyspark", "pandas", "py4j", "grpc"})
"""
    found = subprocess.run([sys.executable, "-c", code], cwd=dags.parent, capture_output=True, text=True, check=True)
    assert found.stdout.strip().splitlines()[-2:] == ["set()", "set()"]

"""A table that does not hold any more what was committed: each way to lose it, refused, and loaded again by one command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.project import Project
from tests.e2e.runs import Runs, state_of
from tidegate.airflow.remote.api import AirflowApi
from tidegate.core.audit.oracle import judge
from tidegate.iceberg.origins import read_origins
from tidegate.kafka.brokers import AdminBrokers
from tidegate.kafka.log import read_offsets
from tidegate.local import Platform
from tidegate.local.flights import create_topic, produce, read_flights
from tidegate.spark.session import connect

NAME = "lossy"
TABLE = "lake.bad.lossy"
OTHER = "lake.bad.lossy_kept"
BATCH = 60


@pytest.fixture(scope="module")
def kafka(project: Project, platform: Platform) -> dict[str, str]:
    settings = {"bootstrap.servers": platform.bootstrap_servers}
    create_topic(settings, NAME, 2)
    write(project)
    platform.sync_pools({"tidegate_lake_bad_lossy": 2, "tidegate_lake_bad_lossy_kept": 2})
    return settings


def write(project: Project, table: str = TABLE) -> None:
    project.write(NAME, source={"topics": [NAME]}, retries=0, sink={"table": table})


@pytest.fixture
def runs(api: AirflowApi, kafka: dict[str, str]) -> Runs:
    return Runs(api, NAME)


@pytest.fixture
def lake(platform: Platform) -> Iterator[Callable[[str], list[Any]]]:
    """Runs SQL as anybody may."""
    with connect(platform.spark_remote, name="somebody") as spark:
        yield lambda query: spark.sql(query).collect()


def batches(kafka: dict[str, str], runs: Runs, count: int = 1) -> None:
    """New records, and a batch of all of them, as often as asked."""
    for _ in range(count):
        produce(kafka, read_flights(BATCH), topic=NAME)
        run = runs.run()
        assert run["state"] == "success", runs.log(run, "plan")


def check_whole(kafka: dict[str, str], table: str = TABLE) -> None:
    """Every record of the log is in the table once: librdkafka and PyIceberg say so."""
    marks = AdminBrokers(kafka).watermarks([NAME])
    verdict = judge(read_offsets(kafka, marks), read_origins(table))
    assert verdict.holds, verdict.to_json()


@contextmanager
def refused(project: Project, api: AirflowApi, runs: Runs, told: str) -> Iterator[dict[str, Any]]:
    """A run fails by name and changes nothing; the command line says the same."""
    before = api.variables(f"tidegate.{NAME}.")
    run = runs.run()
    assert run["tasks"]["plan"] == "failed"
    log = runs.log(run, "plan")
    assert "TableLost" in log
    assert told in log
    assert f"tidegate ledger reload {NAME}" in log
    assert api.variables(f"tidegate.{NAME}.") == before
    assert project.tidegate("plan", NAME, code=1)["error"] == "TableLost"
    yield project.tidegate("ledger", "reload", NAME, "--dry-run", code=1)


def reload(project: Project, kafka: dict[str, str], runs: Runs) -> None:
    """One command brings all of it back, and the schedule goes on."""
    done = project.tidegate("ledger", "reload", NAME)
    assert (done["left"], done["replay"]["state"]) == (None, "success")
    batches(kafka, runs)
    check_whole(kafka)
    assert project.tidegate("ledger", "verify", NAME)["holds"]


pytestmark = pytest.mark.usefixtures("catalog")


def test_a_dropped_table_is_refused_and_loaded_again(
    project: Project, api: AirflowApi, kafka: dict[str, str], runs: Runs, lake: Callable[[str], list[Any]]
) -> None:
    """The next run does not begin a new one."""
    batches(kafka, runs, 3)
    check_whole(kafka)
    lake(f"DROP TABLE {TABLE}")
    with refused(project, api, runs, "there is no such table") as told:
        assert told["missing"]["batches"] == [1, 2, 3]
        assert sum(b - a for p in told["missing"]["ranges"][NAME].values() for a, b in p) == 3 * BATCH
    oldest = api.dag_runs(NAME)[0]["dag_run_id"]
    cleared = runs.cleared(oldest, "plan", "load", "commit")
    assert cleared["tasks"]["plan"] == "failed"
    reload(project, kafka, runs)


def test_a_table_that_was_rolled_back_is_refused_and_loaded_again(
    project: Project, api: AirflowApi, kafka: dict[str, str], runs: Runs, lake: Callable[[str], list[Any]]
) -> None:
    """Only what the older snapshot lacks; a batch that is cleared to be loaded alone does not hide the others."""
    batches(kafka, runs)
    cursor = state_of(api, f"tidegate.{NAME}.cursor")
    snapshots = [row[0] for row in lake(f"SELECT snapshot_id FROM {TABLE}.snapshots ORDER BY committed_at")]  # noqa: S608
    lake(f"CALL lake.system.rollback_to_snapshot('{TABLE}', {snapshots[-3]})")
    with refused(project, api, runs, "does not descend from their commits") as told:
        assert told["missing"]["batches"] == [4, 5]
    newest = [run["dag_run_id"] for run in api.dag_runs(NAME) if run["state"] == "success"][-1]
    assert runs.cleared(newest, "load")["state"] == "success"
    with refused(project, api, runs, "does not descend from their commits") as told:
        assert told["missing"]["batches"] == [4]
    assert state_of(api, f"tidegate.{NAME}.cursor") == cursor
    reload(project, kafka, runs)


def test_a_table_that_was_created_again_is_refused_and_loaded_again(
    project: Project, api: AirflowApi, kafka: dict[str, str], runs: Runs, lake: Callable[[str], list[Any]]
) -> None:
    """Empty, with the same columns."""
    lake(f"CREATE TABLE {OTHER}_shape AS SELECT * FROM {TABLE} WHERE false")  # noqa: S608 - constants, here and below
    lake(f"DROP TABLE {TABLE}")
    lake(f"CREATE TABLE {TABLE} AS SELECT * FROM {OTHER}_shape")  # noqa: S608
    with refused(project, api, runs, "does not hold batches"):
        pass
    reload(project, kafka, runs)


def test_a_table_restored_from_a_branch_is_refused_where_the_branch_is_older(
    project: Project, api: AirflowApi, kafka: dict[str, str], runs: Runs, lake: Callable[[str], list[Any]]
) -> None:
    """And believed where it holds all of it."""
    lake(f"ALTER TABLE {TABLE} CREATE BRANCH before")
    batches(kafka, runs)
    lake(f"ALTER TABLE {TABLE} CREATE BRANCH after")
    lake(f"CALL lake.system.set_current_snapshot(table => '{TABLE}', ref => 'before')")
    with refused(project, api, runs, "does not descend from their commits") as told:
        assert len(told["missing"]["batches"]) == 1
    lake(f"CALL lake.system.set_current_snapshot(table => '{TABLE}', ref => 'after')")
    batches(kafka, runs)
    lake(f"CALL lake.system.set_current_snapshot(table => '{TABLE}', ref => 'before')")
    reload(project, kafka, runs)
    lake(f"ALTER TABLE {TABLE} DROP BRANCH before")
    lake(f"ALTER TABLE {TABLE} DROP BRANCH after")


def test_a_table_that_was_compacted_and_expired_is_healthy(
    project: Project, kafka: dict[str, str], runs: Runs, lake: Callable[[str], list[Any]]
) -> None:
    """In either order, down to one snapshot; no receipt of the last batch is left."""
    expire = f"CALL lake.system.expire_snapshots(table => '{TABLE}', older_than => TIMESTAMP '2100-01-01', retain_last => 1)"
    lake(expire)
    batches(kafka, runs)
    lake(f"CALL lake.system.rewrite_data_files(table => '{TABLE}', options => map('rewrite-all', 'true'))")
    lake(expire)
    assert lake(f"SELECT summary['tidegate.seq'] FROM {TABLE}.snapshots")[0][0] is None  # noqa: S608
    assert project.tidegate("ledger", "reload", NAME)["missing"] is None
    batches(kafka, runs)
    check_whole(kafka)


def test_a_renamed_table_is_refused_until_the_file_names_it(
    project: Project, api: AirflowApi, kafka: dict[str, str], runs: Runs, lake: Callable[[str], list[Any]]
) -> None:
    """Then the schedule goes on where it was."""
    batches(kafka, runs)
    lake(f"ALTER TABLE {TABLE} RENAME TO {OTHER.removeprefix('lake.')}")
    with refused(project, api, runs, "there is no such table"):
        pass
    write(project, OTHER)
    try:
        batches(kafka, runs)
        check_whole(kafka, OTHER)
        lake(f"ALTER TABLE {OTHER} RENAME TO {TABLE.removeprefix('lake.')}")
    finally:
        write(project)


def test_a_pipeline_with_another_table_begins_there_only_when_somebody_says_so(
    project: Project, api: AirflowApi, kafka: dict[str, str], runs: Runs
) -> None:
    """What is missing there is recorded as absent, and can be loaded later."""
    write(project, OTHER)
    with refused(project, api, runs, "there is no such table"):
        pass
    assert NAME in project.tidegate("accept", "table", NAME)["absent"]
    batches(kafka, runs)
    assert sum(map(len, read_origins(OTHER).values())) == BATCH
    assert project.tidegate("ledger", "verify", NAME)["holds"]
    assert project.tidegate("replay", NAME, "--from", "0")["state"] == "success"
    check_whole(kafka, OTHER)
    assert project.tidegate("ledger", "verify", NAME)["holds"]


def test_a_cleared_run_whose_variable_is_gone_does_its_own_batch_or_fails_by_name(
    api: AirflowApi, kafka: dict[str, str], runs: Runs, lake: Callable[[str], list[Any]]
) -> None:
    """Nothing is planned under its id; the cursor stays."""
    batches(kafka, runs, 2)
    done = [run["dag_run_id"] for run in api.dag_runs(NAME) if run["state"] == "success"]
    keys = sorted(key for key in api.variables(f"tidegate.{NAME}.range."))
    cursor = api.variable(f"tidegate.{NAME}.cursor")
    ranges = state_of(api, keys[-2])["ranges"]
    for key in keys[:-1]:
        api.delete_variable(key)
    again = runs.cleared(done[-2], "plan", "load", "commit")
    assert again["state"] == "success", runs.log(again, "plan")
    assert "committed before: loading it again" in runs.log(again, "plan")
    assert state_of(api, keys[-2])["ranges"] == ranges
    api.delete_variable(keys[-2])
    lake(f"CALL lake.system.expire_snapshots(table => '{OTHER}', older_than => TIMESTAMP '2100-01-01', retain_last => 1)")
    first = runs.cleared(done[0], "plan", "load", "commit")
    assert first["tasks"]["plan"] == "failed"
    assert "RangeForgotten" in runs.log(first, "plan")
    assert api.variable(f"tidegate.{NAME}.cursor") == cursor
    check_whole(kafka, OTHER)

"""The ledger's commands, on the real parts: shown, verified, rebuilt after the schedule was lost, and renamed."""

from __future__ import annotations

import pytest

from tests.e2e.project import Project
from tests.e2e.runs import Runs, state_of
from tidegate.airflow.remote.api import AirflowApi
from tidegate.iceberg.history import load_table
from tidegate.local import Platform
from tidegate.local.flights import create_topic, produce, read_flights

NAME = "booked"
TABLE = "lake.bad.booked"
CURSOR = f"tidegate.{NAME}.cursor"


@pytest.fixture(scope="module")
def kafka(project: Project, platform: Platform) -> dict[str, str]:
    settings = {"bootstrap.servers": platform.bootstrap_servers}
    create_topic(settings, NAME, 2)
    produce(settings, read_flights(300), topic=NAME)
    project.write(NAME, source={"topics": [NAME]}, limits={"max_records": 120}, retries=0, sink={"table": TABLE})
    platform.sync_pools({"tidegate_lake_bad_booked": 1})
    return settings


@pytest.fixture
def runs(api: AirflowApi, kafka: dict[str, str]) -> Runs:
    return Runs(api, NAME)


def test_history_shows_each_batch_and_the_table_holds_what_it_says(project: Project, api: AirflowApi, runs: Runs) -> None:
    """Who started it, why it read what it read, and how many rows came of it."""
    for _ in range(3):
        assert runs.run()["state"] == "success"
    shown = project.tidegate("ledger", "show", NAME)
    assert [(b["seq"], b["state"], b["loads"]) for b in shown["batches"]] == [(n, "committed", 1) for n in (1, 2, 3)]
    assert sum(b["rows"] for b in shown["batches"]) == 300
    assert {b["who"] for b in shown["batches"]} == {"admin"}
    assert shown["batches"][0]["why"] == ["earliest to max_records"]
    assert len(shown["transforms"]) == 1
    verified = project.tidegate("ledger", "verify", NAME)
    assert (verified["holds"], verified["records"], verified["rows"], verified["other_commits"]) == (True, 300, 300, [])


def test_a_schedule_whose_variables_are_all_gone_is_rebuilt_from_the_table(
    project: Project, api: AirflowApi, kafka: dict[str, str], runs: Runs
) -> None:
    """The cursor is where it was, and the schedule goes on."""
    before = state_of(api, CURSOR)
    for key in api.variables(f"tidegate.{NAME}."):
        api.delete_variable(key)
    lost = runs.run()
    assert "CursorLost" in runs.log(lost, "plan")
    dry = project.tidegate("ledger", "rebuild", NAME, "--dry-run")
    assert (dry["written"], api.variables(f"tidegate.{NAME}.")) == (False, {})
    project.tidegate("ledger", "rebuild", NAME)
    after = state_of(api, CURSOR)
    for same in ("seq", "offsets", "starts", "topic_ids"):
        assert after[same] == before[same]
    assert after["generation"] == before["generation"] + 1
    produce(kafka, read_flights(50), topic=NAME)
    run = runs.run()
    assert run["state"] == "success", runs.log(run, "plan")
    verified = project.tidegate("ledger", "verify", NAME)
    assert (verified["holds"], verified["rows"]) == (True, 350)


@pytest.mark.usefixtures("catalog")
def test_rows_that_somebody_deleted_are_found_and_loading_their_batch_again_brings_them_back(
    project: Project, api: AirflowApi, runs: Runs
) -> None:
    """Verify names the batch and the stranger's commit. Its run can be cleared though the schedule was rebuilt since."""
    table = load_table(TABLE)
    assert table is not None
    table.delete("_kafka_partition = 0 and _kafka_offset < 3")
    found = project.tidegate("ledger", "verify", NAME, code=1)
    assert (found["lost"], [m["seq"] for m in found["miscounts"]]) == (3, [1])
    assert [c["operation"] for c in found["other_commits"]] in (["overwrite"], ["delete"])
    oldest = api.dag_runs(NAME)[0]["dag_run_id"]
    api.clear(NAME, oldest)
    again = runs.ended(oldest)
    assert again["tasks"] == {"plan": "success", "load": "success", "commit": "success"}
    assert "loading it again" in runs.log(again, "plan")
    assert project.tidegate("ledger", "verify", NAME)["holds"]


def test_a_renamed_pipeline_goes_on_where_it_was(project: Project, api: AirflowApi, kafka: dict[str, str], runs: Runs) -> None:
    """Its table refuses the new name, with the command; then the new DAG loads the next records, and the rows are its own."""
    last = state_of(api, CURSOR)["seq"]
    (project.pipelines / f"{NAME}.yaml").rename(project.pipelines / "entered.yaml")
    project.let_airflow_read()
    produce(kafka, read_flights(20), topic=NAME)
    assert f"tidegate rename {NAME} entered" in project.tidegate("plan", "entered", code=1)["fix"]
    assert project.tidegate("rename", NAME, "entered")["seq"] == last
    assert api.variables(f"tidegate.{NAME}.") == {}
    entered = Runs(api, "entered")
    run = entered.run()
    assert run["state"] == "success", entered.log(run, "load")
    assert state_of(api, "tidegate.entered.cursor")["seq"] == last + 1
    assert project.tidegate("ledger", "verify", "entered")["holds"]

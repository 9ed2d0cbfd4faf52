"""The ledger's commands, on the real parts: shown, verified, rebuilt after the schedule was lost, and renamed."""

from __future__ import annotations

import pytest
from pyiceberg.catalog import load_catalog

from tests.e2e.project import Project
from tests.e2e.runs import Runs, state_of
from tidegate.airflow.remote.api import AirflowApi
from tidegate_local.flights import create_topic, produce, read_flights
from tidegate_local.platform import Platform

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


def test_a_schedule_whose_variables_are_all_gone_is_rebuilt_from_the_table(
    project: Project, api: AirflowApi, kafka: dict[str, str], runs: Runs
) -> None:
    """The cursor is where it was, the history tells each batch, and the schedule goes on."""
    for _ in range(3):
        assert runs.run()["state"] == "success"
    shown = project.tidegate("ledger", "show", NAME)
    assert [(b["seq"], b["state"], len(b["loads"]), b["who"]) for b in shown["batches"]] == [
        (n, "committed", 1, "admin") for n in (1, 2, 3)
    ]
    assert (sum(b["rows"] for b in shown["batches"]), shown["batches"][0]["why"]) == (300, ["earliest to max_records"])
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
    assert (verified["holds"], verified["rows"], verified["other_commits"]) == (True, 350, [])


def test_a_renamed_pipeline_goes_on_where_it_was(project: Project, api: AirflowApi, kafka: dict[str, str], runs: Runs) -> None:
    """Its table refuses the new name, with the command; then the new DAG loads the next records, and the rows are its own."""
    last = state_of(api, CURSOR)["seq"]
    (project.pipelines / f"{NAME}.yaml").rename(project.pipelines / "entered.yaml")
    project.let_airflow_read()
    produce(kafka, read_flights(20), topic=NAME)
    assert f"tidegate rename {NAME} entered" in project.tidegate("plan", "entered", code=1)["fix"]
    api.patch(f"/dags/{NAME}", {"is_paused": True})
    assert project.tidegate("rename", NAME, "entered")["seq"] == last
    assert api.variables(f"tidegate.{NAME}.") == {}
    entered = Runs(api, "entered")
    run = entered.run()
    assert run["state"] == "success", entered.log(run, "load")
    assert state_of(api, "tidegate.entered.cursor")["seq"] == last + 1
    assert project.tidegate("ledger", "verify", "entered")["holds"]


def test_a_pipeline_ends_and_another_one_goes_on_where_it_was(
    project: Project, platform: Platform, api: AirflowApi, kafka: dict[str, str]
) -> None:
    """By a consumer group. What was removed is taken up again by the table, until somebody drops it."""
    at = state_of(api, "tidegate.entered.cursor")["offsets"]
    assert "airflow dags pause entered" in project.tidegate("export", "entered", code=1)["fix"]
    api.patch("/dags/entered", {"is_paused": True})
    assert project.tidegate("export", "entered", "--group", "between")["startingOffsets"] == at
    removed = project.tidegate("remove", "entered")
    assert (removed["pool"], removed["group"]) == (True, True)
    assert (api.variables("tidegate.entered."), api.pool_slots("tidegate_lake_bad_booked")) == ({}, None)
    assert "tidegate ledger rebuild entered" in project.tidegate("plan", "entered", code=1)["fix"]
    project.tidegate("ledger", "rebuild", "entered")
    assert state_of(api, "tidegate.entered.cursor")["offsets"] == at
    project.tidegate("remove", "entered")
    load_catalog("lake", **platform.catalog_properties).drop_table(TABLE.removeprefix("lake."))
    produce(kafka, read_flights(30), topic=NAME)
    (project.pipelines / "entered.yaml").unlink()
    project.write("after", source={"topics": [NAME], "start": {"group": "between"}}, retries=0, sink={"table": TABLE})
    platform.sync_pools({"tidegate_lake_bad_booked": 1})
    after = Runs(api, "after")
    run = after.run()
    assert run["state"] == "success", after.log(run, "plan")
    verified = project.tidegate("ledger", "verify", "after")
    assert (verified["holds"], verified["rows"]) == (True, 30)

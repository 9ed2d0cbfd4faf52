"""`tidegate doctor` on the whole platform: nothing is said of a sound one, and of a broken one each fault with its fix."""

from __future__ import annotations

import json

import pytest
from pyiceberg.catalog import load_catalog

from tests.e2e.project import Project
from tidegate.airflow.remote.api import AirflowApi
from tidegate.core.audit.findings import CHECKS, Finding
from tidegate.core.config.names import DOCTOR_DAG
from tidegate.waiting import wait_until
from tidegate_local.flights import create_topic, produce, read_flights
from tidegate_local.platform import Platform

DAG = f"{DOCTOR_DAG}flights"
pytestmark = pytest.mark.usefixtures("catalog")


@pytest.fixture(scope="module")
def kafka(platform: Platform) -> dict[str, str]:
    settings = {"bootstrap.servers": platform.bootstrap_servers}
    create_topic(settings)
    produce(settings, read_flights(10))
    return settings


def examined(project: Project, *, code: int) -> list[Finding]:
    return [Finding(**each) for each in json.loads(project.call("doctor", "--json", code=code).out)]


def let_read(project: Project, api: AirflowApi, task: str) -> None:
    """Wait until the DAG has the task of a pipeline that was written."""
    project.let_airflow_read()
    assert wait_until(lambda: task in {t["task_id"] for t in api.pages(f"/dags/{DAG}/tasks", "tasks")}, 120, poll_s=0.5)


def test_a_sound_installation_has_every_check_and_leaves_no_table(
    project: Project, platform: Platform, api: AirflowApi, kafka: dict[str, str]
) -> None:
    api.wait_dag(DAG)
    found = examined(project, code=0)
    assert [each for each in found if each.state != "sound"] == []
    assert {each.check for each in found} == CHECKS.keys() - {"retention"}  # the pipeline has no schedule
    (run,) = api.newest_runs(DAG, 1)
    assert run["state"] == "success"
    held = load_catalog("lake", **platform.catalog_properties).list_tables("demo")
    assert [table for _, table in held if "_doctor_" in table] == []


def test_each_fault_of_a_broken_installation_is_named_with_its_fix(
    project: Project, api: AirflowApi, kafka: dict[str, str]
) -> None:
    """A topic, connections, a catalog and a transform; the pipeline beside them is still sound."""
    project.write("gone", source={"topics": ["gone"]}, sink={"table": "lake.demo.gone"})
    project.write("nobroker", source={"topics": ["t"], "connection": "kafka_nowhere"}, sink={"table": "lake.demo.nobroker"})
    project.write("nocatalog", sink={"table": "nowhere.demo.flights"})
    project.write("nospark", spark={"connection": "kafka_default"}, sink={"table": "lake.demo.nospark"})
    let_read(project, api, "load_nospark")
    broken = {(each.check, each.of): each for each in examined(project, code=1) if each.state == "broken"}
    assert broken.keys() == {
        ("topics", "gone"),
        ("kafka-connection", "kafka_nowhere"),
        ("load", "nobroker"),
        ("catalog", "nowhere"),
        ("spark-connection", "kafka_default"),
    }
    assert all(each.fix for each in broken.values())
    assert "spark.sql.catalog.nowhere=" in broken["catalog", "nowhere"].fix
    assert "Add it under Admin > Connections" in broken["kafka-connection", "kafka_nowhere"].fix

"""`tidegate doctor` on the whole platform, of which nothing is said; `tests/integration` breaks each part."""

from __future__ import annotations

import json

import pytest
from pyiceberg.catalog import load_catalog

from tests.e2e.project import Project
from tidegate.airflow.remote.api import AirflowApi
from tidegate.core.audit.findings import CHECKS, Finding
from tidegate.core.config.names import DOCTOR_DAG
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

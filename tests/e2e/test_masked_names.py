"""Topics whose names hold words that Airflow masks, on the real REST API: every command reads the schedule as it is."""

from __future__ import annotations

import pytest

from tests.e2e.project import Project
from tests.e2e.runs import Runs
from tidegate.airflow.remote.api import AirflowApi
from tidegate.local import Platform
from tidegate.local.flights import create_topic, produce, read_flights

NAME = "resets"
TOPICS = ["password-resets", "token-events"]
KEY = f"tidegate.{NAME}.cursor"


@pytest.fixture(scope="module", autouse=True)
def kafka(project: Project, platform: Platform) -> dict[str, str]:
    """Both topics with some flights, and a pipeline that has read them in two batches."""
    settings = {"bootstrap.servers": platform.bootstrap_servers}
    for topic in TOPICS:
        create_topic(settings, topic, 1)
        produce(settings, read_flights(100), topic=topic)
    project.write(NAME, source={"topics": TOPICS}, limits={"max_records": 100}, retries=0, sink={"table": "lake.bad.resets"})
    platform.sync_pools({"tidegate_lake_bad_resets": 4})
    with platform.api() as api:
        runs = Runs(api, NAME)
        for _ in range(2):
            run = runs.run()
            assert run["state"] == "success", runs.log(run, "plan")
    return settings


def test_the_api_shows_what_was_written(api: AirflowApi) -> None:
    """Nothing of any value is masked, and people can read it."""
    values = api.variables(f"tidegate.{NAME}.")
    assert len(values) == 3
    assert not [value for value in values.values() if "***" in value]
    assert '"offsets":{"password-resets":{"0":' in values[KEY]


def test_every_command_reads_the_schedule(project: Project, kafka: dict[str, str]) -> None:
    """Planned, measured, shown, verified, replayed; then rebuilt, and planned again."""
    produce(kafka, read_flights(10), topic=TOPICS[0])
    assert project.tidegate("plan", NAME)["ranges"].keys() == {TOPICS[0]}
    assert project.tidegate("lag", NAME)["total"]["records_behind"] == 10
    assert [batch["state"] for batch in project.tidegate("ledger", "show", NAME)["batches"]] == ["committed", "committed"]
    assert project.tidegate("ledger", "verify", NAME)["rows"] == 200
    assert project.tidegate("replay", NAME, "--batch", "1..2", "--dry-run")["total"] == 200
    refused = project.tidegate("accept", "loss", NAME, code=1)
    assert refused["error"] == "RequestError"
    assert project.tidegate("ledger", "rebuild", NAME)["written"]
    assert project.tidegate("plan", NAME)["seq"] == 3

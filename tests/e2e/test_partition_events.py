"""Partition events on the platform: the DAG of the docs runs for exactly the hours that are complete, late or replayed."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.e2e.project import REPO, Project
from tests.e2e.runs import Runs
from tests.topics import make_topic, write
from tidegate.airflow.remote.api import AirflowApi
from tidegate.core.model.hours import HOUR_MS, floored, key_of
from tidegate.waiting import wait_until
from tidegate_local.platform import Platform

NAME, DOWNSTREAM, HOURS = "payments", "payments_hourly", "tidegate/payments/hours"
EXAMPLE = REPO / "docs" / "examples" / "hourly.py"
PAYMENT = b'{"carrier":"AA"}'
RUNS_S = 120


class Downstream:
    """The runs of the DAG that is scheduled on the hours."""

    def __init__(self, api: AirflowApi) -> None:
        self.api = api
        api.wait_dag(DOWNSTREAM)
        api.unpause(DOWNSTREAM)

    def keys(self) -> Counter[str]:
        """How often it has run for each partition, well."""
        return Counter(run["partition_key"] for run in self.api.dag_runs(DOWNSTREAM) if run["state"] == "success")

    def has_run_for(self, *keys: str) -> bool:
        """Whether it has run for exactly these, each as often as it is named, once no other run is under way."""

        def there() -> bool:
            return self.keys().total() >= len(keys) and len(self.api.dag_runs(DOWNSTREAM)) == self.keys().total()

        wait_until(there, RUNS_S, poll_s=0.5)
        return self.keys() == Counter(keys)

    def counted(self, key: str) -> int:
        """What the last run for this hour has counted."""
        runs = [run for run in self.api.dag_runs(DOWNSTREAM) if run["partition_key"] == key]
        last = max(runs, key=lambda run: str(run["start_date"]))
        counted: int = self.api.xcom(DOWNSTREAM, last["dag_run_id"], "count")["payments"]
        return counted


def announced(api: AirflowApi) -> list[str]:
    """The partition keys of all events of the hours."""
    (asset,) = [a for a in api.get("/assets", name_pattern=HOURS)["assets"] if a["name"] == HOURS]
    events = api.get("/assets/events", asset_id=asset["id"], order_by="timestamp", limit=100)["asset_events"]
    return [event["partition_key"] for event in events]


@pytest.fixture
def example(project: Project) -> Iterator[None]:
    """The DAG of the docs, as it is."""
    copied = shutil.copyfile(EXAMPLE, project.root / "dags" / EXAMPLE.name)
    yield
    copied.unlink()


def test_a_downstream_dag_runs_for_exactly_the_hours_that_changed(
    api: AirflowApi, platform: Platform, project: Project, example: None
) -> None:
    """A batch announces the complete hours, an empty one too; a late record its own; a replay those of its records."""
    kafka = {"bootstrap.servers": platform.bootstrap_servers}
    now = time.time_ns() // 1_000_000
    # what is complete stays the same for half an hour
    grace_s = (now - floored(now, HOUR_MS)) // 1000 + 1800
    first = floored(now, HOUR_MS) - 4 * HOUR_MS
    hours = [key_of(first + n * HOUR_MS) for n in range(3)]
    make_topic(kafka, NAME, 2)
    write(kafka, NAME, 0, [PAYMENT] * 2, times=[first, first + 1])
    write(kafka, NAME, 1, [PAYMENT] * 2, times=[first + HOUR_MS, now])
    project.write(
        NAME, source={"topics": [NAME]}, sink={"table": f"lake.shop.{NAME}"}, announce={"every": "hour", "grace": grace_s}
    )
    runs, downstream = Runs(api, NAME), Downstream(api)

    run = runs.run()
    assert run["state"] == "success", runs.log(run, "commit")
    assert downstream.has_run_for(*hours), downstream.keys()
    assert [downstream.counted(hour) for hour in hours] == [2, 1, 0]

    write(kafka, NAME, 0, [PAYMENT] * 2, times=[first + HOUR_MS + 5, now])
    assert runs.run()["state"] == "success"
    expected = [*hours, hours[1]]
    assert downstream.has_run_for(*expected), downstream.keys()
    assert downstream.counted(hours[1]) == 2

    replayed = Runs(api, f"{NAME}__replay").run(batches="1")
    assert replayed["state"] == "success"
    expected += hours[:2]
    assert downstream.has_run_for(*expected), downstream.keys()
    assert [downstream.counted(hour) for hour in hours] == [2, 2, 0]

    write(kafka, NAME, 0, [PAYMENT], times=[now])
    assert runs.run()["state"] == "success"  # nothing is complete by it, and nobody is told
    assert sorted(announced(api)) == sorted(expected)

    told = project.tidegate("announce", NAME, "--since", hours[2], "--until", key_of(first + 3 * HOUR_MS))
    assert told["keys"] == [hours[2]]
    assert downstream.has_run_for(*expected, hours[2]), downstream.keys()

"""A pipeline whose transform aggregates, through whole DAG runs: loaded, cleared, verified."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.project import Project
from tests.e2e.runs import Runs
from tidegate.airflow.remote.api import AirflowApi
from tidegate.sinks.iceberg.catalog import load_table
from tidegate_local.flights import create_topic, produce, read_flights
from tidegate_local.platform import Platform

NAME = "carriers"
TABLE = "lake.bad.carriers"
TRANSFORM = '''
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from transforms.flights import flights


def carriers(records: DataFrame) -> DataFrame:
    """Flights of each carrier in this batch."""
    return flights(records).groupBy("carrier").agg(F.count("*").alias("flights"))
'''


@pytest.fixture(scope="module")
def kafka(project: Project, platform: Platform) -> dict[str, str]:
    """Two batches' worth of flights in two partitions, and the pipeline that counts them."""
    settings = {"bootstrap.servers": platform.bootstrap_servers}
    create_topic(settings, NAME, 2)
    produce(settings, read_flights(300), topic=NAME)
    (project.root / "spark_jobs" / "transforms" / f"{NAME}.py").write_text(TRANSFORM)
    project.write(
        NAME,
        source={"topics": [NAME]},
        limits={"max_records": 200},
        transform=f"transforms.{NAME}:{NAME}",
        identity="batch",
        retries=0,
        sink={"table": TABLE},
    )
    platform.sync_pools({"tidegate_lake_bad_carriers": 1})
    return settings


def flights(rows: list[dict[str, Any]]) -> dict[int, int]:
    """Flights counted, by batch."""
    found: dict[int, int] = {}
    for row in rows:
        found[row["_batch"]] = found.get(row["_batch"], 0) + row["flights"]
    return found


@pytest.mark.usefixtures("kafka", "catalog")
def test_batches_that_aggregate_are_counted_once_also_when_they_are_cleared(project: Project, api: AirflowApi) -> None:
    """Each batch has its rows, loading it again replaces them, and verify finds what somebody took away."""

    def rows() -> list[dict[str, Any]]:
        table = load_table(TABLE)
        assert table is not None
        found: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: (row["_batch"], row["carrier"]))

    runs = Runs(api, NAME)
    records = {}
    for seq in (1, 2):
        run = runs.run()
        assert run["state"] == "success", runs.log(run, "load")
        records[seq] = api.xcom(NAME, run["dag_run_id"], "load")["observed"]["records"]
    before = rows()
    assert flights(before) == records
    assert sum(records.values()) == 300
    assert len({(row["_batch"], row["carrier"]) for row in before}) == len(before)

    table = load_table(TABLE)
    assert table is not None
    table.delete("_batch = 1 and carrier = 'UA'")
    found = project.tidegate("ledger", "verify", NAME, code=1)
    assert [(m["seq"], m["rows_written"] - m["rows_now"]) for m in found["miscounts"]] == [(1, 1)]
    assert len(found["other_commits"]) == 1
    again = runs.cleared(api.dag_runs(NAME)[0]["dag_run_id"], "plan", "load", "commit")
    assert again["tasks"] == {"plan": "success", "load": "success", "commit": "success"}
    assert "loading it again" in runs.log(again, "plan")
    assert rows() == before

    replayed = project.tidegate("replay", NAME, "--batch", "1..2")
    assert (replayed["state"], rows()) == ("success", before)
    found = project.tidegate("ledger", "verify", NAME)
    assert (found["holds"], found["batches"], found["rows"]) == (True, 2, len(before))

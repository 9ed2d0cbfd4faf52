"""What loads tell Airflow's OpenLineage provider, by the provider's own extractor."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.openlineage.extractors.manager import ExtractorManager
from openlineage.client.serde import Serde

from tests.records import changed, load_job, write_of
from tidegate.airflow.lineage import MOST_RANGES
from tidegate.airflow.operators.load import LoadOperator
from tidegate.core.config.pipeline import Pipeline, Sink, Source
from tidegate.core.model.errors import SparkJobFailed
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.jobs import LoadResult
from tidegate.core.state.receipt import Observed, Receipt

RANGES = (OffsetRange("t", 0, 5, 10), OffsetRange("t", 1, 0, 0), OffsetRange("u", 0, 0, 3))
OPTIONS = {"kafka.bootstrap.servers": "one:9092, two:9092", "kafka.sasl.jaas.config": "secret"}
JOB = load_job("p", 3, "r", RANGES, "m:f", "lake.a.b", OPTIONS)
RESULT = LoadResult(Receipt(write_of("p", 3, "r", RANGES, "m:f@2", "x"), 2**62, 5, rows=8), Observed(8, 8), {})


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> LoadOperator:
    pipeline = Pipeline("p", Source(("t", "u")), "m:f", sink=Sink("lake.a.b"))
    made = LoadOperator(task_id="load", pipeline=pipeline, spark_jobs=Path())
    monkeypatch.setattr(LoadOperator, "through_spark", lambda *_: RESULT)
    return made


def told(task: LoadOperator, state: Any = "success") -> dict[str, Any]:
    """What the provider finds out of a task that has ended, as it sends it."""
    from airflow.utils.state import TaskInstanceState  # noqa: PLC0415 - an enumeration of the states

    run = SimpleNamespace(run_id="r")
    found = ExtractorManager().extract_metadata(run, task, TaskInstanceState(state), SimpleNamespace())
    return {
        "inputs": [Serde.to_dict(each) for each in found.inputs],
        "outputs": [Serde.to_dict(each) for each in found.outputs],
        "run": {name: Serde.to_dict(facet) for name, facet in found.run_facets.items()},
    }


def test_a_load_tells_topics_table_snapshot_and_ranges(task: LoadOperator) -> None:
    """The topics that it read, and no secret of the connection."""
    task.run_job(JOB, {})
    found = told(task)
    assert [(each["namespace"], each["name"]) for each in found["inputs"]] == [
        ("kafka://one:9092", "t"),
        ("kafka://one:9092", "u"),
    ]
    (output,) = found["outputs"]
    assert (output["namespace"], output["name"]) == ("iceberg://lake", "a.b")
    assert output["facets"]["version"]["datasetVersion"] == str(2**62)
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 8
    facet = found["run"]["tidegate"]
    assert facet["_schemaURL"] == "urn:tidegate:run-facet:1"
    assert (facet["pipeline"], facet["seq"], facet.get("replay"), facet["transform"], facet["offsets"]) == (
        "p",
        3,
        None,
        "m:f@2",
        8,
    )
    assert facet["ranges"] == [
        {"topic": "t", "partition": 0, "from": 5, "until": 10},
        {"topic": "u", "partition": 0, "from": 0, "until": 3},
    ]
    assert "secret" not in json.dumps(found)


def test_a_load_that_failed_tells_what_it_tried(task: LoadOperator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a version of the table."""

    def fail(*_: object) -> None:
        raise SparkJobFailed("out of memory")

    monkeypatch.setattr(LoadOperator, "through_spark", fail)
    with pytest.raises(SparkJobFailed):
        task.run_job(changed(JOB, replay="again"), {})
    found = told(task, "failed")
    assert found["outputs"][0].get("facets", {}) == {}
    assert (found["run"]["tidegate"]["replay"], found["run"]["tidegate"]["transform"]) == ("again", "m:f")


def test_ranges_of_thousands_of_partitions_are_counted_only(task: LoadOperator) -> None:
    """An event has to fit into a request."""
    many = tuple(OffsetRange("t", n, 0, 2) for n in range(MOST_RANGES + 1))
    task.run_job(changed(JOB, ranges=many), {})
    facet = told(task)["run"]["tidegate"]
    assert (facet["offsets"], facet["ranges"]) == (2 * (MOST_RANGES + 1), [])


def test_a_task_that_did_not_load_tells_nothing(task: LoadOperator) -> None:
    """As where a batch holds no offsets."""
    assert task.get_openlineage_facets_on_complete(None) is None

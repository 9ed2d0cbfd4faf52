"""What a load refuses, and what it says, on a real Spark Connect server."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql.connect.logging import logger

from tests.integration.loading import load, rows
from tests.topics import make_topic, write
from tidegate.core.errors import SinkMisfit, SparkJobFailed, TransformError
from tidegate.core.load.job import LoadJob
from tidegate.core.offsets.ranges import OffsetRange
from tidegate.local import Platform

FORGED = b'{"flight": 1}],"end":1}'
VALUES = [FORGED, *(json.dumps({"flight": n}).encode() for n in range(1, 20))]

# PyIceberg's SQLAlchemy engine and gRPC leave sockets and files to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def topic(platform: Platform) -> str:
    """One partition of twenty records; the first is made to look whole inside a wrapper."""
    settings = {"bootstrap.servers": platform.bootstrap_servers}
    name = make_topic(settings, f"refusals-{uuid.uuid4().hex[:8]}", 1)
    write(settings, name, 0, VALUES)
    return name


@pytest.fixture
def job(platform: Platform, topic: str) -> LoadJob:
    """Offsets [0, 10) into a table of its own."""
    options = {"kafka.bootstrap.servers": platform.bootstrap_servers}
    ranges = (OffsetRange(topic, 0, 0, 10),)
    return LoadJob("flights", 0, "r/1", ranges, "transforms.flights:flights", f"lake.it.t{uuid.uuid4().hex}", options)


def following(job: LoadJob, **changes: object) -> LoadJob:
    (only,) = job.ranges
    return replace(job, seq=1, ranges=(OffsetRange(only.topic, 0, 10, 20),), **changes)  # type: ignore[arg-type]


def test_a_text_that_closes_a_wrapper_is_no_json(platform: Platform, job: LoadJob) -> None:
    """It lands with its text and the reason, and none of its fields."""
    load(platform, job)
    first, second, *_ = rows(platform, job)
    assert (first["flight"], first["_raw"], first["_error"]) == (None, FORGED.decode(), "not valid JSON")
    assert (second["flight"], second["_raw"], second["_error"]) == (1, None, None)
    assert not {"key", "timestamp", "timestampType"} & set(second)
    assert second["_timestamp"] is not None


def test_a_first_load_that_succeeds_logs_nothing_red(
    platform: Platform, job: LoadJob, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pyspark logs each failed call with its trace, once somebody has enabled its logger, as Airflow does."""
    monkeypatch.setattr(logger, "disabled", False)
    assert not load(platform, job).landed_before
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_table_of_another_pipeline_is_refused(platform: Platform, job: LoadJob) -> None:
    """Named with both pipelines and the setting; with the setting, and other records, it is shared."""
    load(platform, job)
    with pytest.raises(SinkMisfit, match=r"belongs to pipeline flights, not to departures.*sink\.shared_with"):
        load(platform, following(job, pipeline="departures"))
    with pytest.raises(SinkMisfit, match=r"holds rows of .* by pipeline flights, which a load of departures would delete"):
        load(platform, replace(job, pipeline="departures", shared_with=("flights",)))
    assert len(rows(platform, job)) == 10
    load(platform, following(job, pipeline="departures", shared_with=("flights",)))
    assert len(rows(platform, job)) == 20


@pytest.fixture
def doomed(tmp_path: Path) -> Iterator[Platform]:
    """A Spark Connect server for one test, which may ruin it."""
    made = Platform(tmp_path / "doomed", Path(__file__).parents[2])
    try:
        made.up(("spark",))
        yield made
    finally:
        made.down()


def test_a_transform_that_multiplies_rows_beyond_memory_is_told_by_its_cause(
    doomed: Platform, job: LoadJob, tmp_path: Path
) -> None:
    """Spark out of memory, and what to do about it."""
    (tmp_path / "many.py").write_text(
        "from pyspark.sql import functions as F\n"
        "def many(records):\n"
        "    return records.withColumn('n', F.explode(F.sequence(F.lit(0), F.lit(1_500_000_000).cast('long'))))\n"
    )
    with pytest.raises(SparkJobFailed, match=r"Spark ran out of memory \(.*(heap space|array size)") as caught:
        load(doomed, replace(job, transform="many:many"), tmp_path)
    assert "multiplies rows" in caught.value.fix
    assert "Rendezvous" not in str(caught.value)


def test_a_changed_neighbour_makes_new_rows_under_a_new_version(platform: Platform, job: LoadJob, tmp_path: Path) -> None:
    """In one process, as in a task that is forked from one that imported the module before."""
    (tmp_path / "orders.py").write_text(
        "from pyspark.sql import functions as F\n"
        "from units import factor, mark\n"
        "def orders(records):\n"
        "    rows = records.select('_kafka_topic', '_kafka_partition', '_kafka_offset')\n"
        "    return rows.withColumn('n', F.lit(factor)).withColumn('m', F.udf(mark)('_kafka_offset'))\n"
    )
    versions = set()
    for factor in (1, 2):
        (tmp_path / "units.py").write_text(f"factor = {factor}\ndef mark(offset):\n    return f'{{offset}}x{factor}'\n")
        result = load(platform, replace(job, transform="orders:orders"), tmp_path)
        assert not result.landed_before
        assert {(row["n"], row["m"]) for row in rows(platform, job)} == {(factor, f"{n}x{factor}") for n in range(10)}
        versions.add(result.receipt.load.transform)
    assert len(versions) == 2


@pytest.mark.parametrize("transform", ["os:system", "transforms.flights:DataFrame", "pyspark.sql:DataFrame"])
def test_what_is_no_transform_of_the_folder_is_neither_imported_nor_called(
    platform: Platform, job: LoadJob, transform: str
) -> None:
    """Whatever the order says."""
    with pytest.raises(TransformError):
        load(platform, replace(job, transform=transform))

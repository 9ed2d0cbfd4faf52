"""Loads on a real broker, through a warm Spark Connect server."""

from __future__ import annotations

import json
import logging
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest import mock

import confluent_kafka as ck
import pytest
from pyspark.sql.connect.logging import logger

from tests.integration.loading import SPARK_JOBS, load, new_topic, rows
from tests.records import changed
from tests.topics import write
from tidegate.core.model.errors import (
    BrokerUnavailable,
    OffsetsOutOfRange,
    SinkFull,
    SparkJobFailed,
    TidegateError,
    TopicNotFound,
)
from tidegate.core.model.ranges import OffsetRange, total_count
from tidegate.core.state.jobs import LoadJob
from tidegate.core.state.receipt import Observed
from tidegate.formats import python_workers
from tidegate.spark import settings
from tidegate.spark.kafka_source import read_ranges
from tidegate.spark.load import load_range
from tidegate.spark.session import connect, interrupt
from tidegate.spark.settings import age_s
from tidegate_local.platform import Platform

SECRET = "hush-hush-4711"  # noqa: S105 - not one
FLIGHT = {"year": 2013, "month": 1, "carrier": "UA", "flight": 1545, "dep_time": None, "time_hour": "2013-01-01T10:00:00Z"}
VALUES: list[bytes | None] = [json.dumps({**FLIGHT, "flight": n}).encode() for n in range(100)]
VALUES[50], VALUES[51] = b'{"flight": "abc"}', None


@pytest.fixture(scope="module")
def topic(platform: Platform) -> str:
    """A topic of two partitions with 100 records each: record 50 does not fit, record 51 is a tombstone."""
    name, settings = new_topic(platform, 2), {"bootstrap.servers": platform.bootstrap_servers}
    for partition in (0, 1):
        write(settings, name, partition, VALUES)
    return name


@pytest.fixture
def job(job_of: Callable[..., LoadJob], topic: str) -> LoadJob:
    """Offsets [0, 60) of both partitions into a table of its own."""
    made = job_of("transforms.flights:flights", *(OffsetRange(topic, partition, 0, 60) for partition in (0, 1)))
    return changed(made, kafka_options={**made.reading.kafka_options, "kafka.ssl.key.password": SECRET})


def seen(job: LoadJob) -> Observed:
    """What a load of `job` observes: every record of two partitions."""
    lengths = 2 * sum(len(value or b"") for value in VALUES[:60])
    return Observed(120, 120, lengths, first_last={r.topic_partition: (0, 59) for r in job.load.ranges}, errors=4)


def test_a_load_lands_every_record_of_its_range_once(platform: Platform, job: LoadJob) -> None:
    """Also the one that does not fit and the tombstone, each with its reason."""
    result = load(platform, job)
    assert result.observed == seen(job)
    assert result.receipt.covers(job.load.ranges)
    found = rows(platform, job)
    assert [(r["_kafka_partition"], r["_kafka_offset"]) for r in found] == [(p, o) for p in (0, 1) for o in range(60)]
    assert {r["_kafka_topic"] for r in found} == {job.load.ranges[0].topic}
    assert [r["flight"] for r in found[:3]] == [0, 1, 2]
    broken = [r for r in found if r["_error"] is not None]
    assert [(r["_raw"], r["_error"]) for r in broken[:2]] == [
        ('{"flight": "abc"}', "does not fit: flight"),
        (None, "no value (a tombstone)"),
    ]
    assert len(broken) == 4


HEADERS = '''
from tidegate import header

def headers(records):
    """Those of a record, and two that are taken by name."""
    rows = records.select("headers", *records.columns[-3:])
    return rows.withColumn("id", header(rows, "id").cast("string")).withColumn("bytes", header(rows, "ü, `bytes`"))
'''


def test_a_transform_gets_the_headers_that_were_sent(
    platform: Platform, job_of: Callable[..., LoadJob], tmp_path: Path
) -> None:
    """In order, repeats and nulls kept; of several of one name, `header` takes the last."""
    sent: list[list[tuple[str, str | bytes | None]]] = [
        [],
        [("id", b"1"), ("other", None), ("ü, `bytes`", b"\xff\x00"), ("id", b"2"), ("", b"")],
        [("id", b"3"), ("id", None)],
        [("ID", b"4")],
    ]
    name, producer = new_topic(platform), ck.Producer({"bootstrap.servers": platform.bootstrap_servers})
    for headers in sent:
        producer.produce(name, b"{}", partition=0, headers=headers)
    producer.flush()
    (tmp_path / "own.py").write_text(HEADERS)
    job = job_of("own:headers", OffsetRange(name, 0, 0, 4))
    load(platform, job, tmp_path)
    found = rows(platform, job)
    assert [[(each["key"], each["value"]) for each in row["headers"] or []] for row in found] == sent
    assert [(row["id"], row["bytes"]) for row in found] == [(None, None), ("2", b"\xff\x00"), (None, None), (None, None)]


def test_a_first_load_that_succeeds_logs_nothing_red(
    platform: Platform, job: LoadJob, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pyspark logs each failed call with its trace, once somebody has enabled its logger, as Airflow does."""
    monkeypatch.setattr(logger, "disabled", False)
    assert not load(platform, job).landed_before
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_the_age_of_spark_costs_no_round_trip(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server tells it with what is asked of it when a session is opened."""
    with connect(platform.spark_remote, name="tests") as spark:
        stub = cast("Any", spark).client._stub
        asked = mock.Mock(wraps=stub.Config)
        monkeypatch.setattr(stub, "Config", asked)
        known = age_s(spark)
        asked.assert_not_called()
        monkeypatch.setattr(settings, "_starts", {})
        again = age_s(spark)
        assert known is not None
        assert again is not None
        assert again >= known > 0
        asked.assert_called()


def test_a_large_load_is_parsed_by_python_workers_to_the_same_rows(
    platform: Platform, job: LoadJob, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server's workers have what that needs, and get the decoder as code; the table shows no difference."""
    load(platform, job)
    monkeypatch.setattr(python_workers, "MANY", total_count(job.load.ranges))
    asked = mock.Mock(wraps=python_workers.why_not)
    monkeypatch.setattr(python_workers, "why_not", asked)
    by_workers = replace(job, table=f"{job.table}_by_workers")
    with caplog.at_level(logging.INFO, "tidegate"):
        result = load(platform, by_workers)
    assert result.observed == seen(job)
    asked.assert_called_once()
    assert "parses the records itself" not in caplog.text
    assert rows(platform, by_workers) == rows(platform, job)


def test_records_are_read_by_the_reader_of_streams(
    platform: Platform, job: LoadJob, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark's default for batches makes each record twice."""
    with connect(platform.spark_remote, name="tests") as spark:
        read_ranges(spark, job.load.ranges, job.reading.kafka_options).explain()
    plan = capsys.readouterr().out
    assert "BatchScan" in plan
    assert SECRET not in plan


def test_loads_that_create_the_table_at_once_both_land(platform: Platform, job: LoadJob) -> None:
    """Whoever is second finds the table and writes into it."""
    jobs = [changed(job, seq=n, ranges=(r,)) for n, r in enumerate(job.load.ranges)]
    # The outer session keeps pyspark's switch to Connect on while the threads come and go.
    with connect(platform.spark_remote, name="tests"), ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda one: load(platform, one), jobs))
    assert len(rows(platform, job)) == 120


def test_what_cannot_be_read_is_named_within_a_minute(platform: Platform, job: LoadJob, topic: str) -> None:
    """Spark's and Kafka's defaults wait for several, and a short read would be worse. Nothing is committed."""
    refused: list[tuple[type[TidegateError], dict[str, Any]]] = [
        (OffsetsOutOfRange, {"ranges": (OffsetRange(topic, 0, 90, 200),)}),
        (TopicNotFound, {"ranges": (OffsetRange("no-such-topic", 0, 0, 10),)}),
        (BrokerUnavailable, {"kafka_options": {"kafka.bootstrap.servers": "127.0.0.1:9"}}),
    ]
    for error, changes in refused:
        started = time.monotonic()
        with pytest.raises(error):
            load(platform, changed(job, **changes))
        assert time.monotonic() - started < 60
    assert rows(platform, job) == []


def test_an_interrupted_load_ends_at_once(platform: Platform, job: LoadJob, tmp_path: Path) -> None:
    """A killed task does not leave its job running on the server."""
    (tmp_path / "slow.py").write_text(
        "from pyspark.sql import functions as F\n"
        "def slow(records):\n"
        "    nap = F.java_method(F.lit('java.lang.Thread'), F.lit('sleep'), F.lit(500).cast('long'))\n"
        "    return records.withColumn('nap', nap)\n"
    )
    with connect(platform.spark_remote, name="tests") as spark:
        timer = threading.Timer(4, interrupt, [spark])
        timer.start()
        started = time.monotonic()
        with pytest.raises(SparkJobFailed, match="interrupted"):
            load_range(spark, replace(job, transform="slow:slow"), spark_jobs=tmp_path)
        assert time.monotonic() - started < 20
        timer.join()


def test_a_transform_may_use_python_functions(platform: Platform, job: LoadJob, tmp_path: Path) -> None:
    """Spark's workers get the code of the module and of its neighbours, whose folder they do not have."""
    (tmp_path / "marks.py").write_text("def mark(text):\n    return str(text) + '!'\n")
    (tmp_path / "shouting.py").write_text(
        "from pyspark.sql import functions as F\n"
        "from marks import mark\n"
        "def shout(text):\n"
        "    return mark(text)\n"
        "def loud(records):\n"
        "    return records.withColumn('loud', F.udf(shout)('_kafka_offset'))\n"
    )
    load(platform, replace(job, transform="shouting:loud"), tmp_path)
    assert rows(platform, job)[7]["loud"] == "7!"


def test_an_aggregate_that_makes_no_row_says_what_was_read(platform: Platform, job: LoadJob, tmp_path: Path) -> None:
    """Spark leaves out of its plan what makes no rows, and with it the count of the records: they are counted all the same."""
    (tmp_path / "nobody.py").write_text(
        "from transforms.flights import flights\n"
        "def carriers(records):\n"
        "    return flights(records).where(\"carrier = 'nobody'\").groupBy('carrier').count()\n"
    )
    (tmp_path / "transforms").symlink_to(SPARK_JOBS / "transforms")
    result = load(platform, changed(job, transform="nobody:carriers", identity="batch"), tmp_path)
    # its rows have no `_error`
    assert result.observed == replace(seen(job), rows=0, first_last=None, errors=None)
    assert result.receipt.rows == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes; skipped where mounting is not permitted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_is_named_nothing_is_committed_and_the_next_try_succeeds(
    platform: Platform, job: LoadJob, topic: str, small_disk: Path
) -> None:
    """The range waits until there is space again."""
    load(platform, job)
    with connect(platform.spark_remote, name="tests") as spark:
        spark.sql(f"ALTER TABLE {job.table} SET TBLPROPERTIES ('write.data.path' = '{small_disk.as_uri()}')")
    second = changed(job, seq=1, ranges=(OffsetRange(topic, 0, 60, 100),))
    filler = small_disk / "filler"
    filler.write_bytes(bytes(2 * 1024 * 1024))
    with pytest.raises(SinkFull, match="space"):
        load(platform, second)
    assert len(rows(platform, job)) == 120
    filler.unlink()
    assert load(platform, second).receipt.rows == 40
    assert len(rows(platform, job)) == 160

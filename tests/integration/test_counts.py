"""Counts of loads through Spark Connect on a real broker, where Spark executes a part of the plan more than once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.integration.loading import new_topic, rows
from tests.records import changed
from tests.spark.test_counts import SHAPES
from tests.topics import write
from tidegate.core.config.pipeline import Dedupe
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.jobs import LoadJob, LoadResult
from tidegate_local.platform import Platform


@pytest.fixture(scope="module")
def spark_jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of transforms, module `twice`."""
    folder = tmp_path_factory.mktemp("spark_jobs")
    (folder / "twice.py").write_text(SHAPES)
    return folder


@pytest.fixture(scope="module")
def topic(platform: Platform) -> str:
    """A topic of two partitions with 40 records each; every tenth is broken."""
    name, settings = new_topic(platform, 2), {"bootstrap.servers": platform.bootstrap_servers}
    values = [json.dumps({"id": n}).encode() if n % 10 else b"no JSON" for n in range(40)]
    for partition in (0, 1):
        write(settings, name, partition, values)
    return name


@pytest.fixture
def job(job_of: Callable[..., LoadJob], topic: str) -> LoadJob:
    """Offsets [0, 20) of both partitions into a table of its own, of a topic without gaps."""
    return job_of("twice:plain", *(OffsetRange(topic, partition, 0, 20) for partition in (0, 1)), contiguous=True)


@pytest.mark.parametrize("name", ["union", "self_joined", "excepted", "subquery", "cached", "counting"])
def test_a_part_that_runs_twice_is_counted_once(
    platform: Platform, load: Callable[[LoadJob], LoadResult], job: LoadJob, name: str
) -> None:
    """As in a classic session; pyspark's client takes one observation on both sides of a join or a union."""
    observed = load(replace(job, transform=f"twice:{name}")).observed
    assert (observed.records, observed.rows, observed.errors) == (40, 40, 4)
    assert [(row["_kafka_partition"], row["_kafka_offset"]) for row in rows(platform, job)] == [
        (partition, offset) for partition in (0, 1) for offset in range(20)
    ]


def test_a_table_with_an_order_takes_batches_redone_loads_and_replays(
    platform: Platform, spark: SparkSession, load: Callable[[LoadJob], LoadResult], job: LoadJob
) -> None:
    """With repeats left out, too: there are none."""
    load(job)
    spark.sql(f"ALTER TABLE {job.table} WRITE ORDERED BY id")
    at = {r.topic_partition: 0 for r in job.load.ranges}
    for seq, (start, until) in enumerate([(20, 40), (20, 40), (10, 30)], start=1):
        ranges = tuple(replace(r, from_offset=start, until_offset=until) for r in job.load.ranges)
        again = changed(job, seq=min(seq, 2), ranges=ranges, redo=seq > 1, replay=None if seq < 3 else "replay")
        observed = load(changed(again, dedupe=Dedupe(window=10, key="id"), look_back=at)).observed
        assert (observed.records, observed.rows, observed.repeats, observed.errors) == (40, 40, 0, 4)
    assert len(rows(platform, job)) == 80

"""Loads of logs with gaps, on a real broker: transactions, aborted records, compaction, tombstones."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyiceberg.catalog import load_catalog

from tests import topics
from tests.integration.loading import new_topic, offsets
from tests.receivers import landed
from tests.records import changed
from tidegate.core.config.pipeline import Split
from tidegate.core.model.errors import ReceiptMismatch
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.model.splitting import split_ranges
from tidegate.core.state.jobs import LoadJob, LoadResult
from tidegate.core.state.receipt import Observed
from tidegate_local.platform import Platform

COMPACTION_TIMEOUT_S = 90.0
TRANSFORM = '''
from pyspark.sql import functions as F

def text(records):
    """Key and value as text."""
    origin = "_kafka_topic", "_kafka_partition", "_kafka_offset"
    return records.select(F.col("key").cast("string"), F.col("value").cast("string"), *origin)
'''


def settings_of(platform: Platform) -> dict[str, str]:
    return {"bootstrap.servers": platform.bootstrap_servers}


@pytest.fixture(scope="module")
def spark_jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of transforms, module `gaps`."""
    folder = tmp_path_factory.mktemp("spark_jobs")
    (folder / "gaps.py").write_text(TRANSFORM)
    return folder


@pytest.fixture
def job(job_of: Callable[..., LoadJob]) -> Callable[..., LoadJob]:
    """Makes jobs of a topic's partition, each into a table of its own."""
    return lambda topic, start, until, **plan: job_of("gaps:text", OffsetRange(topic, 0, start, until), **plan)


@pytest.fixture(scope="module")
def transactional(platform: Platform) -> str:
    """Offsets 0-4 committed, 5 a marker, 6-9 aborted, 10 a marker, 11-13 committed, 14 a marker: the log ends at 15."""
    name = new_topic(platform)
    for records, commit in ((5, True), (4, False), (3, True)):
        topics.transact(settings_of(platform), name, 0, records, commit=commit)
    return name


Load = Callable[[LoadJob], LoadResult]
Job = Callable[..., LoadJob]


def test_aborted_records_are_left_out_of_a_committed_read(platform: Platform, load: Load, job: Job, transactional: str) -> None:
    """Also through several Spark tasks; the whole range counts as loaded, and ends in a marker."""
    for split in (None, Split(min_partitions=4), Split(max_records_per_partition=2)):
        asked = job(transactional, 0, 15, split=split)
        result = load(asked)
        assert offsets(platform, asked) == [0, 1, 2, 3, 4, 11, 12, 13]
        assert result.observed == Observed(8, 8, 16, first_last={TopicPartition(transactional, 0): (0, 13)})
        assert result.receipt.covers(asked.load.ranges)


def test_an_uncommitted_read_loads_aborted_records_too(platform: Platform, load: Load, job: Job, transactional: str) -> None:
    """Markers are no records all the same."""
    asked = job(transactional, 0, 15, isolation_level="read_uncommitted")
    assert load(asked).observed.records == 12
    assert offsets(platform, asked) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 11, 12, 13]


def test_a_range_of_markers_and_aborted_records_lands_empty(
    platform: Platform, load: Load, job: Job, transactional: str
) -> None:
    """In the middle and at the end of the log: no record, one commit with a receipt, and quickly."""
    for span in ((5, 6), (6, 10), (5, 11), (14, 15)):
        asked = job(transactional, *span)
        started = time.monotonic()
        result = load(asked)
        assert time.monotonic() - started < 15
        assert result.observed == Observed(0, 0, 0, first_last={})
        assert result.receipt.covers(asked.load.ranges)
        assert offsets(platform, asked) == []
        assert load(asked).receipt == result.receipt


def test_ranges_that_cut_through_transactions_meet_without_a_gap(
    platform: Platform, load: Load, job: Job, transactional: str
) -> None:
    """Wherever a plan puts its bounds, each record is loaded once."""
    first = job(transactional, 0, 3)
    bounds = (3, 6, 8, 12, 15)
    load(first)
    for seq, (from_offset, until_offset) in enumerate(pairwise(bounds), start=1):
        load(changed(first, seq=seq, ranges=(OffsetRange(transactional, 0, from_offset, until_offset),)))
    assert offsets(platform, first) == [0, 1, 2, 3, 4, 11, 12, 13]


def test_a_transactional_topic_is_not_contiguous(platform: Platform, load: Load, job: Job, transactional: str) -> None:
    """The error has both counts, also in the retry that finds the commit. A range without gaps is loaded."""
    asked = job(transactional, 0, 15, contiguous=True)
    for _ in range(2):
        with pytest.raises(ReceiptMismatch, match=r"15 offsets.*8 records.*rows from 0 to 13"):
            load(asked)
    assert load(job(transactional, 0, 5, contiguous=True)).observed.records == 5


def test_a_split_partition_is_several_files_of_that_partition_only(platform: Platform, load: Load, job: Job) -> None:
    """Spark cuts as `split_ranges` says; a data file holds one Kafka partition."""
    large, small = new_topic(platform), new_topic(platform)
    topics.write(settings_of(platform), large, 0, 90)
    topics.write(settings_of(platform), small, 0, 10)
    ranges = (OffsetRange(large, 0, 0, 90), OffsetRange(small, 0, 0, 10))
    for split in (Split(), Split(min_partitions=5), Split(max_records_per_partition=30)):
        files = len(split_ranges(ranges, **asdict(split)))
        asked = changed(job(large, 0, 1), ranges=ranges, split=split, contiguous=True)
        result = load(asked)
        assert result.observed.first_last == {r.topic_partition: (0, r.until_offset - 1) for r in ranges}
        assert len(offsets(platform, asked)) == 100
        table = load_catalog("lake", **platform.catalog_properties).load_table(asked.table.removeprefix("lake."))
        held = [file["readable_metrics"] for file in table.inspect.files().to_pylist()]
        assert len(held) == files
        assert all(file["_kafka_topic"]["lower_bound"] == file["_kafka_topic"]["upper_bound"] for file in held)
        # a redo replaces all of the pieces, however they were cut
        load(changed(asked, redo=True, split=None))
        assert len(offsets(platform, asked)) == 100


def remaining(platform: Platform, topic: str, until_offset: int) -> list[tuple[int, bytes | None]]:
    """Offset and value of each record before `until_offset` that the broker still hands out."""
    found = [(message.offset(), message.value()) for message in landed(settings_of(platform), topic)]
    return [(offset, value) for offset, value in found if offset is not None and offset < until_offset]


def test_a_compacted_topic_with_tombstones_loads_completely(platform: Platform, load: Load, job: Job) -> None:
    """Of 60 updates of three keys the broker keeps a few, and a tombstone; the load holds exactly those."""
    # no delete.retention.ms: the tombstone stays
    often = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "max.compaction.lag.ms": "100"}
    topic = new_topic(platform, 1, **{"cleanup.policy": "compact", **often})
    producer = Producer({"bootstrap.servers": platform.bootstrap_servers})
    for number in range(60):
        producer.produce(topic, key=f"key-{number % 3}".encode(), value=str(number).encode(), partition=0)
    producer.produce(topic, key=b"key-0", value=None, partition=0)
    assert producer.flush(30) == 0
    deadline = time.monotonic() + COMPACTION_TIMEOUT_S
    end = 61
    while len(kept := remaining(platform, topic, end)) > 10:
        if time.monotonic() > deadline:
            pytest.skip(f"the broker's cleaner did not run within {COMPACTION_TIMEOUT_S:.0f} s")
        time.sleep(1)
        # only segments before the active one are cleaned, and each of these records begins another
        topics.write(settings_of(platform), topic, 0, [b"x"], key=b"other")
    asked = job(topic, 0, end)
    result = load(asked)
    assert offsets(platform, asked) == [offset for offset, _ in kept]
    assert (60, None) in kept
    assert result.observed.records == len(kept)
    assert result.observed.bytes == sum(len("key-0") + len(value or b"") for _, value in kept)
    assert result.observed.first_last == {TopicPartition(topic, 0): (kept[0][0], kept[-1][0])}
    # a stretch that compaction emptied
    assert load(replace(job(topic, 0, 30), table=f"{asked.table}b")).observed == Observed(0, 0, 0, first_last={})

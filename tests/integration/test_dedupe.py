"""Loads that leave out repeats, on a real broker: whatever the cut, a record is a row once within the window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import TopicPartition as Position

from tests.integration.loading import new_topic, offsets
from tests.records import changed
from tidegate.core.audit.oracle import dedupings, verify
from tidegate.core.config.names import IDEMPOTENCY_KEY
from tidegate.core.config.pipeline import Dedupe, Split
from tidegate.core.load.repeats import LoggedRepeats, look_back
from tidegate.core.model.errors import LookBackExpired, OffsetsOutOfRange
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.model.watermarks import Watermarks
from tidegate.core.state.jobs import LoadJob, LoadResult
from tidegate.kafka.log import read_offsets, with_headers
from tidegate_local.platform import Platform

TRANSFORM = '''
from pyspark.sql import functions as F

COLUMNS = ["key", "value", "timestamp", "timestampType", "headers", "_kafka_topic", "_kafka_partition", "_kafka_offset"]

def text(records):
    """The value as text."""
    assert records.columns == COLUMNS, records.columns
    return records.select(F.col("value").cast("string"), *COLUMNS[5:])
'''
Headers = Sequence[tuple[str, bytes | None]]


def named(*keys: str | None) -> list[Headers]:
    """The headers of records with these keys; None: without a key."""
    return [[] if key is None else [(IDEMPOTENCY_KEY, key.encode())] for key in keys]


# offset                  0    1    2     3    4    5    6     7    8    9    10   11
LOG = named(*("a", "b", None, "a", "c", "b", None, "a", "d", "b", "c", "a"))
LEFT_OUT = {3, 5, 7, 9, 11}
"""Which of these are repeats in a window of 4."""


@pytest.fixture(scope="module")
def spark_jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of transforms, module `repeats`."""
    folder = tmp_path_factory.mktemp("spark_jobs")
    (folder / "repeats.py").write_text(TRANSFORM)
    return folder


@pytest.fixture(scope="module")
def make_log(platform: Platform) -> Callable[..., str]:
    """Makes topics that hold records with these headers, whose values are their numbers."""

    def make(records: Sequence[Headers]) -> str:
        name = new_topic(platform)
        produce(ck.Producer({"bootstrap.servers": platform.bootstrap_servers}), name, records)
        return name

    return make


def produce(producer: ck.Producer, topic: str, records: Sequence[Headers]) -> None:
    for number, headers in enumerate(records):
        producer.produce(topic, str(number).encode(), partition=0, headers=list(headers))
    assert producer.flush(30) == 0


def delete_records(platform: Platform, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": platform.bootstrap_servers})
    admin.delete_records([Position(topic, 0, before)])[Position(topic, 0)].result(30)


@pytest.fixture
def job(job_of: Callable[..., LoadJob]) -> Callable[..., LoadJob]:
    """Makes jobs of a topic's partition, each into a table of its own."""

    def make(topic: str, from_offset: int, until_offset: int, *, window: int = 4, start: int = 0, **plan: object) -> LoadJob:
        ranges = (OffsetRange(topic, 0, from_offset, until_offset),)
        since = look_back(ranges, window, {TopicPartition(topic, 0): start})
        return job_of("repeats:text", *ranges, seq=1, dedupe=Dedupe(window), look_back=since, **plan)

    return make


Load = Callable[[LoadJob], LoadResult]
Job = Callable[..., LoadJob]
MakeLog = Callable[..., str]


def cut(job: LoadJob, *bounds: int, window: int = 4) -> list[LoadJob]:
    """The batches between these offsets, into the job's table."""
    batches = []
    for seq, (from_offset, until_offset) in enumerate(pairwise(bounds), start=1):
        ranges = (replace(job.load.ranges[0], from_offset=from_offset, until_offset=until_offset),)
        since = look_back(ranges, window, {job.load.ranges[0].topic_partition: 0})
        batches.append(changed(job, seq=seq, ranges=ranges, look_back=since))
    return batches


@pytest.fixture(scope="module")
def log(make_log: MakeLog) -> str:
    """A topic that holds `LOG`."""
    return make_log(LOG)


def test_a_record_of_a_key_that_came_within_the_window_is_left_out(platform: Platform, load: Load, job: Job, log: str) -> None:
    """At the window's edge too, and by one offset not beyond it; all records count as read."""
    asked = job(log, 0, 12, contiguous=True)
    result = load(asked)
    kept = sorted(set(range(12)) - LEFT_OUT)
    assert offsets(platform, asked) == kept
    assert (result.observed.records, result.observed.rows) == (12, len(kept))
    assert result.observed.repeats == len(LEFT_OUT)
    assert load(asked).landed_before


def test_a_cut_into_batches_gives_the_same_rows_and_so_does_every_replay(
    platform: Platform, load: Load, job: Job, log: str
) -> None:
    """Across batches, in replays of any part, and where a large partition is cut into tasks."""
    batches = cut(job(log, 0, 12), 0, 1, 5, 12)
    for batch in batches:
        load(batch)
    kept = sorted(set(range(12)) - LEFT_OUT)
    assert offsets(platform, batches[0]) == kept
    for number, (from_offset, until_offset) in enumerate([(2, 8), (5, 6), (9, 12)]):
        (part,) = cut(batches[0], from_offset, until_offset)
        load(changed(part, seq=number, replay="again", split=Split(max_records_per_partition=2)))
        assert offsets(platform, part) == kept


def test_records_without_a_key_are_never_repeats(platform: Platform, load: Load, job: Job, make_log: MakeLog) -> None:
    """No header, another one, an empty one or one of null; of two headers the last one counts."""
    one, two = (IDEMPOTENCY_KEY, b"1"), (IDEMPOTENCY_KEY, b"2")
    none: list[Headers] = [[], [], [("other", b"1")], [("other", b"1")]]
    empty: list[Headers] = [[(IDEMPOTENCY_KEY, b"")], [(IDEMPOTENCY_KEY, b"")], [(IDEMPOTENCY_KEY, None)]] * 2
    twice: list[Headers] = [[one], [one, two], [two, one], [one, ("x", None), two]]
    asked = job(make_log([*none, *empty, *twice]), 0, 14, window=100)
    assert load(asked).observed.repeats == 2
    assert offsets(platform, asked) == list(range(12))


def test_keys_are_those_of_another_header_where_the_pipeline_says_so(
    platform: Platform, load: Load, job: Job, make_log: MakeLog
) -> None:
    """A producer of one's own names its records in its own header; bytes that are no text are keys too."""
    asked = job(make_log([[("id", b"\xff")], [("id", b"\xfe")], [("id", b"\xff")]]), 0, 3)
    load(changed(asked, dedupe=Dedupe(4, "id")))
    assert offsets(platform, asked) == [0, 1]


def test_offsets_without_records_count_in_the_window(platform: Platform, load: Load, job: Job, make_log: MakeLog) -> None:
    """Markers of transactions, and records of aborted ones, which make no record a repeat either."""
    topic = make_log([])
    producer = ck.Producer({"bootstrap.servers": platform.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    for keys, commit in ((("a",), True), (("b",), False), (("a", "b"), True), (("b",), True)):
        producer.begin_transaction()
        produce(producer, topic, named(*keys))
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
    # offsets: a 0, marker 1, b 2 (aborted), marker 3, a 4, b 5, marker 6, b 7, marker 8
    for window, left_out in ((3, {7}), (4, {4, 7})):
        asked = job(topic, 0, 9, window=window)
        for batch in cut(asked, 0, 5, 9, window=window):
            load(changed(batch, dedupe=Dedupe(window)))
        assert offsets(platform, asked) == sorted({0, 4, 5, 7} - left_out)


def test_a_look_back_that_retention_deleted_is_refused_by_name(
    platform: Platform, load: Load, job: Job, make_log: MakeLog
) -> None:
    """Nothing is written; with a window that the log holds, it is loaded. A range that is gone itself is another error."""
    topic = make_log(LOG)
    delete_records(platform, topic, 5)
    asked = job(topic, 8, 12, window=4)
    with pytest.raises(LookBackExpired, match=rf"from offset 4 of {topic}-0") as caught:
        load(asked)
    assert caught.value.fields["from_offset"] == 4
    assert "dedupe.window" in caught.value.fix
    load(replace(job(topic, 8, 12, window=3), table=asked.table))
    assert offsets(platform, asked) == [8, 9, 10, 11]  # by a window of 3
    with pytest.raises(OffsetsOutOfRange) as other:
        load(job(topic, 4, 12, start=4))
    assert not isinstance(other.value, LookBackExpired)


def test_the_verdict_knows_repeats_from_lost_records(
    platform: Platform, load: Load, job: Job, log: str, kafka: dict[str, str]
) -> None:
    """A client of its own reads the log and finds them again: a repeat is not lost, and a record that is, is found."""
    asked, tp = job(log, 0, 12), TopicPartition(log, 0)
    receipts = [load(batch).receipt for batch in cut(asked, 0, 5, 12)]
    committed = Watermarks({tp: 0}, {tp: 12}, {})
    (dedupe,) = dedupings(receipts, None)
    logged = LoggedRepeats(dedupe, committed.earliest, {})
    read = read_offsets(kafka, committed, see=[with_headers(logged.see)])
    assert set(logged.repeats[tp]) == LEFT_OUT
    table = offsets(platform, asked)
    whole = verify(committed, read, {tp: table}, receipts, logged={dedupe: logged})
    assert (whole.holds, whole.repeats, whole.unclear) == (True, len(LEFT_OUT), 0)
    less = verify(committed, read, {tp: [o for o in table if o != 8]}, receipts, logged={dedupe: logged})
    assert [p.lost for p in less.verdict.partitions] == [(8,)]

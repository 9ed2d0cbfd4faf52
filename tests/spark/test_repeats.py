"""The plan that finds repeats leaves out what the definition says."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from tests.records import load_job
from tidegate.core.config.pipeline import Dedupe
from tidegate.core.load.repeats import RepeatFinder
from tidegate.core.model.errors import LookBackExpired, OffsetsOutOfRange
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.spark.repeats import look_back_named, repeats_among

GONE = (
    "(OffsetOutOfRangeException: Fetch position FetchPosition{{offset={at}, x=y}} is out of range for partition {of}). Run it",
    "Reason: Could not read records in offset [{at}, 90) for topic partition {of}\nwith consumer group g.",
)
"""What Kafka's client says, and Spark's source where the client said nothing."""
COLUMNS = "_kafka_topic STRING, _kafka_partition INT, _kafka_offset LONG, _key BINARY"


@pytest.mark.parametrize("seed", range(5))
def test_the_plan_finds_the_repeats_that_are_found_one_by_one(spark: SparkSession, seed: int) -> None:
    """In partitions with gaps, in any order of the rows, in the ranges alone: those of the look-backs are not asked for."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    partitions = [TopicPartition(topic, number) for topic in ("a", "b") for number in (0, 3)]
    ranges, rows, expected = [], [], set()
    window = chance.randint(1, 30)
    for tp in partitions:
        finder, begin = RepeatFinder(window), chance.randint(0, 60)
        r = OffsetRange(tp.topic, tp.partition, begin, begin + chance.randint(1, 60))
        ranges.append(r)
        for offset in range(max(0, r.from_offset - window), r.until_offset):
            key = bytes([chance.randrange(12)])
            if chance.random() < 0.8:
                rows.append((tp.topic, tp.partition, offset, bytearray(key)))
                if finder.is_repeat(tp, offset, key) and offset >= r.from_offset:
                    expected.add((tp.topic, tp.partition, offset))
    chance.shuffle(rows)
    found = repeats_among(spark.createDataFrame(rows, COLUMNS), ranges, window).collect()
    assert {tuple(row) for row in found} == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize("text", GONE)
@pytest.mark.parametrize(
    ("at", "of", "error"),
    [
        (40, "a.b-c-3", LookBackExpired),
        (49, "a.b-c-3", LookBackExpired),
        (50, "a.b-c-3", OffsetsOutOfRange),
        (40, "a.b-c-33", OffsetsOutOfRange),
        (40, "b-c-3", OffsetsOutOfRange),
    ],
)
def test_only_an_offset_of_a_look_back_is_its_error(text: str, at: int, of: str, error: type[Exception]) -> None:
    """In whichever of the two errors it stands."""
    since = {TopicPartition("a.b-c", 3): 40}
    job = load_job("p", 1, "r", (OffsetRange("a.b-c", 3, 50, 90),), "m:f", "t", {}, dedupe=Dedupe(10), look_back=since)
    said = text.format(at=at, of=of)
    for raised, cause in ((OffsetsOutOfRange(said), None), (OffsetsOutOfRange("x"), ValueError(said))):
        with pytest.raises(OffsetsOutOfRange) as caught, look_back_named(job):
            raise raised from cause
        assert type(caught.value) is error

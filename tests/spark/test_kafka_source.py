from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.core.config.pipeline import Split
from tidegate.core.model.errors import RequestError
from tidegate.core.model.ranges import OffsetRange
from tidegate.spark.kafka_source import instant, read_ranges


class Reader:
    """Records the options that a read is made with."""

    def __init__(self) -> None:
        self.read = self
        self.given: dict[str, str] = {}

    def format(self, _name: str) -> Reader:
        """Itself."""
        return self

    def options(self, **options: str) -> Reader:
        """Itself."""
        self.given = options
        return self

    def load(self) -> Any:
        """Something with a select."""
        return type("Records", (), {"select": lambda *_: None})()


def options(ranges: list[OffsetRange], connection: Mapping[str, str] | None = None, **plan: Any) -> dict[str, str]:
    reader = Reader()
    read_ranges(reader, ranges, connection or {}, **plan)  # type: ignore[arg-type]
    return reader.given


@pytest.mark.usefixtures("spark")
def test_exactly_the_ranges_are_assigned() -> None:
    """Explicit bounds of every partition; an empty range is left out, and no -1 or -2 can get in."""
    found = options([OffsetRange("b", 1, 5, 9), OffsetRange("a", 0, 0, 3), OffsetRange("a", 1, 4, 4)])
    assert json.loads(found["assign"]) == {"a": [0], "b": [1]}
    assert json.loads(found["startingOffsets"]) == {"a": {"0": 0}, "b": {"1": 5}}
    assert json.loads(found["endingOffsets"]) == {"a": {"0": 3}, "b": {"1": 9}}
    assert found["failOnDataLoss"] == "true"


@pytest.mark.usefixtures("spark")
def test_the_connection_beats_our_defaults_and_the_plan_beats_the_connection() -> None:
    """Timeouts are the user's to set, what is read is not."""
    found = options(
        [OffsetRange("a", 0, 0, 3)], {"kafka.max.poll.records": "7", "failOnDataLoss": "false", "kafka.client.id": "x"}
    )
    assert found["kafka.max.poll.records"] == "7"
    assert found["kafka.client.id"] == "x"
    assert found["failOnDataLoss"] == "true"
    assert int(found["kafka.default.api.timeout.ms"]) < 60_000


@pytest.mark.usefixtures("spark")
def test_a_split_and_the_isolation_level_are_the_plans() -> None:
    """Spark's own options, only where a limit is set; the level beats the connection's."""
    ranges = [OffsetRange("a", 0, 0, 3)]
    plain = options(ranges, {"kafka.isolation.level": "read_uncommitted"})
    assert plain["kafka.isolation.level"] == "read_committed"
    assert not {"minPartitions", "maxRecordsPerPartition"} & set(plain)
    found = options(ranges, split=Split(4, 1000), isolation_level="read_uncommitted")
    assert (found["minPartitions"], found["maxRecordsPerPartition"]) == ("4", "1000")
    assert found["kafka.isolation.level"] == "read_uncommitted"
    assert "minPartitions" not in options(ranges, split=Split(max_records_per_partition=5))


@pytest.mark.parametrize("ranges", [[], [OffsetRange("a", 0, 3, 3)], [OffsetRange("a", 0, 0, 3), OffsetRange("a", 0, 5, 8)]])
def test_nothing_to_read_or_two_ranges_in_a_partition_are_refused(spark: SparkSession, ranges: list[OffsetRange]) -> None:
    """Spark's source takes one range a partition, and an empty batch is the caller's to skip."""
    with pytest.raises(RequestError):
        read_ranges(spark, ranges, {})


def test_a_timestamp_of_before_1582_is_the_one_that_was_sent(spark: SparkSession) -> None:
    """Spark reads it as a date of the Julian calendar, as its own conversion does here; no other is changed."""
    days = [(1, 1, 1), (100, 2, 1), (100, 4, 1), (399, 6, 1), (1000, 2, 20), (1000, 3, 20), (1582, 10, 13), (1582, 10, 15)]
    sent = [int(datetime(*day, 10, tzinfo=UTC).timestamp()) * 1000 for day in days] + [-1, 0, 1_767_607_200_000]
    jvm: Any = spark._jvm
    convert = jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils.fromJavaTimestamp
    read = [(convert(jvm.java.sql.Timestamp(ms)),) for ms in sent]
    rows = spark.createDataFrame(read, "us LONG").select(F.timestamp_micros("us").alias("at"))
    assert [row[0] for row in rows.select(F.unix_millis(instant("at"))).collect()] == sent
    assert read[0] != (sent[0] * 1000,)

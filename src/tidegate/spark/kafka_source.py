"""Exactly the records of explicit ranges, as a DataFrame.

`assign` with explicit offsets, never `subscribe` (which breaks replays once a topic grows) and never -1 or -2 (which mean
latest and earliest). `OffsetRange` cannot hold negative numbers, so they cannot get in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.core.config.pipeline import Split
from tidegate.core.model.columns import OFFSET, PARTITION, TOPIC
from tidegate.core.model.errors import RequestError
from tidegate.core.model.ranges import OffsetRange, from_offsets, offsets_to_json, until_offsets
from tidegate.formats.columns import header

SETTINGS = {"spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text"}
"""What a session that reads is set to: Spark's default without `kafka`, which keeps batch reads from the reader of streams.

The older reader makes an external `Row` of each record and an internal one of that again, which takes as long as reading it.
"""

_GREGORIAN = int(datetime(1582, 10, 15, tzinfo=UTC).timestamp())

KEY = "_key"
"""The column of a record's key, by which repeats of it are found."""

DEFAULTS = {
    # 500, Kafka's own default, costs a tenth of the throughput on loopback and more over a network.
    "kafka.max.poll.records": "10000",
    # All records of a range are in the log already, so no fetch has to wait. At the end of the log it would: the client
    # prefetches what comes after the range, and Spark's next request queues behind that for half a second, in every task.
    "kafka.fetch.max.wait.ms": "10",
    # A broker that is away fails the job within a minute; Spark's and Kafka's defaults wait several.
    "kafka.request.timeout.ms": "10000",
    "kafka.default.api.timeout.ms": "15000",
    "kafkaConsumer.pollTimeoutMs": "20000",
    "fetchOffset.numRetries": "1",
}
"""Used for options that the connection does not set."""


def read_ranges(
    spark: SparkSession,
    ranges: Sequence[OffsetRange],
    kafka_options: Mapping[str, str],
    *,
    split: Split | None = None,
    isolation_level: str = "read_committed",
) -> DataFrame:
    """The records of the ranges: `key`, `value` (binary), `timestamp`, `timestampType`, `headers` and the origin columns.

    `headers` are an array of `key` (string) and `value` (binary), as they were sent; null for a record without any.
    Nothing is read before an action; the action fails when a range begins before the log or ends behind it. Offsets that hold
    no record (transaction markers, aborted records under `read_committed`, what compaction removed) are skipped.

    One task reads one range, unless `split` cuts it into several; rows of different tasks keep no order. Options of the plan
    take precedence over `kafka_options`, the connection's. Raises RequestError: two ranges lie in one partition, or there is no
    offset to read.
    """
    records = _source(spark, ranges, kafka_options, split, isolation_level)
    return records.select("key", "value", instant("timestamp").alias("timestamp"), "timestampType", "headers", *_origin())


def instant(column: str) -> Column:
    """The time of a timestamp that Spark has read from Kafka.

    Spark takes the milliseconds for a date of the Julian calendar where that was in use, before 1582-10-15, and makes the time
    of the Gregorian date of the same name, which is two days later in the year 0001 and ten days earlier in 1582.
    """
    centuries = (int(datetime(year, 3, 1, tzinfo=UTC).timestamp()) for year in range(100, 1600, 100) if year % 400)
    days = " + ".join(f"CAST({column} >= timestamp_seconds({second}) AS INT)" for second in centuries)
    moved = f"timestamp_micros(unix_micros({column}) + 86400000000 * ({days} - 2))"
    return F.expr(f"CASE WHEN {column} < timestamp_seconds({_GREGORIAN}) THEN {moved} ELSE {column} END")


def read_keys(
    spark: SparkSession,
    ranges: Sequence[OffsetRange],
    kafka_options: Mapping[str, str],
    name: str,
    *,
    split: Split | None = None,
    isolation_level: str = "read_committed",
) -> DataFrame:
    """The records of the ranges that have a header of this name, not empty: the origin columns, and its value as `KEY`.

    Other arguments and errors are those of `read_ranges`.
    """
    records = _source(spark, ranges, kafka_options, split, isolation_level)
    return records.select(*_origin(), header(records, name).alias(KEY)).where(F.length(KEY) > 0)


def _origin() -> tuple[Column, ...]:
    return F.col("topic").alias(TOPIC), F.col("partition").alias(PARTITION), F.col("offset").alias(OFFSET)


def _source(
    spark: SparkSession,
    ranges: Sequence[OffsetRange],
    kafka_options: Mapping[str, str],
    split: Split | None,
    isolation_level: str,
) -> DataFrame:
    nonempty = [r for r in ranges if r.count]
    if not nonempty:
        raise RequestError("the ranges hold no offsets", fix="Skip the load of an empty batch; there is nothing to replace")
    if len({r.topic_partition for r in nonempty}) < len(nonempty):
        raise RequestError(
            "a load takes one range per partition", fix="Load the ranges of a partition one after the other", ranges=nonempty
        )
    partitions: dict[str, list[int]] = {}
    for r in sorted(nonempty):
        partitions.setdefault(r.topic, []).append(r.partition)
    plan = {
        "assign": json.dumps(partitions),
        "startingOffsets": json.dumps(offsets_to_json(from_offsets(nonempty))),
        "endingOffsets": json.dumps(offsets_to_json(until_offsets(nonempty))),
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        "kafka.isolation.level": isolation_level,
    }
    if split is not None and split.min_partitions is not None:
        plan["minPartitions"] = str(split.min_partitions)
    if split is not None and split.max_records_per_partition is not None:
        plan["maxRecordsPerPartition"] = str(split.max_records_per_partition)
    return spark.read.format("kafka").options(**{**DEFAULTS, **kafka_options, **plan}).load()

"""Records and rows in Spark itself: those of Python would be made by a Python worker, in each job that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidegate.core.model.ranges import OffsetRange

PLAIN = """
def plain(records):
    rows = records.selectExpr("try_cast(get_json_object(string(value), '$.id') AS INT) AS id", "*")
    raw, error = "if(id IS NULL, string(value), NULL) AS _raw", "if(id IS NULL, 'broken', NULL) AS _error"
    return rows.selectExpr("id", "_kafka_topic", "_kafka_partition", "_kafka_offset", raw, error)
"""
"""A transform as `parse_json(records, "id INT")` is one, which takes Spark as long as all the rest of a small load."""


def logged(spark: SparkSession, r: OffsetRange, value: Column, parts: int = 1) -> DataFrame:
    """A record an offset, as `read_ranges` gives them, in so many tasks; `value` may be made of the offset, `id`."""
    return spark.range(r.from_offset, max(r.from_offset, r.until_offset), 1, parts).select(
        F.lit(b"k").alias("key"),
        value.cast("binary").alias("value"),
        F.timestamp_seconds(F.lit(0)).alias("timestamp"),
        F.lit(0).alias("timestampType"),
        F.lit(None).cast("array<struct<key:string,value:binary>>").alias("headers"),
        F.lit(r.topic).alias("_kafka_topic"),
        F.lit(r.partition).alias("_kafka_partition"),
        F.col("id").alias("_kafka_offset"),
    )


def rows_of(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: StructType | str) -> DataFrame:
    """These rows, at least one."""
    of = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    assert isinstance(of, StructType)
    columns = dict(zip(of.names, zip(*rows, strict=True), strict=True))
    return spark.createDataFrame(pa.table(columns, to_arrow_schema(of)), of)

"""The usual ways of loading a topic, which comparisons set beside Tidegate: as functions, and as processes of their own.

    python jobs.py stream JSON       one `availableNow` pass over what the checkpoint has not seen
    python jobs.py append JSON       the records of explicit offsets, appended

Both read with the Kafka options of Tidegate's own loads and apply the same transform, so neither is slower for want of a
setting. spark-submit runs this file as an application.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tidegate.core.model.columns import OFFSET, PARTITION, TOPIC
from tidegate.core.model.ranges import ranges_from_json
from tidegate.spark.kafka_source import DEFAULTS, read_ranges
from tidegate.spark.transforms import find_transform

RECORD = ("key", "value", "timestamp", "timestampType")
ORIGIN = (f"topic AS {TOPIC}", f"partition AS {PARTITION}", f"offset AS {OFFSET}")


def stream(spark: SparkSession, job: Mapping[str, Any]) -> None:
    """Structured Streaming into an Iceberg table that is there."""
    options = {**DEFAULTS, **job["options"], "subscribe": job["topic"], "startingOffsets": "earliest"}
    records = spark.readStream.format("kafka").options(**options).load().selectExpr(*RECORD, *ORIGIN)
    rows = find_transform(job["transform"], Path(job["spark_jobs"]))(records)
    writer = rows.writeStream.format("iceberg").option("checkpointLocation", job["checkpoint"])
    query = writer.option("fanout-enabled", "true").trigger(availableNow=True).toTable(job["table"])
    query.awaitTermination()


def append(spark: SparkSession, job: Mapping[str, Any]) -> None:
    """A bounded read, appended to an Iceberg table that is there."""
    records = read_ranges(spark, ranges_from_json(job["ranges"]), job["options"])
    find_transform(job["transform"], Path(job["spark_jobs"]))(records).writeTo(job["table"]).append()


def main() -> None:
    """One job in a session of its own."""
    kind, job = sys.argv[1], json.loads(sys.argv[2])
    spark = SparkSession.builder.appName(f"bench-{kind}").getOrCreate()
    {"stream": stream, "append": append}[kind](spark, job)
    spark.stop()


if __name__ == "__main__":
    main()

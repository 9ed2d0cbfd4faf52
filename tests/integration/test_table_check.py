"""`tidegate check` says what the next load changes of its table, as a Spark Connect server plans it, and changes nothing."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tidegate.core.config.parse import parse_pipeline
from tidegate.core.config.pipeline import Pipeline
from tidegate.spark.table_check import column_changes
from tidegate_local.platform import Platform

ORIGIN = "_kafka_topic STRING, _kafka_partition INT, _kafka_offset BIGINT"
ROWS = """
from pyspark.sql import functions as F
from tidegate import parse_json, reject

def rows(records):
    return parse_json(records, "id BIGINT, note STRING")

def rejecting(records):
    return reject(rows(records), F.col("id") < 0, "negative")

def misnamed(records):
    return rows(records).select("nothing")

def other(records):
    return parse_json(records, "id DATE")
"""


def pipeline(name: str, table: str, **changes: Any) -> Pipeline:
    file = {"source": {"topics": ["t"]}, "transform": "made:rows", "sink": {"table": table}}
    return parse_pipeline(name, {**file, **changes}, file=f"{name}.yaml")


def test_each_pipeline_is_told_what_its_next_load_changes(platform: Platform, spark: SparkSession, tmp_path: Path) -> None:
    """Or why it fails. A table that does not exist has nothing to change, and a quarantine keeps two columns out of it."""
    (tmp_path / "made.py").write_text(ROWS)
    table = f"lake.check.t{uuid.uuid4().hex}"
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.check")
    spark.sql(f"CREATE TABLE {table} (id INT, {ORIGIN}) USING iceberg")
    pipelines = [
        pipeline("new", f"{table}_new"),
        pipeline("laid", f"{table}_new", sink={"table": f"{table}_new", "partition_by": ["days(nope)"]}),
        pipeline("wider", table),
        pipeline("apart", table, quarantine={}, transform="made:rejecting"),
        pipeline("frozen", table, contract={"columns": "freeze"}),
        pipeline("broken", table, transform="made:nothing"),
        pipeline("misnamed", table, transform="made:misnamed"),
        pipeline("unfit", table, transform="made:other"),
    ]
    said = column_changes(pipelines, tmp_path, platform.spark_remote)
    wider = f"ALTER TABLE {table} ALTER COLUMN `id` TYPE bigint"
    assert said["new"] == []
    assert "there is no column nope" in str(said["laid"])
    assert said["wider"] == [f"ALTER TABLE {table} ADD COLUMNS (`note` string, `_raw` string, `_error` string)", wider]
    assert said["apart"] == [f"ALTER TABLE {table} ADD COLUMNS (`note` string)", wider]
    assert "it has no column note, _raw, _error" in str(said["frozen"])
    assert "has no function nothing" in str(said["broken"])
    assert "transform made:misnamed fails" in str(said["misnamed"])
    assert "id is int there and date here" in str(said["unfit"])
    assert spark.table(table).schema.names == ["id", "_kafka_topic", "_kafka_partition", "_kafka_offset"]


def test_without_a_server_nothing_is_told(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(ROWS)
    assert column_changes([pipeline("p", "lake.a.b")], tmp_path, "sc://127.0.0.1:1") == {}

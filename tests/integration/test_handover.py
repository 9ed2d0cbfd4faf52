"""A stream of Spark and a schedule go on where the other one stopped: by a real checkpoint, table and `startingOffsets`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.records import cursor_of
from tests.topics import make_topic, write
from tidegate.core.config.pipeline import Source
from tidegate.core.model.ranges import TopicPartition, offsets_to_json
from tidegate.core.planning.handover import checkpoint_offsets, handed_over, table_offsets
from tidegate.core.planning.plan import Skip
from tidegate.sinks.iceberg.history import last_offsets
from tidegate.spark.checkpoint import read_checkpoint

TURNS, TABLE = "turns", "lake.it.turns"
T0, T1 = TopicPartition(TURNS, 0), TopicPartition(TURNS, 1)


def stream(spark: SparkSession, kafka: dict[str, str], checkpoint: Path, starting: str) -> None:
    """A query that reads what there is, and ends."""
    options = {"kafka.bootstrap.servers": kafka["bootstrap.servers"], "subscribe": TURNS, "startingOffsets": starting}
    records = spark.readStream.format("kafka").options(**options).load().select("topic", "partition", "offset")
    query = records.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).toTable(TABLE)
    assert query.awaitTermination(120)


@pytest.mark.usefixtures("catalog")
def test_a_stream_and_a_schedule_take_turns(spark: SparkSession, kafka: dict[str, str], tmp_path: Path) -> None:
    """What its checkpoint and its table say, is where it stopped; by what is exported, a stream reads the rest."""
    make_topic(kafka, TURNS, 2)
    write(kafka, TURNS, 0, 5)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.it")
    spark.sql(f"CREATE TABLE {TABLE} (topic string, partition int, offset bigint) USING iceberg")
    stream(spark, kafka, tmp_path / "first", "earliest")
    batch, begun, text = read_checkpoint(str(tmp_path / "first"))
    assert (batch, begun, checkpoint_offsets(text, Source((TURNS,)))) == (0, None, {T0: 5, T1: 0})
    write(kafka, TURNS, 0, 2)
    stream(spark, kafka, tmp_path / "first", "earliest")
    batch, begun, text = read_checkpoint((tmp_path / "first").as_uri())
    assert (batch, begun, checkpoint_offsets(text, Source((TURNS,)))) == (1, None, {T0: 7, T1: 0})
    assert table_offsets(last_offsets(TABLE, ["topic", "partition", "offset"]), Source((TURNS,))) == {T0: 7}
    write(kafka, TURNS, 0, 3)
    write(kafka, TURNS, 1, 4)
    _, exported = handed_over("p", Skip("caught up", cursor=cursor_of("p", 1, {T0: 9, T1: 0}, {}, starts={T0: 7, T1: 0})))
    stream(spark, kafka, tmp_path / "second", json.dumps(offsets_to_json(exported)))
    assert table_offsets(last_offsets(TABLE, ["topic", "partition", "offset"]), Source((TURNS,))) == {T0: 10, T1: 4}
    assert spark.table(TABLE).count() == 7 + 1 + 4

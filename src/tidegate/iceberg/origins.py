"""What a table's rows are known by, read through PyIceberg: which record each row came from, or which batch made it."""

from __future__ import annotations

from array import array

import pyarrow.compute as pc

from tidegate.errors import SinkMisfit
from tidegate.iceberg.history import load_table
from tidegate.ranges import TopicPartition


def read_origins(table: str) -> dict[TopicPartition, array[int]]:
    """The offset of every row, for each partition; empty when there is no such table.

    Raises:
        SinkUnavailable: the catalog is not configured here, or does not answer.
    """
    found: dict[TopicPartition, array[int]] = {}
    here = load_table(table)
    if here is None:
        return found
    rows = here.scan(selected_fields=("_kafka_topic", "_kafka_partition", "_kafka_offset")).to_arrow()
    for topic in pc.unique(rows["_kafka_topic"]).to_pylist():
        of_topic = rows.filter(pc.equal(rows["_kafka_topic"], topic))
        for partition in pc.unique(of_topic["_kafka_partition"]).to_pylist():
            offsets = of_topic.filter(pc.equal(of_topic["_kafka_partition"], partition))["_kafka_offset"]
            found[TopicPartition(topic, partition)] = array("q", offsets.to_numpy().astype("int64").tobytes())
    return found


def read_batches(table: str) -> dict[int | None, int]:
    """How many rows each batch has, in a table whose rows are known by their batch; empty when there is no such table.

    Raises:
        SinkUnavailable: the catalog is not configured here, or does not answer.
        SinkMisfit: the table's rows are not known by their batch.
    """
    here = load_table(table)
    if here is None:
        return {}
    if "_batch" not in here.schema().column_names:
        raise SinkMisfit(
            f"the rows of table {table} are not known by their batch",
            fix="The pipeline says `identity: batch`: write to a new table, or say `identity: origin`",
            table=table,
        )
    counted = pc.value_counts(here.scan(selected_fields=("_batch",)).to_arrow()["_batch"])
    return {each["values"]: each["counts"] for each in counted.to_pylist()}

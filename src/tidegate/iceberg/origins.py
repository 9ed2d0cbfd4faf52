"""The origins of a table's rows, read through PyIceberg: which record each row came from."""

from __future__ import annotations

from array import array

import pyarrow.compute as pc

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

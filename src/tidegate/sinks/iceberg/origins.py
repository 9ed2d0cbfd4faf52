"""What identifies a table's rows, read through PyIceberg: the record that each row came from, or the batch that made it."""

from __future__ import annotations

from array import array

import pyarrow.compute as pc

from tidegate.core.model.columns import BATCH, OFFSET, ORIGIN_COLUMNS, PARTITION, TOPIC
from tidegate.core.model.errors import SinkMisfit
from tidegate.core.model.ranges import TopicPartition
from tidegate.sinks.iceberg.history import load_table


def read_origins(table: str) -> dict[TopicPartition, array[int]]:
    """The offset of every row that has an origin, for each partition; empty when there is no such table.

    Raises:
        SinkUnavailable: the catalog is not configured here, or does not answer.
        SinkMisfit: the table lacks an origin column.
    """
    by_partition: dict[TopicPartition, array[int]] = {}
    loaded = load_table(table)
    if loaded is None:
        return by_partition
    missing = [name for name in ORIGIN_COLUMNS if name not in loaded.schema().column_names]
    if missing:
        raise SinkMisfit(
            f"table {table} has no column {' and no '.join(missing)}: the origin of its rows is unknown",
            fix="Run `tidegate plan` of the pipeline, which names the SQL that repairs it",
            table=table,
        )
    rows = loaded.scan(selected_fields=ORIGIN_COLUMNS).to_arrow().drop_null()
    for topic in pc.unique(rows[TOPIC]).to_pylist():
        of_topic = rows.filter(pc.equal(rows[TOPIC], topic))
        for partition in pc.unique(of_topic[PARTITION]).to_pylist():
            offsets = of_topic.filter(pc.equal(of_topic[PARTITION], partition))[OFFSET]
            by_partition[TopicPartition(topic, partition)] = array("q", offsets.to_numpy().astype("int64").tobytes())
    return by_partition


def rows_without_origin(table: str) -> int:
    """How many rows have no origin: another writer than Tidegate has added them.

    Raises:
        SinkUnavailable: the catalog is not configured here, or does not answer.
    """
    loaded = load_table(table)
    return 0 if loaded is None else loaded.scan(row_filter=" or ".join(f"{name} is null" for name in ORIGIN_COLUMNS)).count()


def read_batches(table: str) -> dict[int | None, int]:
    """How many rows each batch has, in a table whose rows are known by their batch; empty when there is no such table.

    Raises:
        SinkUnavailable: the catalog is not configured here, or does not answer.
        SinkMisfit: the table's rows are not identified by their batch.
    """
    loaded = load_table(table)
    if loaded is None:
        return {}
    if BATCH not in loaded.schema().column_names:
        raise SinkMisfit(
            f"the rows of table {table} are not identified by their batch",
            fix="The pipeline declares `identity: batch`: write to a new table, or set `identity: origin`",
            table=table,
        )
    counted = pc.value_counts(loaded.scan(selected_fields=(BATCH,)).to_arrow()[BATCH])
    return {each["values"]: each["counts"] for each in counted.to_pylist()}

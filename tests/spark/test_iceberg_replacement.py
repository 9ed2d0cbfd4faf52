"""The law of a replacement, on Iceberg tables whose files lie in every way a range can meet."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.records import write_of
from tests.spark.log import rows_of
from tests.spark.sinks_under_test import compact_all, files_of, found, summaries
from tidegate.core.config.layout import Layout
from tidegate.core.model.errors import SinkConflict
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.receipt import Write
from tidegate.sinks.iceberg.history import IcebergReader
from tidegate.sinks.iceberg.replacement import Cut, find_cut
from tidegate.sinks.iceberg.summary import row_counts
from tidegate.sinks.iceberg.table import IcebergTable
from tidegate.sinks.identity import ByOrigin
from tidegate.spark.errors import translate

SCHEMA = "id INT, _kafka_topic STRING, _kafka_partition INT, _kafka_offset LONG"
Origin = tuple[str, int, int | None]
Put = Callable[..., Cut]
OTHERS = (Layout(), Layout(partition_by=("bucket(2, id)",), sort_by=("_kafka_offset desc",)))
"""Layouts under which a law holds all the same."""


def at(first: int, until: int, *, topic: str = "orders", partition: int = 0) -> OffsetRange:
    """A range of `orders-0` unless told otherwise."""
    return OffsetRange(topic, partition, first, until)


def load_of(ranges: Iterable[OffsetRange]) -> Write:
    return write_of("orders", 0, "r", tuple(ranges), "t@1", str(uuid.uuid4()))


@pytest.fixture
def layout() -> Layout:
    """Of the table; a test may have others."""
    return Layout()


@pytest.fixture
def put(spark: SparkSession, table: str, layout: Layout, reader: IcebergReader) -> Put:
    """`put(mark, *ranges)` replaces the ranges by a row an offset, its `id` the mark, and gives what was cut. One commit."""
    sink = IcebergTable(spark, table)

    def write(mark: int, *ranges: OffsetRange, every: int = 1, rows: DataFrame | None = None) -> Cut:
        made = [(mark, r.topic, r.partition, offset) for r in ranges for offset in range(r.from_offset, r.until_offset, every)]
        rows = rows or rows_of(spark, made, SCHEMA).coalesce(1)
        if not spark.catalog.tableExists(table):
            sink.create(rows.schema, ByOrigin(ranges), "p", layout)
        before = len(commits(table))
        cut = look(spark, table, *ranges)
        sink.overwrite(rows, ByOrigin(ranges), load_of(ranges), cut)
        assert len(commits(table)) == before + 1
        return cut

    return write


def look(spark: SparkSession, table: str, *ranges: OffsetRange) -> Cut:
    """What is to be replaced, as of now."""
    head = found(table).current_snapshot()
    return find_cut(spark, table, ByOrigin(ranges), head.snapshot_id if head else None)


def commits(table: str) -> list[dict[str, str]]:
    """Summaries of the snapshots, oldest first."""
    return [made.additional_properties for made in summaries(table)]


def delete(spark: SparkSession, table: str, *offsets: int) -> None:
    """Somebody deletes rows."""
    listed = ", ".join(map(str, offsets))
    spark.sql(f"DELETE FROM {table} WHERE _kafka_offset IN ({listed})")  # noqa: S608 - a test's own table


def held(table: str) -> dict[Origin, list[int]]:
    """The marks of each origin, sorted."""
    marks: dict[Origin, list[int]] = {}
    for row in found(table).scan().to_arrow().to_pylist():
        marks.setdefault((row["_kafka_topic"], row["_kafka_partition"], row["_kafka_offset"]), []).append(row["id"])
    return {origin: sorted(here) for origin, here in marks.items()}


def marks(*parts: tuple[int, OffsetRange]) -> dict[Origin, list[int]]:
    """What a table holds after these loads, each whole: later ones replace earlier ones."""
    return {(r.topic, r.partition, offset): [mark] for mark, r in parts for offset in range(r.from_offset, r.until_offset)}


def test_new_and_aligned_ranges_are_not_cut(table: str, put: Put) -> None:
    """An overwrite of the range does: after the end, before the beginning, between, and over whole files."""
    for mark, r in enumerate([at(20, 30), at(30, 40), at(0, 10), at(10, 20), at(20, 40), at(0, 40)]):
        assert put(mark, r).boxes == ByOrigin([r]).boxes
    assert held(table) == marks((5, at(0, 40)))


@pytest.mark.parametrize("layout", OTHERS, ids=["plain", "laid out"])
def test_a_range_through_files_replaces_its_rows_and_no_other(table: str, put: Put) -> None:
    """Several files, partitions and topics in one commit; a range in no file beside them; the receipt counts what was kept."""
    put(1, at(0, 10), at(0, 10, partition=1), at(0, 10, topic="visits"), at(0, 10, topic="a"))
    put(2, at(10, 20), at(10, 20, partition=1))
    ranges = [at(5, 15), at(3, 8, partition=1), at(9, 11, topic="visits"), at(0, 4, topic="new")]
    cut = put(3, *ranges)
    assert cut.kept == 10 + 5 + 9
    assert row_counts(commits(table)[-1]) == (10 + 5 + 2 + 4, cut.kept)
    before = [(1, at(0, 10)), (1, at(0, 10, partition=1)), (1, at(0, 10, topic="visits")), (1, at(0, 10, topic="a"))]
    later = [(2, at(10, 20)), (2, at(10, 20, partition=1)), *((3, r) for r in ranges)]
    assert held(table) == marks(*before, *later)


@pytest.mark.parametrize("layout", OTHERS, ids=["plain", "laid out"])
def test_a_range_that_was_cut_once_is_aligned_from_then_on(table: str, put: Put) -> None:
    """What is kept from before and after it lies in files of its own."""
    put(1, at(0, 30))
    assert put(2, at(10, 20)).kept == 20
    assert put(3, at(10, 20)).kept == 0
    assert put(4, at(0, 10)).kept == 0
    assert held(table) == marks((4, at(0, 10)), (3, at(10, 20)), (1, at(20, 30)))


@pytest.mark.parametrize("layout", OTHERS, ids=["plain", "laid out"])
def test_rows_no_longer_made_disappear_and_fanned_out_rows_go_together(spark: SparkSession, table: str, put: Put) -> None:
    """Three rows a record, then one for every second record, each time through a file."""
    r = at(4, 8)
    put(1, at(0, 10))
    threefold = rows_of(spark, [(n, "orders", 0, offset) for offset in range(4, 8) for n in (7, 8, 9)], SCHEMA)
    put(0, r, rows=threefold)
    assert held(table)["orders", 0, 4] == [7, 8, 9]
    put(2, at(5, 10), every=2)
    assert {origin[2]: here for origin, here in held(table).items()} == {
        **{offset: [1] for offset in range(4)},
        4: [7, 8, 9],
        **{offset: [2] for offset in (5, 7, 9)},
    }


@pytest.mark.parametrize("layout", OTHERS, ids=["plain", "laid out"])
def test_kept_rows_stay_as_they_were(spark: SparkSession, table: str, put: Put) -> None:
    """Nulls, not-a-numbers, empty and nested values, to the last digit."""
    schema = (
        f"{SCHEMA}, d DOUBLE, n DECIMAL(38, 9), b BINARY, t TIMESTAMP, s STRUCT<a: INT, l: ARRAY<STRUCT<x: STRING>>>,"
        " m MAP<STRING, ARRAY<INT>>"
    )
    then = dt.datetime(1969, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001 - as Spark gives it back
    odd: list[tuple[Any, ...]] = [
        (None, float("nan"), None, b"", None, None, None),
        (1, -0.0, Decimal("0.000000001"), bytes(range(256)), then, (None, []), {}),
        (2, float("-inf"), Decimal("-99999999999999999999999999999.999999999"), None, None, (1, [None]), {"": None}),
        (3, 5e-324, Decimal(0), b"\0", then, (2, [("é\0\n",), (None,)]), {"k": [], "l": [None, 1]}),
    ]
    rows = [(i, "orders", 0, offset, *rest) for offset, (i, *rest) in enumerate(odd)]
    put(0, at(0, 8), rows=spark.createDataFrame([*rows, (9, "orders", 0, 6, *rows[0][4:])], schema).coalesce(1))
    kept = spark.table(table).where("_kafka_offset < 4").orderBy("_kafka_offset")
    before = str(kept.collect())  # a NaN equals nothing
    assert put(5, at(4, 12)).kept
    assert str(spark.table(table).where("_kafka_offset < 4").orderBy("_kafka_offset").collect()) == before
    assert [row["s"] for row in spark.table(table).where("_kafka_offset >= 4").collect()] == [None] * 8


def test_files_that_overlap_are_replaced_together(spark: SparkSession, table: str, put: Put) -> None:
    """A chain of files, each reaching into the next, as a compaction out of order leaves them; the range touches the first."""
    put(3, at(50, 60))
    for mark, offsets in enumerate([(0, 10), (8, 20), (18, 30)]):
        rows = [(mark, "orders", 0, offset) for offset in offsets]
        rows_of(spark, rows, SCHEMA).coalesce(1).writeTo(table).append()
    before = held(table)
    cut = put(9, at(2, 4))
    assert [box.span for box in cut.boxes] == [(0, 30)]
    assert held(table) == {**before, **marks((9, at(2, 4)))}


def test_a_compacted_table_with_expired_snapshots_stays_right(spark: SparkSession, table: str, put: Put) -> None:
    """Files of several batches merged into one, and the commits that made them forgotten."""
    for mark in range(4):
        put(mark, at(mark * 10, mark * 10 + 10))
    name = table.removeprefix("lake.")
    compact_all(spark, table)
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('history.expire.min-snapshots-to-keep' = '1')")
    spark.sql(f"CALL lake.system.expire_snapshots('{name}', TIMESTAMP '2100-01-01 00:00:00', 1)").collect()
    assert len(files_of(table)) == 1
    put(7, at(10, 20))
    put(8, at(15, 45))
    assert held(table) == marks((0, at(0, 10)), (7, at(10, 15)), (8, at(15, 45)))


@pytest.mark.parametrize("layout", OTHERS, ids=["plain", "laid out"])
def test_rows_that_somebody_deleted_stay_deleted(spark: SparkSession, table: str, put: Put) -> None:
    """Deleted beside the file, not in it: kept rows are counted and written without them."""
    put(1, at(0, 10))
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    delete(spark, table, 2, 7)
    cut = put(2, at(5, 15))
    assert cut.kept == 4
    assert held(table) == {**marks((1, at(0, 2)), (1, at(3, 5)), (2, at(5, 15)))}


@pytest.mark.parametrize(
    ("partitioned_by", "mode", "kept"),
    [
        # the partitioning says which Kafka partition a file is of
        ("PARTITIONED BY (_kafka_topic, _kafka_partition)", "none", 20 - 5 + 1),
        ("PARTITIONED BY (_kafka_topic, _kafka_partition)", "counts", 20 - 5 + 1),
        # bounds of one file that holds both partitions and a row of no origin
        ("", "full", 41 - 5),
        ("", "truncate(2)", 41 - 5),
        ("", "none", 41 - 5),
        ("PARTITIONED BY (bucket(2, _kafka_offset))", "full", 41 - 5),
    ],
)
def test_tables_of_others_are_replaced_right(
    spark: SparkSession, table: str, put: Put, partitioned_by: str, mode: str, kept: int
) -> None:
    """Bounds missing or cut, partitions mixed, rows of no record: more is written anew, and nothing is lost."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.tests")
    spark.sql(
        f"CREATE TABLE {table} ({SCHEMA}) USING iceberg {partitioned_by} TBLPROPERTIES ('write.metadata.metrics.default' ="
        f" '{mode}', 'write.distribution-mode' = 'none', 'write.spark.fanout.enabled' = 'true')"
    )
    try:
        rows = [(1, "orders", partition, offset) for offset in range(20) for partition in (0, 1)]
        nobody = (1, "orders", 0, None)
        rows_of(spark, [*rows, nobody], SCHEMA).coalesce(1).writeTo(table).append()
        cut = put(2, at(5, 10))
        assert cut.kept == kept
        nobodys: dict[Origin, list[int]] = {("orders", 0, None): [1]}
        expected = marks((1, at(0, 20)), (1, at(0, 20, partition=1)), (2, at(5, 10)))
        assert held(table) == {**expected, **nobodys}
        put(3, at(8, 22))
        assert held(table) == {**expected, **marks((3, at(8, 22))), **nobodys}
    finally:
        spark.sql(f"DROP TABLE {table}")


def test_kept_rows_have_the_columns_of_today(spark: SparkSession, table: str, put: Put) -> None:
    """Columns added, renamed and dropped since the last commit; new rows may lack some."""
    r = at(0, 10)
    rows = [(1, "orders", 0, offset, "old", "x") for offset in range(10)]
    put(1, r, rows=rows_of(spark, rows, f"{SCHEMA}, note STRING, gone STRING").coalesce(1))
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (extra DOUBLE)")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN note TO remark")
    spark.sql(f"ALTER TABLE {table} DROP COLUMN gone")
    new = [(2, "orders", 0, offset, 1.5) for offset in range(5, 10)]
    assert put(2, at(5, 10), rows=rows_of(spark, new, f"{SCHEMA}, extra DOUBLE")).kept
    found = spark.table(table).orderBy("_kafka_offset").select("id", "remark", "extra").collect()
    assert [tuple(row) for row in found] == [(1, "old", None)] * 5 + [(2, None, 1.5)] * 5


@pytest.mark.parametrize("layout", OTHERS, ids=["plain", "laid out"])
def test_an_outdated_look_is_refused(spark: SparkSession, table: str, put: Put) -> None:
    """Rows added, taken away or merged in the boxes since: refused. Elsewhere: none of its business."""
    sink = IcebergTable(spark, table)
    put(1, at(0, 5), at(0, 5, partition=1))
    put(1, at(5, 10))
    replay = at(3, 8)

    def replace(cut: Cut) -> None:
        rows = rows_of(spark, [(9, "orders", 0, offset) for offset in range(3, 8)], SCHEMA)
        sink.overwrite(rows, ByOrigin([replay]), load_of([replay]), cut)

    appended = rows_of(spark, [(2, "orders", 0, 4)], SCHEMA)
    acts: list[Callable[[], object]] = [partial(delete, spark, table, 9), partial(compact_all, spark, table)]
    for others in (appended.writeTo(table).append, *acts):
        cut = look(spark, table, replay)
        others()
        before = held(table)
        with pytest.raises(Exception) as caught:  # noqa: PT011 - what it means is asked below
            replace(cut)
        assert isinstance(translate(caught.value), SinkConflict)
        assert held(table) == before
    cut = look(spark, table, replay)
    put(3, at(10, 20), at(0, 5, partition=1))
    replace(cut)
    new = marks((3, at(10, 20)), (3, at(0, 5, partition=1)))
    assert held(table) == {**marks((1, at(0, 3)), (9, replay), (1, at(8, 9))), **new}


@pytest.mark.parametrize("layout", OTHERS, ids=["plain", "laid out"])
@pytest.mark.parametrize("others", [at(5, 15), at(10, 20), at(10, 11)], ids=["cut", "the same", "a part"])
def test_an_overwrite_of_a_range_that_others_write_meanwhile_is_refused(
    spark: SparkSession, table: str, put: Put, others: OffsetRange
) -> None:
    """Also where it goes through no file: the later of two replays has looked at the rows of the earlier one."""
    put(1, at(0, 20))
    put(1, at(10, 20))
    rows = rows_of(spark, [(9, "orders", 0, offset) for offset in range(10, 20)], SCHEMA)
    cut = look(spark, table, at(10, 20))
    assert cut.kept == 0
    put(2, others)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - what it means is asked below
        IcebergTable(spark, table).overwrite(rows, ByOrigin([at(10, 20)]), load_of([at(10, 20)]), cut)
    assert isinstance(translate(caught.value), SinkConflict)

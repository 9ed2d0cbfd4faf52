"""Laws of tables that are laid out for their readers: the law of loads is the same, and files are few."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.records import changed
from tests.spark.sinks_under_test import SinkUnderTest, expected, files_of, found, held, ids, summaries
from tidegate.core.config.layout import Layout
from tidegate.core.config.pipeline import Maintenance
from tidegate.core.model.errors import SinkMisfit, TransformError
from tidegate.core.state.jobs import LoadJob, LoadResult
from tidegate.sinks.iceberg.history import IcebergReader, read_origins
from tidegate.sinks.iceberg.maintenance import compact

Load = Callable[[LoadJob], LoadResult]
Job = Callable[..., LoadJob]
TRANSFORM = """
from pyspark.sql import functions as F
from tidegate.formats.json import parse_json

def dated(records):
    rows = parse_json(records, "id INT").drop("_raw", "_error")
    at, who = F.timestamp_seconds(F.col("id") * 4320), F.when(F.col("id") % 3 > 0, F.concat(F.lit("w"), F.col("id") % 3))
    inner = F.struct(F.col("id").alias("n"), F.to_date(at).alias("day"))
    return rows.withColumns({"größe": F.col("id"), "at": at, "who": who, "of": inner})

def wider(records):
    return dated(records).withColumns({name: F.col(name).cast("bigint") for name in ("id", "größe")})

def of_nobody(records):
    return dated(records).drop("who")

def anything(records):
    return parse_json(records, "VARIANT")

def counted(records):
    return dated(records).groupBy((F.col("id") % 2).alias("parity")).agg(F.count("*").alias("n"), F.sum("id").alias("total"))
"""
LAID_OUT = Layout(partition_by=("days(at)", "who"), sort_by=("id desc",))


@pytest.fixture(scope="module")
def spark_jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of transforms, module `rows`: twenty records are of one day, and every third is of nobody."""
    folder = tmp_path_factory.mktemp("spark_jobs")
    (folder / "rows.py").write_text(TRANSFORM)
    return folder


@pytest.fixture
def laid_out(job: Job) -> Job:
    """Makes jobs into a table with `layout`."""

    def make(*bounds: int, layout: Layout = LAID_OUT, transform: str = "dated", parts: int = 1, **what: object) -> LoadJob:
        made = job(*bounds, transform=f"rows:{transform}", **what)
        return changed(made, layout=layout, kafka_options={**made.reading.kafka_options, "parts": str(parts)})

    return make


def operations(table: str) -> list[str]:
    return [summary.operation.value for summary in summaries(table)]


@pytest.mark.parametrize(
    "layout",
    [
        LAID_OUT,
        Layout(partition_by=("hours(at)", "bucket(4, größe)", "truncate(1, who)"), sort_by=("who nulls last", "of.n desc")),
        Layout(partition_by=("months(of.day)", "years(at)", "truncate(10, _kafka_offset)"), format_version=3),
        Layout(properties={"write.parquet.compression-codec": "snappy", "a": r"it's a \ \' \n"}),
    ],
    ids=["days", "buckets", "nested", "properties"],
)
def test_a_table_is_laid_out_as_the_file_says(
    load: Load, laid_out: Job, reader: IcebergReader, table: str, layout: Layout
) -> None:
    """Which its reader says too; topic and partition are its last fields, whose bounds are kept in full."""
    load(laid_out(0, 10, layout=layout))
    now = reader.layout(table)
    assert now is not None
    assert (now.partition_by, now.sort_by, now.format_version) == (layout.partition_by, layout.sort_by, layout.format_version)
    assert layout.properties.items() <= now.properties.items()
    assert layout.changes(now, table) == []
    assert [field.name for field in found(table).spec().fields][-2:] == ["_kafka_topic", "_kafka_partition"]
    assert now.properties["write.metadata.metrics.column._kafka_offset"] == "full"


def test_the_law_holds_whatever_the_layout(sink: SinkUnderTest, load: Load, laid_out: Job, table: str) -> None:
    """New rows are appended, an aligned replay replaces whole files, another keeps what lies beside it; nulls have a place."""
    for seq, parts in enumerate((1, 3, 2)):
        load(laid_out(seq * 10, seq * 10 + 10, seq=seq, parts=parts))
    assert operations(table) == ["append"] * 3
    before = sink.rows(table)
    assert load(changed(laid_out(10, 20), replay="aligned")).receipt.kept == 0
    assert load(changed(laid_out(5, 25), replay="through files")).receipt.kept > 0
    assert sorted(sink.rows(table), key=str) == sorted(before, key=str)
    assert {row["who"] for row in before} == {None, "w1", "w2"}
    assert len(before) == 30


def check_files(table: str) -> None:
    """Each is of one day and one person, and in the table's order."""
    for file in files_of(table):
        rows = pq.read_table(file.removeprefix("file:")).to_pylist()
        assert len({(row["at"].date(), row["who"]) for row in rows}) == 1
        assert [row["id"] for row in rows] == sorted((row["id"] for row in rows), reverse=True)


def test_any_json_is_one_shredded_column_from_version_3_on(
    spark: SparkSession, load: Load, laid_out: Job, table: str, reader: IcebergReader
) -> None:
    """A query of one field reads that column of the files; replays go through them, and the schedule's reader goes on."""
    with pytest.raises(TransformError, match=r"which the table cannot hold\. Set sink.format_version to 3, or cast"):
        load(laid_out(0, 10, layout=Layout(), transform="anything"))
    layout = Layout(format_version=3)
    load(laid_out(0, 10, layout=layout, transform="anything"))
    load(changed(laid_out(3, 7, layout=layout, transform="anything"), replay="through files"))
    rows = spark.table(table).selectExpr("variant_get(value, '$.id', 'int') id", "_error").collect()
    assert sorted((row["id"], row["_error"]) for row in rows) == [(n, None) for n in range(10)]
    assert {"typed_value" in str(pq.ParquetFile(file).schema) for file in files_of(table)} == {True}
    assert len(reader.receipts(table, "orders")) == 2


@pytest.mark.parametrize(
    ("transform", "by_hand"),
    [("wider", ()), ("of_nobody", ("DROP PARTITION FIELD who", "DROP COLUMN who"))],
    ids=["wider types", "a dropped column"],
)
def test_columns_that_a_table_is_partitioned_by_change_and_the_law_holds(
    spark: SparkSession,
    sink: SinkUnderTest,
    load: Load,
    laid_out: Job,
    reader: IcebergReader,
    table: str,
    transform: str,
    by_hand: tuple[str, ...],
) -> None:
    """Loads, replays through older files and compaction go on, and both readers."""
    layout = Layout(partition_by=("who", "größe", "truncate(5, id)"))
    load(laid_out(0, 10, layout=layout))
    for change in by_hand:
        spark.sql(f"ALTER TABLE {table} {change}")
    load(laid_out(10, 20, seq=1, transform=transform))
    load(changed(laid_out(5, 15, transform=transform), replay="through files"))
    compact(spark, table, Maintenance())
    load(changed(laid_out(2, 18, transform=transform), replay="again"))
    assert ids(sink, table) == list(range(20))
    assert sum(map(len, read_origins(table).values())) == 20
    assert reader.without_origin(table) is None


def test_a_file_is_of_one_place_and_its_rows_are_in_order(load: Load, laid_out: Job, table: str) -> None:
    """So a load makes no more files than its tasks times the places of their rows."""
    load(laid_out(0, 30, parts=3))
    check_files(table)
    assert len(files_of(table)) <= 3 * 3 * 2


def test_a_load_of_many_places_says_so(
    load: Load, laid_out: Job, table: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It lands all the same."""
    monkeypatch.setattr("tidegate.sinks.iceberg.table.MANY_FILES", 9)
    load(laid_out(0, 9, layout=Layout(partition_by=("id",))))
    assert not caplog.text
    load(laid_out(9, 19, seq=1, layout=Layout(partition_by=("id",))))
    assert f"wrote 10 data files into {table}" in caplog.text


def test_batches_may_be_laid_out_too(sink: SinkUnderTest, load: Load, laid_out: Job, table: str) -> None:
    """They have no topic and no partition."""
    for seq in (1, 2, 1):
        order = laid_out(seq * 10 - 10, seq * 10, seq=seq, transform="counted", layout=Layout(partition_by=("parity",)))
        load(changed(order, identity="batch", redo=True))
    assert [field.name for field in found(table).spec().fields] == ["parity"]
    assert held(sink, table) == expected(1, 2)


def test_a_compaction_keeps_the_layout_and_the_law(
    spark: SparkSession, sink: SinkUnderTest, load: Load, laid_out: Job, table: str
) -> None:
    """Merged files are of one place, in the table's order; replays go through them."""
    for seq in range(10):  # Iceberg merges five files of a place at least
        load(laid_out(seq * 3, seq * 3 + 3, seq=seq))
    before = len(files_of(table))
    assert compact(spark, table, Maintenance())["failed_data_files_count"] == 0
    check_files(table)
    assert len(files_of(table)) < before
    load(changed(laid_out(7, 19), replay="again"))
    assert ids(sink, table) == list(range(30))


@pytest.mark.parametrize(
    ("layout", "told"),
    [
        (Layout(partition_by=("days(when)",)), "days(when): there is no column when"),
        (Layout(partition_by=("days(id)",)), "days(id): id is int, expected date, timestamp, timestamp_ntz"),
        (Layout(partition_by=("of",)), "of: of is a struct"),
        (Layout(partition_by=("of.nothing",)), "there is no column of.nothing"),
        (Layout(sort_by=("nothing desc",)), "nothing desc: there is no column nothing"),
        (Layout(partition_by=("days(at)", "hours(at)")), "Cannot add redundant partition"),
    ],
)
def test_a_layout_of_columns_that_are_not_made_is_refused_before_there_is_a_table(
    sink: SinkUnderTest, load: Load, laid_out: Job, table: str, layout: Layout, told: str
) -> None:
    """Each is named with the reason."""
    with pytest.raises(SinkMisfit) as caught:
        load(laid_out(0, 10, layout=layout))
    assert told in str(caught.value)
    assert not sink.exists(table)


def test_a_layout_that_is_changed_by_hand_is_named_with_the_way_back_and_loads_go_on(
    spark: SparkSession, sink: SinkUnderTest, load: Load, laid_out: Job, reader: IcebergReader, table: str
) -> None:
    """Rows are in files of several specs then, also such as mix Kafka partitions; the law holds for all of them."""
    load(laid_out(0, 10))
    for change in (
        "DROP PARTITION FIELD days(at)",
        "DROP PARTITION FIELD _kafka_partition",
        "ADD PARTITION FIELD bucket(2, id)",
        "WRITE UNORDERED",
        "SET TBLPROPERTIES ('a' = 'by hand')",
    ):
        spark.sql(f"ALTER TABLE {table} {change}")
    load(laid_out(10, 20, seq=1))
    wanted = replace(LAID_OUT, sort_by=("größe desc", "of.n"), properties={"a": r"it's \ 1"})
    now = reader.layout(table)
    assert now is not None
    changes = wanted.changes(now, table)
    for change in changes:
        spark.sql(change)
    now = reader.layout(table)
    assert now is not None
    assert wanted.changes(now, table) == []
    load(laid_out(20, 30, seq=2))
    load(changed(laid_out(5, 25), replay="again"))
    assert ids(sink, table) == list(range(30))

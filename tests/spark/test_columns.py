"""Rows that no table can hold are refused by name before the table exists; advice about columns can be followed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

import tidegate.spark.load
from tests.records import load_job
from tests.spark.conftest import Job, Load
from tests.spark.log import PLAIN
from tests.spark.sinks_under_test import SinkUnderTest
from tidegate.core.config.pipeline import Contract
from tidegate.core.model.errors import SinkMisfit, TransformError
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.sinks.iceberg.history import IcebergReader, changed_columns, read_origins, rows_without_origin

STATEMENT = re.compile("un (ALTER TABLE .+?)(?:, or|; | instead)")
REFUSED = {
    "_file": "a column _file, which is a metadata column of the table",
    "_pos": "a column _pos, which is a metadata column of the table",
    "_deleted": "a column _deleted, which is a metadata column of the table",
    "_spec_id": "a column _spec_id, which is a metadata column of the table",
    "_partition": "a column _partition, which is a metadata column of the table",
    "_row_id": "a column _row_id, which is a metadata column of the table",
    "_last_updated_sequence_number": "a column _last_updated_sequence_number, which is a metadata column of the table",
    "void": "void a void, which the table cannot hold",
    "empty": r"empty\.element a void, which the table cannot hold",
    "interval": "interval a interval day, which the table cannot hold",
    "variant": "variant a variant, which the table cannot hold",
    "twice": "columns id and ID, which differ by case only",
    "same": "the column _error twice",
    "inner": r"columns inner\.a and inner\.A, which differ by case only",
    "origin": "the column _kafka_offset twice",
}
SHAPES = f"""
from pyspark.sql import functions as F
from tidegate.formats.json import parse_json
{PLAIN}
void = lambda records: plain(records).withColumn("void", F.lit(None))
empty = lambda records: plain(records).withColumn("empty", F.array())
interval = lambda records: plain(records).withColumn("interval", F.expr("interval 1 day"))
variant = lambda records: plain(records).withColumn("variant", F.parse_json(F.lit("[]")))
variant_too = lambda records: plain(records).withColumn("extra", F.parse_json(F.lit("[1]")))
twice = lambda records: plain(records).select("*", F.lit(1).alias("ID"))
same = lambda records: parse_json(records, "id INT, _error STRING")
origin = lambda records: parse_json(records, "id INT, _kafka_offset BIGINT")
inner = lambda records: plain(records).withColumn("inner", F.expr("named_struct('a', 1, 'A', 2)"))
reserved_word = lambda records: plain(records).withColumn("order", F.expr("named_struct('a b', 1)"))
renamed = lambda records: plain(records).withColumnRenamed("id", "number")
wider = lambda records: plain(records).withColumn("id", F.col("id").cast("bigint"))
""" + "".join(
    f'{name} = lambda records: plain(records).withColumn("{name}", F.lit(1))\n' for name in REFUSED if name.startswith("_")
)


@pytest.fixture(scope="module")
def spark_jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of transforms, module `made`."""
    folder = tmp_path_factory.mktemp("spark_jobs")
    (folder / "made.py").write_text(SHAPES)
    return folder


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_table_can_hold_is_refused_before_there_is_one(
    sink: SinkUnderTest, load: Load, job: Job, table: str, name: str
) -> None:
    """Names that Iceberg has itself, names that are there twice, types that it does not have."""
    with pytest.raises(TransformError, match=REFUSED[name]):
        load(job(0, 5, transform=f"made:{name}"))
    assert not sink.exists(table)


@pytest.mark.parametrize(("name", "rows"), [("reserved_word", 10), ("renamed", 10), ("wider", 10)])
def test_the_statement_of_the_advice_makes_the_load_fit(
    spark: SparkSession, sink: SinkUnderTest, load: Load, job: Job, table: str, name: str, rows: int
) -> None:
    """Names are quoted; a column of the same type that is not made any more may have been renamed; types widen."""
    load(job(0, 5, transform="made:plain"))
    wanted = replace(job(5, 10, seq=1, transform=f"made:{name}"), contract=Contract("freeze", "freeze"))
    with pytest.raises(SinkMisfit) as caught:
        load(wanted)
    spark.sql(re.findall(STATEMENT, caught.value.fix)[-1])
    load(wanted)
    assert len(sink.rows(table)) == rows


def test_a_required_column_that_the_rows_lack_is_named(spark: SparkSession, load: Load, job: Job, table: str) -> None:
    """With the statement that lets rows do without."""
    load(job(0, 5, transform="made:plain"))
    spark.sql(f"DROP TABLE {table}")
    columns = "id INT, _raw STRING, _error STRING, _kafka_topic STRING, _kafka_partition INT, _kafka_offset BIGINT"
    spark.sql(f"CREATE TABLE {table} ({columns}, shop STRING NOT NULL) USING iceberg")
    wanted = replace(job(0, 5, transform="made:plain"), contract=Contract("freeze", "freeze"))
    with pytest.raises(SinkMisfit, match="requires a value of shop") as caught:
        load(wanted)
    spark.sql(re.findall(STATEMENT, caught.value.fix)[-1])
    load(wanted)


def test_an_origin_column_of_another_type_is_not_to_be_cast(spark: SparkSession, load: Load, job: Job, table: str) -> None:
    """A cast of it would be refused."""
    load(job(0, 5, transform="made:plain"))
    spark.sql(f"ALTER TABLE {table} DROP PARTITION FIELD _kafka_partition")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN _kafka_partition TYPE bigint")
    with pytest.raises(SinkMisfit, match="_kafka_partition is bigint there and int here") as caught:
        load(job(5, 10, seq=1, transform="made:plain"))
    assert caught.value.fix.startswith("Write to a new table")


def test_a_topic_of_the_longest_name_loads(
    sink: SinkUnderTest, load: Load, job: Job, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of a partition would have a longer name than the file system takes: such a table is partitioned without."""
    topic, wanted = "t" * 249, job(0, 10, transform="made:plain")
    read = tidegate.spark.load.read_ranges  # type: ignore[attr-defined]

    def named(_spark: SparkSession, ranges: tuple[OffsetRange, ...], options: dict[str, str], **_: object) -> DataFrame:
        return read(_spark, ranges, options).withColumn("_kafka_topic", F.lit(topic))

    monkeypatch.setattr(tidegate.spark.load, "read_ranges", named)
    for start, until, seq in ((0, 10, 0), (10, 20, 1), (5, 15, 2)):
        ranges = (OffsetRange(topic, 0, start, until),)
        made = load_job("orders", seq, "r", ranges, "made:plain", table, wanted.reading.kafka_options)
        assert load(made).receipt.rows == 10
    assert len(sink.rows(table)) == 20


def test_a_column_of_a_type_that_the_reader_does_not_know_hides_nothing(
    spark: SparkSession, load: Load, job: Job, table: str, reader: IcebergReader
) -> None:
    """PyIceberg has no VARIANT: receipts and origins are read all the same, and the schedule goes on."""
    load(job(0, 10, transform="made:plain"))
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '3')")
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (extra variant, deep struct<a: int, b: array<variant>>)")
    assert changed_columns(table)[1] == "extra (variant) was added"
    load(job(10, 20, seq=1, transform="made:variant_too"))
    load(job(5, 15, seq=2, transform="made:plain"))
    assert [receipt.load.seq for receipt in reader.receipts(table, "orders")] == [0, 1, 2]
    assert {tp: sorted(offsets) for tp, offsets in read_origins(table).items()} == {TopicPartition("orders", 0): [*range(20)]}
    assert rows_without_origin(table) == 0

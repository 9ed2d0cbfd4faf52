"""Counts of a load are those of its commit and of its records, whatever Spark executes more than once: plans, tasks, stages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

import tidegate.spark.load
from tests.records import changed
from tests.spark.conftest import Job, Load, Records
from tests.spark.log import PLAIN
from tests.spark.sinks_under_test import SinkUnderTest
from tidegate.core.model.errors import ReceiptMismatch
from tidegate.core.model.ranges import TopicPartition

SHAPES = f'''
from pyspark.sql import Window
from pyspark.sql import functions as F
{PLAIN}
def cached(records): return plain(records).cache()
def ordered(records): return plain(records).orderBy("_kafka_offset")
def by_range(records): return plain(records).repartitionByRange(2, "_kafka_offset")
def coalesced(records): return plain(records).coalesce(1)

def union(records):
    """Two halves."""
    rows = plain(records)
    return rows.where("id % 2 = 0").union(rows.where("coalesce(id % 2, 1) = 1"))

def joined(records):
    """With their number."""
    rows = plain(records)
    return rows.crossJoin(rows.agg(F.count("*").alias("n")))

def self_joined(records):
    """With themselves."""
    rows = plain(records)
    keys = rows.select(F.col("_kafka_partition").alias("p"), F.col("_kafka_offset").alias("o"))
    return rows.join(keys, (F.col("_kafka_partition") == F.col("p")) & (F.col("_kafka_offset") == F.col("o")))

def excepted(records):
    """Without those that have none."""
    rows = plain(records)
    return rows.exceptAll(rows.where("id < 0"))

def subquery(records):
    """Up to the largest, by a scalar subquery."""
    rows = plain(records)
    return rows.where(F.col("_kafka_offset") <= rows.select(F.max("_kafka_offset")).scalar())

def windowed(records):
    """Numbered."""
    return plain(records).withColumn("n", F.row_number().over(Window.partitionBy("_kafka_topic").orderBy("_kafka_offset")))

def counting(records):
    """Looks at the number of its records, and at some of them, before it makes rows."""
    records.limit(2).collect()
    return plain(records).withColumn("n", F.lit(records.count()))

def by_parity(records):
    """Sums, sorted."""
    return plain(records).groupBy((F.col("id") % 2).alias("parity")).agg(F.count("*").alias("n")).orderBy("parity")
'''
NAMES = [line.split()[1].partition("(")[0] for line in SHAPES.splitlines() if line.startswith("def ")]
OF_RECORDS = [name for name in NAMES if name != "by_parity"]


def offsets(sink: SinkUnderTest, table: str) -> list[int]:
    """Those of all rows, sorted."""
    return sorted(row["_kafka_offset"] for row in sink.rows(table))


@pytest.fixture(scope="module")
def spark_jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of transforms, module `twice`."""
    folder = tmp_path_factory.mktemp("spark_jobs")
    (folder / "twice.py").write_text(SHAPES)
    return folder


@pytest.fixture
def topic(spark: SparkSession, records: Records, load: Load, monkeypatch: pytest.MonkeyPatch) -> DataFrame:
    """30 records in four tasks, three of them broken."""
    values = [b'{"id": %d}' % offset if offset % 10 else b"no JSON" for offset in range(30)]
    made = records([*values]).repartition(4, "_kafka_offset").localCheckpoint()
    monkeypatch.setattr(
        tidegate.spark.load,
        "read_ranges",
        lambda _spark, ranges, *_, **__: made.where(
            f"_kafka_offset >= {ranges[0].from_offset} AND _kafka_offset < {ranges[0].until_offset}"
        ),
    )
    return made


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("name", OF_RECORDS)
def test_a_part_that_runs_twice_is_counted_once(sink: SinkUnderTest, load: Load, job: Job, table: str, name: str) -> None:
    """Whatever a transform does with its input: records, rows, broken records and bounds are right, also in the second look."""
    wanted = changed(job(0, 30, transform=f"twice:{name}"), contiguous=True)
    observed = load(wanted).observed
    assert (observed.records, observed.rows, observed.errors) == (30, 30, 3)
    assert observed.bytes == 30 + sum(len(b'{"id": %d}' % n) if n % 10 else len(b"no JSON") for n in range(30))
    assert observed.first_last == {TopicPartition("orders", 0): (0, 29)}
    assert offsets(sink, table) == list(range(30))
    assert load(wanted).landed_before


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    ("name", "clause"),
    [
        *((name, "ORDERED BY id") for name in ("plain", "union", "ordered")),
        ("plain", "DISTRIBUTED BY PARTITION LOCALLY ORDERED BY id"),
        ("plain", "LOCALLY ORDERED BY id"),
    ],
)
def test_a_table_with_an_order_takes_loads_again_and_again(
    spark: SparkSession, sink: SinkUnderTest, load: Load, job: Job, table: str, name: str, clause: str
) -> None:
    """Spark samples the plan once more for a range distribution: new batches, a redo and a range that cuts count right."""
    plan = {"transform": f"twice:{name}"}
    load(job(0, 10, **plan))
    spark.sql(f"ALTER TABLE {table} WRITE {clause}")
    for seq, (start, until) in enumerate([(10, 20), (20, 30), (20, 30), (5, 15)], start=1):
        wanted = changed(job(start, until, seq=min(seq, 3), redo=seq == 3, **plan), contiguous=True, replay=f"r{seq}")
        observed = load(wanted).observed
        assert (observed.records, observed.rows, observed.errors) == (10, 10, 1)
        assert observed.first_last == {TopicPartition("orders", 0): (start, until - 1)}
    assert offsets(sink, table) == list(range(30))


@pytest.mark.usefixtures("topic")
def test_rows_of_a_batch_are_counted_once_in_a_table_with_an_order(
    spark: SparkSession, load: Load, job: Job, table: str
) -> None:
    """Also where the transform sorts what it has grouped."""
    for seq in (1, 2, 3):
        wanted = changed(job(0, 30, seq=seq, transform="twice:by_parity"), identity="batch", contiguous=True)
        observed = load(wanted).observed
        assert (observed.records, observed.rows, observed.errors) == (30, 3, None)
        spark.sql(f"ALTER TABLE {table} WRITE ORDERED BY parity DESC")
    assert {(row["_batch"], row["n"]) for row in spark.table(table).where(F.col("parity").isNull()).collect()} == {
        (seq, 3) for seq in (1, 2, 3)
    }


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("name", ["plain", "ordered", "counting"])
def test_a_gap_is_refused_however_often_the_records_were_read(load: Load, job: Job, name: str) -> None:
    """The log ends at 30. 20 of 40 offsets that were read twice are no 40 records."""
    wanted = changed(job(10, 50, transform=f"twice:{name}"), contiguous=True)
    for _ in range(2):
        with pytest.raises(ReceiptMismatch, match=r"40 offsets.*20 records") as caught:
            load(wanted)
        assert (caught.value.fields["expected"], caught.value.fields["seen"]) == (40, 20)
    assert load(changed(wanted, contiguous=False, redo=True)).observed.records == 20


@pytest.mark.usefixtures("topic")
def test_a_plain_load_reads_its_records_once(load: Load, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was counted on the way is believed where each part was executed once: nothing is counted anew."""
    monkeypatch.setattr("pyspark.sql.classic.dataframe.DataFrame.agg", lambda *_: pytest.fail("counted anew"))
    for name in ("plain", "union", "subquery"):
        wanted = job(0, 30, transform=f"twice:{name}")
        assert load(replace(wanted, table=f"{wanted.table}_{name}")).observed.records == 30


def test_a_load_whose_task_fails_and_whose_executor_dies_counts_each_record_once(tmp_path: Path) -> None:
    """Spark runs the task again, and the stage whose files were lost with the executor."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark.lost_executors", str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert (tmp_path / "died").exists()
    assert json.loads(ran.stdout.splitlines()[-1]) == {"observed": [30, 30], "ids": [*range(30)]}

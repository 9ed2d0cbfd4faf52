"""Tables that contenders write into, made before they are measured: all of one kind, with Tidegate's own properties."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from pyspark.sql import SparkSession

from tidegate.bench.stage import Stage, transform
from tidegate.core.errors import RequestError
from tidegate.core.load.job import LoadJob
from tidegate.core.load.lookup import Lookup
from tidegate.core.offsets.ranges import OffsetRange
from tidegate.spark.identity import identity_of
from tidegate.spark.kafka_source import read_ranges
from tidegate.spark.sinks.registry import sink_of
from tidegate.spark.transforms import find_transform

PIPELINE = "bench"
_NUMBERS = count(1)


def job_for(stage: Stage, name: str, ranges: tuple[OffsetRange, ...], table: str | None = None) -> LoadJob:
    """The load of the ranges into a table of its own, by the transform of that name."""
    table = table or f"lake.bench.t{next(_NUMBERS)}"
    return LoadJob(PIPELINE, 1, "bench", ranges, transform(name), table, stage.options)


def make_table(spark: SparkSession, stage: Stage, job: LoadJob) -> None:
    """The job's table, without rows."""
    identity = identity_of(job)
    rows = find_transform(job.transform, stage.spark_jobs)(read_ranges(spark, job.ranges, job.kafka_options))
    sink_of(job, spark).prepare(identity.check(rows.schema, job.transform), identity, job, Lookup(exists=False))


def check_rows(spark: SparkSession, job: LoadJob, expected: int) -> None:
    """Raises RequestError where a contender has not written what it was to write."""
    rows = spark.table(job.table).count()
    if rows != expected:
        raise RequestError(
            f"{job.table} holds {rows:,} rows of {expected:,} records", fix="Report it: figures of such a load lie"
        )


@contextmanager
def new_table(spark: SparkSession, stage: Stage, name: str, ranges: tuple[OffsetRange, ...]) -> Iterator[LoadJob]:
    """A load into a new table, whose rows are counted at the end, and which is then dropped."""
    job = job_for(stage, name, ranges)
    make_table(spark, stage, job)
    yield job
    check_rows(spark, job, sum(r.count for r in ranges))
    drop(spark, job.table)


def drop(spark: SparkSession, table: str) -> None:
    """The table and its files."""
    spark.sql(f"DROP TABLE IF EXISTS {table} PURGE")

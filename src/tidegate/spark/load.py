"""One bounded load: after it, the table holds exactly the transform's rows of the job's records, and a receipt that says so.

lookup    has this batch landed before?        1 round trip in Spark Connect
prepare   transform, schemas, the table        2, and those that the transform itself makes
write     read Kafka, guard, replace           1
receipt   find the commit again                1
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import StructType

from tidegate.errors import ReceiptMismatch, RequestError
from tidegate.jobs import LoadJob, LoadResult
from tidegate.ranges import total_count
from tidegate.receipts import LoadId, Observed, Receipt
from tidegate.spark.errors import translated
from tidegate.spark.iceberg_sink import IcebergTable
from tidegate.spark.kafka_source import read_ranges
from tidegate.spark.origin import check_origin_columns, guard_origin
from tidegate.spark.transforms import Transform, find_transform


def load_range(spark: SparkSession, job: LoadJob, *, spark_jobs: Path) -> LoadResult:
    """Replace, in the job's table, the rows of its ranges with what its transform makes of those records.

    Where the newest receipt of the batch covers the ranges, by the same transform version, the load has landed before: nothing
    is read or written (`job.redo` writes all the same).

    Args:
        spark: a classic or a Spark Connect session with the table's catalog.
        job: what to load. `observed.records` counts what Spark read, which is less than the offsets where the log has gaps.
        spark_jobs: the folder that the transform is imported from.

    Raises:
        RequestError: the ranges hold no offsets.
        TransformError: the transform cannot be imported or breaks its contract; nothing is committed.
        OffsetsOutOfRange, KafkaError: the records cannot be read; nothing is committed.
        SinkError: the table cannot take the rows, or holds no receipt that covers the ranges.
        SparkError: the server is away, or the job failed; whether it committed is looked up by the next call.
    """
    if total_count(job.ranges) == 0:
        raise RequestError(
            f"batch {job.seq} of {job.pipeline} holds no offsets", fix="Skip the load of an empty batch", seq=job.seq
        )
    seconds: dict[str, float] = {}
    with translated(pipeline=job.pipeline, seq=job.seq, table=job.table):
        transform = find_transform(job.transform, spark_jobs)
        table = IcebergTable(spark, job.table)
        with _timed(seconds, "lookup"):
            exists, landed = table.receipt_of_batch(job.pipeline, job.seq)
        if landed and not job.redo and landed.covers(job.ranges) and landed.load.transform == transform.identity:
            return LoadResult(landed, Observed(None, None), seconds, landed_before=True)

        with _timed(seconds, "prepare"):
            read, written = Observation("tidegate_read"), Observation("tidegate_written")
            records = read_ranges(spark, job.ranges, job.kafka_options).observe(read, F.count(F.lit(1)).alias("rows"))
            rows = transform(records)
            schema = _schema(rows, transform)
            check_origin_columns(schema, transform.name)
            if not exists:
                table.create(schema)
            table.check_fits(schema, transform.name)

        load = LoadId(job.pipeline, job.seq, job.run_id, job.ranges, transform.identity, attempt=str(uuid.uuid4()))
        with _timed(seconds, "write"):
            guarded = guard_origin(rows, job.ranges).observe(written, F.count(F.lit(1)).alias("rows"))
            table.replace(guarded, job.ranges, load)
        with _timed(seconds, "receipt"):
            observed = Observed(records=read.get["rows"], rows=written.get["rows"])
            receipt = table.receipt_of_attempt(load)
            _check_count(receipt, observed, job)
    return LoadResult(receipt, observed, seconds)


def _schema(rows: DataFrame, transform: Transform) -> StructType:
    try:
        return rows.schema
    except Exception as error:
        raise transform.broken(error) from error


def _check_count(receipt: Receipt, observed: Observed, job: LoadJob) -> None:
    if observed.rows != receipt.rows:
        raise ReceiptMismatch(
            f"the job wrote {observed.rows} rows, snapshot {receipt.snapshot} added {receipt.rows}",
            fix="Clear the load task: it replaces the whole range",
            table=job.table,
            snapshot=receipt.snapshot,
        )


@contextmanager
def _timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    started = time.perf_counter()
    try:
        yield
    finally:
        seconds[phase] = round(time.perf_counter() - started, 4)

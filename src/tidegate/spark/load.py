"""One bounded load: after it, the table holds exactly the transform's rows of the job's records, and a receipt that says so.

What it replaces is either the rows of those records, or, where the transform aggregates, the rows of the batch
(`tidegate.spark.identity`).

lookup    has this batch landed before?        1 round trip in Spark Connect
prepare   transform, schemas, the table        2, those of the transform itself, and up to 3 for a pipeline new to the table
look      does it go through data files?       none for a new batch; 1, and about five more where it does
write     read Kafka, guard, replace           1
receipt   find the commit again, its offsets   2
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import StructType

from tidegate.core.errors import ReceiptMismatch, RequestError, SinkConflict, SinkUnavailable, TableLost, some
from tidegate.core.load.job import LoadJob, LoadResult
from tidegate.core.load.receipt import LoadId, Observed, Receipt
from tidegate.core.offsets.ranges import OffsetRange, total_count
from tidegate.spark.errors import translate, translated
from tidegate.spark.iceberg_sink import IcebergTable
from tidegate.spark.identity import Identity, identity_of
from tidegate.spark.kafka_source import read_ranges
from tidegate.spark.ownership import Looked, check_owner, own
from tidegate.spark.transforms import Transform, find_transform
from tidegate.testing.failpoints import reach

log = logging.getLogger(__name__)

BEGINS = {
    "lookup": "asking the table whether this batch has landed before",
    "prepare": "preparing the transform and the table",
    "look": "looking for data files that the range goes through",
    "write": "reading Kafka and writing the table (the first load after Spark's start compiles, which may take a minute)",
    "receipt": "reading the receipt of the commit",
}
"""What each phase says in the task's log when it begins."""

TRIES = 5
"""Writes of one load after a look, where other commits change the same data files each time between it and the commit."""


def load_range(spark: SparkSession, job: LoadJob, *, spark_jobs: Path) -> LoadResult:
    """Replace, in the job's table, the rows of its ranges (or of its batch) with what its transform makes of those records.

    Where the newest receipt of the batch covers the ranges, by the same transform version, the load has landed before: nothing
    is written (`job.redo` writes all the same).

    A load is judged by position, not by count: the receipt covers every offset of the ranges, Spark read each range to its end
    (the source fails otherwise), and every offset in the commit lies in its range. Fewer records than offsets are fine, also
    none at all, unless the job says that its topics are contiguous. Rows of a batch have no offset to be judged by.

    Args:
        spark: a classic or a Spark Connect session with the table's catalog.
        job: what to load.
        spark_jobs: the folder that the transform is imported from.

    Raises:
        RequestError: the ranges hold no offsets, or a chunk of a replay does not say which batch it is.
        TransformError: the transform cannot be imported or breaks its contract; nothing is committed.
        OffsetsOutOfRange, KafkaError: the records cannot be read; nothing is committed.
        SinkError: the table cannot take the rows, is another pipeline's, or holds no receipt that covers the ranges.
        SinkConflict: others wrote the same data files each time; nothing is committed.
        ReceiptMismatch: what was read or written is not what the receipt says, or a contiguous topic has gaps. The commit is in
            the table, and stays out of the schedule: the cursor does not move.
        SparkError: the server is away, or the job failed; whether it committed is looked up by the next call.
    """
    if total_count(job.ranges) == 0:
        raise RequestError(
            f"batch {job.seq} of {job.pipeline} holds no offsets", fix="Skip the load of an empty batch", seq=job.seq
        )
    seconds: dict[str, float] = {}
    with translated(pipeline=job.pipeline, seq=job.seq, table=job.table):
        wanted = identity_of(job)
        transform = find_transform(job.transform, spark_jobs)
        table = IcebergTable(spark, job.table)
        with _timed(seconds, "lookup"):
            looked = table.look_up(job)
            landed = looked.landed
        if landed and not job.redo and landed.covers(job.ranges) and landed.load.transform == transform.identity:
            with _timed(seconds, "receipt"):
                return _found(spark, table, landed, job, seconds)

        with _timed(seconds, "prepare"):
            write = _Write(spark, job, transform)
            schema = wanted.check(_schema(write.rows, transform), transform.name)
            _fit(table, schema, wanted, job, looked)

        load = LoadId(
            job.pipeline,
            job.seq,
            job.run_id,
            job.ranges,
            transform.identity,
            job.attempt or str(uuid.uuid4()),
            job.topic_ids,
            job.generation,
            job.replay,
            job.batch_replaced,
            job.others,
        )
        # A new batch lies where nothing is, as a rule; where something is in its way all the same, its commit is refused.
        look = looked.exists and (job.redo or job.replay is not None or landed is not None)
        for tries_left in reversed(range(TRIES + (not look))):
            with _timed(seconds, "look"):
                cut = table.find_cut(wanted) if look else None
            look = True
            try:
                with _timed(seconds, "write"):
                    reach("before-write")
                    table.replace(write.guarded(wanted), wanted, load, cut)
                    reach("after-write")
            except Exception as error:
                known = translate(error, pipeline=job.pipeline, seq=job.seq, table=job.table)
                if isinstance(known, SinkUnavailable):
                    landed = _landed_after_all(table, load)
                    if landed:
                        with _timed(seconds, "receipt"):
                            return _found(spark, table, landed, job, seconds)
                if not isinstance(known, SinkConflict) or not tries_left:
                    raise
                # An observation is of one execution: what a refused write saw is not what the next one sees.
                write = _Write(spark, job, transform)
            else:
                break

        with _timed(seconds, "receipt"):
            receipt = table.receipt_of_attempt(load)
            read, made = write.seen(), write.written.get["rows"]
            records = read["rows"]
            # One row for each offset leaves no gap to look for, and saves the commonest load a round trip.
            whole = job.batch_replaced is None and records == made == total_count(job.ranges)
            first_last = {r.topic_partition: (r.from_offset, r.until_offset - 1) for r in job.ranges if r.count}
            observed = Observed(
                records=records,
                rows=made,
                bytes=read["bytes"],
                first_last=first_last if whole else table.offsets_of(receipt),
            )
            _judge(receipt, observed, job)
    return LoadResult(receipt, observed, seconds)


class _Write:
    """One execution of a load: what it reads and writes, and what is observed meanwhile."""

    def __init__(self, spark: SparkSession, job: LoadJob, transform: Transform) -> None:
        self.read, self.written = Observation("tidegate_read"), Observation("tidegate_written")
        self.records = _records(spark, job)
        self.rows = transform(self.records.observe(self.read, *_sizes()))

    def seen(self) -> Mapping[str, int]:
        """How many records it read, under `rows`, and their `bytes`, once it is executed.

        Where Spark finds meanwhile that no row comes of a part of the job (it groups none), it leaves that part out of the
        plan, and with it what was observed there: then the records are counted once more.
        """
        with suppress(Exception):  # a classic session fails on an observation of nothing, Connect answers with nothing
            found: dict[str, int] = self.read.get
            if found:
                return found
        return self.records.agg(*_sizes()).collect()[0].asDict()

    def guarded(self, wanted: Identity) -> DataFrame:
        """The rows to write."""
        return wanted.marked(self.rows).observe(self.written, _count())


def _found(spark: SparkSession, table: IcebergTable, receipt: Receipt, job: LoadJob, seconds: dict[str, float]) -> LoadResult:
    """The answer for a commit that landed, though what its job observed is lost."""
    observed = Observed(
        # The answer that told the count is lost, and with it the only look at a gap: it is counted once more.
        records=_records(spark, job).count() if job.contiguous else None,
        rows=None,
        first_last=table.offsets_of(receipt),
    )
    _judge(receipt, observed, job)
    return LoadResult(receipt, observed, seconds, landed_before=True)


def _landed_after_all(table: IcebergTable, load: LoadId) -> Receipt | None:
    """The receipt of a write whose answer was lost. None also where the table cannot be asked: the next load looks again."""
    with suppress(Exception):
        return table.receipt_of_attempt(load)
    return None


def _fit(table: IcebergTable, schema: StructType, wanted: Identity, job: LoadJob, looked: Looked) -> None:
    """Have a table that takes the rows, and may be written by this pipeline."""
    if not looked.exists and not job.create:
        raise TableLost(
            f"table {job.table} is gone, which held earlier batches of {job.pipeline}",
            fix=f"Nothing was written. Run `tidegate plan {job.pipeline}`: it names what is missing, and how to go on",
            table=job.table,
        )
    made = not looked.exists and table.create(schema, wanted, job.pipeline)
    new_owner = not made and check_owner(table.spark, job, looked)
    table.check_fits(schema, wanted, job.transform)
    if new_owner:
        own(table.spark, job)


def _schema(rows: DataFrame, transform: Transform) -> StructType:
    try:
        return rows.schema
    except Exception as error:
        raise transform.broken(error) from error


def _records(spark: SparkSession, job: LoadJob) -> DataFrame:
    return read_ranges(spark, job.ranges, job.kafka_options, split=job.split, isolation_level=job.isolation_level)


def _sizes() -> tuple[Column, Column]:
    return _count(), _bytes().alias("bytes")


def _count() -> Column:
    return F.count(F.lit(1)).alias("rows")


def _bytes() -> Column:
    """Length of all keys and values; both may be null, and there may be no record at all."""
    lengths = (F.coalesce(F.length(name), F.lit(0)).cast("long") for name in ("key", "value"))
    return F.coalesce(F.sum(next(lengths) + next(lengths)), F.lit(0))


def _judge(receipt: Receipt, observed: Observed, job: LoadJob) -> None:
    """Refuse what the commit cannot have made of exactly these ranges; see `load_range`."""
    where = {"table": job.table, "snapshot": receipt.snapshot}
    again = "Clear the load task: it replaces the whole range"
    if observed.rows is not None and observed.rows != receipt.rows:
        raise ReceiptMismatch(
            f"the job wrote {observed.rows} rows, snapshot {receipt.snapshot} added {receipt.rows} and kept {receipt.kept}",
            fix=again,
            **where,
        )
    # The receipt's own ranges: one that landed before may cover more than was asked for now.
    outside = observed.outside(receipt.load.ranges)
    if outside:
        told = some(outside, separator="; ")
        raise ReceiptMismatch(
            f"snapshot {receipt.snapshot} holds offsets outside the batch's ranges: {told}",
            fix=again,
            **where,
        )
    offsets = total_count(job.ranges)
    if job.contiguous and observed.records != offsets:
        seen = [f"{r}: {_seen(observed, r)}" for r in sorted(job.ranges) if r.count]
        raise ReceiptMismatch(
            f"batch {job.seq} of {job.pipeline} holds {offsets} offsets, and the pipeline says its topics have no gaps, but "
            f"{observed.records} records were read ({some(seen, separator='; ')})",
            fix="Look for transactions or compaction in the topics; where they belong there, do not declare them contiguous",
            expected=offsets,
            seen=observed.records,
            **where,
        )


def _seen(observed: Observed, r: OffsetRange) -> str:
    if observed.first_last is None:
        return "bounds not kept by the table"
    bounds = observed.first_last.get(r.topic_partition)
    return f"rows from {bounds[0]} to {bounds[1]}" if bounds else "no rows"


@contextmanager
def _timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    log.info(BEGINS[phase])
    started = time.perf_counter()
    try:
        yield
    finally:
        seconds[phase] = round(seconds.get(phase, 0.0) + time.perf_counter() - started, 4)

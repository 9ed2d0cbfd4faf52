"""One bounded load: after it, the table holds exactly the rows that the transform makes of the job's records, and a receipt.

It replaces either the rows of those records, or, where the transform aggregates, the rows of the batch
(`tidegate.sinks.identity`). The table is a port (`tidegate.sinks.port`): what a step costs there is its adapter's.

lookup    has this batch landed before, and at which commit is the table?
prepare   transform, schemas, the table        2 round trips in Spark Connect, those of the transform itself and of the table
look      which stored data is affected?       only where the sink has to look before it writes
aside     which records are rejected?          only with a quarantine
write     read Kafka, guard, replace
receipt   find the commit again, its offsets

Where other commits get in the way of the write, all of it is done again from the lookup.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.core.audit.quarantine import replay_command
from tidegate.core.load.lookup import Lookup
from tidegate.core.model.columns import ERROR, OFFSET, ORIGIN_COLUMNS
from tidegate.core.model.errors import (
    ReceiptMismatch,
    RequestError,
    SinkConflict,
    SinkUnavailable,
    TableLost,
    TidegateError,
    some,
)
from tidegate.core.model.hours import HOUR_MS, Times, spans
from tidegate.core.model.ranges import OffsetRange, merged, one_of_a_partition, total_count
from tidegate.core.state.jobs import LoadJob, LoadResult
from tidegate.core.state.receipt import Observed, Receipt, Write
from tidegate.failpoints import reach
from tidegate.formats.python_workers import expecting
from tidegate.sinks import sink_of
from tidegate.sinks.identity import ByOrigin, identity_of, inside
from tidegate.sinks.port import Phases, Prepared, SinkWriter
from tidegate.spark.culprit import with_record
from tidegate.spark.errors import known, translated
from tidegate.spark.kafka_source import read_ranges
from tidegate.spark.quarantine import Marks, Rejected
from tidegate.spark.repeats import look_back_named, without_repeats
from tidegate.spark.settings import age_s
from tidegate.spark.tally import Tally
from tidegate.spark.transforms import Transform, find_transform

FEW_PLACES = 1000
"""Rejected records of which it is asked whether the table has them: what decides otherwise each time does so soon."""
log = logging.getLogger(__name__)

RECEIPT = "reading the receipt of the commit"
TRIES = 10
"""Writes of one load, where other commits get in the way each time."""
REFUSED = "Write %d of at most %d was refused: %s. The load looks at the table anew"


def load_range(spark: SparkSession, job: LoadJob, *, spark_jobs: Path) -> LoadResult:
    """Replace, in the job's table, the rows of its ranges (or of its batch) with what its transform makes of those records.

    Where the newest receipt of the batch covers the ranges, by the same transform version and the same `dedupe`, the load has
    landed before: nothing is written (`job.redo` writes all the same).

    A load is judged by position, not by count: the receipt covers every offset of the ranges, Spark read each range to its end
    (the source fails otherwise), and every offset in the commit lies in its range. Fewer records than offsets are fine, also
    none at all, unless the job says that its topics are contiguous. Rows of a batch have no offset to be judged by.

    The session is a classic or a Spark Connect session with the table's catalog.

    Raises RequestError: the ranges hold no offsets, or a chunk of a replay does not say which batch it is. TransformError: the
    transform cannot be imported or breaks its contract; nothing is committed. OffsetsOutOfRange, KafkaError: the records cannot
    be read; nothing is committed. LookBackExpired: those that tell repeats cannot. BudgetExceeded: more records are rejected
    than the job's quarantine allows; nothing is committed. SinkError: the table cannot take the rows, is another pipeline's, or
    holds no receipt that covers the ranges. SinkConflict: other commits got in the way each time; nothing is committed.
    ReceiptMismatch: what was written is not what the receipt says, or a contiguous topic has gaps. The commit is in the table,
    and stays out of the schedule: the cursor does not move. SparkError: the server is away, or the job failed; whether it
    committed is looked up by the next call. Where one record breaks the batch, the message names it. TidegateError:
    `job.refused`, where the load has not landed before.
    """
    spark_age_s, started_s = age_s(spark), time.monotonic()
    try:
        return replace(_load(spark, job, spark_jobs), spark_age_s=spark_age_s)
    except TidegateError as error:
        table, took_s = partial(spark.table, job.table), time.monotonic() - started_s
        parts = partial(_rows, spark, job, spark_jobs)
        named = with_record(error, job.load.ranges, parts, lambda: table().schema, took_s=took_s)
        if named is error:
            raise
        raise named from error.__cause__


def _rows(spark: SparkSession, job: LoadJob, spark_jobs: Path, ranges: tuple[OffsetRange, ...]) -> DataFrame:
    """The rows that the transform makes of a part of the job's records."""
    records = _records(spark, job, ranges)
    with expecting(total_count(ranges)):
        return find_transform(job.transform, spark_jobs)(records)


def _load(spark: SparkSession, job: LoadJob, spark_jobs: Path) -> LoadResult:
    if total_count(job.load.ranges) == 0:
        raise RequestError(
            f"{job.load.named} of {job.load.pipeline} holds no offsets", fix="Skip the load of an empty batch", seq=job.load.seq
        )
    phases, topics = Phases(), some(sorted({part.topic for part in job.load.ranges}))
    with look_back_named(job), translated(pipeline=job.load.pipeline, seq=job.load.seq, table=job.table, topics=topics):
        identity = identity_of(job)
        transform = find_transform(job.transform, spark_jobs)
        sink, work = sink_of(job, spark), _Work(spark, job, transform)
        write = Write(job.load, transform.identity, job.attempt or str(uuid.uuid4()))
        for tries in range(1, TRIES + 1):
            with phases("lookup", "asking the table whether this batch has landed before"):
                lookup = sink.lookup(job)
            landed = lookup.landed
            current = landed and landed.covers(job.load.ranges) and landed.write.version == write.version
            if landed and current and not job.redo and work.settles(sink, landed, lookup):
                return _landed_before(spark, sink, landed, job, phases)
            if job.refused is not None:
                raise TidegateError.from_dict(job.refused)

            with phases("prepare", "preparing the transform and the table"):
                prepared = work.prepare(sink, lookup)
            changes = dict.fromkeys((*write.columns, *prepared.changes))  # also those of a try that was refused
            write = replace(write, columns=tuple(changes), quarantined=work.set_aside(sink, write, phases))

            again = job.load.replay is not None or landed is not None
            try:
                receipt = sink.replace(partial(work.rows, prepared), identity, write, lookup, again=again, phases=phases)
                break
            except Exception as error:
                meaning = error if isinstance(error, TidegateError) else known(error)
                late = _landed_unanswered(sink, job, write, meaning)
                if late is not None and work.settles(sink, late, lookup):
                    return _landed_before(spark, sink, late, job, phases)
                if tries == TRIES or not isinstance(meaning, SinkConflict):
                    raise
                log.warning(REFUSED, tries, TRIES, meaning.message)
        reach("after-write")

        with phases("receipt", RECEIPT):
            if not work.settles(sink, receipt, lookup):
                raise ReceiptMismatch(
                    f"quarantine {job.quarantined} does not hold what {job.load.named} has set aside",
                    fix="Clear the load task and the tasks after it: the load replaces the whole range",
                    table=job.table,
                )
            read = work.seen()
            records, rows = read["rows"], receipt.rows
            # One row for each offset leaves no gap to look for, and saves the commonest load a round trip.
            whole = job.load.batch is None and records == rows == total_count(job.load.ranges)
            first_last = {r.topic_partition: (r.from_offset, r.until_offset - 1) for r in job.load.nonempty}
            observed = Observed(
                records=records,
                rows=rows,
                bytes=read["bytes"],
                first_last=first_last if whole else sink.offsets_of(receipt),
                repeats=None if job.load.dedupe is None else records - read["kept"],
                errors=work.errors(sink, receipt),
                times=None if job.reading.hours is None else Times(read["first_ms"], (*spans(sorted(read["hours"]), 1),)),
            )
            _judge(receipt, observed, job)
    return LoadResult(receipt, observed, phases.seconds)


def _lost(job: LoadJob) -> TableLost:
    return TableLost(
        f"table {job.table} is gone, which held earlier batches of {job.load.pipeline}",
        fix=f"Nothing was written. Run `tidegate plan {job.load.pipeline}`: it names what is missing, and how to go on",
        table=job.table,
    )


class _Work:
    """What a load reads and writes, and what its latest execution has counted. Each try begins with `prepare`."""

    def __init__(self, spark: SparkSession, job: LoadJob, transform: Transform) -> None:
        self._spark, self._job, self._transform, self._identity = spark, job, transform, identity_of(job)
        self._rejected: Rejected | None = None
        self._attempt = ""

    def _plan(self) -> None:
        # An observation belongs to one execution: after a refused write, the next try needs new ones.
        self.read, self.kept = Tally("tidegate_read", *_read(self._job)), Tally("tidegate_kept", _count())
        self.written = Observation("tidegate_written")
        self.records = _records(self._spark, self._job, self._job.load.ranges)
        self.transformed = self._made_of(self.read.of(self.records), self.kept.of)

    def _made_of(self, records: DataFrame, kept: Callable[[DataFrame], DataFrame] = lambda rows: rows) -> DataFrame:
        """What the transform makes of the records, without repeats, of which `kept` are those that are left."""
        if self._job.load.dedupe is not None:
            records = kept(without_repeats(self._spark, records, self._job, self._job.load.dedupe))
        with expecting(total_count(self._job.load.ranges)):
            return self._transform(records)

    def prepare(self, sink: SinkWriter, lookup: Lookup) -> Prepared:
        """Plan the rows, and make the table ready for them."""
        self._plan()
        schema = self._transform.schema(self.transformed)
        marks = Marks.of(schema, self._job.quarantine, self._transform.name)
        of_table = self._identity.check(marks.of_table(schema), self._transform.name)
        if not lookup.exists and not self._job.create:
            raise _lost(self._job)
        prepared = sink.prepare(of_table, self._identity, self._job, lookup)
        self.marks = replace(marks, misfit=prepared.misfit)
        return prepared

    def set_aside(self, sink: SinkWriter, write: Write, phases: Phases) -> int | None:
        """Add the records that are rejected, found once, to the job's quarantine; how many, or None without a quarantine.

        Raises BudgetExceeded: too many are.
        """
        if self._job.quarantine is None:
            return None
        if self._rejected is None and self.marks:
            with phases("aside", "looking for records that the load rejects"):
                self._rejected, self._attempt = Rejected.of(self._rows_once_more(), self.marks), write.attempt
                self._rejected.check(self._job, partial(sink.held_aside, job=self._job))
                self._add(sink, self._rejected, write, self._job.load.ranges)
            reach("between-commits")
        return self._rejected.count if self._rejected else 0

    def _rows_once_more(self) -> DataFrame:
        # apart from the rows to write, whose records are counted: an observation belongs to one execution
        return self._identity.marked(self._made_of(_records(self._spark, self._job, self._job.load.ranges)))

    def _add(self, sink: SinkWriter, rejected: Rejected, write: Write, ranges: tuple[OffsetRange, ...]) -> None:
        if rejected.count:
            part = replace(self._job, load=replace(self._job.load, ranges=ranges))
            of_part = _records(self._spark, self._job, self._job.load.ranges).where(inside(ranges))
            sink.set_aside(rejected.records(of_part, write), self._identity, part, write.attempt)

    def settles(self, sink: SinkWriter, receipt: Receipt, lookup: Lookup) -> bool:
        """Make quarantine hold what a load that landed has set aside, and nothing that older loads of its ranges have.

        It lacks some where another attempt at the same load has landed first, and has swept what was not in the table yet.
        False where they are lost with the process that rejected them, and the load has to be done again. Where other loads are
        on top of it, which that would replace, what is left of it is looked at again.

        Raises ReceiptMismatch: by that look, records of the table are rejected, or fewer than were.
        """
        if self._job.quarantine is None:
            return True
        missing = sink.sweep(receipt, self._job)
        if missing and self._rejected is not None and self._attempt == receipt.write.attempt:
            self._add(sink, self._rejected, receipt.write, missing)
            missing = sink.sweep(receipt, self._job)
        elif missing and missing != merged(receipt.load.ranges):
            self.prepare(sink, lookup)
            self._look_again(sink, receipt, missing)
        return missing != merged(receipt.load.ranges)

    def _look_again(self, sink: SinkWriter, receipt: Receipt, missing: tuple[OffsetRange, ...]) -> None:
        rows = self._rows_once_more().where(inside(missing))
        found = Rejected.of(rows, self.marks) if self.marks else None
        origins = [] if found is None else found.origins.select(*ORIGIN_COLUMNS).collect()
        places = merged(OffsetRange(topic, partition, offset, offset + 1) for topic, partition, offset in origins)
        if (
            found is None
            or (places and sink.count_of(receipt, ByOrigin(places[:FEW_PLACES]), OFFSET))
            or sink.count_of(receipt, ByOrigin(missing), OFFSET) != self.marks.kept(rows, found).count()
        ):
            again = (replay_command(self._job.load.pipeline, part) for part in one_of_a_partition(missing))
            raise ReceiptMismatch(
                f"records of {self._job.load.named} that were rejected are in no table any more, and are not rejected again",
                fix=f"Nothing was written. Run `{'`, then `'.join(filter(None, again))}`",
                table=self._job.table,
            )
        self._add(sink, found, receipt.write, missing)

    def rows(self, prepared: Prepared) -> DataFrame:
        """The rows to write into a table, for one execution."""
        for tally in self._tallies:
            tally.begin()
        reach("before-write")
        rows = self.transformed if self._rejected is None else self.marks.kept(self.transformed, self._rejected)
        rows = prepared.fitted(rows)
        self._has_errors = ERROR in rows.columns
        rows = self._identity.marked(rows)
        return rows.observe(self.written, _count(), F.count(ERROR).alias("errors")) if self._has_errors else rows

    @property
    def _tallies(self) -> tuple[Tally, ...]:
        return (self.read,) if self._job.load.dedupe is None else (self.read, self.kept)

    def errors(self, sink: SinkWriter, receipt: Receipt) -> int | None:
        """How many committed rows have an error, once it is executed, and how many records are in quarantine instead, if any.

        What was observed is believed where it is of as many rows as were committed. Otherwise the sink counts.
        """
        aside = receipt.write.quarantined
        if not self._has_errors:
            return aside
        observed: Mapping[str, int] = {}
        with suppress(Exception):  # as in `Tally.counts`
            observed = self.written.get
        if observed.get("rows") == receipt.rows:
            return observed["errors"] + (aside or 0)
        return sink.count_of(receipt, self._identity, ERROR) + (aside or 0)

    def seen(self) -> Mapping[str, Any]:
        """How many records it read, under `rows`, and their `bytes`, once it is executed; under `kept` those without repeats.

        Where what was counted on the way cannot be believed, or would refuse the load, the records are counted once more.
        """
        seen = [tally.counts() for tally in self._tallies]
        read, kept = seen[0], seen[-1]
        if read and kept and not (self._job.reading.contiguous and read["rows"] != total_count(self._job.load.ranges)):
            return {**read, "kept": kept["rows"]}
        counted = self.records.agg(*_read(self._job)).collect()[0].asDict()
        if self._job.load.dedupe is not None:
            counted["kept"] = without_repeats(self._spark, self.records, self._job, self._job.load.dedupe).count()
        return counted


def _landed_before(spark: SparkSession, sink: SinkWriter, receipt: Receipt, job: LoadJob, phases: Phases) -> LoadResult:
    """The answer for a commit that landed, though what its job observed is lost."""
    with phases("receipt", RECEIPT):
        observed = Observed(
            # The count was lost with the answer, and only a count shows gaps: the records are counted once more.
            records=_records(spark, job, job.load.ranges).count() if job.reading.contiguous else None,
            rows=None,
            first_last=sink.offsets_of(receipt),
        )
        _judge(receipt, observed, job)
    return LoadResult(receipt, observed, phases.seconds, landed_before=True)


def _landed_unanswered(sink: SinkWriter, job: LoadJob, write: Write, meaning: TidegateError | None) -> Receipt | None:
    """The receipt of a write whose answer was lost. None where it did not land, or the error means that nothing was written.

    None also where the sink does not answer: the next load looks again.
    """
    if isinstance(meaning, SinkUnavailable):
        with suppress(Exception):
            landed = sink.lookup(job).landed
            if landed and landed.write.attempt == write.attempt:
                return landed
    return None


def _records(spark: SparkSession, job: LoadJob, ranges: tuple[OffsetRange, ...]) -> DataFrame:
    how = job.reading
    return read_ranges(spark, ranges, how.kafka_options, split=how.split, isolation_level=how.isolation_level)


def _read(job: LoadJob) -> tuple[Column, ...]:
    """What is observed of the records."""
    return (_count(), _bytes().alias("bytes"), *(() if job.reading.hours is None else _timestamps(*job.reading.hours)))


def _timestamps(since_ms: int, until_ms: int) -> tuple[Column, Column]:
    """The earliest timestamp, and the hours from `since_ms` to `until_ms` that have records, as numbers from the epoch on.

    A record without a timestamp has -1.
    """
    at = F.unix_millis("timestamp")
    # the commonest record, of an hour that was not announced, costs one comparison
    hour = F.when((at < until_ms) & (at >= since_ms), F.floor(at / HOUR_MS).cast("long"))
    return F.min(F.when(at >= 0, at)).alias("first_ms"), F.collect_set(hour).alias("hours")


def _count() -> Column:
    return F.count(F.lit(1)).alias("rows")


def _bytes() -> Column:
    """Length of all keys and values; both may be null, and there may be no record at all."""
    lengths = (F.coalesce(F.length(name), F.lit(0)).cast("long") for name in ("key", "value"))
    return F.coalesce(F.sum(next(lengths) + next(lengths)), F.lit(0))


def _judge(receipt: Receipt, observed: Observed, job: LoadJob) -> None:
    """Refuse a commit that is not a load of exactly these ranges; see `load_range`."""
    where = {"table": job.table, "snapshot": receipt.snapshot}
    again = "Clear the load task and the tasks after it: the load replaces the whole range"
    if not receipt.covers(job.load.ranges):
        raise ReceiptMismatch(
            f"snapshot {receipt.snapshot} of {job.table} does not cover the range of {job.load.named}", fix=again, **where
        )
    # The receipt's own ranges: one that landed before may cover more than was asked for now.
    outside = observed.outside(receipt.load.ranges)
    if outside:
        raise ReceiptMismatch(
            f"snapshot {receipt.snapshot} holds offsets outside {job.load.named}: {some(outside, separator='; ')}",
            fix=again,
            **where,
        )
    offsets = total_count(job.load.ranges)
    if job.reading.contiguous and observed.records != offsets:
        seen = [f"{r}: {_seen(observed, r)}" for r in sorted(job.load.nonempty)]
        raise ReceiptMismatch(
            f"{job.load.named} of {job.load.pipeline} holds {offsets} offsets, and the pipeline says its topics have no "
            f"gaps, but {observed.records} records were read ({some(seen, separator='; ')})",
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

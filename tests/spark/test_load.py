"""`load_range` beside other writers, with lost answers, into tables that do not fit; and the hours that it has seen."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, UUIDType
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import StructType

import tidegate.spark.culprit
import tidegate.spark.load
from tests.records import changed, load_job
from tests.spark.conftest import Job, Load, Records
from tests.spark.sinks_under_test import SinkUnderTest, ids
from tidegate.core.config.pipeline import Pipeline, Sink, Source
from tidegate.core.load.culprit import Part
from tidegate.core.model.errors import (
    ReceiptMismatch,
    ReceiptMissing,
    RequestError,
    SinkConflict,
    SinkMisfit,
    SinkUnavailable,
    SparkJobFailed,
    TidegateError,
)
from tidegate.core.model.hours import DAY_MS, HOUR_MS, Span, Times, spans
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.planning.admission import check_origins
from tidegate.core.state.jobs import LoadResult
from tidegate.core.state.receipt import Observed
from tidegate.sinks.iceberg.history import IcebergReader
from tidegate.sinks.iceberg.replacement import find_cut
from tidegate.sinks.iceberg.table import IcebergTable
from tidegate.sinks.identity import ByOrigin
from tidegate.spark import settings
from tidegate.spark.culprit import with_record
from tidegate.spark.errors import FAILED

PARTITION = TopicPartition("orders", 0)


def test_a_load_that_meets_others_each_time_gives_up_without_writing(
    spark: SparkSession, sink: SinkUnderTest, load: Load, job: Job, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that is always outdated: a named error, retryable, and the table as it was."""
    head = load(job(0, 10)).receipt.snapshot
    stale = find_cut(spark, table, ByOrigin([OffsetRange("orders", 0, 5, 15)]), head)
    load(job(0, 10, redo=True, transform="shapes:odd"))
    commits = sink.commits(table)
    monkeypatch.setattr("tidegate.sinks.iceberg.table.find_cut", lambda *_: stale)
    monkeypatch.setattr(tidegate.spark.load, "TRIES", 3)
    with pytest.raises(SinkConflict) as caught:
        load(job(5, 15, seq=1))
    assert caught.value.retryable
    assert "lower `max_records` of the pipeline and delete the range's Variable" in caught.value.fix
    assert sink.commits(table) == commits
    assert ids(sink, table) == [1, 3, 5, 7, 9]


def test_commit_that_landed_but_was_reported_failed_is_not_committed_twice(
    sink: SinkUnderTest, load: Load, job: Job, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog did not say whether it landed, the table does. Where it did not land, nothing is written blindly."""
    load(job(0, 10))
    commits, real = sink.commits(table), IcebergTable.overwrite

    def landed(*given: Any) -> None:
        real(*given)
        raise RuntimeError("org.apache.iceberg.exceptions.CommitStateUnknownException: read timed out")

    def lost(*_: object) -> None:
        raise RuntimeError("org.apache.iceberg.exceptions.CommitStateUnknownException: read timed out")

    monkeypatch.setattr(IcebergTable, "overwrite", landed)
    result = load(job(5, 15, seq=1))
    assert result.observed == Observed(None, None, None, first_last={PARTITION: (5, 14)})
    assert ids(sink, table) == list(range(15))
    monkeypatch.setattr(IcebergTable, "overwrite", lost)
    with pytest.raises(SinkUnavailable):
        load(job(15, 20, seq=2))
    assert sink.commits(table) == commits + 1


def test_an_origin_that_was_renamed_is_given_back_and_never_added(
    spark: SparkSession, load: Load, job: Job, table: str
) -> None:
    """Rows that were written before would have none, and a load of their records would double them."""
    load(job(0, 5))
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN _kafka_offset TO at")
    with pytest.raises(SinkMisfit, match="no column _kafka_offset") as caught:
        load(job(0, 10, seq=1))
    assert "ADD COLUMN" not in caught.value.fix
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN at TO _kafka_offset")
    load(job(0, 10, seq=1))
    assert spark.table(table).count() == 10


def test_an_origin_that_was_added_once_more_is_filled_by_the_advice(
    spark: SparkSession, load: Load, job: Job, table: str, reader: IcebergReader
) -> None:
    """Also where an UPDATE keeps the old files: followed to its end, a plan accepts the table, and loads replace its rows."""
    load(job(0, 5))
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.update.mode' = 'merge-on-read')")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN _kafka_offset TO at")
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (_kafka_offset bigint)")
    pipeline = Pipeline("orders", Source(("orders",)), "m:f", sink=Sink(table))

    def check() -> None:
        check_origins(pipeline, reader.history(table), accepted=False, without_origin=reader.without_origin(table))

    with pytest.raises(SinkMisfit, match="has lost _kafka_offset") as caught:
        check()
    for statement in caught.value.fix.removeprefix("Run ").split(", then "):
        spark.sql(statement)
    check()
    load(job(0, 10, seq=1))
    assert spark.table(table).count() == 10


def test_a_load_without_offsets_is_refused(load: Load, job: Job) -> None:
    """Empty batches are the caller's to skip."""
    with pytest.raises(RequestError, match="no offsets"):
        load(job(5, 5))


def test_a_write_that_leaves_no_receipt_is_told(load: Load, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that cannot be found again is not believed."""
    load(job(0, 5))
    monkeypatch.setattr(IcebergTable, "overwrite", lambda *_: None)
    monkeypatch.setattr(Observation, "get", {"rows": 0, "bytes": 0})
    with pytest.raises(ReceiptMissing) as caught:
        load(job(5, 10, seq=1))
    assert caught.value.retryable


def test_a_load_whose_counts_come_too_late_is_whole(
    sink: SinkUnderTest, load: Load, job: Job, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy Spark Connect answers without what it observed: records and broken rows are counted again, rows by the commit."""
    monkeypatch.setattr(Observation, "get", {})
    observed = load(job(0, 10)).observed
    assert observed == Observed(10, 10, 100, first_last={PARTITION: (0, 9)}, errors=0)
    assert ids(sink, table) == list(range(10))


@pytest.mark.parametrize(("transform", "errors"), [("plain", 3), ("doubled", 6), ("bare", None)])
def test_rows_of_broken_records_are_counted(
    load: Load, job: Job, records: Records, monkeypatch: pytest.MonkeyPatch, transform: str, errors: int | None
) -> None:
    """By their column `_error`: unknown where a transform leaves it out, and where the commit had landed before."""
    topic = records([b'{"id": 0}', b"no JSON", None, b'{"id": "x"}', b'{"id": 4}'])
    monkeypatch.setattr(tidegate.spark.load, "read_ranges", lambda *_, **__: topic)
    wanted = job(0, 5, transform=f"shapes:{transform}")
    assert load(wanted).observed.errors == errors
    assert load(wanted).observed.errors is None


def test_a_write_that_is_tried_again_counts_its_own_rows(
    load: Load, job: Job, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the refused one has counted is not in it."""
    monkeypatch.setattr(tidegate.spark.load, "read_ranges", lambda *_, **__: records([b'{"id": 0}', b"no JSON"]))
    real, writes = IcebergTable.overwrite, []

    def overwrite(self: IcebergTable, rows: DataFrame, *given: Any) -> None:
        writes.append(rows.count())
        if len(writes) == 1:
            raise RuntimeError("org.apache.iceberg.exceptions.CommitFailedException: others")
        real(self, rows, *given)

    monkeypatch.setattr(IcebergTable, "overwrite", overwrite)
    assert load(job(0, 2)).observed.errors == 1
    assert writes == [2, 2]


def test_an_answer_says_how_old_spark_was(load: Load, job: Job, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the load began, also where it found that it had landed before; clocks that differ make no negative age."""
    started = spark.sparkContext.startTime / 1000
    monkeypatch.setattr(settings, "time", SimpleNamespace(time=lambda: started + 7))
    assert load(job(0, 5)).spark_age_s == 7
    monkeypatch.setattr(settings, "time", SimpleNamespace(time=lambda: started - 7))
    again = load(job(0, 5))
    assert (again.landed_before, again.spark_age_s, again.cold) == (True, 0, True)


def test_a_spark_that_does_not_say_when_it_started_fails_no_load(load: Load, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The age is a mark in the pages."""
    monkeypatch.setattr(settings, "APP_STARTED", "spark.tidegate.unknown")
    result = load(job(0, 5))
    assert (result.spark_age_s, result.cold) == (None, False)


def test_bounds_are_those_of_the_receipts_own_commit(spark: SparkSession, load: Load, job: Job, table: str) -> None:
    """Whatever was added later, and also once manifests were merged."""
    load(job(0, 3))
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('commit.manifest.min-count-to-merge' = '2')")
    for seq in range(1, 5):
        found = load(job(seq * 3, seq * 3 + 3, seq=seq)).observed.first_last
        assert found == {PARTITION: (seq * 3, seq * 3 + 2)}
    assert load(job(3, 6, seq=1)).observed.first_last == {PARTITION: (3, 5)}


def test_a_table_without_bounds_has_none(spark: SparkSession, load: Load, job: Job, table: str) -> None:
    """Somebody switched the metrics off: the load is judged by the rest."""
    load(job(0, 3))
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.metadata.metrics.column._kafka_offset' = 'none')")
    assert load(job(3, 6, seq=1)).observed == Observed(
        3, 3, 30, first_last={PARTITION: (3, 5)}, errors=0
    )  # a row for each offset needs no bounds
    assert load(job(3, 6, seq=1)).observed == Observed(None, None, None, first_last=None)


def test_a_commit_with_offsets_outside_its_ranges_is_refused(load: Load, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever let them in; seen when the commit is found again."""
    load(job(0, 5))
    monkeypatch.setattr(IcebergTable, "offsets_of", lambda *_: {PARTITION: (0, 5)})
    with pytest.raises(ReceiptMismatch, match=r"orders-0 \[0, 5\) holds offsets 0 to 5"):
        load(job(0, 5))


def test_an_error_names_batch_and_table(load: Load, job: Job) -> None:
    """Whatever fails in Spark leaves as one of ours, with the original as its cause."""
    bad = load_job("orders", 3, "r", job(0, 5).load.ranges, "shapes:plain", "nowhere.tests.t", {})
    with pytest.raises(TidegateError) as caught:
        load(bad)
    assert caught.value.fields["seq"] == 3
    assert caught.value.__cause__ is not None


ORIGIN = (
    NestedField(1, "_kafka_topic", StringType()),
    NestedField(2, "_kafka_partition", IntegerType()),
    NestedField(3, "_kafka_offset", LongType()),
)


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize(
    ("transform", "columns", "kind", "offset"),
    [
        ("picky", [NestedField(4, "id", IntegerType())], SparkJobFailed, 17),
        ("holed", [NestedField(4, "id", IntegerType(), required=True)], SinkMisfit, 12),
        ("unnamed", [NestedField(4, "id", IntegerType()), NestedField(5, "u", UUIDType())], SparkJobFailed, 4),
    ],
)
def test_a_record_that_breaks_its_batch_is_named(
    spark: SparkSession,
    load: Load,
    job: Job,
    table: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    transform: str,
    columns: list[NestedField],
    kind: type[TidegateError],
    offset: int,
) -> None:
    """The first of several, whether the transform fails of it, the table, or the writer of its files; nothing is written."""
    monkeypatch.setattr("tidegate.spark.culprit.LONGEST_S", 600.0)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.tests")
    load_catalog("lake").create_table(table.removeprefix("lake."), Schema(*ORIGIN, *columns), tmp_path.as_uri())
    with pytest.raises(kind, match=rf"; the first such record is orders-0 at offset {offset}\b") as caught:
        load(job(0, 30, transform=f"shapes:{transform}"))
    assert caught.value.fields["record"] == f"orders-0 at offset {offset}"
    assert caught.value.__cause__ is not None
    assert spark.table(table).count() == 0


@pytest.mark.parametrize(
    ("failure", "at_s", "took_s", "named"),
    [
        (RuntimeError("cast"), (0, 1, 2, 3), 0, "orders-0 at offset 0"),
        (RuntimeError("cast"), (0, 59, 60), 0, "one of orders-0 [0, 2)"),
        (RuntimeError("cast"), (), 31, None),
        (AnalysisException("no such column"), (0, 1, 2, 3), 0, None),
        (RuntimeError("org.apache.iceberg.exceptions.CommitStateUnknownException"), (0, 1, 2, 3), 0, None),
    ],
)
def test_a_record_is_looked_for_in_a_minute_and_only_where_a_record_can_be_it(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, at_s: tuple[int, ...], took_s: float, named: str | None
) -> None:
    """What is known when the time is over is named. A plan that fails, a server that is away, say nothing of a record."""
    ticks = iter(at_s)
    monkeypatch.setattr(tidegate.spark.culprit, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    error = SparkJobFailed(f"{FAILED} cast", fix="See the log")

    def rows(part: Part) -> MagicMock:
        made = MagicMock(columns=())
        save = made.select.return_value.write.format.return_value.mode.return_value.save
        save.side_effect = failure if part[0].from_offset == 0 else None
        return made

    found = with_record(error, (OffsetRange("orders", 0, 0, 4),), rows, StructType, took_s=took_s)
    assert found.fields.get("record") == named
    assert (found is error) == (named is None)


NOON = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp() * 1000)
WINDOW = (NOON - 90 * DAY_MS, NOON)
STAMPED = (
    *(NOON - 1, NOON - HOUR_MS, NOON - HOUR_MS - 1, NOON - 50 * HOUR_MS, NOON - 50 * HOUR_MS + 7),
    *(NOON, NOON + 30_000 * DAY_MS, WINDOW[0], WINDOW[0] - 1, -1),
)
"""At the bounds of hours and of the window; of the far future; and of a record without a timestamp."""


def model(at_ms: Sequence[int], window: Span) -> Times:
    since, until = window
    hours = {at // HOUR_MS for at in at_ms if since <= at < until}
    return Times(min((at for at in at_ms if at >= 0), default=None), tuple(spans(sorted(hours), 1)))


@pytest.fixture
def stamped(load: Load, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Loads of a topic with these timestamps."""
    read = tidegate.spark.load.read_ranges  # type: ignore[attr-defined]
    at = F.element_at(F.array(*(F.timestamp_millis(F.lit(t)) for t in STAMPED)), (F.col("_kafka_offset") + 1).cast("int"))

    def stamp(*given: Any, **more: Any) -> DataFrame:
        records: DataFrame = read(*given, **more)
        return records.withColumn("timestamp", at)

    monkeypatch.setattr(tidegate.spark.load, "read_ranges", stamp)
    return load


@pytest.mark.parametrize("window", [WINDOW, (0, 0), (WINDOW[0], WINDOW[0] + HOUR_MS)], ids=["all", "none", "one"])
def test_a_load_sees_the_hours_of_its_records(stamped: Load, job: Job, window: Span) -> None:
    """In the window; the earliest timestamp also before it."""
    seen = stamped(changed(job(0, len(STAMPED)), hours=window))
    assert seen.observed.times == model(STAMPED, window)
    assert LoadResult.from_json(seen.to_json()) == seen


def test_a_batch_without_records_has_seen_none(stamped: Load, job: Job) -> None:
    """Of offsets that hold no record."""
    assert stamped(changed(job(40, 50), hours=WINDOW)).observed.times == Times(None)


def test_a_load_that_is_not_asked_looks_at_no_timestamp(stamped: Load, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs nothing where the pipeline announces nothing."""
    monkeypatch.setattr(tidegate.spark.load, "_timestamps", None)
    observed = stamped(job(0, 5)).observed
    assert observed.times is None
    assert "times" not in observed.to_json()


def test_a_lost_account_is_made_again(stamped: Load, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy Spark Connect answers without what it observed; a load that had landed before has seen nothing."""
    wanted = changed(job(0, 5), hours=WINDOW)
    with monkeypatch.context() as patch:
        patch.setattr(Observation, "get", {})
        assert stamped(wanted).observed.times == model(STAMPED[:5], WINDOW)
    assert stamped(wanted).observed.times is None

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.core.errors import (
    ReceiptMismatch,
    ReceiptMissing,
    RequestError,
    SinkConflict,
    SinkMisfit,
    SinkUnavailable,
    TidegateError,
    TransformError,
)
from tidegate.core.load.job import LoadJob, LoadResult
from tidegate.core.load.receipt import LoadId, Observed
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition
from tidegate.spark.iceberg_sink import IcebergTable
from tidegate.spark.identity import ByOrigin
from tidegate.spark.replacement import Cut

Load = Callable[[LoadJob], LoadResult]
Job = Callable[..., LoadJob]
PARTITION = TopicPartition("orders", 0)


def ids(spark: SparkSession, table: str) -> list[int]:
    return sorted(row["id"] for row in spark.table(table).select("id").collect())


def snapshots(spark: SparkSession, table: str) -> int:
    return spark.table(f"{table}.snapshots").count()


def test_a_load_leaves_the_rows_of_its_range_and_a_receipt(spark: SparkSession, load: Load, job: Job, table: str) -> None:
    """The first load creates the table and its answer says what is in it."""
    result = load(job(0, 10))
    assert ids(spark, table) == list(range(10))
    assert result.observed == Observed(records=10, rows=10, bytes=10 * len(b'k{"id": 0}'), first_last={PARTITION: (0, 9)})
    assert result.receipt.rows == 10
    assert result.receipt.load.ranges == (OffsetRange("orders", 0, 0, 10),)
    assert result.receipt.load.transform.startswith("shapes:plain@")
    assert set(result.seconds) == {"lookup", "prepare", "look", "write", "receipt"}
    assert LoadResult.from_json(result.to_json()) == result


def test_a_landed_batch_is_found_and_not_written_again(spark: SparkSession, load: Load, job: Job, table: str) -> None:
    """A second try of the same batch answers with the first one's receipt."""
    first = load(job(0, 10))
    commits = snapshots(spark, table)
    again = load(job(0, 10))
    assert again.landed_before
    assert again.receipt == first.receipt
    assert again.observed == Observed(None, None, None, first.observed.first_last)
    assert snapshots(spark, table) == commits


def test_the_same_range_loaded_twice_leaves_one_copy(spark: SparkSession, load: Load, job: Job, table: str) -> None:
    """A redo writes again, and replaces."""
    first = load(job(0, 10))
    again = load(job(0, 10, redo=True))
    assert not again.landed_before
    assert again.receipt.snapshot != first.receipt.snapshot
    assert ids(spark, table) == list(range(10))


def test_loads_of_different_ranges_leave_both(spark: SparkSession, load: Load, job: Job, table: str) -> None:
    """A load touches no row outside its range."""
    load(job(0, 10))
    load(job(10, 25, seq=1))
    assert ids(spark, table) == list(range(25))


def test_a_redo_with_another_transform_leaves_exactly_its_rows(spark: SparkSession, load: Load, job: Job, table: str) -> None:
    """Fewer rows than before, then more: nothing of the earlier transform stays, its neighbours do."""
    load(job(0, 4))
    load(job(4, 8, seq=1))
    result = load(job(0, 4, transform="shapes:odd", redo=True))
    assert (result.observed.records, result.observed.rows) == (4, 2)
    assert result.observed.first_last == {PARTITION: (1, 3)}
    assert ids(spark, table) == [1, 3, 4, 5, 6, 7]
    load(job(0, 4, transform="shapes:doubled", redo=True))
    assert ids(spark, table) == [0, 1, 2, 3, 4, 5, 6, 7, 1000, 1001, 1002, 1003]


def test_another_version_of_the_transform_is_another_load(spark: SparkSession, load: Load, job: Job, table: str) -> None:
    """A receipt by other code does not count as landed."""
    load(job(0, 4))
    result = load(job(0, 4, transform="shapes:odd"))
    assert not result.landed_before
    assert ids(spark, table) == [1, 3]


def test_a_receipt_that_does_not_cover_the_range_does_not_count(spark: SparkSession, load: Load, job: Job, table: str) -> None:
    """The same batch number with a longer range is written, over the whole files it holds."""
    load(job(0, 4))
    assert not load(job(0, 8)).landed_before
    assert ids(spark, table) == list(range(8))


def test_a_rolled_back_commit_does_not_count_as_landed(spark: SparkSession, load: Load, job: Job, table: str) -> None:
    """A snapshot that is no ancestor of the current one holds no rows, whatever its receipt says."""
    first = load(job(0, 4))
    load(job(4, 8, seq=1))
    spark.sql(f"CALL lake.system.rollback_to_snapshot('{table.removeprefix('lake.')}', {first.receipt.snapshot})").collect()
    assert ids(spark, table) == [0, 1, 2, 3]
    assert not load(job(4, 8, seq=1)).landed_before
    assert ids(spark, table) == list(range(8))


def test_a_range_that_cuts_through_an_earlier_batch_is_replaced_all_the_same(
    spark: SparkSession, load: Load, job: Job, table: str
) -> None:
    """The rows of the earlier batch before the range are kept in the same commit, and do not count as the load's."""
    load(job(0, 10))
    commits = snapshots(spark, table)
    result = load(job(5, 15, seq=1, transform="shapes:odd"))
    assert ids(spark, table) == [0, 1, 2, 3, 4, 5, 7, 9, 11, 13]
    assert (result.receipt.rows, result.receipt.kept) == (5, 5)
    assert (result.observed.rows, result.observed.first_last) == (5, {PARTITION: (5, 13)})
    assert LoadResult.from_json(result.to_json()) == result
    again = load(job(5, 15, seq=1, transform="shapes:odd"))
    assert again.landed_before
    assert again.receipt == result.receipt
    assert again.observed.first_last == {PARTITION: (5, 13)}
    assert snapshots(spark, table) == commits + 1


def test_a_conflict_is_looked_at_anew(
    spark: SparkSession, load: Load, job: Job, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody merges the batches between the look and the commit: refused, looked at again, written."""
    load(job(0, 10))
    real, looks = IcebergTable.find_cut, []

    def look(self: IcebergTable, wanted: ByOrigin) -> Cut | None:
        looks.append(real(self, wanted))
        if len(looks) == 1:
            IcebergTable(spark, table).replace(
                spark.table(table).where("_kafka_offset = 4").withColumn("id", F.lit(-4)),
                ByOrigin([OffsetRange("orders", 0, 0, 10)]),
                LoadId("other", 0, "r", (OffsetRange("orders", 0, 0, 10),), "t@1", "elsewhere"),
            )
        return looks[-1]

    monkeypatch.setattr(IcebergTable, "find_cut", look)
    result = load(job(5, 15, seq=1))
    assert len(looks) == 2
    assert ids(spark, table) == [-4, *range(5, 15)]
    assert (result.observed.records, result.observed.rows, result.receipt.rows) == (10, 10, 10)


def test_only_what_may_have_something_in_its_way_is_looked_at(
    spark: SparkSession, load: Load, job: Job, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A redo, and a new batch once its commit was refused; a new batch in a free place is not."""
    real, looks = IcebergTable.find_cut, []

    def look(self: IcebergTable, wanted: ByOrigin) -> Cut | None:
        looks.append(wanted)
        return real(self, wanted)

    monkeypatch.setattr(IcebergTable, "find_cut", look)
    load(job(0, 10))
    load(job(10, 20, seq=1))
    assert looks == []
    load(job(10, 20, seq=1, redo=True))
    assert len(looks) == 1
    load(job(12, 25, seq=2))
    assert len(looks) == 2
    assert ids(spark, table) == list(range(25))


def test_a_load_that_meets_others_each_time_gives_up_without_writing(
    spark: SparkSession, load: Load, job: Job, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that is always outdated: a named error, retryable, and the table as it was."""
    load(job(0, 10))
    stale = IcebergTable(spark, table).find_cut(ByOrigin([OffsetRange("orders", 0, 5, 15)]))
    load(job(0, 10, redo=True, transform="shapes:odd"))
    commits = snapshots(spark, table)
    monkeypatch.setattr(IcebergTable, "find_cut", lambda *_: stale)
    with pytest.raises(SinkConflict) as caught:
        load(job(5, 15, seq=1))
    assert caught.value.retryable
    assert snapshots(spark, table) == commits
    assert ids(spark, table) == [1, 3, 5, 7, 9]


def test_commit_that_landed_but_was_reported_failed_is_not_committed_twice(
    spark: SparkSession, load: Load, job: Job, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog did not say whether it landed, the table does. Where it did not land, nothing is written blindly."""
    load(job(0, 10))
    commits, real = snapshots(spark, table), IcebergTable.replace

    def landed(*given: Any) -> None:
        real(*given)
        raise RuntimeError("org.apache.iceberg.exceptions.CommitStateUnknownException: read timed out")

    def lost(*_: object) -> None:
        raise RuntimeError("org.apache.iceberg.exceptions.CommitStateUnknownException: read timed out")

    monkeypatch.setattr(IcebergTable, "replace", landed)
    result = load(job(5, 15, seq=1))
    assert result.observed == Observed(None, None, None, {PARTITION: (5, 14)})
    assert ids(spark, table) == list(range(15))
    monkeypatch.setattr(IcebergTable, "replace", lost)
    with pytest.raises(SinkUnavailable):
        load(job(15, 20, seq=2))
    assert snapshots(spark, table) == commits + 1


def test_loads_at_once_over_ranges_that_cross_leave_one_copy(spark: SparkSession, load: Load, job: Job, table: str) -> None:
    """Two replays through the same file, one of them twice, and the schedule going on beside them."""
    load(job(0, 20))
    jobs = [job(3, 9, seq=1), job(6, 15, seq=2), job(6, 15, seq=3), job(20, 30, seq=4)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(load, jobs))
    assert ids(spark, table) == list(range(30))
    assert [r.receipt.rows for r in results] == [6, 9, 9, 10]


@pytest.mark.parametrize(
    ("transform", "told"),
    [
        ("no_offset", "drops the origin column _kafka_offset"),
        ("text_offset", "makes _kafka_offset a string, it is a bigint"),
        ("moved", "orders-0 at offset 10"),
        ("nowhere", "null-0 at offset 5"),
        ("raising", "KeyError"),
        ("misnamed", "nothing"),
        ("nothing", "returns NoneType"),
        ("constant", "no function constant"),
    ],
)
def test_a_transform_that_breaks_its_contract_commits_nothing(
    spark: SparkSession, load: Load, job: Job, table: str, transform: str, told: str
) -> None:
    """Lost or changed origins, exceptions and wrong answers are each told by name, and the table stays as it was."""
    load(job(0, 5))
    commits = snapshots(spark, table)
    with pytest.raises(TransformError, match=told) as caught:
        load(job(5, 10, seq=1, transform=f"shapes:{transform}"))
    assert caught.value.fix
    assert snapshots(spark, table) == commits
    spark.sql(f"DROP TABLE {table}")


def test_a_new_column_is_refused_with_the_statement_that_adds_it(spark: SparkSession, load: Load, job: Job, table: str) -> None:
    """Nothing is altered behind the user's back; after the ALTER TABLE of the message both transforms fit."""
    load(job(0, 5))
    with pytest.raises(SinkMisfit, match="no column extra") as caught:
        load(job(5, 10, seq=1, transform="shapes:widened"))
    statement = caught.value.fix.removeprefix("Run ").split(", then")[0]
    spark.sql(statement)
    load(job(5, 10, seq=1, transform="shapes:widened"))
    load(job(10, 15, seq=2))
    assert [row["extra"] for row in spark.table(table).orderBy("id").select("extra").collect()] == [None] * 5 + [1.5] * 5 + [
        None
    ] * 5


def test_a_column_of_another_type_is_refused_by_name(spark: SparkSession, load: Load, job: Job, table: str) -> None:
    """Spark would cast in silence; the table's types are kept."""
    load(job(0, 5))
    with pytest.raises(SinkMisfit, match="id is int there and string here"):
        load(job(5, 10, seq=1, transform="shapes:typed_otherwise"))


def test_a_load_without_offsets_is_refused(load: Load, job: Job) -> None:
    """Empty batches are the caller's to skip."""
    with pytest.raises(RequestError, match="no offsets"):
        load(job(5, 5))


def test_a_write_that_leaves_no_receipt_is_told(load: Load, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that cannot be found again is not believed."""
    load(job(0, 5))
    monkeypatch.setattr(IcebergTable, "replace", lambda *_: None)
    monkeypatch.setattr(Observation, "get", {"rows": 0, "bytes": 0})
    with pytest.raises(ReceiptMissing) as caught:
        load(job(5, 10, seq=1))
    assert caught.value.retryable


def test_a_topic_that_is_said_to_be_contiguous_has_every_offset(spark: SparkSession, load: Load, job: Job, table: str) -> None:
    """The log ends at 30: a range beyond it is short, and told with what was expected and seen. The retry is not fooled."""
    assert load(replace(job(0, 10), contiguous=True)).observed.records == 10
    again = load(replace(job(0, 10), contiguous=True))
    assert again.landed_before
    assert again.observed.records == 10
    short = replace(job(20, 40, seq=1), contiguous=True)
    for _ in range(2):
        with pytest.raises(ReceiptMismatch, match=r"20 offsets.*10 records.*orders-0 \[20, 40\): rows from 20 to 29") as caught:
            load(short)
        assert (caught.value.fields["expected"], caught.value.fields["seen"]) == (20, 10)
    assert load(replace(short, contiguous=False)).landed_before


def test_a_range_without_a_record_leaves_an_empty_commit_with_its_receipt(
    spark: SparkSession, load: Load, job: Job, table: str
) -> None:
    """Offsets of control records or compacted keys only: loaded, and nothing is there."""
    load(job(0, 10))
    result = load(job(50, 60, seq=1))
    assert result.observed == Observed(records=0, rows=0, bytes=0, first_last={})
    assert result.receipt.rows == 0
    again = load(job(50, 60, seq=1))
    assert again.landed_before
    assert again.observed.first_last == {}
    assert ids(spark, table) == list(range(10))


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
    assert load(job(3, 6, seq=1)).observed == Observed(3, 3, 30, {PARTITION: (3, 5)})  # a row for each offset needs no bounds
    assert load(job(3, 6, seq=1)).observed == Observed(None, None, None, None)


def test_a_commit_with_offsets_outside_its_ranges_is_refused(load: Load, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever let them in; seen when the commit is found again."""
    load(job(0, 5))
    monkeypatch.setattr(IcebergTable, "offsets_of", lambda *_: {PARTITION: (0, 5)})
    with pytest.raises(ReceiptMismatch, match=r"orders-0 \[0, 5\) holds offsets 0 to 5"):
        load(job(0, 5))


def test_an_error_names_batch_and_table(load: Load, job: Job, table: str) -> None:
    """Whatever fails in Spark leaves as one of ours, with the original as its cause."""
    bad = LoadJob("orders", 3, "r", job(0, 5).ranges, "shapes:plain", "nowhere.tests.t", {})
    with pytest.raises(TidegateError) as caught:
        load(bad)
    assert caught.value.fields["seq"] == 3
    assert caught.value.__cause__ is not None

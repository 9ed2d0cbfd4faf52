"""Rejected records are in quarantine, the rows of all others in the table, and no kill loses a record or leaves two copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tidegate.spark.load
from tests.spark.conftest import Job, Load
from tests.spark.sinks_under_test import SinkUnderTest, either_sink
from tidegate.core.config.pipeline import Quarantine
from tidegate.core.model.errors import BudgetExceeded, SinkMisfit, TransformError
from tidegate.core.state.jobs import LoadJob, LoadResult

TRANSFORMS = """
from pyspark.sql import functions as F
from tidegate import parse_json, reject

id = F.col("id")

def old(records):
    return reject(parse_json(records, "id INT"), id % 4 == 0, "a multiple of 4")

def broken(records):
    "Decodes nothing."
    return parse_json(records.withColumn("value", F.lit("{")), "id INT")

def new(records):
    return parse_json(records, "id INT")

def strict(records):
    return reject(parse_json(records, "id INT"), id >= 0, F.concat(F.lit("no "), id.cast("string"), F.repeat(F.lit("x"), 2000)))

def unsaid(records):
    rows = reject(parse_json(records, "id INT"), id == 1, F.lit(None))
    return reject(rows, id == 2, id)

def random(records):
    return reject(parse_json(records, "id INT"), F.rand() < 0.5, "unlucky")

def several(records):
    rows = parse_json(records, "id INT").withColumn("n", F.explode(F.array(F.lit(1), F.lit(2))))
    return reject(rows, (id == 4) & (F.col("n") == 2), "its second row")

def twice(records):
    rows = reject(parse_json(records, "id INT"), id == 1, "first")
    return reject(rows, id < 3, "second")
"""
FOURS = {0, 4, 8}


@pytest.fixture(scope="module")
def spark_jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of transforms, module `shop`."""
    folder = tmp_path_factory.mktemp("spark_jobs")
    (folder / "shop.py").write_text(TRANSFORMS)
    return folder


class Records:
    """The records of a topic, by where they are: ids of the table, and reasons by id in quarantine."""

    def __init__(self, sink: SinkUnderTest, table: str) -> None:
        self._sink, self._table, self.aside = sink, table, f"{table}_quarantine"

    @property
    def rows(self) -> list[int]:
        return sorted(row["id"] for row in self._sink.rows(self._table))

    @property
    def rejected(self) -> list[int]:
        if not self._sink.exists(self.aside):
            return []
        return sorted(row["_kafka_offset"] for row in self._sink.rows(self.aside))


@pytest.fixture
def held(sink: SinkUnderTest, table: str) -> Records:
    """What table and quarantine hold."""
    return Records(sink, table)


@pytest.fixture
def job(job: Job, table: str) -> Job:
    """As `job`, with a quarantine."""

    def make(start: int, until: int, *, budget: float = 1, **of: object) -> LoadJob:
        return replace(job(start, until, **of), quarantine=Quarantine(f"{table}_quarantine", budget))

    return make


@either_sink
def test_rejected_records_are_in_quarantine_as_they_were_and_all_others_in_the_table(
    sink: SinkUnderTest, load: Load, job: Job, table: str, held: Records
) -> None:
    """The receipt counts them; the table has no column of what is broken."""
    result = load(job(0, 10, transform="shop:old"))
    assert (held.rows, held.rejected) == ([1, 2, 3, 5, 6, 7, 9], [0, 4, 8])
    assert (result.receipt.rows, result.receipt.write.quarantined, result.observed.errors) == (7, 3, 3)
    assert LoadResult.from_json(result.to_json()) == result
    assert {*sink.rows(table)[0]} == {"id", "_kafka_topic", "_kafka_partition", "_kafka_offset"}
    row = next(row for row in sink.rows(held.aside) if row["_kafka_offset"] == 4)
    assert (row["value"], row["key"], row["rejected_by"], row["reason"]) == (b'{"id": 4}', b"k", "transform", "a multiple of 4")
    assert (row["transform"], row["attempt"]) == (result.receipt.write.transform, result.receipt.write.attempt)
    assert load(job(10, 12, seq=1, transform="shop:new")).receipt.write.quarantined == 0


@either_sink
def test_a_replay_moves_records_from_quarantine_to_the_table_and_back(load: Load, job: Job, held: Records) -> None:
    """Of its offsets alone, and as often as it is done: one copy in all."""
    load(job(0, 10, transform="shop:old"))
    load(job(3, 7, seq=1, transform="shop:new"))
    assert (held.rows, held.rejected) == ([1, 2, 3, 4, 5, 6, 7, 9], [0, 8])
    load(job(5, 9, seq=2, transform="shop:broken"))
    assert (held.rows, held.rejected) == ([1, 2, 3, 4, 9], [0, 5, 6, 7, 8])
    for seq in (3, 4):
        load(job(0, 10, seq=seq, transform="shop:new"))
        assert (held.rows, held.rejected) == ([*range(10)], [])


@either_sink
@pytest.mark.parametrize(("first", "then", "rejected"), [("old", "new", {0, 8}), ("new", "broken", {*range(2, 8)})])
@pytest.mark.parametrize("point", ["between-commits", "after-write"])
def test_no_kill_between_the_commits_loses_a_record_or_leaves_two(
    load: Load, job: Job, held: Records, point: str, first: str, then: str, rejected: set[int]
) -> None:
    """In either direction. Until the load is done again, each record is still in one of the two."""
    load(job(0, 10, transform=f"shop:{first}"))
    with at(point, raising(Killed)), pytest.raises(Killed):
        load(job(2, 8, seq=1, transform=f"shop:{then}"))
    assert {*held.rows, *held.rejected} == {*range(10)}
    load(job(2, 8, seq=1, transform=f"shop:{then}"))
    assert sorted([*held.rows, *held.rejected]) == [*range(10)]
    assert {*held.rejected} == rejected


@either_sink
@pytest.mark.parametrize("late", ["old", "new"])
def test_of_two_loads_of_one_range_the_last_to_commit_has_its_records_in_quarantine(
    load: Load, job: Job, held: Records, late: str
) -> None:
    """Also where the other one has swept them away before they were committed."""
    load(job(0, 10, transform="shop:new"))
    other = {"old": "broken", "new": "old"}[late]
    with at("between-commits", lambda: load(job(0, 10, seq=2, transform=f"shop:{other}"))):
        load(job(0, 10, seq=1, transform=f"shop:{late}"))
    assert sorted([*held.rows, *held.rejected]) == [*range(10)]
    assert held.rejected == (sorted(FOURS) if late == "old" else [])


def test_a_load_that_ends_late_leaves_what_a_later_one_has_set_aside(
    sink: SinkUnderTest, load: Load, job: Job, held: Records
) -> None:
    """Its receipt says when it was committed."""
    load(job(0, 10, transform="shop:new"))
    with at("after-write", lambda: load(job(0, 10, seq=2, transform="shop:old"))):
        load(job(0, 10, seq=1, transform="shop:broken"))
    assert (held.rows, held.rejected) == ([1, 2, 3, 5, 6, 7, 9], sorted(FOURS))


@either_sink
def test_beyond_the_budget_nothing_is_committed(sink: SinkUnderTest, load: Load, job: Job, table: str, held: Records) -> None:
    """The error names the commonest reasons, and an offset of each. With a budget of 0 no record may be rejected."""
    load(job(10, 12, transform="shop:new", budget=0))
    wanted = job(0, 10, seq=1, transform="shop:old", budget=0.29)
    commits = sink.commits(table)
    with pytest.raises(BudgetExceeded, match=r"3 of 10 offsets .*: 3 times a multiple of 4 \(first at offset 0 of orders-0\)"):
        load(wanted)
    assert (sink.commits(table), held.rejected) == (commits, [])
    load(job(0, 10, seq=1, transform="shop:old", budget=0.3))


@either_sink
def test_what_is_rejected_is_decided_once(load: Load, job: Job, held: Records) -> None:
    """A transform that decides otherwise when its rows are made loses no record: its load fails, or both agree."""
    load(job(0, 30, transform="shop:new"))
    with pytest.raises(TransformError, match="rejects other records each time"):
        load(job(0, 30, seq=1, transform="shop:random"))
    assert held.rows == [*range(30)]
    load(job(0, 30, seq=2, transform="shop:new"))
    assert held.rejected == []


@either_sink
def test_one_rejected_row_takes_all_rows_of_its_record_with_it(load: Load, job: Job, held: Records) -> None:
    load(job(0, 6, transform="shop:several"))
    assert (held.rows, held.rejected) == ([0, 0, 1, 1, 2, 2, 3, 3, 5, 5], [4])


@either_sink
def test_a_reason_is_cut_and_the_first_one_counts(sink: SinkUnderTest, load: Load, job: Job, held: Records) -> None:
    """Reasons may differ for each record."""
    load(job(0, 5, transform="shop:strict"))
    assert {len(row["reason"]) for row in sink.rows(held.aside)} == {1000}
    load(job(0, 5, seq=1, transform="shop:twice"))
    assert {row["_kafka_offset"]: row["reason"] for row in sink.rows(held.aside)} == {0: "second", 1: "first", 2: "second"}


@either_sink
def test_a_record_is_rejected_for_whatever_reason(sink: SinkUnderTest, load: Load, job: Job, held: Records) -> None:
    """Also for one that is null, or no text."""
    load(job(0, 4, transform="shop:unsaid"))
    reasons = {row["_kafka_offset"]: row["reason"] for row in sink.rows(held.aside)}
    assert reasons == {1: "rejected for no reason that is known", 2: "2"}


def test_a_table_whose_name_looks_like_a_secret_has_a_quarantine(load: Load, job: Job, table: str) -> None:
    """Spark hides the values of properties that have `url` in them."""
    aside = Quarantine(f"{table}_hourly_quarantine")
    for seq in (0, 1):
        wanted = job(seq * 10, seq * 10 + 10, seq=seq, transform="shop:old")
        load(replace(wanted, table=f"{table}_hourly", quarantine=aside))


@either_sink
def test_a_transform_that_rejects_needs_a_quarantine(load: Load, job: Job) -> None:
    """Otherwise its records would be lost."""
    with pytest.raises(TransformError, match="has no quarantine for them"):
        load(replace(job(0, 5, transform="shop:old"), quarantine=None))


def test_a_quarantine_is_of_one_table_and_is_made_again_where_it_was_dropped(
    sink: SinkUnderTest, spark: SparkSession, load: Load, job: Job, table: str, held: Records
) -> None:
    """Somebody else's table is refused by name, before anything is committed."""
    spark.sql(f"CREATE TABLE {held.aside} (id INT) USING iceberg")
    with pytest.raises(SinkMisfit, match="is no quarantine, and cannot be that of"):
        load(job(0, 10, transform="shop:old"))
    spark.sql(f"DROP TABLE {held.aside}")
    load(job(0, 10, transform="shop:old"))
    other = replace(job(0, 10, transform="shop:old"), table=f"{table}_trial")
    for transform in ("shop:old", "shop:new"):
        with pytest.raises(SinkMisfit, match=f"is the quarantine of {table}, and cannot be that of"):
            load(replace(other, transform=transform))
        assert held.rejected == sorted(FOURS)
    spark.sql(f"DROP TABLE {held.aside}")
    load(job(0, 10, seq=1, transform="shop:old"))
    assert held.rejected == sorted(FOURS)


class Killed(BaseException):
    """As by SIGKILL: nothing of the load goes on."""


def raising(error: type[BaseException]) -> Callable[[], None]:
    def strike() -> None:
        raise error

    return strike


@contextmanager
def at(point: str, strike: Callable[[], object]) -> Iterator[None]:
    """Something happens when a load gets to this point first."""
    left = [strike]

    def reach(reached: str) -> None:
        if reached == point and left:
            left.pop()()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tidegate.spark.load, "reach", reach)
        yield

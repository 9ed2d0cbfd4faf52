"""Rejected records are in quarantine, the rows of all others in the table, and no kill loses a record or leaves two copies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from pyspark.sql import SparkSession

import tidegate.spark.load
from tests.records import changed
from tests.spark.conftest import Job, Load
from tests.spark.sinks_under_test import SinkUnderTest, either_sink, in_memory, offsets_in
from tidegate.core.audit.quarantine import judge_quarantine
from tidegate.core.config.pipeline import Contract, Maintenance, Quarantine, Step
from tidegate.core.config.schedules import DAY_S
from tidegate.core.model.errors import BudgetExceeded, ReceiptMismatch, RequestError, SinkMisfit, SparkJobFailed, TransformError
from tidegate.core.state.jobs import LoadJob, LoadResult, MaintenanceJob
from tidegate.sinks import reader_of
from tidegate.sinks.iceberg.history import IcebergReader
from tidegate.sinks.iceberg.maintenance import maintain

TRANSFORMS = """
from pathlib import Path

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

def by_clock(records):
    return reject(parse_json(records, "id INT"), id == int(Path(__file__).with_name("clock").read_text()), "of that time")

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
HELD = "id INT, kind STRING NOT NULL, amount DECIMAL(2, 1), ratio FLOAT, n INT, k BIGINT, whole DECIMAL(20, 0)"
TYPED = """
from pyspark.sql import functions as F
from tidegate.formats.json import parse_json

id = F.col("id")

def narrow(records):
    rows = parse_json(records, "id INT").drop("_raw", "_error")
    return rows.selectExpr("*", "'x' kind", "1.5BD amount", "0.1F ratio", "1 n", "1L k")

def wide(records):
    "Of the ids from 10 on, each breaks one column."
    amount = "CASE id WHEN 10 THEN 1.26BD WHEN 11 THEN 5e9BD ELSE 2BD END amount"
    number = "CASE id WHEN 12 THEN double('NaN') WHEN 13 THEN 1.5D ELSE double(id) END id"
    ratio = "CASE id WHEN 14 THEN 1e300D WHEN 15 THEN 1e-300D WHEN 9 THEN double('-Infinity') ELSE 0.1D END ratio"
    n, kind = "CASE id WHEN 16 THEN 3000000000 ELSE 7 END n", "CASE id WHEN 17 THEN null ELSE kind END kind"
    k = "CASE id WHEN 18 THEN 9223372036854775808D ELSE -9223372036854775808D END k"
    rows = narrow(records).withColumn("whole", F.lit(1e19))
    return rows.selectExpr(amount, number, ratio, n, kind, k, "* EXCEPT (id, amount, ratio, n, kind, k)")

def constant(records):
    return narrow(records).selectExpr("* EXCEPT (n)", "3000000000 n")

def texts(records):
    return narrow(records).selectExpr("* EXCEPT (id)", "string(id) id")

def without(records):
    return narrow(records).drop("kind")

def fails(records):
    "Of record 8; record 6 is rejected."
    n = F.when(id == 6, F.lit(3000000000)).when(id == 8, F.raise_error(F.lit("oops")).cast("bigint")).otherwise(F.lit(7))
    return narrow(records).withColumn("n", n)
"""


@pytest.fixture(scope="module")
def spark_jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of transforms, module `shop`."""
    folder = tmp_path_factory.mktemp("spark_jobs")
    (folder / "shop.py").write_text(TRANSFORMS)
    (folder / "typed.py").write_text(TYPED)
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
    read = reader_of(sink.kind).rejections(held.aside, most=10)
    assert [(one.offset, one.rejected_by) for one in sorted(read)] == [(n, "transform") for n in (0, 4, 8)]
    assert reader_of(sink.kind).rejected_values(held.aside, read[:1]) == {read[0]: b'{"id": %d}' % read[0].offset}
    assert reader_of(sink.kind).rejections(f"{table}_none") == []


def test_a_table_is_read_as_a_quarantine_only_where_it_is_one_and_of_a_size_that_is_asked_for(
    load: Load, job: Job, table: str, held: Records
) -> None:
    load(job(0, 10, transform="shop:old"))
    with pytest.raises(SinkMisfit, match="is no quarantine"):
        IcebergReader().rejections(table)
    with pytest.raises(RequestError, match="holds 3 records, more than the 2"):
        IcebergReader().rejections(held.aside, most=2)


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


def test_a_table_of_somebody_else_with_the_name_of_the_table_of_commits_is_not_read(
    spark: SparkSession, load: Load, job: Job, table: str, held: Records
) -> None:
    """It may be there where nobody maintains the table, and has other columns."""
    spark.sql(f"CREATE TABLE {table}_commits (id INT) USING iceberg")
    load(job(0, 10, transform="shop:old"))
    load(job(3, 7, seq=1, transform="shop:new"))
    assert held.rejected == [0, 8]


@either_sink
def test_what_was_set_aside_beside_a_table_that_is_gone_is_replaced_by_the_loads_of_the_next_one(
    sink: SinkUnderTest, load: Load, job: Job, table: str, held: Records
) -> None:
    """Whichever loads these are: the receipts of the table that was dropped are gone with it."""
    load(job(0, 6, transform="shop:old"))
    load(job(6, 10, seq=1, transform="shop:old"))
    sink.drop(table)
    load(changed(job(0, 10, transform="shop:old"), replay="again"))
    assert (held.rows, held.rejected) == ([1, 2, 3, 5, 6, 7, 9], sorted(FOURS))


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
    """Also where the other one lands while they are under way, and once it is cleared."""
    load(job(0, 10, transform="shop:new"))
    other = {"old": "broken", "new": "old"}[late]
    with at("between-commits", lambda: load(job(0, 10, seq=2, transform=f"shop:{other}"))):
        load(job(0, 10, seq=1, transform=f"shop:{late}"))
    for _ in range(2):
        assert sorted([*held.rows, *held.rejected]) == [*range(10)]
        assert held.rejected == (sorted(FOURS) if late == "old" else [])
        load(job(0, 10, transform="shop:new"))


@pytest.mark.parametrize("killed", [False, True])
def test_a_load_adds_again_what_was_swept_where_no_other_is_on_top_of_it(
    load: Load, job: Job, held: Records, *, killed: bool
) -> None:
    """Another attempt at it sweeps its records before it lands, and another load replaces a part of its range after."""
    load(job(0, 10, transform="shop:new"))
    mine = job(0, 10, seq=1, transform="shop:old")

    def replaced() -> None:
        if killed:
            raise Killed
        load(job(3, 6, seq=3, transform="shop:new"))

    with ExitStack() as until_end:

        def swept() -> None:
            load(job(0, 10, seq=1, transform="shop:broken"))
            until_end.enter_context(at("after-write", replaced))

        until_end.enter_context(at("between-commits", swept))
        until_end.enter_context(pytest.raises(Killed) if killed else nullcontext())
        load(mine)
    assert load(mine).landed_before == (not killed)
    assert {*held.rejected} == (FOURS if killed else {0, 8})
    assert sorted([*held.rows, *held.rejected]) == [*range(10)]


def overtake(load: Load, job: LoadJob) -> None:
    """Try a load twice: the second try is done between the first one's commits, whose process is gone once both have landed."""
    with ExitStack() as until_end:

        def next_try() -> None:
            load(job)
            until_end.enter_context(at("after-write", raising(Killed)))

        until_end.enter_context(at("between-commits", next_try))
        until_end.enter_context(pytest.raises(Killed))
        load(job)


@pytest.mark.parametrize("on_top", [False, True])
def test_a_load_whose_records_another_attempt_swept_has_them_again_where_its_process_is_gone(
    load: Load, job: Job, held: Records, *, on_top: bool
) -> None:
    """Also where another load is on top of a part of it, which the load, done again, would replace.

    All its records are rejected: of two attempts that write rows, the second commit is refused.
    """
    load(job(10, 20, transform="shop:new"))
    mine = changed(job(0, 10, seq=1, transform="shop:strict"), replay="twice")
    overtake(load, mine)
    if on_top:
        load(changed(job(3, 6, seq=2, transform="shop:new"), replay="other"))
    assert load(mine).landed_before == on_top
    assert {*held.rows} & {*range(10)} == ({3, 4, 5} if on_top else set())
    assert sorted([*held.rows, *held.rejected]) == [*range(20)]


@either_sink
def test_no_record_is_lost_by_a_commit_that_lands_once_the_next_try_is_done(
    sink: SinkUnderTest, load: Load, job: Job, table: str, held: Records
) -> None:
    """Its process is gone, as where Spark goes on without it: what the other try has set aside counts instead."""
    load(job(10, 20, transform="shop:new"))
    mine = changed(job(0, 10, seq=1, transform="shop:strict"), replay="late")
    overtake(load, mine)
    reader = reader_of(sink.kind)
    found = judge_quarantine(reader.rejections(held.aside), reader.receipts(table, "orders"))
    assert ({one.offset for one in found.rejected}, found.left) == ({*range(10)}, 0)
    assert sorted([*held.rows, *held.rejected]) == [*range(20)]


def test_what_a_dropped_quarantine_held_is_looked_for_again_or_named(
    spark: SparkSession, load: Load, job: Job, held: Records, spark_jobs: Path
) -> None:
    """Where another load is on top. What is not rejected any more is in no table: only a replay brings it back."""
    (spark_jobs / "clock").write_text("4")
    load(job(0, 10, transform="shop:by_clock"))
    spark.sql(f"DROP TABLE {held.aside}")
    load(job(8, 10, seq=1, transform="shop:old"))
    for other in ("5", "99"):  # another record, none
        (spark_jobs / "clock").write_text(other)
        with pytest.raises(ReceiptMismatch, match="are not rejected again") as refused:
            load(job(0, 10, transform="shop:by_clock"))
        assert refused.value.fix.endswith("Run `tidegate replay orders --from orders:0:0 --until orders:0:8`")
    (spark_jobs / "clock").write_text("4")
    assert load(job(0, 10, transform="shop:by_clock")).landed_before
    assert (held.rows, held.rejected) == ([0, 1, 2, 3, 5, 6, 7, 9], [4, 8])


@in_memory
def test_no_load_adds_its_records_under_another_ones_receipt(load: Load, job: Job, held: Records, spark_jobs: Path) -> None:
    """Three attempts at one load, each of which rejects another record; the one that landed last was killed."""
    clock, mine = spark_jobs / "clock", job(0, 10, seq=1, transform="shop:by_clock")

    def second() -> None:
        clock.write_text("2")
        with ExitStack() as until_end:

            def third() -> None:
                clock.write_text("3")
                load(mine)
                clock.write_text("2")
                until_end.enter_context(at("after-write", raising(Killed)))

            until_end.enter_context(suppress(Killed))
            until_end.enter_context(at("between-commits", third))
            load(replace(mine, redo=True))
        clock.write_text("1")

    clock.write_text("1")
    with at("between-commits", second):
        load(mine)
    assert sorted([*held.rows, *held.rejected]) == [*range(10)]


def test_broken_rows_that_stay_in_the_table_are_counted_with_the_rejected(load: Load, job: Job, held: Records) -> None:
    """Where a quarantine does not take what does not decode."""
    aside = Quarantine(held.aside, 1, ("transform",))
    assert load(replace(job(0, 10, transform="shop:broken"), quarantine=aside)).observed.errors == 10
    assert load(replace(job(10, 20, seq=1, transform="shop:old"), quarantine=aside)).observed.errors == 2


def test_a_load_that_was_rolled_back_is_not_on_top_of_another(
    sink: SinkUnderTest, load: Load, job: Job, table: str, held: Records
) -> None:
    """What it has set aside goes, and what it swept comes back with the load that the table holds."""
    before = load(job(0, 10, transform="shop:old"))
    load(job(0, 10, seq=1, transform="shop:broken"))
    assert held.rejected == [*range(10)]
    sink.roll_back(table, before.receipt)
    load(job(0, 10, transform="shop:old"))
    assert (held.rows, held.rejected) == ([1, 2, 3, 5, 6, 7, 9], sorted(FOURS))


def test_repairs_of_one_file_of_a_quarantine_at_once_all_remove_their_records(load: Load, job: Job, held: Records) -> None:
    """Chunks of a replay do: each removal rewrites the file that the others rewrite."""
    load(job(0, 24, transform="shop:broken"))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: load(job(6 * n, 6 * n + 6, seq=n + 1, transform="shop:new")), range(4)))
    assert (held.rows, held.rejected) == ([*range(24)], [])


def test_a_load_that_ends_late_leaves_what_a_later_one_has_set_aside(
    sink: SinkUnderTest, load: Load, job: Job, held: Records
) -> None:
    """Its receipt says when it was committed."""
    load(job(0, 10, transform="shop:new"))
    with at("after-write", lambda: load(job(0, 10, seq=2, transform="shop:old"))):
        load(job(0, 10, seq=1, transform="shop:broken"))
    assert (held.rows, held.rejected) == ([1, 2, 3, 5, 6, 7, 9], sorted(FOURS))


def test_beyond_the_budget_nothing_is_committed(sink: SinkUnderTest, load: Load, job: Job, table: str, held: Records) -> None:
    """The error names the commonest reasons, and an offset of each. With a budget of 0 no record may be rejected."""
    load(job(10, 12, transform="shop:new", budget=0))
    wanted = job(0, 10, seq=1, transform="shop:old", budget=0.29)
    commits = sink.commits(table)
    with pytest.raises(BudgetExceeded, match=r"3 of 10 offsets .*: 3 times a multiple of 4 \(first at offset 0 of orders-0\)"):
        load(wanted)
    assert (sink.commits(table), held.rejected) == (commits, [])
    load(job(0, 10, seq=1, transform="shop:old", budget=0.3))
    load(job(0, 10, seq=2, transform="shop:old", budget=0))
    with pytest.raises(BudgetExceeded, match="10 of 10 offsets of batch 3 are rejected, 3 of them again"):
        load(job(0, 10, seq=3, transform="shop:broken", budget=0.6))


@in_memory
def test_what_is_rejected_is_decided_once(load: Load, job: Job, held: Records) -> None:
    """A transform that decides otherwise when its rows are made loses no record: its load fails, or both agree."""
    load(job(0, 30, transform="shop:new"))
    with pytest.raises(TransformError, match="rejects other records each time"):
        load(job(0, 30, seq=1, transform="shop:random"))
    assert held.rows == [*range(30)]
    load(job(0, 30, seq=1, transform="shop:new"))
    assert held.rejected == []


@in_memory
def test_one_rejected_row_takes_all_rows_of_its_record_with_it(load: Load, job: Job, held: Records) -> None:
    load(job(0, 6, transform="shop:several"))
    assert (held.rows, held.rejected) == ([0, 0, 1, 1, 2, 2, 3, 3, 5, 5], [4])


@in_memory
def test_a_reason_is_cut_and_the_first_one_counts(sink: SinkUnderTest, load: Load, job: Job, held: Records) -> None:
    """Reasons may differ for each record."""
    load(job(0, 5, transform="shop:strict"))
    assert {len(row["reason"]) for row in sink.rows(held.aside)} == {1000}
    load(job(0, 5, seq=1, transform="shop:twice"))
    assert {row["_kafka_offset"]: row["reason"] for row in sink.rows(held.aside)} == {0: "second", 1: "first", 2: "second"}


@in_memory
def test_a_record_is_rejected_for_whatever_reason(sink: SinkUnderTest, load: Load, job: Job, held: Records) -> None:
    """Also for one that is null, or no text."""
    load(job(0, 4, transform="shop:unsaid"))
    reasons = {row["_kafka_offset"]: row["reason"] for row in sink.rows(held.aside)}
    assert reasons == {1: "rejected for no reason that is known", 2: "2"}


def test_maintenance_is_of_the_quarantine_too_also_where_a_name_looks_like_a_secret(
    spark: SparkSession, load: Load, job: Job, table: str
) -> None:
    """Spark hides the values of properties that have `url` in them. No record is lost, and loads go on."""
    named, aside = f"{table}_hourly", Quarantine(f"{table}_hourly_quarantine")
    for seq in range(6):
        wanted = job(seq * 4, seq * 4 + 4, seq=seq, transform="shop:old")
        load(replace(wanted, table=named, quarantine=aside))
    then_ms = time.time_ns() // 1_000_000 + 10 * DAY_S * 1000
    keep = Maintenance(keep_snapshots=1, keep_orphans=20 * DAY_S)
    counts: dict[str, int] = {}
    for step in get_args(Step):
        job_of_step = MaintenanceJob("orders", named, step, now_ms=then_ms, maintenance=keep, quarantine=aside.table)
        counts |= maintain(spark, job_of_step).counts
    assert {name: n for name, n in counts.items() if name.startswith("quarantine")} == {
        "quarantine_files_merged": 6,
        "quarantine_snapshots_expired": 6,
        "quarantine_files_removed": 0,
    }
    load(replace(job(0, 8, transform="shop:new", seq=6), table=named, quarantine=aside))
    assert offsets_in(f"{named}_quarantine") == [8, 12, 16, 20]


@pytest.fixture
def typed(spark: SparkSession, table: str) -> None:
    """A table with a column that it requires."""
    origin = "_kafka_topic STRING, _kafka_partition INT, _kafka_offset BIGINT"
    spark.sql(f"CREATE TABLE {table} ({HELD}, {origin}) USING iceberg PARTITIONED BY (_kafka_topic, _kafka_partition)")


@pytest.mark.usefixtures("typed")
def test_a_record_that_does_not_fit_the_table_is_rejected_where_the_contract_says_so(
    sink: SinkUnderTest, load: Load, job: Job, held: Records
) -> None:
    """By its value and not by its column, of which the table keeps the type."""
    load(job(0, 4, transform="typed:narrow"))
    contract = Contract(types="quarantine", missing="quarantine")
    receipt = load(replace(job(4, 20, seq=1, transform="typed:wide"), contract=contract)).receipt
    assert (receipt.write.columns, receipt.write.quarantined) == ((), 9)
    assert {row["_kafka_offset"]: (row["rejected_by"], row["reason"]) for row in sink.rows(held.aside)} == {
        10: ("contract", "amount does not fit decimal(2,1)"),
        11: ("contract", "amount does not fit decimal(2,1)"),
        12: ("contract", "id does not fit int"),
        13: ("contract", "id does not fit int"),
        14: ("contract", "ratio does not fit float"),
        15: ("contract", "ratio does not fit float"),
        16: ("contract", "n does not fit int"),
        17: ("contract", "no value of kind, which the table requires"),
        18: ("contract", "k does not fit bigint"),
    }
    assert held.rows == [*range(10), 19]
    for seq, transform in enumerate(("without", "constant"), 2):
        load(replace(job(4, 8, seq=seq, transform=f"typed:{transform}"), contract=contract))
        assert (held.rows, held.rejected) == ([*range(4), 8, 9, 19], [4, 5, 6, 7, *range(10, 19)])
    with at("between-commits", lambda: load(job(8, 12, seq=5, transform="typed:narrow"))):
        load(replace(job(8, 20, seq=4, transform="typed:wide"), contract=contract))
    assert (held.rows, held.rejected) == ([*range(4), 8, 9, 19], [4, 5, 6, 7, *range(10, 19)])


def test_a_column_that_others_widen_meanwhile_takes_what_was_rejected_by_the_next_load(
    spark: SparkSession, load: Load, job: Job, table: str, held: Records
) -> None:
    """What is rejected was decided; its try that was refused left nothing to reject."""
    spark.sql(f"CREATE TABLE {table} ({HELD.replace(' NOT NULL', '')}) USING iceberg")
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (_kafka_topic STRING, _kafka_partition INT, _kafka_offset BIGINT)")
    load(job(0, 4, transform="typed:narrow"))

    def widen() -> None:
        spark.sql(f"ALTER TABLE {table} ALTER COLUMN n TYPE BIGINT")
        load(job(20, 22, seq=9, transform="typed:narrow"))

    with at("between-commits", widen):
        load(replace(job(4, 8, seq=1, transform="typed:constant"), contract=Contract(types="quarantine")))
    assert (held.rows, held.rejected) == ([0, 1, 2, 3, 20, 21], [4, 5, 6, 7])


@pytest.mark.usefixtures("typed")
def test_the_record_that_breaks_a_load_is_named_and_none_that_is_rejected(load: Load, job: Job) -> None:
    load(job(0, 4, transform="typed:narrow"))
    with pytest.raises(SparkJobFailed, match="the first such record is orders-0 at offset 8"):
        load(replace(job(4, 10, seq=1, transform="typed:fails"), contract=Contract(types="quarantine")))


@pytest.mark.usefixtures("typed")
def test_a_contract_judges_what_it_names_alone(load: Load, job: Job, held: Records) -> None:
    """Types are refused where only missing values are rejected, or they are no numbers."""
    load(job(0, 4, transform="typed:narrow"))
    for transform, contract in (("wide", Contract(missing="quarantine")), ("texts", Contract(types="quarantine"))):
        with pytest.raises(SinkMisfit, match="id is int there and"):
            load(replace(job(4, 20, seq=1, transform=f"typed:{transform}"), contract=contract))
    wanted = replace(job(4, 10, seq=1, transform="typed:without"), contract=Contract(types="freeze", missing="quarantine"))
    load(wanted)
    assert held.rejected == [*range(4, 10)]
    receipt = load(replace(wanted, contract=Contract(), redo=True)).receipt
    assert ([one.column for one in receipt.write.columns], held.rejected) == (["kind"], [])


@in_memory
def test_a_transform_that_rejects_needs_a_quarantine(load: Load, job: Job) -> None:
    """Otherwise its records would be lost."""
    with pytest.raises(TransformError, match="has no quarantine for them"):
        load(replace(job(0, 5, transform="shop:old"), quarantine=None))


def test_a_quarantine_is_of_one_table_and_is_made_again_where_it_was_dropped(
    sink: SinkUnderTest, spark: SparkSession, load: Load, job: Job, table: str, held: Records
) -> None:
    """Somebody else's table is refused by name, before anything is committed."""
    spark.sql(f"CREATE TABLE {held.aside} (id INT) USING iceberg")
    for transform in ("shop:old", "shop:new"):
        with pytest.raises(SinkMisfit, match="is no quarantine, and cannot be that of"):
            load(job(0, 10, transform=transform))
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
    with pytest.raises(SinkMisfit, match="is a quarantine, and takes no rows"):
        load(replace(job(0, 10, transform="shop:new"), table=held.aside, quarantine=None))
    spark.sql(f"ALTER TABLE {held.aside} RENAME COLUMN attempt TO tried")
    with pytest.raises(SinkMisfit, match="has no column attempt"):
        load(job(10, 12, seq=2, transform="shop:new"))
    with pytest.raises(SinkMisfit, match="has no column attempt"):
        IcebergReader().rejections(held.aside)
    assert held.rows == [1, 2, 3, 5, 6, 7, 9]


class Killed(BaseException):
    """As by SIGKILL: nothing of the load goes on."""


def raising(error: type[BaseException]) -> Callable[[], None]:
    def strike() -> None:
        raise error

    return strike


@contextmanager
def at(point: str, strike: Callable[[], object]) -> Iterator[None]:
    """Something happens when a load gets to this point first."""
    left, before = [strike], vars(tidegate.spark.load)["reach"]

    def reach(reached: str) -> None:
        before(reached)
        if reached == point and left:
            left.pop()()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tidegate.spark.load, "reach", reach)
        yield

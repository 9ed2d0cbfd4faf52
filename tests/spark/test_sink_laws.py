"""The laws of `SinkWriter`, each shown by whole loads, for every adapter and for the sink in memory.

A new kind is one more class of `sinks_under_test` and one more parameter of `either_sink`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest

from tests.records import changed, newer_version, planned_job
from tests.spark.conftest import Job, Load
from tests.spark.sinks_under_test import SinkUnderTest, either_sink, expected, held, ids
from tidegate.core.config.parse import parse_pipeline
from tidegate.core.model.errors import SinkMisfit, StateNewer, TableLost, TransformError
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.planning.run import Planned, Request, commit_batch, plan_batch
from tidegate.core.state.jobs import LoadJob, LoadResult
from tidegate.core.state.receipt import Observed
from tidegate.sinks import reader_of
from tidegate.testing.fakes import FakeBrokers, MemoryStore

pytestmark = either_sink
PARTITION = TopicPartition("orders", 0)


def test_a_load_leaves_the_rows_of_its_range_and_a_receipt(sink: SinkUnderTest, load: Load, job: Job, table: str) -> None:
    """The first load creates the table and its answer says what is in it."""
    result = load(job(0, 10))
    assert ids(sink, table) == list(range(10))
    lengths, bounds = 10 * len(b'k{"id": 0}'), {PARTITION: (0, 9)}
    assert result.observed == Observed(records=10, rows=10, bytes=lengths, first_last=bounds, errors=0)
    assert result.receipt.rows == 10
    assert result.receipt.load.ranges == (OffsetRange("orders", 0, 0, 10),)
    assert result.receipt.write.transform.startswith("shapes:plain@")
    assert set(result.seconds) == {"lookup", "prepare", "write", "receipt"} | sink.steps
    assert LoadResult.from_json(result.to_json()) == result


@pytest.mark.usefixtures("reader")  # names the catalog to Iceberg's
def test_batches_go_where_the_kind_of_the_file_says_from_plan_to_commit(sink: SinkUnderTest, load: Load, table: str) -> None:
    """Planned by what its reader says, written by its writer, committed by its receipt; and a lost table is noticed."""
    into = {"table": table, "kind": sink.kind}
    settings = {"source": {"topics": ["orders"]}, "transform": "shapes:plain", "sink": into, "limits": {"max_records": 20}}
    pipeline = parse_pipeline("orders", settings, file="orders.yaml")
    store, brokers, reader = MemoryStore(), FakeBrokers(latest={PARTITION: 30}), reader_of(pipeline.sink.kind)

    def plan(run_id: str) -> Planned:
        now_ms = time.time_ns() // 1_000_000
        planned = plan_batch(pipeline, run_id, Request(), store=store, brokers=brokers, sink=reader, now_ms=now_ms)
        assert isinstance(planned, Planned)
        return planned

    for run_id, end in (("run1", 20), ("run2", 30)):
        planned = plan(run_id)
        result = load(planned_job(pipeline, planned.saved, {"kafka.bootstrap.servers": "nowhere:1"}))
        _, cursor, moved = commit_batch(pipeline, planned.key, result.receipt, store=store)
        assert (moved, cursor.at.offsets, ids(sink, table)) == (True, {PARTITION: end}, list(range(end)))
        assert reader.receipts(table, "orders")[-1] == result.receipt
    sink.roll_back(table, reader.receipts(table, "orders")[0])
    with pytest.raises(TableLost, match="does not hold batch 2 of orders"):
        plan("run3")


def test_a_landed_batch_is_found_and_not_written_again(sink: SinkUnderTest, load: Load, job: Job, table: str) -> None:
    """A second try of the same batch answers with the first one's receipt."""
    first = load(job(0, 10))
    commits = sink.commits(table)
    again = load(job(0, 10))
    assert again.landed_before
    assert again.receipt == first.receipt
    assert again.observed == Observed(None, None, None, first_last=first.observed.first_last)
    assert sink.commits(table) == commits


def test_a_load_of_a_newer_version_is_never_taken_for_one_that_has_not_landed(
    sink: SinkUnderTest, load: Load, job: Job, table: str
) -> None:
    """Neither by the same batch, nor by the next one, nor by another pipeline; unless its commit was rolled back."""
    before = load(job(0, 10)).receipt
    with newer_version():
        load(job(10, 20, seq=1))
    same = job(10, 20, seq=1)
    for older in (same, replace(same, redo=True), job(20, 30, seq=2), changed(same, pipeline="sales")):
        with pytest.raises(StateNewer):
            load(older)
    assert ids(sink, table) == list(range(20))
    sink.roll_back(table, before)
    assert not load(same).landed_before
    assert ids(sink, table) == list(range(20))


def test_a_renamed_pipeline_finds_and_replaces_what_it_has_loaded(
    sink: SinkUnderTest, load: Load, job: Job, table: str
) -> None:
    """By the names that its job says it had; without them the rows are another pipeline's."""
    first = load(job(0, 10))
    renamed = partial(changed, pipeline="sales", formerly=("orders",))
    again = load(renamed(job(0, 10)))
    assert (again.landed_before, again.receipt.snapshot) == (True, first.receipt.snapshot)
    assert again.receipt.load.pipeline == "sales"
    with pytest.raises(SinkMisfit, match="orders"):
        load(changed(job(0, 10), pipeline="sales"))
    load(renamed(job(0, 10, redo=True)))
    load(renamed(job(10, 20, seq=1)))
    assert ids(sink, table) == list(range(20))


def test_the_same_range_loaded_twice_leaves_one_copy(sink: SinkUnderTest, load: Load, job: Job, table: str) -> None:
    """A redo writes again, and replaces."""
    first = load(job(0, 10))
    again = load(job(0, 10, redo=True))
    assert not again.landed_before
    assert again.receipt.snapshot != first.receipt.snapshot
    assert ids(sink, table) == list(range(10))


def test_loads_of_different_ranges_leave_both(sink: SinkUnderTest, load: Load, job: Job, table: str) -> None:
    """A load touches no row outside its range."""
    load(job(0, 10))
    load(job(10, 25, seq=1))
    assert ids(sink, table) == list(range(25))


def test_a_redo_with_another_transform_leaves_exactly_its_rows(sink: SinkUnderTest, load: Load, job: Job, table: str) -> None:
    """Fewer rows than before, then more: nothing of the earlier transform stays, its neighbours do."""
    load(job(0, 4))
    load(job(4, 8, seq=1))
    result = load(job(0, 4, transform="shapes:odd", redo=True))
    assert (result.observed.records, result.observed.rows) == (4, 2)
    assert result.observed.first_last == {PARTITION: (1, 3)}
    assert ids(sink, table) == [1, 3, 4, 5, 6, 7]
    load(job(0, 4, transform="shapes:doubled", redo=True))
    assert ids(sink, table) == [0, 1, 2, 3, 4, 5, 6, 7, 1000, 1001, 1002, 1003]


def test_another_version_of_the_transform_is_another_load(sink: SinkUnderTest, load: Load, job: Job, table: str) -> None:
    """A receipt by other code does not count as landed."""
    load(job(0, 4))
    result = load(job(0, 4, transform="shapes:odd"))
    assert not result.landed_before
    assert ids(sink, table) == [1, 3]


def test_a_receipt_that_does_not_cover_the_range_does_not_count(sink: SinkUnderTest, load: Load, job: Job, table: str) -> None:
    """The same batch number with a longer range is written, over the whole files it holds."""
    load(job(0, 4))
    assert not load(job(0, 8)).landed_before
    assert ids(sink, table) == list(range(8))


def test_a_rolled_back_commit_does_not_count_as_landed(sink: SinkUnderTest, load: Load, job: Job, table: str) -> None:
    """A snapshot that is no ancestor of the current one holds no rows, whatever its receipt says."""
    first = load(job(0, 4))
    load(job(4, 8, seq=1))
    sink.roll_back(table, first.receipt)
    assert ids(sink, table) == [0, 1, 2, 3]
    assert not load(job(4, 8, seq=1)).landed_before
    assert ids(sink, table) == list(range(8))


def test_a_range_that_cuts_through_an_earlier_batch_is_replaced_all_the_same(
    sink: SinkUnderTest, load: Load, job: Job, table: str
) -> None:
    """The rows of the earlier batch before the range are kept in the same commit, and do not count as the load's."""
    load(job(0, 10))
    commits = sink.commits(table)
    result = load(job(5, 15, seq=1, transform="shapes:odd"))
    assert ids(sink, table) == [0, 1, 2, 3, 4, 5, 7, 9, 11, 13]
    assert (result.receipt.rows, result.receipt.kept) == (5, 5 if sink.writes_whole_files else 0)
    assert (result.observed.rows, result.observed.first_last) == (5, {PARTITION: (5, 13)})
    assert LoadResult.from_json(result.to_json()) == result
    again = load(job(5, 15, seq=1, transform="shapes:odd"))
    assert again.landed_before
    assert again.receipt == result.receipt
    assert again.observed.first_last == {PARTITION: (5, 13)}
    assert sink.commits(table) == commits + 1


def test_loads_at_once_over_ranges_that_cross_leave_one_copy(sink: SinkUnderTest, load: Load, job: Job, table: str) -> None:
    """Two replays through the same file, one of them twice, and the schedule going on beside them."""
    load(job(0, 20))
    jobs = [job(3, 9, seq=1), job(6, 15, seq=2), job(6, 15, seq=3), job(20, 30, seq=4)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(load, jobs))
    assert ids(sink, table) == list(range(30))
    assert [r.receipt.rows for r in results] == [6, 9, 9, 10]


def test_a_transform_that_breaks_its_contract_commits_nothing(sink: SinkUnderTest, load: Load, job: Job, table: str) -> None:
    """Lost or changed origins, exceptions and wrong results are each named in the error, and the table stays as it was."""
    load(job(0, 5))
    commits = sink.commits(table)
    for transform, told in {
        "no_offset": "drops the origin column _kafka_offset",
        "text_offset": "makes _kafka_offset a string, it is a bigint",
        "moved": "orders-0 at offset 10",
        "nowhere": "null-0 at offset 5",
        "raising": "KeyError",
        "misnamed": "nothing",
        "nothing": "returns NoneType",
        "constant": "no function constant",
    }.items():
        with pytest.raises(TransformError, match=told) as caught:
            load(job(5, 10, seq=1, transform=f"shapes:{transform}"))
        assert caught.value.fix
        assert sink.commits(table) == commits, transform


def test_a_range_without_a_record_leaves_an_empty_commit_with_its_receipt(
    sink: SinkUnderTest, load: Load, job: Job, table: str
) -> None:
    """Offsets of control records or compacted keys only: loaded, and nothing is there."""
    load(job(0, 10))
    result = load(job(50, 60, seq=1))
    assert result.observed == Observed(records=0, rows=0, bytes=0, first_last={}, errors=0)
    assert result.receipt.rows == 0
    again = load(job(50, 60, seq=1))
    assert again.landed_before
    assert again.observed.first_last == {}
    assert ids(sink, table) == list(range(10))


def test_a_table_belongs_to_the_pipeline_that_made_it(sink: SinkUnderTest, load: Load, job: Job, table: str) -> None:
    """Another one is refused before anything is written, whatever it reads, and the message names both and the setting."""
    load(job(0, 10))
    assert sink.owners(table) == {"orders"}
    commits = sink.commits(table)
    for others in (job(0, 10), job(10, 20, seq=7), replace(job(20, 25), redo=True)):
        with pytest.raises(SinkMisfit, match="orders") as caught:
            load(changed(others, pipeline="visits"))
        assert "visits" in caught.value.message
    assert "sink.shared_with" in caught.value.fix
    assert sink.commits(table) == commits
    assert sink.owners(table) == {"orders"}
    assert ids(sink, table) == list(range(10))


def test_pipelines_that_share_a_table_both_own_it(sink: SinkUnderTest, load: Load, job: Job, table: str) -> None:
    """The second is made an owner by its first load; from then on neither is asked again."""
    load(job(0, 10))
    visits = changed(job(10, 20), pipeline="visits", shared_with=("orders",))
    load(visits)
    assert sink.owners(table) == {"orders", "visits"}
    load(replace(job(20, 25, seq=1), shared_with=("visits",)))
    assert ids(sink, table) == list(range(25))
    with pytest.raises(SinkMisfit, match="belongs to pipeline orders and visits, not to other"):
        load(changed(job(25, 30), pipeline="other", shared_with=("orders",)))


def test_rows_of_another_owner_are_not_replaced(sink: SinkUnderTest, load: Load, job: Job, table: str) -> None:
    """Sharing is for pipelines that read different partitions: what the other loaded is refused, before anything is written."""
    load(job(0, 10))
    load(changed(job(10, 20), pipeline="visits", shared_with=("orders",)))
    commits = sink.commits(table)
    with pytest.raises(SinkMisfit, match=r"holds rows of orders-0 \[10, 15\) by pipeline visits, which a load of orders would"):
        load(replace(job(5, 15, seq=1), shared_with=("visits",)))
    with pytest.raises(SinkMisfit, match=r"holds rows of orders-0 \[9, 10\) by pipeline orders, which a load of visits would"):
        load(changed(job(9, 11, seq=1), pipeline="visits", shared_with=("orders",)))
    assert sink.commits(table) == commits


def test_a_commit_that_was_rolled_back_is_in_nobodys_way(sink: SinkUnderTest, load: Load, job: Job, table: str) -> None:
    """The table holds nothing of it."""
    first = load(job(0, 10))
    load(changed(job(10, 20), pipeline="visits", shared_with=("orders",)))
    sink.roll_back(table, first.receipt)
    load(replace(job(10, 20, seq=1), shared_with=("visits",)))
    assert ids(sink, table) == list(range(20))


def test_a_batch_done_over_leaves_one_copy_and_its_neighbours(sink: SinkUnderTest, load: Load, batch: Job, table: str) -> None:
    """Found when it landed, replaced when it is redone, also by code that makes fewer rows, or by several at once."""
    first = load(batch(1))
    assert first.observed == Observed(records=10, rows=2, bytes=100, first_last=None)
    assert (first.receipt.rows, first.receipt.load.batch) == (2, 1)
    assert LoadResult.from_json(first.to_json()) == first
    load(batch(2))
    again = load(batch(1))
    assert again.landed_before
    assert (again.receipt, again.observed) == (first.receipt, Observed(None, None, None, first_last=None))
    load(batch(2, redo=True))
    assert held(sink, table) == expected(1, 2)
    assert load(batch(1, transform="counted_odd")).receipt.rows == 1
    assert held(sink, table) == {**expected(2), 1: expected(1)[1][1:]}
    # a task that was given up still runs while its successor does the batch, and the schedule goes on
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(load, [batch(1, redo=True), batch(1, redo=True), batch(3)]))
    assert held(sink, table) == expected(1, 2, 3)


def test_a_batch_of_other_ranges_is_never_taken_for_loaded(
    sink: SinkUnderTest, load: Load, batch: Job, job: Callable[..., LoadJob], table: str
) -> None:
    """A late plan may write a shorter range over a batch; rows that count more records would be counted twice by the next."""
    longer = changed(job(0, 20, seq=1, transform="shapes:counted"), identity="batch")
    assert load(longer).observed.records == 20
    shorter = load(batch(1))
    assert not shorter.landed_before
    assert held(sink, table) == expected(1)
    load(changed(job(10, 30, seq=2, transform="shapes:counted"), identity="batch"))
    assert sum(n for rows in held(sink, table).values() for _, n, _ in rows) == 30


def test_a_later_load_does_not_create_the_table(sink: SinkUnderTest, load: Load, batch: Job, table: str) -> None:
    """It held earlier batches, and would hold this one alone."""
    with pytest.raises(TableLost, match="is gone, which held earlier batches"):
        load(replace(batch(2), create=False))
    assert not sink.exists(table)


def test_a_batch_without_a_record_leaves_its_receipt(sink: SinkUnderTest, load: Load, batch: Job, table: str) -> None:
    """Nothing to aggregate, in the log or by the transform: no row, the commit says so, and what was read is known."""
    load(batch(1))
    result = load(batch(5))
    assert result.observed == Observed(records=0, rows=0, bytes=0)
    assert result.receipt.rows == 0
    assert load(replace(batch(5), redo=True)).receipt.rows == 0
    dropped = load(batch(2, transform="counted_none"))
    assert dropped.observed == Observed(records=10, rows=0, bytes=10 * len(b'k{"id": 10}'))
    assert held(sink, table) == expected(1)


def test_a_chunk_of_a_replay_replaces_the_batch_that_it_names(sink: SinkUnderTest, load: Load, batch: Job, table: str) -> None:
    """Not the batch of its own number."""
    for seq in (1, 2):
        load(batch(seq))
    result = load(changed(batch(2, transform="counted_odd"), seq=1, replay="again", batch=2))
    assert (result.receipt.load.seq, result.receipt.load.batch) == (1, 2)
    assert held(sink, table) == {**expected(1), 2: expected(2)[2][1:]}


def test_a_table_of_batches_belongs_to_one_pipeline_and_to_batches(
    sink: SinkUnderTest, load: Load, batch: Job, table: str
) -> None:
    """The batches of another pipeline have the same numbers; rows known in the other way cannot be replaced in this one."""
    load(batch(1))
    commits = sink.commits(table)
    with pytest.raises(SinkMisfit, match="belongs to pipeline orders, whose batches have the same numbers as those of visits"):
        load(changed(batch(2), pipeline="visits"))
    with pytest.raises(SinkMisfit, match="are identified by their batch, but this pipeline declares `identity: origin`"):
        load(changed(batch(2, transform="plain"), identity="origin"))
    with pytest.raises(TransformError, match="makes a column _batch"):
        load(batch(2, transform="numbered"))
    assert sink.commits(table) == commits
    other = changed(batch(2, transform="plain"), identity="origin", table=f"{table}_by_origin")
    load(other)
    with pytest.raises(SinkMisfit, match="are identified by their origin, but this pipeline declares `identity: batch`"):
        load(replace(batch(2), table=other.table))

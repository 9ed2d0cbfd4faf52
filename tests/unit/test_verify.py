"""Laws of the verification: what the log holds, what the table holds, and what the commits say."""

from __future__ import annotations

from typing import Any

import pytest

from tests.records import cursor_of, write_of
from tidegate.core.audit.oracle import Verification, committed_log, former_ranges, verify, verify_batches
from tidegate.core.errors import TopicRecreated
from tidegate.core.load.receipt import Receipt
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition
from tidegate.core.offsets.watermarks import Watermarks

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def receipt(start: int, until: int, rows: int | None = None, replay: str | None = None, topic: str = "t") -> Receipt:
    load = write_of("p", 1, "r", (OffsetRange(topic, 0, start, until),), "v", "a", replay=replay)
    return Receipt(load, 1, 1, until - start if rows is None else rows)


def check(rows: list[int], *receipts: Receipt, log: list[int] | None = None, **changes: Any) -> Verification:
    """A partition whose offsets 10 to 20 are committed and retained."""
    records = list(range(10, 20)) if log is None else log
    return verify(Watermarks({P0: 10}, {P0: 20}), {P0: records}, {P0: rows}, receipts, **changes)


def test_what_is_verified_is_committed_and_still_retained() -> None:
    """From where each partition was begun, or where the log begins now, to the cursor."""
    cursor = cursor_of("p", 3, {P0: 20, P1: 5, TopicPartition("gone", 0): 9}, {"t": "id"}, starts={P0: 3, P1: 2})
    marks = Watermarks({P0: 10, P1: 0}, {P0: 99, P1: 7}, {"t": "id"})
    found = committed_log(cursor, marks)
    assert (found.earliest, found.latest) == ({P0: 10, P1: 2}, {P0: 20, P1: 5})
    expired = committed_log(cursor, Watermarks({P0: 50, P1: 0}, {P0: 99, P1: 7}))
    assert (expired.earliest[P0], expired.latest[P0]) == (20, 20)
    with pytest.raises(TopicRecreated):
        committed_log(cursor, Watermarks({}, {}, {"t": "new"}))


def test_a_table_that_holds_every_record_once_is_right() -> None:
    """Rows whose records the log has lost since are only counted."""
    found = check([7, 8, *range(10, 20)], receipt(10, 20))
    assert found.holds
    assert found.before_retention == 2
    assert found.to_json()["holds"] is True


def test_records_are_called_gone_only_where_the_log_does_not_hold_them() -> None:
    """Rows of retained records that lie before the schedule are counted apart."""
    found = check([4, 7, 8, *range(10, 20)], receipt(10, 20), retained={P0: 6})
    assert (found.before_retention, found.before_start) == (1, 2)


def test_a_row_of_no_origin_is_one_too_many() -> None:
    """Nothing that was committed made it; one that was accepted is only counted."""
    found = check([*range(10, 20)], receipt(10, 20), without_origin=1)
    assert (found.holds, found.to_json()["without_origin"]) == (False, 1)
    found = check([*range(10, 20)], receipt(10, 20), without_origin=1, foreign_accepted=True)
    assert (found.holds, found.to_json()["without_origin"], found.to_json()["foreign"]) == (True, 0, 1)


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([*range(10, 19)], "lost"),
        ([*range(10, 20), 12], "duplicated"),
    ],
)
def test_a_lost_or_doubled_record_is_found(rows: list[int], fault: str) -> None:
    """By its offset, and by its commit's count."""
    found = check(rows, receipt(10, 20))
    assert not found.holds
    assert found.verdict.total(fault) == 1
    assert [m["rows_now"] for m in found.to_json()["miscounts"]] == [len(rows)]


def test_a_row_of_no_record_is_found_unless_the_log_is_compacted() -> None:
    """Of an aborted transaction, for one."""
    log = [o for o in range(10, 20) if o != 12]
    assert check([*range(10, 20)], log=log).verdict.total("unknown") == 1
    assert check([*range(10, 20)], log=log, compacted=frozenset({"t"})).holds


def test_rows_beyond_the_cursor_need_a_saved_range_that_waits_for_them() -> None:
    """They belong to a pending batch; without a saved range they belong to none."""
    rows = [*range(10, 25)]
    assert check(rows).ahead == {P0: 5}
    found = check(rows, in_flight=[OffsetRange("t", 0, 20, 25), OffsetRange("u", 0, 1, 2)])
    assert found.holds
    assert found.in_flight == 5
    assert check([*rows, 30], in_flight=[OffsetRange("t", 0, 20, 25)]).ahead == {P0: 1}


def test_rows_of_a_former_topic_are_no_fault() -> None:
    """Its offsets beyond the cursor, by the cursor or by receipts under another topic id; a pending batch goes first."""
    rows = [*range(10, 25)]
    found = check(rows, former=[OffsetRange("t", 0, 0, 24)], in_flight=[OffsetRange("t", 0, 20, 22)])
    assert (found.former, found.in_flight, found.ahead) == (2, 2, {P0: 1})
    cursor = cursor_of("p", 3, {P0: 20}, {"t": "new"}, former={P0: 40})
    old = Receipt(write_of("p", 1, "r", (OffsetRange("t", 1, 0, 9),), "v", "a", {"t": "old"}), 1, 1, 9)
    assert former_ranges(cursor, [old, receipt(0, 5)]) == [OffsetRange("t", 1, 0, 9), OffsetRange("t", 0, 0, 40)]


def test_rows_that_somebody_deleted_are_missed_also_where_the_log_no_longer_has_the_records() -> None:
    """By the commit's own count, unless something has replaced a part of it since."""
    rows = [3, *range(10, 20)]
    assert [m.rows_now for m in check(rows, receipt(0, 5)).miscounts] == [1]
    assert check(rows, receipt(0, 5), receipt(2, 4, 1, "again")).holds
    assert check(rows, receipt(0, 5, topic="other")).holds


def test_a_transform_of_any_number_of_rows_is_judged_by_the_commits_counts() -> None:
    """Dropped and fanned out records are no faults, rows of no record are."""
    rows = [10, 10, 10, 15]
    assert check(rows, receipt(10, 20, 4), one_to_one=False).holds
    assert check([*rows, 15], receipt(10, 20, 4), one_to_one=False).miscounts
    assert check([*rows, 16], receipt(10, 20, 5), log=[10, 15], one_to_one=False).verdict.total("unknown") == 1


def of_batch(batch: int, rows: int, replay: str | None = None) -> Receipt:
    load = write_of(
        "p", batch if replay is None else 1, "r", (OffsetRange("t", 0, 0, 9),), "v", "a", replay=replay, batch=batch
    )
    return Receipt(load, 1, 1, rows)


def test_each_batch_has_the_rows_that_its_newest_commit_wrote() -> None:
    """Where rows have no record of their own; a replay of a batch is its newest commit, and an empty batch has no rows."""
    receipts = [of_batch(1, 5), of_batch(2, 3), of_batch(3, 0), of_batch(1, 4, replay="again")]
    found = verify_batches(3, {1: 4, 2: 3}, receipts, [])
    assert (found.holds, found.batches, found.rows) == (True, 3, 7)
    short = verify_batches(3, {1: 5, 3: 1}, receipts, [])
    assert not short.holds
    assert [(m.receipt.load.batch, m.receipt.rows, m.rows_now) for m in short.miscounts] == [(1, 4, 5), (2, 3, 0), (3, 0, 1)]
    assert [m["rows_now"] for m in short.to_json()["miscounts"]] == [5, 0, 1]


def test_rows_that_no_commit_of_a_batch_accounts_for_are_told() -> None:
    """Beyond the cursor, of no batch, of a batch without a commit; a commit that is missing. Not what is old or in flight."""
    receipts = [of_batch(4, 2), of_batch(6, 2), of_batch(7, 9)]
    clean: dict[int | None, int] = {3: 8, 4: 2, 6: 2, 7: 9}
    found = verify_batches(6, clean, receipts, [2], pending=True)
    assert (found.holds, found.in_flight, found.forgotten, found.rows) == (True, 9, 8, 4)
    found = verify_batches(6, {**clean, None: 1, 5: 6, 8: 3}, receipts, [5], pending=False)
    assert (found.unknown, found.missing, found.ahead, found.holds) == (7, (5,), {7: 9, 8: 3}, False)
    assert verify_batches(0, {}, [], []).holds

"""Laws of the verification: what the log holds, what the table holds, and what the commits say."""

from __future__ import annotations

from typing import Any

import pytest

from tests.records import cursor_of, write_of
from tidegate.core.audit.oracle import Verification, began_anew, committed_log, former_ranges, judge, verify, verify_batches
from tidegate.core.model.errors import TopicRecreated
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.model.watermarks import Watermarks
from tidegate.core.state.receipt import Receipt

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
ALL = [*range(10, 20)]


def receipt(start: int, until: int, rows: int | None = None, replay: str | None = None, topic: str = "t") -> Receipt:
    load = write_of("p", 1, "r", (OffsetRange(topic, 0, start, until),), "v", "a", replay=replay)
    return Receipt(load, 1, 1, rows=until - start if rows is None else rows)


def check(rows: list[int], *receipts: Receipt, log: list[int] | None = None, **changes: Any) -> Verification:
    """A partition whose offsets 10 to 20 are committed and retained."""
    return verify(Watermarks({P0: 10}, {P0: 20}), {P0: ALL if log is None else log}, {P0: rows}, receipts, **changes)


def test_what_is_verified_is_committed_and_still_retained() -> None:
    cursor = cursor_of("p", 3, {P0: 20, P1: 5, TopicPartition("gone", 0): 9}, {"t": "id"}, starts={P0: 3, P1: 2})
    marks = Watermarks({P0: 10, P1: 0}, {P0: 99, P1: 7}, {"t": "id"})
    found = committed_log(cursor, marks)
    assert (found.earliest, found.latest) == ({P0: 10, P1: 2}, {P0: 20, P1: 5})
    expired = committed_log(cursor, Watermarks({P0: 50, P1: 0}, {P0: 99, P1: 7}))
    assert (expired.earliest[P0], expired.latest[P0]) == (20, 20)
    with pytest.raises(TopicRecreated):
        committed_log(cursor, Watermarks({}, {}, {"t": "new"}))


def test_each_offset_that_does_not_fit_is_named() -> None:
    verdict = judge({P0: [0, 1, 2, 5]}, {P0: [0, 2, 2, 9], P1: [0]})
    named = [(each.lost, each.duplicated, each.unknown) for each in verdict.partitions]
    assert named == [((1, 5), (2,), (9,)), ((), (), (0,))]
    shown = verdict.to_json()
    assert [shown[name] for name in ("lost", "duplicated", "unknown", "records", "rows")] == [2, 1, 2, 4, 5]
    assert (shown["partitions"][0]["lost"], verdict.holds) == ([1, 5], False)


WHOLE = receipt(10, 20)
WITHOUT_12 = [o for o in ALL if o != 12]
PENDING = [OffsetRange("t", 0, 20, 25), OffsetRange("u", 0, 1, 2)]
BEYOND = [*range(10, 25)]
FORMER = [OffsetRange("t", 0, 0, 24)]
DELETED = [3, *ALL]
SEVERAL: dict[str, Any] = {"one_to_one": False}
"""A transform of any number of rows for a record: dropped and fanned out records are no faults, rows of no record are."""


@pytest.mark.parametrize(
    ("rows", "receipts", "changes", "told"),
    [
        # a table that holds every record once is right; rows whose records the log has lost since are only counted
        ([7, 8, *ALL], [WHOLE], {}, {"holds": True, "before_retention": 2}),
        ([4, 7, 8, *ALL], [WHOLE], {"retained": {P0: 6}}, {"holds": True, "before_retention": 1, "before_start": 2}),
        # a lost or doubled record is found by its offset, and by its commit's count
        (ALL[:-1], [WHOLE], {}, {"holds": False, "lost": 1, "rows_now": [9]}),
        ([*ALL, 12], [WHOLE], {}, {"holds": False, "duplicated": 1, "rows_now": [11]}),
        # a replay mends what a live commit says of retained offsets, and nothing else
        (ALL[:-1], [WHOLE], {}, {"to_replay": [(10, 20)]}),
        (WITHOUT_12, [WHOLE, receipt(14, 16, replay="again")], {}, {"lost": 1, "rows_now": [], "to_replay": [(12, 13)]}),
        (WITHOUT_12, [receipt(14, 16)], {}, {"lost": 1, "to_replay": []}),
        (DELETED, [receipt(0, 5)], {}, {"holds": False, "to_replay": []}),
        # a row of no record too, unless the log is compacted; and one of no origin, unless that is accepted
        (ALL, [], {"log": WITHOUT_12}, {"holds": False, "unknown": 1}),
        (ALL, [], {"log": WITHOUT_12, "compacted": frozenset({"t"})}, {"holds": True}),
        (ALL, [WHOLE], {"without_origin": 1}, {"holds": False, "without_origin": 1, "foreign": 0}),
        (ALL, [WHOLE], {"without_origin": 1, "foreign_accepted": True}, {"holds": True, "without_origin": 0, "foreign": 1}),
        # rows beyond the cursor belong to a pending batch, or are left of a former topic; else to nobody
        (BEYOND, [], {}, {"ahead": 5}),
        (BEYOND, [], {"in_flight": PENDING}, {"holds": True, "in_flight": 5}),
        ([*BEYOND, 30], [], {"in_flight": PENDING[:1]}, {"holds": False, "ahead": 1}),
        (BEYOND, [], {"former": FORMER, "in_flight": [OffsetRange("t", 0, 20, 22)]}, {"former": 2, "in_flight": 2, "ahead": 1}),
        # rows that somebody deleted are missed by their commit's count, unless something has replaced a part of it since
        (DELETED, [receipt(0, 5)], {}, {"holds": False, "rows_now": [1]}),
        (DELETED, [receipt(0, 5), receipt(2, 4, 1, "again")], {}, {"holds": True}),
        (DELETED, [receipt(0, 5, topic="other")], {}, {"holds": True}),
        ([10, 10, 10, 15], [receipt(10, 20, 4)], SEVERAL, {"holds": True}),
        ([10, 10, 10, 15, 15], [receipt(10, 20, 4)], SEVERAL, {"holds": False, "rows_now": [5]}),
        ([10, 10, 10, 15, 16], [receipt(10, 20, 5)], {**SEVERAL, "log": [10, 15]}, {"holds": False, "unknown": 1}),
    ],
)
def test_a_verification_counts_what_is_right_and_what_is_not(
    rows: list[int], receipts: list[Receipt], changes: dict[str, Any], told: dict[str, Any]
) -> None:
    """By what the log holds of offsets 10 to 20, and by what the commits say."""
    found = check(rows, *receipts, **changes)
    written = found.to_json()
    known: dict[str, Any] = {name: found.verdict.total(name) for name in ("lost", "duplicated", "unknown")}
    known |= {"holds": found.holds, **found.unjudged}
    known |= {"ahead": found.ahead.get(P0, 0), "rows_now": [m["rows_now"] for m in written["miscounts"]]}
    known["to_replay"] = [(r.from_offset, r.until_offset) for r in found.to_replay]
    known |= {name: written[name] for name in ("without_origin", "foreign", "in_flight")}
    assert {name: known[name] for name in told} == told
    assert written["holds"] is found.holds


def test_what_a_former_topic_left_is_told_by_the_cursor_or_by_receipts() -> None:
    cursor = cursor_of("p", 3, {P0: 20}, {"t": "new"}, former={P0: 40})
    old = Receipt(write_of("p", 1, "r", (OffsetRange("t", 1, 0, 9),), "v", "a", {"t": "old"}), 1, 1, rows=9)
    assert former_ranges(cursor, [old, receipt(0, 5)]) == [OffsetRange("t", 1, 0, 9), OffsetRange("t", 0, 0, 40)]


def test_a_partition_that_began_anew_is_told_for_as_long_as_a_batch_before_is_known() -> None:
    """By where that batch led, under the same topic id; not what begins where it always did, or only since then."""
    cursor = cursor_of("p", 9, {P0: 90, P1: 9}, {"t": "id"}, starts={P0: 80, P1: 5})
    before = [cursor_of("p", 1, {P0: 50}, {"t": "id"}, starts={P0: at}).at for at in (10, 30)]
    known = cursor_of("p", 8, {P0: 85, P1: 7}, {"t": "id"}, starts={P0: 80, P1: 5}).at
    other = cursor_of("p", 1, {P1: 7}, {"t": "old"}, starts={P1: 0}).at
    assert began_anew(cursor, [None, *before, known, other]) == (OffsetRange("t", 0, 10, 80),)
    assert began_anew(cursor, [known]) == ()


def of_batch(batch: int, rows: int, replay: str | None = None) -> Receipt:
    seq, ranges = batch if replay is None else 1, (OffsetRange("t", 0, 0, 9),)
    return Receipt(write_of("p", seq, "r", ranges, "v", "a", replay=replay, batch=batch), 1, 1, rows=rows)


def test_each_batch_has_the_rows_that_its_newest_commit_wrote() -> None:
    """Where rows have no record of their own; a replay of a batch is its newest commit, and an empty batch has no rows."""
    receipts = [of_batch(1, 5), of_batch(2, 3), of_batch(3, 0), of_batch(1, 4, replay="again")]
    found = verify_batches(3, {1: 4, 2: 3}, receipts, [])
    assert (found.holds, found.batches, found.rows) == (True, 3, 7)
    short = verify_batches(3, {1: 5, 3: 1}, receipts, [])
    assert [(m.receipt.load.batch, m.receipt.rows, m.rows_now) for m in short.miscounts] == [(1, 4, 5), (2, 3, 0), (3, 0, 1)]
    assert [m["rows_now"] for m in short.to_json()["miscounts"]] == [5, 0, 1]


def test_rows_that_no_commit_of_a_batch_accounts_for_are_told() -> None:
    """Beyond the cursor, of no batch, of a batch without a commit; a commit that is missing. Not what is old or in flight."""
    receipts = [of_batch(4, 2), of_batch(6, 2), of_batch(7, 9)]
    clean: dict[int | None, int] = {3: 8, 4: 2, 6: 2, 7: 9}
    found = verify_batches(6, clean, receipts, [2], pending=True)
    assert (found.holds, found.unjudged, found.rows) == (True, {"in_flight": 9, "forgotten": 8}, 4)
    found = verify_batches(6, {**clean, None: 1, 5: 6, 8: 3}, receipts, [5], pending=False)
    assert (found.unknown, found.missing, found.ahead, found.holds) == (7, (5,), {7: 9, 8: 3}, False)
    assert verify_batches(0, {}, [], []).holds

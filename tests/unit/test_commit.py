"""Laws of moving the cursor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.records import changed, cursor_of, range_of, write_of
from tests.unit.world import planned_on
from tidegate.core.model.errors import CommitConflict, ReceiptMismatch
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.planning.commit import moved
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.saved_range import Decision, SavedRange

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
RANGES = (OffsetRange("t", 0, 5, 9), OffsetRange("t", 1, 0, 4))
PLAN = range_of(
    "p", 4, "run", RANGES, (Decision(P0, "cursor", "log end"), Decision(P1, "new partition", "log end")), {"t": "id"}, {}, 0
)
CURSOR = cursor_of("p", 3, {P0: 5})
SAVED = planned_on(CURSOR, PLAN)
RECEIPT = Receipt(write_of("p", 4, "run", RANGES, "v", "a"), 1, 1, rows=8)


def commit(cursor: Cursor, saved: SavedRange, receipt: Receipt | None) -> Cursor:
    """The cursor after a range that was planned on it."""
    return moved(cursor, planned_on(cursor, saved), receipt)


@pytest.mark.parametrize(
    "cursor",
    [
        cursor_of("p", 2, {P0: 5}),  # a batch is missing in between
        cursor_of("p", 3, {P0: 6}),  # same batch, another offset
        cursor_of("p", 3, {P0: 5, P1: 1}),  # the new partition is known already, elsewhere
        cursor_of("p", 4, {P0: 9, P1: 3}),  # another range was committed as this batch
        cursor_of("p", 0, {}),
    ],
)
def test_any_other_cursor_is_a_conflict_and_nothing_changes(cursor: Cursor) -> None:
    """A zombie loses to the requirement."""
    with pytest.raises(CommitConflict, match="batch"):
        moved(cursor, SAVED, RECEIPT)


@pytest.mark.parametrize(
    "receipt",
    [
        None,
        changed(RECEIPT, load=replace(RECEIPT.load, seq=3)),
        changed(RECEIPT, load=replace(RECEIPT.load, pipeline="q")),
        changed(RECEIPT, load=replace(RECEIPT.load, ranges=(OffsetRange("t", 0, 5, 8), OffsetRange("t", 1, 0, 4)))),
    ],
)
def test_a_receipt_that_does_not_cover_the_range_commits_nothing(receipt: Receipt | None) -> None:
    """No receipt, another batch's, another pipeline's, too short."""
    with pytest.raises(ReceiptMismatch):
        moved(CURSOR, SAVED, receipt)


def test_a_commit_remembers_what_a_former_topic_left() -> None:
    """Until its new records have replaced the old rows."""
    before = cursor_of("p", 4, {P0: 120}, {"t": "old"})
    anew = saved_range(0, 30, reason="recreated", seq=5, topic_ids={"t": "new"}, jumped={P0: 120})
    restarted = commit(before, anew, receipt_of(anew))
    assert (restarted.at.starts, restarted.at.former) == ({P0: 0}, {P0: 120})
    assert Cursor.from_json(restarted.to_json()) == restarted
    passed = saved_range(30, 120, seq=6, topic_ids={"t": "new"})
    assert commit(restarted, passed, receipt_of(passed)).at.former == {}


def saved_range(start: int, until: int, reason: str = "cursor", seq: int = 4, **changes: Any) -> SavedRange:
    ranges, why = (OffsetRange("t", 0, start, until),), (Decision(P0, reason, "log end"),)  # type: ignore[arg-type]
    return range_of("p", seq, "run", ranges, why, limits={}, planned_at_ms=1, **changes)


def receipt_of(saved: SavedRange) -> Receipt:
    return Receipt(write_of("p", saved.load.seq, "run", saved.load.nonempty, "v", "a", saved.load.topic_ids), 1, 1, rows=1)

"""Laws of moving the cursor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidegate.core.errors import CommitConflict, ReceiptMismatch, StateCorrupt
from tidegate.core.load.receipt import LoadId, Receipt
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition
from tidegate.core.schedule.commit import apply, commit_of
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.saved_range import Decision, SavedRange

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
RANGES = (OffsetRange("t", 0, 5, 9), OffsetRange("t", 1, 0, 4))
SAVED = SavedRange(
    "p", 4, "run", RANGES, (Decision(P0, "cursor", "log end"), Decision(P1, "new partition", "log end")), {"t": "id"}, {}, 0
)
RECEIPT = Receipt(LoadId("p", 4, "run", RANGES, "v", "a"), 1, 1, 8)
CURSOR = Cursor("p", 3, {P0: 5})


def test_a_commit_moves_the_cursor_to_the_ends_of_its_ranges() -> None:
    """Sequence, offsets, topic ids and receipt move together."""
    after = apply(CURSOR, commit_of(SAVED, RECEIPT))
    assert (after.seq, after.offsets, after.topic_ids) == (4, {P0: 9, P1: 4}, {"t": "id"})
    assert after.receipt is not None
    assert (after.receipt["snapshot"], after.receipt["rows"]) == (1, 8)
    assert "ranges" not in after.receipt


def test_a_commit_that_has_happened_is_a_no_op() -> None:
    """Also when the schedule has gone on since."""
    commit = commit_of(SAVED, RECEIPT)
    after = apply(CURSOR, commit)
    assert apply(after, commit) is after
    later = replace(after, seq=9, offsets={P0: 100, P1: 100})
    assert apply(later, commit) is later


@pytest.mark.parametrize(
    "cursor",
    [
        Cursor("p", 2, {P0: 5}),  # a batch is missing in between
        Cursor("p", 3, {P0: 6}),  # same batch, another offset
        Cursor("p", 3, {P0: 5, P1: 0}),  # the new partition is known already
        Cursor("p", 4, {P0: 9, P1: 3}),  # another range was committed as this batch
        Cursor("p", 0, {}),
    ],
)
def test_any_other_cursor_is_a_conflict_and_nothing_changes(cursor: Cursor) -> None:
    """A zombie loses to the requirement."""
    with pytest.raises(CommitConflict, match="batch"):
        apply(cursor, commit_of(SAVED, RECEIPT))


@pytest.mark.parametrize(
    "receipt",
    [
        None,
        replace(RECEIPT, load=replace(RECEIPT.load, seq=3)),
        replace(RECEIPT, load=replace(RECEIPT.load, pipeline="q")),
        replace(RECEIPT, load=replace(RECEIPT.load, ranges=(OffsetRange("t", 0, 5, 8), OffsetRange("t", 1, 0, 4)))),
    ],
)
def test_a_receipt_that_does_not_cover_the_range_commits_nothing(receipt: Receipt | None) -> None:
    """No receipt, another batch's, another pipeline's, too short."""
    with pytest.raises(ReceiptMismatch):
        commit_of(SAVED, receipt)


def test_a_range_without_offsets_needs_no_receipt() -> None:
    """It fixes where partitions start, and keeps the last receipt."""
    empty = replace(SAVED, ranges=(OffsetRange("t", 1, 7, 7),), decisions=(Decision(P1, "latest", "log end"),))
    after = apply(replace(CURSOR, receipt={"seq": 3}), commit_of(empty, None))
    assert (after.offsets, after.receipt) == ({P0: 5, P1: 7}, {"seq": 3})


def test_a_cursor_is_read_back() -> None:
    """Writing and reading is the identity."""
    cursor = Cursor("p", 3, {P0: 5}, {"t": "id"}, {"rate": 1.5}, {"seq": 3})
    assert Cursor.from_json(cursor.to_json()) == cursor
    assert Cursor.from_json(Cursor("p").to_json()) == Cursor("p")


@pytest.mark.parametrize(
    "change",
    [{"seq": -1}, {"seq": True}, {"seq": "3"}, {"offsets": {"t": {"0": -5}}}, {"offsets": {"t": {"x": 5}}}, {"offsets": [1]}],
)
def test_a_cursor_that_cannot_be_is_refused(change: dict[str, object]) -> None:
    """Negative offsets, odd sequence numbers, other shapes."""
    with pytest.raises(StateCorrupt, match="cursor"):
        Cursor.from_json({**CURSOR.to_json(), **change})
    with pytest.raises(StateCorrupt):
        Cursor.from_json({})
    with pytest.raises(StateCorrupt):
        Cursor("p", 0, {P0: -1})


def test_a_commit_remembers_what_is_absent_and_what_a_former_topic_left() -> None:
    """Until the topic is created again, or its new records have replaced the old rows."""
    before = Cursor("p", 3, {P0: 100}, {"t": "old"}, absent=(OffsetRange("t", 0, 0, 10),))
    absent = saved_range(100, 120, topic_ids={"t": "old"}, absent=(OffsetRange("t", 0, 10, 20),))
    after = apply(before, commit_of(absent, receipt_of(absent)))
    assert after.absent == (OffsetRange("t", 0, 0, 20),)
    anew = saved_range(0, 30, reason="recreated", seq=5, topic_ids={"t": "new"}, jumped={P0: 120})
    restarted = apply(after, commit_of(anew, receipt_of(anew)))
    assert (restarted.absent, restarted.former) == ((), {P0: 120})
    assert Cursor.from_json(restarted.to_json()) == restarted
    passed = saved_range(30, 120, seq=6, topic_ids={"t": "new"})
    assert apply(restarted, commit_of(passed, receipt_of(passed))).former == {}


def saved_range(start: int, until: int, reason: str = "cursor", seq: int = 4, **changes: Any) -> SavedRange:
    ranges, why = (OffsetRange("t", 0, start, until),), (Decision(P0, reason, "log end"),)  # type: ignore[arg-type]
    return SavedRange("p", seq, "run", ranges, why, limits={}, planned_at_ms=1, **changes)


def receipt_of(saved: SavedRange) -> Receipt:
    return Receipt(LoadId("p", saved.seq, "run", saved.to_load, "v", "a", saved.topic_ids), 1, 1, 1)


def test_a_cursor_remembers_where_it_went_on_after_a_loss() -> None:
    """Until the topic is created again, or the partition is retired."""
    lost = replace(SAVED, decisions=(Decision(P0, "accepted loss", "log end"), Decision(P1, "new partition", "log end")))
    after = apply(replace(CURSOR, topic_ids={"t": "id"}), commit_of(replace(lost, jumped={P0: 5}), RECEIPT))
    assert after.resumed == {P0: 5}
    nothing = replace(SAVED, seq=5, ranges=(), decisions=())
    assert apply(after, commit_of(nothing, None)).resumed == {P0: 5}
    assert apply(after, commit_of(replace(nothing, retired=(P0,)), None)).resumed == {}
    empty, begun = OffsetRange("t", 0, 0, 0), (Decision(P0, "recreated", "log end"),)
    anew = replace(nothing, ranges=(empty,), decisions=begun, topic_ids={"t": "new"}, jumped={P0: 9})
    assert apply(after, commit_of(anew, None)).resumed == {}

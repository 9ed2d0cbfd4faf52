"""Laws of planning: which offsets a run reads, and why."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.commit import apply, commit_of
from tidegate.cursor import Cursor
from tidegate.errors import (
    ConfigError,
    CursorBeyondLog,
    OffsetsExpired,
    PartitionsDeleted,
    RequestError,
    StateCorrupt,
    TopicRecreated,
)
from tidegate.planning import Decision, RangePolicy, SavedRange, Watermarks, plan_next
from tidegate.ranges import OffsetRange, TopicPartition, total_count
from tidegate.receipts import LoadId, Receipt

P0, P1, P2 = (TopicPartition("t", p) for p in range(3))


def watermarks(*bounds: tuple[int, int], topic_id: str = "id") -> Watermarks:
    """Partitions 0, 1, … of topic t, each with (earliest, latest)."""
    return Watermarks(
        {TopicPartition("t", p): low for p, (low, _) in enumerate(bounds)},
        {TopicPartition("t", p): high for p, (_, high) in enumerate(bounds)},
        {"t": topic_id},
    )


def plan(cursor: Cursor, marks: Watermarks, **policy: object):  # noqa: ANN201
    return plan_next(cursor, marks, RangePolicy(**policy), interval_s=0, now_ms=0)  # type: ignore[arg-type]


def test_the_first_run_starts_where_the_policy_says() -> None:
    """Earliest reads what is retained, latest fixes the position and reads what comes."""
    marks = watermarks((5, 10), (0, 3))
    earliest = plan(Cursor("p"), marks)
    assert earliest.ranges == (OffsetRange("t", 0, 5, 10), OffsetRange("t", 1, 0, 3))
    assert earliest.decisions[0] == Decision(P0, "earliest", "log end")
    latest = plan(Cursor("p"), marks, start="latest")
    assert latest.ranges == (OffsetRange("t", 0, 10, 10), OffsetRange("t", 1, 3, 3))
    assert latest.skip is None


def test_a_run_reads_from_the_cursor_to_the_log_end() -> None:
    """Partitions without news are left out."""
    found = plan(Cursor("p", 3, {P0: 7, P1: 3}), watermarks((5, 10), (0, 3)))
    assert found.ranges == (OffsetRange("t", 0, 7, 10),)
    assert found.decisions == (Decision(P0, "cursor", "log end"),)
    assert found.count == 3


def test_nothing_new_is_a_skip_with_its_reason() -> None:
    """A skip holds no ranges."""
    found = plan(Cursor("p", 3, {P0: 10}), watermarks((5, 10)))
    assert found.ranges == ()
    assert found.skip is not None
    assert "end of the log" in found.skip.reason
    asked = plan(Cursor("p", 3, {P0: 7}), watermarks((5, 10)), until={P0: 7})
    assert asked.skip is not None
    assert "until" in asked.skip.reason


def test_a_partition_that_appears_later_is_read_from_its_beginning() -> None:
    """Whatever the pipeline's own start was, its records are new to everyone."""
    found = plan(Cursor("p", 3, {P0: 10}), watermarks((0, 10), (2, 9)), start="latest")
    assert found.ranges == (OffsetRange("t", 1, 2, 9),)
    assert found.decisions[0].from_reason == "new partition"


def test_max_records_is_shared_by_lag_and_named_where_it_cut() -> None:
    """What fits is not named as cut."""
    found = plan(Cursor("p"), watermarks((0, 300), (0, 100), (4, 4)), max_records=40)
    assert found.ranges == (OffsetRange("t", 0, 0, 30), OffsetRange("t", 1, 0, 10), OffsetRange("t", 2, 4, 4))
    assert [d.until_reason for d in found.decisions] == ["max_records", "max_records", "log end"]
    whole = plan(Cursor("p"), watermarks((0, 10), (0, 10)), max_records=20)
    assert [d.until_reason for d in whole.decisions] == ["log end", "log end"]


def test_until_reads_only_the_partitions_it_names() -> None:
    """Others wait, unless they are met for the first time."""
    cursor = Cursor("p", 1, {P0: 2, P1: 2})
    found = plan(cursor, watermarks((0, 9), (0, 9)), until={P1: 5})
    assert found.ranges == (OffsetRange("t", 1, 2, 5),)
    assert found.decisions[0].until_reason == "until"


@pytest.mark.parametrize(("until", "words"), [({P2: 1}, "t-0, t-1"), ({P0: 1}, "from 2"), ({P0: 10}, "to 9")])
def test_an_until_outside_the_valid_bounds_names_them(until: dict[TopicPartition, int], words: str) -> None:
    """Unknown partition, before the cursor, beyond the log."""
    with pytest.raises(RequestError, match=words):
        plan(Cursor("p", 1, {P0: 2, P1: 2}), watermarks((0, 9), (0, 9)), until=until)


def test_expired_offsets_stop_the_plan_and_name_what_is_lost() -> None:
    """Never a silent jump."""
    with pytest.raises(OffsetsExpired, match=r"t-1 \[3, 8\) = 5 records") as caught:
        plan(Cursor("p", 1, {P0: 4, P1: 3}), watermarks((4, 9), (8, 9)))
    assert "t-0" not in str(caught.value)


def test_a_log_that_ends_before_the_cursor_stops_the_plan() -> None:
    """Truncation is named."""
    with pytest.raises(CursorBeyondLog, match="t-0 at 12, log end 9"):
        plan(Cursor("p", 1, {P0: 12}), watermarks((0, 9)))


def test_a_deleted_partition_stops_the_plan() -> None:
    """Also a great many of them, in one readable sentence."""
    with pytest.raises(PartitionsDeleted, match="t-1"):
        plan(Cursor("p", 1, {P0: 1, P1: 1}), watermarks((0, 9)))
    many = {TopicPartition("t", p): 1 for p in range(30)}
    with pytest.raises(PartitionsDeleted, match="and 19 more"):
        plan(Cursor("p", 1, many), watermarks((0, 9)))


def test_a_recreated_topic_stops_the_plan_even_where_the_offset_is_valid() -> None:
    """The topic id tells."""
    cursor = Cursor("p", 1, {P0: 2}, {"t": "old"})
    with pytest.raises(TopicRecreated, match="old"):
        plan(cursor, watermarks((0, 9), topic_id="new"))
    assert plan(cursor, watermarks((0, 9), topic_id="old")).ranges


@pytest.mark.parametrize("arguments", [{"start": "now"}, {"max_records": 0}, {"max_records": True}, {"max_records": 1.5}])
def test_a_policy_refuses_nonsense(arguments: dict[str, object]) -> None:
    """Before anything is asked of a broker."""
    with pytest.raises((ConfigError, RequestError)):
        RangePolicy(**arguments)  # type: ignore[arg-type]


def test_watermarks_refuse_nonsense() -> None:
    """The same partitions on both sides, and no log of negative length."""
    with pytest.raises(RequestError, match="different partitions"):
        Watermarks({P0: 0}, {})
    with pytest.raises(RequestError, match="cannot hold"):
        Watermarks({P0: 5}, {P0: 4})


def test_a_saved_range_is_read_back_and_names_the_ranges_to_load() -> None:
    """Decisions survive their grouping."""
    planned = plan(Cursor("p"), watermarks((0, 300), (0, 100), (4, 4)), max_records=40)
    saved = SavedRange("p", 1, "run", planned.ranges, planned.decisions, {"t": "id"}, {"max_records": 40}, 5, "other")
    assert SavedRange.from_json(saved.to_json()) == saved
    assert total_count(saved.to_load) == total_count(saved.ranges)
    assert len(saved.to_load) == 2
    with pytest.raises(StateCorrupt):
        SavedRange.from_json({"pipeline": "p"})


@given(st.data())
def test_every_offset_is_planned_exactly_once_and_in_order(data: st.DataObject) -> None:
    """Over any growth of the log, any limits, and partitions that appear: no gap, no overlap, no record left out."""
    cursor = Cursor("p")
    log: dict[TopicPartition, int] = {P0: data.draw(st.integers(0, 20))}
    read: dict[TopicPartition, list[OffsetRange]] = {}
    for turn in range(data.draw(st.integers(1, 8))):
        if data.draw(st.booleans()):
            log.setdefault(TopicPartition("t", len(log)), 0)
        for tp in log:
            log[tp] += data.draw(st.integers(0, 30))
        limit = data.draw(st.none() | st.integers(1, 40))
        found = plan(cursor, Watermarks(dict.fromkeys(log, 0), log, {"t": "id"}), max_records=limit)
        if found.skip:
            assert all(cursor.offsets[tp] == end for tp, end in log.items())
            continue
        saved = SavedRange("p", cursor.seq + 1, f"run{turn}", found.ranges, found.decisions, {"t": "id"}, {}, 0)
        receipt = Receipt(LoadId("p", saved.seq, saved.run_id, saved.ranges, "v", "a"), 1, 1, 1)
        cursor = apply(cursor, commit_of(saved, receipt))
        for r in found.ranges:
            read.setdefault(r.topic_partition, []).append(r)
    for tp, ranges in read.items():
        assert [r.from_offset for r in ranges] == [0, *(r.until_offset for r in ranges[:-1])]
        assert ranges[-1].until_offset == cursor.offsets[tp] <= log[tp]

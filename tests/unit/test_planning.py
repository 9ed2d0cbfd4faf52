"""Laws of planning: which offsets a run reads, and why."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from tests.records import cursor_of, range_of, write_of
from tests.unit.world import planned_on
from tidegate.core.config.pipeline import Limits
from tidegate.core.errors import (
    ConfigError,
    OffsetsExpired,
    PartitionsDeleted,
    PartitionsLeftOut,
    RequestError,
    TopicRecreated,
)
from tidegate.core.load.receipt import Receipt
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition
from tidegate.core.offsets.watermarks import Watermarks
from tidegate.core.schedule.commit import moved
from tidegate.core.schedule.plan import Beginning, Plan, RangePolicy, plan_next
from tidegate.core.state.accepted import Accepted
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.saved_range import Decision

P0, P1, P2 = (TopicPartition("t", p) for p in range(3))


def watermarks(*bounds: tuple[int, int], topic_id: str = "id") -> Watermarks:
    """Partitions 0, 1, … of topic t, each with (earliest, latest)."""
    return Watermarks(
        {TopicPartition("t", p): low for p, (low, _) in enumerate(bounds)},
        {TopicPartition("t", p): high for p, (_, high) in enumerate(bounds)},
        {"t": topic_id},
    )


def plan(cursor: Cursor, marks: Watermarks, **policy: Any) -> Plan:
    return plan_next(cursor, marks, policy_of(**policy), interval_s=0, now_ms=0)


def policy_of(**asked: Any) -> RangePolicy:
    """A policy, with the fields of its limits and of its beginning beside its own."""
    names = {"start": "at", "start_reason": "reason", "begin": "of"}
    start = {field: asked.pop(name) for name, field in names.items() if name in asked}
    limits = {f.name: asked.pop(f.name) for f in fields(Limits) if f.name in asked}
    return RangePolicy(Limits(**limits), Beginning(**start), **asked)


def test_the_first_run_starts_where_the_policy_says() -> None:
    """Earliest reads what is retained, latest fixes the position and reads what comes."""
    marks = watermarks((5, 10), (0, 3))
    earliest = plan(cursor_of("p"), marks)
    assert earliest.ranges == (OffsetRange("t", 0, 5, 10), OffsetRange("t", 1, 0, 3))
    assert earliest.decisions[0] == Decision(P0, "earliest", "log end")
    latest = plan(cursor_of("p"), marks, start="latest")
    assert latest.ranges == (OffsetRange("t", 0, 10, 10), OffsetRange("t", 1, 3, 3))
    assert latest.skip is None


def test_nothing_new_is_a_skip_with_its_reason() -> None:
    """A skip holds no ranges."""
    found = plan(cursor_of("p", 3, {P0: 10}), watermarks((5, 10)))
    assert found.ranges == ()
    assert found.skip is not None
    assert "end of the log" in found.skip.reason
    asked = plan(cursor_of("p", 3, {P0: 7}), watermarks((5, 10)), until={P0: 7})
    assert asked.skip is not None
    assert "until" in asked.skip.reason


def test_max_records_is_shared_by_lag_and_named_where_it_cut() -> None:
    """What fits is not named as cut."""
    found = plan(cursor_of("p"), watermarks((0, 300), (0, 100), (4, 4)), max_records=40)
    assert found.ranges == (OffsetRange("t", 0, 0, 30), OffsetRange("t", 1, 0, 10), OffsetRange("t", 2, 4, 4))
    assert [d.until_reason for d in found.decisions] == ["max_records", "max_records", "log end"]
    whole = plan(cursor_of("p"), watermarks((0, 10), (0, 10)), max_records=20)
    assert [d.until_reason for d in whole.decisions] == ["log end", "log end"]


def test_until_reads_only_the_partitions_it_names() -> None:
    """Others wait, unless they are met for the first time."""
    cursor = cursor_of("p", 1, {P0: 2, P1: 2})
    found = plan(cursor, watermarks((0, 9), (0, 9)), until={P1: 5})
    assert found.ranges == (OffsetRange("t", 1, 2, 5),)
    assert found.decisions[0].until_reason == "until"


@pytest.mark.parametrize(("until", "words"), [({P2: 1}, "t-0, t-1"), ({P0: 1}, "from 2"), ({P0: 10}, "to 9")])
def test_an_until_outside_the_valid_bounds_names_them(until: dict[TopicPartition, int], words: str) -> None:
    """Unknown partition, before the cursor, beyond the log."""
    with pytest.raises(RequestError, match=words):
        plan(cursor_of("p", 1, {P0: 2, P1: 2}), watermarks((0, 9), (0, 9)), until=until)


def test_a_deleted_partition_stops_the_plan() -> None:
    """Also a great many of them, in one readable sentence."""
    with pytest.raises(PartitionsDeleted, match="t-1"):
        plan(cursor_of("p", 1, {P0: 1, P1: 1}), watermarks((0, 9)))
    many = {TopicPartition("t", p): 1 for p in range(30)}
    with pytest.raises(PartitionsDeleted, match="and 19 more"):
        plan(cursor_of("p", 1, many), watermarks((0, 9)))


@pytest.mark.parametrize(
    "arguments",
    [
        {"start": "now"},
        {"on_deleted": "skip"},
        {"max_bytes": 0},
        {"max_records": 0},
        {"max_records": True},
        {"max_records": 1.5},
    ],
)
def test_a_policy_refuses_nonsense(arguments: dict[str, object]) -> None:
    """Before anything is asked of a broker."""
    with pytest.raises((ConfigError, RequestError)):
        policy_of(**arguments)


def test_watermarks_refuse_nonsense() -> None:
    """The same partitions on both sides, and no log of negative length."""
    with pytest.raises(RequestError, match="different partitions"):
        Watermarks({P0: 0}, {})
    with pytest.raises(RequestError, match="cannot hold"):
        Watermarks({P0: 5}, {P0: 4})


def test_a_start_at_offsets_names_its_reason_and_its_valid_bounds() -> None:
    """Partitions it does not name start at their earliest."""
    found = plan(cursor_of("p"), watermarks((0, 9), (2, 9)), start={P0: 4}, start_reason="timestamp")
    assert [(r.from_offset, d.from_reason) for r, d in zip(found.ranges, found.decisions, strict=True)] == [
        (4, "timestamp"),
        (2, "earliest"),
    ]
    with pytest.raises(RequestError, match="from 2 to 9"):
        plan(cursor_of("p"), watermarks((0, 9), (2, 9)), start={P1: 1})
    with pytest.raises(RequestError, match="not a partition"):
        plan(cursor_of("p"), watermarks((0, 9)), start={P2: 1})


def test_an_accepted_loss_starts_at_what_is_retained_and_is_valid_for_no_later_loss() -> None:
    """Never for more partitions than were accepted."""
    cursor = cursor_of("p", 1, {P0: 4, P1: 3}, {"t": "id"})
    marks = watermarks((6, 9), (0, 9))
    accepted = Accepted(2, loss=(OffsetRange("t", 0, 4, 6),))
    found = plan(cursor, marks, accepted=accepted)
    assert found.ranges == (OffsetRange("t", 0, 6, 9), OffsetRange("t", 1, 3, 9))
    assert found.decisions[0].from_reason == "accepted loss"
    assert found.jumped == {P0: 4}
    with pytest.raises(OffsetsExpired, match=r"t-0 \[4, 7\)"):
        plan(cursor, watermarks((7, 9), (0, 9)), accepted=accepted)
    with pytest.raises(OffsetsExpired, match="accept loss p"):
        plan(cursor, watermarks((6, 9), (5, 9)), accepted=accepted)
    saved = range_of("p", 2, "r", found.ranges, found.decisions, {"t": "id"}, {}, 7, found.jumped)
    receipt = Receipt(write_of("p", 2, "r", found.ranges, "v", "a"), 1, 1, 1)
    assert moved(cursor, planned_on(cursor, saved), receipt).at.offsets == {P0: 9, P1: 9}


def test_an_accepted_recreation_starts_the_topic_anew_under_its_new_id_only() -> None:
    """Also where the offsets look alike, and partitions that it no longer has are retired."""
    cursor = cursor_of("p", 1, {P0: 0, P1: 7}, {"t": "old"})
    accepted = Accepted(2, recreated={"t": "new"})
    found = plan(cursor, watermarks((0, 5), topic_id="new"), accepted=accepted)
    assert found.ranges == (OffsetRange("t", 0, 0, 5),)
    assert found.decisions == (Decision(P0, "recreated", "log end"),)
    assert (found.jumped, found.retired) == ({P0: 0}, (P1,))
    with pytest.raises(TopicRecreated, match="accept recreated p t"):
        plan(cursor, watermarks((0, 5), topic_id="newer"), accepted=accepted)
    saved = range_of("p", 2, "r", found.ranges, found.decisions, {"t": "new"}, {}, 7, found.jumped, found.retired)
    receipt = Receipt(write_of("p", 2, "r", found.ranges, "v", "a"), 1, 1, 1)
    after = moved(cursor, planned_on(cursor, saved), receipt)
    assert (after.at.offsets, after.at.topic_ids) == ({P0: 5}, {"t": "new"})


def test_the_tightest_limit_is_named_for_each_partition() -> None:
    """Rates, bytes and records cut one after the other."""
    marks = watermarks((0, 1000), (0, 100))
    by_rate = plan_next(cursor_of("p"), marks, policy_of(max_rate_per_partition=20), interval_s=10, now_ms=0)
    assert [(r.count, d.until_reason) for r, d in zip(by_rate.ranges, by_rate.decisions, strict=True)] == [
        (200, "max_rate_per_partition"),
        (100, "log end"),
    ]
    at_least = plan_next(
        cursor_of("p"), marks, policy_of(max_rate_per_partition=1, min_rate_per_partition=50), interval_s=1, now_ms=0
    )
    assert [r.count for r in at_least.ranges] == [50, 50]
    by_bytes = plan(cursor_of("p"), marks, max_bytes=11_000, record_bytes=100.0)
    assert [(r.count, d.until_reason) for r, d in zip(by_bytes.ranges, by_bytes.decisions, strict=True)] == [
        (100, "max_bytes"),
        (10, "max_bytes"),
    ]
    assert [d.until_reason for d in plan(cursor_of("p"), marks, max_bytes=1_000_000, max_records=110).decisions] == [
        "max_records"
    ] * 2


def test_a_limit_in_bytes_probes_before_a_size_is_known() -> None:
    """One batch of at most ten thousand records tells it."""
    assert plan(cursor_of("p"), watermarks((0, 10**6)), max_bytes=10**9).count == 10_000


@pytest.mark.parametrize(
    ("fired_at_ms", "policy", "skipped"),
    [
        (0, {"min_records": 10}, True),
        (0, {"min_records": 5}, False),
        (None, {"min_records": 10}, False),  # never fired: nothing to wait for
        (40_000 + 3_600_000, {"min_records": 10, "max_delay_s": 50}, False),  # by a clock that ran ahead: not known
        (41_000, {"min_records": 10, "max_delay_s": 50}, True),  # by another clock
        (0, {"min_records": 10, "max_delay_s": 50}, True),
        (0, {"min_records": 10, "max_delay_s": 40}, False),
        (0, {"min_records": 10, "until": {P0: 6}}, False),  # somebody asked
    ],
)
def test_a_run_waits_for_records_or_for_its_delay(fired_at_ms: int | None, policy: dict[str, object], *, skipped: bool) -> None:
    """The last firing time is kept with the cursor, so it holds across processes."""
    cursor = cursor_of("p", 1, {P0: 4}, fired_at_ms=fired_at_ms)
    found = plan_next(cursor, watermarks((0, 9)), policy_of(**policy), interval_s=0, now_ms=40_000)
    assert (found.skip is not None) == skipped
    if found.skip is not None:
        assert "5 records wait" in found.skip.reason


def test_a_partition_that_the_file_does_not_name_any_more_is_told_from_one_that_is_gone() -> None:
    """The topic is there: somebody changed `source`."""
    cursor = cursor_of("p", 1, {P0: 5, P1: 7}, {"t": "id"})
    with pytest.raises(PartitionsLeftOut, match=r"does not read t-1 any more.*on_deleted: retire") as caught:
        plan(cursor, watermarks((0, 9)), left_out=frozenset({P1}))
    assert not isinstance(caught.value, PartitionsDeleted)
    assert plan(cursor, watermarks((0, 9)), left_out=frozenset({P1}), on_deleted="retire").retired == (P1,)

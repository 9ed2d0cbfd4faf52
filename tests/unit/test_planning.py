"""Laws of planning: which offsets a run reads, and why."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from tests.records import cursor_of
from tidegate.core.config.pipeline import Limits
from tidegate.core.model.errors import (
    ConfigError,
    OffsetsExpired,
    PartitionsDeleted,
    PartitionsLeftOut,
    RequestError,
    TidegateError,
    TopicRecreated,
)
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.model.watermarks import Watermarks
from tidegate.core.planning.plan import Beginning, Plan, RangePolicy, plan_next
from tidegate.core.state.cursor import Accepted, Cursor

P0, P1, P2 = (TopicPartition("t", p) for p in range(3))
FIRST = cursor_of("p")
LOSS = Accepted(seq=2, loss=(OffsetRange("t", 0, 4, 6),))
RECREATED = Accepted(seq=2, recreated={"t": "new"})
LEFT = {"left_out": frozenset({P1})}
NONSENSE = ({"start": "now"}, {"on_deleted": "skip"}, {"max_bytes": 0}, *({"max_records": n} for n in (0, True, 1.5)))


def at(*offsets: int, topic_id: str = "id", **changes: Any) -> Cursor:
    return cursor_of("p", 1, {TopicPartition("t", p): at for p, at in enumerate(offsets)}, {"t": topic_id}, **changes)


def policy_of(**asked: Any) -> RangePolicy:
    """A policy, with the fields of its limits and of its beginning beside its own."""
    names = {"start": "at", "start_reason": "reason", "begin": "of"}
    start = {field: asked.pop(name) for name, field in names.items() if name in asked}
    limits = {f.name: asked.pop(f.name) for f in fields(Limits) if f.name in asked}
    return RangePolicy(limits=Limits(**limits), start=Beginning(**start), **asked)


def plan(cursor: Cursor, log: str, *, topic_id: str = "id", now_ms: int = 0, interval_s: int = 0, **policy: Any) -> Plan:
    """On a log that says of partitions 0, 1, … of topic t where they begin and end, as in `0-9 2-9`."""
    bounds = [each.split("-") for each in log.split()]
    first, last = ({TopicPartition("t", p): int(each[n]) for p, each in enumerate(bounds)} for n in (0, 1))
    marks = Watermarks(first, last, {"t": topic_id})
    return plan_next(cursor, marks, policy_of(**policy), interval_s=interval_s, now_ms=now_ms)


@pytest.mark.parametrize(
    ("cursor", "log", "policy", "planned"),
    [
        (FIRST, "5-10 0-3", {}, "0: earliest 5-10 log end, 1: earliest 0-3 log end"),
        (FIRST, "5-10 0-3", {"start": "latest"}, "0: latest 10-10 log end, 1: latest 3-3 log end"),
        (
            FIRST,
            "0-9 2-9",
            {"start": {P0: 4}, "start_reason": "timestamp"},
            "0: timestamp 4-9 log end, 1: earliest 2-9 log end",
        ),
        (at(10), "0-10 2-9", {"start": "latest"}, "1: new partition 2-9 log end"),
        (at(2, 2), "0-9 0-9", {"until": {P1: 5}}, "1: cursor 2-5 until"),
        # the tightest limit is named: rates, bytes and records cut one after the other
        (
            *(FIRST, "0-300 0-100 4-4", {"max_records": 40}),
            "0: earliest 0-30 max_records, 1: earliest 0-10 max_records, 2: earliest 4-4 log end",
        ),
        (FIRST, "0-10 0-10", {"max_records": 20}, "0: earliest 0-10 log end, 1: earliest 0-10 log end"),
        (
            *(FIRST, "0-1000 0-100", {"max_rate_per_partition": 20, "interval_s": 10}),
            "0: earliest 0-200 max_rate_per_partition, 1: earliest 0-100 log end",
        ),
        (
            *(FIRST, "0-1000 0-100", {"max_rate_per_partition": 1, "min_rate_per_partition": 50, "interval_s": 1}),
            "0: earliest 0-50 max_rate_per_partition, 1: earliest 0-50 max_rate_per_partition",
        ),
        (
            *(FIRST, "0-1000 0-100", {"max_bytes": 11_000, "record_bytes": 100.0}),
            "0: earliest 0-100 max_bytes, 1: earliest 0-10 max_bytes",
        ),
        (
            *(FIRST, "0-100 0-100", {"max_bytes": 10**6, "max_records": 2}),
            "0: earliest 0-1 max_records, 1: earliest 0-1 max_records",
        ),
        (FIRST, "0-1000000", {"max_bytes": 10**9}, "0: earliest 0-10000 max_bytes"),  # which tells a record's size
        # what an operator accepted holds for the loss and the topic that it was given for
        (at(4, 3), "6-9 0-9", {"accepted": LOSS}, "0: accepted loss 6-9 log end, 1: cursor 3-9 log end"),
        (at(0, 7, topic_id="old"), "0-5", {"accepted": RECREATED, "topic_id": "new"}, "0: recreated 0-5 log end, retired t-1"),
        (at(5, 7), "0-9", {**LEFT, "on_deleted": "retire"}, "0: cursor 5-9 log end, retired t-1"),
    ],
)
def test_a_plan_says_what_is_read_and_why(cursor: Cursor, log: str, policy: dict[str, Any], planned: str) -> None:
    """A first run starts where the policy says; what appears later is read from its beginning."""
    found = plan(cursor, log, **policy)
    read = zip(found.ranges, found.decisions, strict=True)
    told = [f"{r.partition}: {d.from_reason} {r.from_offset}-{r.until_offset} {d.until_reason}" for r, d in read]
    assert ", ".join([*told, *(f"retired {tp}" for tp in found.retired)]) == planned
    assert found.skip is None
    assert found.jumped == ({P0: cursor.at.offsets[P0]} if "accepted" in policy else {})


@pytest.mark.parametrize(
    ("cursor", "log", "policy", "error", "words"),
    [
        (at(2, 2), "0-9 0-9", {"until": {P2: 1}}, RequestError, "t-0, t-1"),
        (at(2, 2), "0-9 0-9", {"until": {P0: 1}}, RequestError, "from 2"),
        (at(2, 2), "0-9 0-9", {"until": {P0: 10}}, RequestError, "to 9"),
        (FIRST, "0-9 2-9", {"start": {P1: 1}}, RequestError, "from 2 to 9"),
        (FIRST, "0-9", {"start": {P2: 1}}, RequestError, "not a partition"),
        (at(1, 1), "0-9", {}, PartitionsDeleted, "t-1"),
        (at(*[1] * 30), "0-9", {}, PartitionsDeleted, "and 19 more"),
        (at(5, 7), "0-9", LEFT, PartitionsLeftOut, "no longer reads t-1.*on_deleted: retire"),
        (at(4, 3), "7-9 0-9", {"accepted": LOSS}, OffsetsExpired, r"t-0 \[4, 7\)"),
        (at(4, 3), "6-9 5-9", {"accepted": LOSS}, OffsetsExpired, "accept loss p"),
        (at(0, topic_id="old"), "0-5", {"accepted": RECREATED, "topic_id": "newer"}, TopicRecreated, "accept recreated p t"),
        (FIRST, "5-4", {}, RequestError, "cannot hold"),
        *[(FIRST, "0-9", nonsense, (ConfigError, RequestError), ".") for nonsense in NONSENSE],
    ],
)
def test_what_cannot_be_planned_is_refused(
    cursor: Cursor, log: str, policy: dict[str, Any], error: type[TidegateError], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        plan(cursor, log, **policy)
    assert error is not PartitionsLeftOut or not isinstance(caught.value, PartitionsDeleted)


def test_watermarks_are_of_the_same_partitions() -> None:
    with pytest.raises(RequestError, match="different partitions"):
        Watermarks({P0: 0}, {})


@pytest.mark.parametrize(
    ("fired_at_ms", "policy", "reason"),
    [
        (0, {"min_records": 10}, "5 records wait"),
        (0, {"min_records": 5}, None),
        (None, {"min_records": 10}, None),  # never fired: nothing to wait for
        (40_000 + 3_600_000, {"min_records": 10, "max_delay_s": 50}, None),  # by a clock that ran ahead: not known
        (41_000, {"min_records": 10, "max_delay_s": 50}, "5 records wait"),  # by another clock
        (0, {"min_records": 10, "max_delay_s": 50}, "5 records wait"),
        (0, {"min_records": 10, "max_delay_s": 40}, None),
        (0, {"min_records": 10, "until": {P0: 6}}, None),  # somebody asked
        (0, {"until": {P0: 4}}, "until"),
        (0, {"log": "0-4"}, "end of the log"),
    ],
)
def test_a_run_waits_for_records_or_for_its_delay(fired_at_ms: int | None, policy: dict[str, Any], reason: str | None) -> None:
    """Where there are none, it is skipped. The last firing time is kept with the cursor, so it holds across processes."""
    found = plan(at(4, fired_at_ms=fired_at_ms), **{"log": "0-9", **policy}, now_ms=40_000)
    assert (found.skip is None, bool(found.ranges)) == (reason is None, reason is None)
    assert found.skip is None or (reason or "") in found.skip.reason

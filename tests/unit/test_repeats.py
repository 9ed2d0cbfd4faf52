"""Laws of repeats: which records are left out, by offsets alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.audit.oracle import Verification, dedupings, verify
from tidegate.core.config.pipeline import Dedupe
from tidegate.core.errors import RequestError, StateUnavailable
from tidegate.core.load.job import LoadJob
from tidegate.core.load.receipt import LoadId, Receipt
from tidegate.core.load.repeats import (
    LoggedRepeats,
    RepeatFinder,
    beginnings,
    expired,
    key_in,
    look_back,
    read_beginnings,
)
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition
from tidegate.core.offsets.watermarks import Watermarks
from tidegate.core.receivers.records import IDEMPOTENCY_KEY
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.saved_range import Decision, FromReason, SavedRange
from tidegate.testing.fakes import MemoryStore

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
WINDOW = 4
DEDUPE = Dedupe(WINDOW)
Log = dict[int, bytes | None]
"""The key of each record, by its offset."""


def log_of(*keys: str | None) -> Log:
    return {offset: None if key is None else key.encode() for offset, key in enumerate(keys)}


LOG = log_of("a", "b", None, "a", "c", "b", None, "a", "d", "b", "c", "a")
LEFT_OUT = {3, 5, 7, 9, 11}


def repeats_by_definition(log: Log, window: int, start: int = 0) -> set[int]:
    """A repeat has an earlier record of its key that lies at most the window before it, and not before the start."""
    return {
        offset
        for offset, key in log.items()
        if key and any(log.get(earlier) == key for earlier in range(max(offset - window, start), offset))
    }


def found_in(log: Log, first: int, from_offset: int, until_offset: int, window: int) -> set[int]:
    """The repeats of a range, by what is read from `first` on."""
    finder = RepeatFinder(window)
    read = {offset: key for offset, key in sorted(log.items()) if first <= offset < until_offset and key}
    return {offset for offset, key in read.items() if finder.is_repeat(A, offset, key)} & set(range(from_offset, until_offset))


LOGS = st.dictionaries(st.integers(0, 60), st.sampled_from([None, b"a", b"b", b"c", b"d", b"e"]), max_size=50)


@given(LOGS, st.integers(1, 30), st.integers(0, 20), st.lists(st.integers(0, 61), min_size=2, unique=True))
def test_any_cut_of_the_log_leaves_out_the_same_records(log: Log, window: int, start: int, bounds: list[int]) -> None:
    """Batches, or replays of any part: each reads its look-back, and finds what the definition says."""
    first = min(start, *bounds)
    expected = repeats_by_definition(log, window, first)
    for from_offset, until_offset in pairwise(sorted(bounds)):
        r = OffsetRange("t", 0, from_offset, until_offset)
        since = look_back([r], window, {A: first})[A]
        found = found_in(log, since, from_offset, until_offset, window)
        assert found == {offset for offset in expected if from_offset <= offset < until_offset}


@given(LOGS, st.integers(1, 30))
def test_a_finder_remembers_the_window_and_no_more(log: Log, window: int) -> None:
    """However long the log is."""
    finder = RepeatFinder(window)
    for offset, key in sorted(log.items()):
        if key:
            finder.is_repeat(B, offset, key)
            assert all(last >= offset - window for last in finder._last[B].values())


def test_the_look_back_ends_where_the_pipeline_or_the_log_began() -> None:
    """A range before the beginning, as of a cleared run, has none; an unknown beginning is 0."""
    ranges = [OffsetRange("t", 0, 100, 110), OffsetRange("t", 1, 100, 110)]
    assert look_back(ranges, 30, {A: 90}) == {A: 90, B: 70}
    assert look_back(ranges, 200, {B: 105}) == {A: 0, B: 100}


SAVED = SavedRange("p", 4, "run", (OffsetRange("t", 0, 50, 60),), (Decision(A, "cursor", "log end"),), {}, {}, 0)


@pytest.mark.parametrize(
    ("reason", "begins"),
    [
        ("cursor", 10),
        ("new partition", 50),
        ("recreated", 50),
        ("earliest", 50),
        ("accepted loss", 50),
        ("rebuilt", 10),
    ],
)
def test_a_partition_begins_where_the_pipeline_first_read_it(reason: FromReason, begins: int) -> None:
    """Or after a loss, before which nothing is left; a range that was made of its receipt has forgotten why it begins."""
    saved = replace(SAVED, decisions=(Decision(A, reason, "log end"),))
    cursor = Cursor("p", 3, {A: 50}, starts={A: 10, B: 7})
    assert beginnings(cursor, saved) == {A: begins, B: 7}
    assert beginnings(replace(cursor, resumed={A: 30})) == {A: 30, B: 7}


def test_the_first_batch_needs_no_cursor_and_any_other_does() -> None:
    """A cursor that is missing later is no beginning at all."""
    ledger = Ledger(MemoryStore(), "p")
    first = replace(SAVED, seq=1, decisions=(Decision(A, "earliest", "log end"),))
    assert read_beginnings(ledger, first) == {A: 50}
    for saved in (SAVED, None):
        with pytest.raises(StateUnavailable):
            read_beginnings(ledger, saved)
    ledger.save_cursor(Cursor("p", 3, {A: 60}, starts={A: 20}))
    assert read_beginnings(ledger, SAVED) == read_beginnings(ledger) == {A: 20}
    assert read_beginnings(ledger, first) == {A: 50}


def test_an_offset_that_is_gone_names_the_look_back_that_it_is_in() -> None:
    """Other offsets are another error's."""
    ranges = [OffsetRange("t", 0, 10, 20), OffsetRange("t", 1, 40, 50)]
    error = expired(ranges, {A: 10, B: 30}, "t-1", 30)
    assert error is not None
    assert error.fields == {"topic": "t", "partition": 1, "from_offset": 30}
    assert expired(ranges, {A: 10, B: 30}, "t-0", 30) is None
    assert [expired(ranges, {B: 30}, "t-1", offset) for offset in (10, 29, 40)] == [None, None, None]


def test_the_last_header_of_a_name_is_the_key() -> None:
    """As Kafka's clients read it; texts are their bytes."""
    assert key_in([("k", b"1"), ("x", b"2"), ("k", b"3")], "k") == b"3"
    assert key_in([("k", b"1"), ("k", None)], "k") is None
    assert key_in([("k", "ä")], "k") == "ä".encode()
    assert key_in(None, "k") is None


def test_a_job_that_leaves_out_repeats_says_how_far_it_looks_back() -> None:
    """It reads the look-back and its range."""
    job = LoadJob("p", 1, "r", (OffsetRange("t", 0, 10, 20), OffsetRange("t", 1, 5, 5)), "m:f", "lake.a.b", {})
    with pytest.raises(RequestError, match="look-back"):
        replace(job, dedupe=Dedupe(WINDOW))
    with pytest.raises(RequestError, match="look-back"):
        replace(job, dedupe=Dedupe(WINDOW), look_back={A: 11, B: 5})
    told = replace(job, dedupe=Dedupe(WINDOW), look_back={A: 6, B: 5})
    assert told.looked_through == (OffsetRange("t", 0, 6, 20),)
    assert told.load_id("v", "a").dedupe == Dedupe(WINDOW)


# ---- the verdict


def receipt(from_offset: int, until_offset: int, dedupe: Dedupe | None = DEDUPE) -> Receipt:
    load = LoadId("p", from_offset + 1, "r", (OffsetRange("t", 0, from_offset, until_offset),), "v", "a", dedupe=dedupe)
    return Receipt(load, from_offset, 0, len(set(range(from_offset, until_offset)) - (LEFT_OUT if dedupe else set())))


def judged(
    table: set[int],
    receipts: list[Receipt],
    *,
    earliest: int = 0,
    start: int = 0,
    dedupe: Dedupe | None = DEDUPE,
    known: bool = True,
    compacted: frozenset[str] = frozenset(),
) -> Verification:
    """The verdict on a table of `LOG`, of which the log holds what is not before `earliest`."""
    committed = Watermarks({A: earliest}, {A: len(LOG)}, {})
    logged = {
        each: LoggedRepeats(each, committed.earliest, {A: start}, compacted) for each in dedupings(receipts, dedupe) if known
    }
    retained = {offset: key for offset, key in LOG.items() if offset >= earliest}
    for found in logged.values():
        for offset, key in retained.items():
            found.see(A, offset, None if key is None else [(IDEMPOTENCY_KEY, key)])
    return verify(committed, {A: retained}, {A: table}, receipts, compacted=compacted, logged=logged, dedupe=dedupe)


FIRST = set(LOG) - LEFT_OUT


def test_a_repeat_that_is_absent_is_not_lost_and_a_record_that_is_lost_is_found() -> None:
    """Neither is a repeat that is there what the load should have left."""
    receipts = [receipt(0, 5), receipt(5, 12)]
    whole = judged(FIRST, receipts)
    assert (whole.holds, whole.repeats, whole.unclear) == (True, len(LEFT_OUT), 0)
    assert whole.to_json()["repeats"] == len(LEFT_OUT)
    assert [p.lost for p in judged(FIRST - {8}, receipts).verdict.partitions] == [(8,)]
    assert [p.unknown for p in judged(FIRST | {9}, receipts).verdict.partitions] == [(9,)]


def test_a_commit_is_judged_by_what_it_left_out_itself() -> None:
    """A batch from before the setting has every record, and one by another window has others."""
    assert judged(FIRST | {3}, [receipt(0, 5, None), receipt(5, 12)]).holds
    assert not judged(FIRST, [receipt(0, 5, None), receipt(5, 12)]).holds
    wider = judged(FIRST - {10}, [receipt(0, 5), replace_rows(receipt(5, 12, Dedupe(6)), 2)])
    assert (wider.holds, wider.repeats) == (True, len(LEFT_OUT) + 1)
    assert judged(set(LOG), [receipt(0, 12, None)], dedupe=None).holds


def replace_rows(made: Receipt, rows: int) -> Receipt:
    return replace(made, rows=rows)


def test_a_commit_whose_receipt_is_gone_may_have_left_out_repeats_or_not() -> None:
    """Both are accepted, and what is absent is counted; other records are still found."""
    kept = [receipt(5, 12)]
    assert judged(FIRST | {3}, kept).holds
    assert (judged(FIRST, kept).holds, judged(FIRST, kept).unclear) == (True, 1)
    assert not judged(FIRST - {4}, kept).holds


def test_behind_the_end_of_retention_repeats_cannot_be_told_for_a_window() -> None:
    """An absent record with a key there is not judged, one without a key is lost; where the pipeline began, all is clear."""
    receipts = [receipt(0, 12)]
    held = judged(FIRST, receipts, earliest=2)
    assert (held.verdict.holds, held.repeats, held.unclear) == (True, 3, 2)  # 3 and 5 repeat what is gone
    assert [p.lost for p in judged(FIRST - {6, 8}, receipts, earliest=2).verdict.partitions] == [(6, 8)]
    assert not judged(FIRST, receipts, earliest=2, start=2).verdict.holds


def test_in_a_compacted_log_no_record_with_a_key_is_surely_a_first_one() -> None:
    """What it repeats may be compacted away."""
    compacted = frozenset({"t"})
    assert judged(FIRST - {8}, [replace_rows(receipt(0, 12), 6)], compacted=compacted).unclear == 1


def test_a_commit_that_came_while_the_log_was_read_is_not_excused() -> None:
    """Its setting was not looked for: the command is run again."""
    assert not judged(FIRST, [receipt(0, 12)], known=False).holds

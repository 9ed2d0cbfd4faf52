"""Laws of repeats: which records are left out, by offsets alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import changed, load_job, write_of
from tidegate.core.audit.oracle import Verification, dedupings, verify, with_look_back
from tidegate.core.config.names import IDEMPOTENCY_KEY
from tidegate.core.config.pipeline import Dedupe
from tidegate.core.load.repeats import LoggedRepeats, RepeatFinder, expired, key_in, look_back, needed_from, reaching_before
from tidegate.core.model.errors import RequestError
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.model.watermarks import Watermarks
from tidegate.core.state.receipt import Receipt

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
WINDOW = 4
DEDUPE = Dedupe(WINDOW)
Log = dict[int, bytes | None]
"""The key of each record, by its offset."""


def log_of(*keys: str | None) -> Log:
    return {offset: None if key is None else key.encode() for offset, key in enumerate(keys)}


LOG = log_of("a", "b", None, "a", "c", "b", None, "a", "d", "b", "c", "a")
LEFT_OUT = {3, 5, 7, 9, 11}


def repeats_by_definition(log: Log, window: int) -> set[int]:
    """A repeat has an earlier record of its key that lies at most the window before it."""
    return {
        offset
        for offset, key in log.items()
        if key and any(log.get(earlier) == key for earlier in range(max(offset - window, 0), offset))
    }


def found_in(log: Log, first: int, from_offset: int, until_offset: int, window: int) -> set[int]:
    """The repeats of a range, by what is read from `first` on."""
    finder = RepeatFinder(window)
    read = {offset: key for offset, key in sorted(log.items()) if first <= offset < until_offset and key}
    return {offset for offset, key in read.items() if finder.is_repeat(A, offset, key)} & set(range(from_offset, until_offset))


LOGS = st.dictionaries(st.integers(0, 60), st.sampled_from([None, b"a", b"b", b"c", b"d", b"e"]), max_size=50)


@given(LOGS, st.integers(1, 30), st.integers(0, 61), st.integers(0, 61), st.lists(st.integers(0, 61), min_size=2, unique=True))
def test_the_log_alone_says_what_is_left_out(log: Log, window: int, begun: int, earliest: int, bounds: list[int]) -> None:
    """Wherever the pipeline began, and whatever is cut: batches, replays of any part, also of what is before its beginning.

    What the log does not hold is nothing, if the pipeline began after it. Otherwise the load reads it, which fails.
    """
    held = {offset: key for offset, key in log.items() if offset >= earliest}
    expected = repeats_by_definition(held, window)
    for from_offset, until_offset in pairwise(sorted(bounds)):
        ranges = [OffsetRange("t", 0, from_offset, until_offset)]
        asked = {A: earliest} if reaching_before(ranges, window, {A: begun}) else {}
        since = look_back(ranges, window, needed_from({A: begun}, asked))[A]
        if from_offset >= earliest and since < earliest:
            assert begun < earliest
        elif from_offset >= earliest:
            found = found_in(log, since, from_offset, until_offset, window)
            assert found == {offset for offset in expected if from_offset <= offset < until_offset}


@given(LOGS, st.integers(1, 30))
def test_a_finder_remembers_the_window_and_no_more(log: Log, window: int) -> None:
    finder = RepeatFinder(window)
    for offset, key in sorted(log.items()):
        if key:
            finder.is_repeat(B, offset, key)
            assert all(last >= offset - window for last in finder._last[B].values())


def test_the_look_back_ends_where_the_log_begins() -> None:
    ranges = [OffsetRange("t", 0, 100, 110), OffsetRange("t", 1, 100, 110)]
    assert look_back(ranges, 30, {A: 90}) == {A: 90, B: 70}
    assert look_back(ranges, 200, {B: 105}) == {A: 0, B: 100}


def test_an_offset_that_is_gone_names_the_look_back_that_it_is_in() -> None:
    ranges = [OffsetRange("t", 0, 10, 20), OffsetRange("t", 1, 40, 50)]
    error = expired(ranges, {A: 10, B: 30}, "t-1", 30)
    assert error is not None
    assert error.fields == {"topic": "t", "partition": 1, "from_offset": 30}
    asked = [({A: 10, B: 30}, "t-0", 30), *(({B: 30}, "t-1", offset) for offset in (10, 29, 40))]
    assert [expired(ranges, *each) for each in asked] == [None] * 4


def test_the_next_try_of_a_load_that_retention_has_overtaken_looks_back_as_far_as_the_log_then_reaches() -> None:
    """So the error is retryable: what was deleted in between may be from before the pipeline began."""
    ranges, begun = [OffsetRange("t", 0, 100, 110)], {A: 90}
    ordered, retried = (look_back(ranges, 30, needed_from(begun, {A: earliest})) for earliest in (0, 80))
    overtaken = expired(ranges, ordered, "t-0", 70)
    assert overtaken is not None
    assert (overtaken.retryable, retried) == (True, {A: 80})


def test_the_last_header_of_a_name_is_the_key() -> None:
    headers: list[Any] = [[("k", b"1"), ("x", b"2"), ("k", b"3")], [("k", b"1"), ("k", None)], [("k", "ä")], None]
    assert [key_in(each, "k") for each in headers] == [b"3", None, "ä".encode(), None]


def test_a_job_that_leaves_out_repeats_says_how_far_it_looks_back() -> None:
    job = load_job("p", 1, "r", (OffsetRange("t", 0, 10, 20), OffsetRange("t", 1, 5, 5)), "m:f", "lake.a.b", {})
    wrong: list[dict[str, Any]] = [{}, {"look_back": {A: 11, B: 5}}]
    for changes in wrong:
        with pytest.raises(RequestError, match="look-back"):
            changed(job, dedupe=DEDUPE, **changes)
    assert changed(job, dedupe=DEDUPE, look_back={A: 6, B: 5}).looked_through == (OffsetRange("t", 0, 6, 20),)


# ---- the verdict


def receipt(from_offset: int, until_offset: int, dedupe: Dedupe | None = DEDUPE) -> Receipt:
    load = write_of("p", from_offset + 1, "r", (OffsetRange("t", 0, from_offset, until_offset),), "v", "a", dedupe=dedupe)
    return Receipt(load, from_offset, 0, rows=len(set(range(from_offset, until_offset)) - (LEFT_OUT if dedupe else set())))


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
    committed = Watermarks({A: max(earliest, start)}, {A: len(LOG)}, {})
    dedupes = dedupings(receipts, dedupe)
    first = with_look_back(committed, {A: earliest}, dedupes).earliest
    logged = {each: LoggedRepeats(each, first, {A: start}, compacted=compacted) for each in dedupes if known}
    retained = {offset: key for offset, key in LOG.items() if offset >= earliest}
    for found in logged.values():
        for offset, key in retained.items():
            found.see(A, offset, None if key is None else [(IDEMPOTENCY_KEY, key)])
    return verify(committed, {A: retained}, {A: table}, receipts, compacted=compacted, logged=logged, dedupe=dedupe)


FIRST = set(LOG) - LEFT_OUT
BATCHES = [receipt(0, 5), receipt(5, 12)]
BEFORE = [receipt(0, 5, None), receipt(5, 12)]  # the first batch is from before the setting
KEPT = [receipt(5, 12)]  # the receipt of the first one is gone
ONE = [receipt(0, 12)]
LATE = [replace(receipt(3, 12), rows=4)]
SINCE_3 = {offset for offset in FIRST if offset >= 3}
COMPACTED = frozenset({"t"})


@pytest.mark.parametrize(
    ("table", "receipts", "log", "told"),
    [
        # a repeat that is absent is not lost, and a record that is lost is found, as a repeat that is there
        (FIRST, BATCHES, {}, {"holds": True, "repeats": len(LEFT_OUT), "unclear": 0}),
        (FIRST - {8}, BATCHES, {}, {"lost": [(8,)]}),
        (FIRST | {9}, BATCHES, {}, {"unknown": [(9,)]}),
        # a commit is judged by what it left out itself, by its own window
        (FIRST | {3}, BEFORE, {}, {"holds": True}),
        (FIRST, BEFORE, {}, {"holds": False}),
        (
            FIRST - {10},
            [receipt(0, 5), replace(receipt(5, 12, Dedupe(6)), rows=2)],
            {},
            {"holds": True, "repeats": len(LEFT_OUT) + 1},
        ),
        (set(LOG), [receipt(0, 12, None)], {"dedupe": None}, {"holds": True}),
        # one whose receipt is gone may have left out repeats or not
        (FIRST | {3}, KEPT, {}, {"holds": True}),
        (FIRST, KEPT, {}, {"holds": True, "unclear": 1}),
        (FIRST - {4}, KEPT, {}, {"holds": False}),
        # behind the end of retention repeats cannot be told for a window, unless log and pipeline begin there
        (FIRST, ONE, {"earliest": 2}, {"right": True, "repeats": 3, "unclear": 2}),  # 3 and 5 repeat what is gone
        (FIRST - {6, 8}, ONE, {"earliest": 2}, {"lost": [(6, 8)]}),
        (FIRST, ONE, {"earliest": 2, "start": 2}, {"right": False}),
        # a record from before the beginning makes later ones repeats; where that is gone in part, what it says is not judged
        (SINCE_3, LATE, {"start": 3}, {"holds": True, "repeats": 5}),
        (SINCE_3 - {8}, LATE, {"start": 3}, {"lost": [(8,)]}),
        (SINCE_3, LATE, {"start": 3, "earliest": 2}, {"right": True, "repeats": 3, "unclear": 2}),
        # what a record repeats may be compacted away; a commit that came while the log was read is not excused
        (FIRST - {8}, [replace(receipt(0, 12), rows=6)], {"compacted": COMPACTED}, {"unclear": 1}),
        (FIRST, ONE, {"known": False}, {"holds": False}),
    ],
)
def test_a_table_is_judged_by_what_its_commits_left_out(
    table: set[int], receipts: list[Receipt], log: dict[str, Any], told: dict[str, Any]
) -> None:
    """Of one log; an absent record with a key is not judged where what it may repeat is not known."""
    found = judged(table, receipts, **log)
    known: dict[str, Any] = {"holds": found.holds, "right": found.verdict.holds}
    known |= {"repeats": found.repeats, "unclear": found.unclear}
    known |= {name: [getattr(p, name) for p in found.verdict.partitions] for name in ("lost", "unknown")}
    assert {name: known[name] for name in told} == told
    assert found.to_json()["repeats"] == found.repeats


def test_what_is_read_to_verify_begins_a_window_earlier_where_that_is_retained() -> None:
    """By the longest window; a log that retention has cut behind the cursor too is not read at all."""
    committed = Watermarks({A: 50, B: 70}, {A: 90, B: 70}, {"t": "id"})
    assert with_look_back(committed, {A: 0, B: 75}, []) == committed
    assert with_look_back(committed, {A: 0, B: 75}, [Dedupe(4), Dedupe(9)]).earliest == {A: 41, B: 70}
    assert with_look_back(committed, {A: 45, B: 60}, [Dedupe(9)]).earliest == {A: 45, B: 61}

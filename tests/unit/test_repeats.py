"""Laws of repeats: which records are left out, by offsets alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import changed, load_job, write_of
from tidegate.core.audit.oracle import Verification, dedupings, verify, with_look_back
from tidegate.core.config.pipeline import Dedupe
from tidegate.core.errors import RequestError
from tidegate.core.load.receipt import Receipt
from tidegate.core.load.repeats import (
    LoggedRepeats,
    RepeatFinder,
    expired,
    key_in,
    look_back,
    needed_from,
    reaching_before,
)
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition
from tidegate.core.offsets.watermarks import Watermarks
from tidegate.core.receivers.records import IDEMPOTENCY_KEY

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
    """However long the log is."""
    finder = RepeatFinder(window)
    for offset, key in sorted(log.items()):
        if key:
            finder.is_repeat(B, offset, key)
            assert all(last >= offset - window for last in finder._last[B].values())


def test_the_look_back_ends_where_the_log_begins() -> None:
    """A range before that, as of a cleared run, has none; an unknown beginning is 0."""
    ranges = [OffsetRange("t", 0, 100, 110), OffsetRange("t", 1, 100, 110)]
    assert look_back(ranges, 30, {A: 90}) == {A: 90, B: 70}
    assert look_back(ranges, 200, {B: 105}) == {A: 0, B: 100}


def test_an_offset_that_is_gone_names_the_look_back_that_it_is_in() -> None:
    """Other offsets are another error's."""
    ranges = [OffsetRange("t", 0, 10, 20), OffsetRange("t", 1, 40, 50)]
    error = expired(ranges, {A: 10, B: 30}, "t-1", 30)
    assert error is not None
    assert error.fields == {"topic": "t", "partition": 1, "from_offset": 30}
    assert expired(ranges, {A: 10, B: 30}, "t-0", 30) is None
    assert [expired(ranges, {B: 30}, "t-1", offset) for offset in (10, 29, 40)] == [None, None, None]


def test_the_next_try_of_a_load_that_retention_has_overtaken_looks_back_as_far_as_the_log_then_reaches() -> None:
    """So the error is retryable: what was deleted in between may be from before the pipeline began."""
    ranges, begun = [OffsetRange("t", 0, 100, 110)], {A: 90}
    ordered, retried = (look_back(ranges, 30, needed_from(begun, {A: earliest})) for earliest in (0, 80))
    overtaken = expired(ranges, ordered, "t-0", 70)
    assert overtaken is not None
    assert overtaken.retryable
    assert retried == {A: 80}


def test_the_last_header_of_a_name_is_the_key() -> None:
    """As Kafka's clients read it; texts are their bytes."""
    assert key_in([("k", b"1"), ("x", b"2"), ("k", b"3")], "k") == b"3"
    assert key_in([("k", b"1"), ("k", None)], "k") is None
    assert key_in([("k", "ä")], "k") == "ä".encode()
    assert key_in(None, "k") is None


def test_a_job_that_leaves_out_repeats_says_how_far_it_looks_back() -> None:
    """It reads the look-back and its range."""
    job = load_job("p", 1, "r", (OffsetRange("t", 0, 10, 20), OffsetRange("t", 1, 5, 5)), "m:f", "lake.a.b", {})
    with pytest.raises(RequestError, match="look-back"):
        changed(job, dedupe=Dedupe(WINDOW))
    with pytest.raises(RequestError, match="look-back"):
        changed(job, dedupe=Dedupe(WINDOW), look_back={A: 11, B: 5})
    told = changed(job, dedupe=Dedupe(WINDOW), look_back={A: 6, B: 5})
    assert told.looked_through == (OffsetRange("t", 0, 6, 20),)


# ---- the verdict


def receipt(from_offset: int, until_offset: int, dedupe: Dedupe | None = DEDUPE) -> Receipt:
    load = write_of("p", from_offset + 1, "r", (OffsetRange("t", 0, from_offset, until_offset),), "v", "a", dedupe=dedupe)
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
    committed = Watermarks({A: max(earliest, start)}, {A: len(LOG)}, {})
    dedupes = dedupings(receipts, dedupe)
    first = with_look_back(committed, {A: earliest}, dedupes).earliest
    logged = {each: LoggedRepeats(each, first, {A: start}, compacted) for each in dedupes if known}
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
    """An absent record with a key there is not judged, one without a key is lost, unless log and pipeline begin there."""
    receipts = [receipt(0, 12)]
    held = judged(FIRST, receipts, earliest=2)
    assert (held.verdict.holds, held.repeats, held.unclear) == (True, 3, 2)  # 3 and 5 repeat what is gone
    assert [p.lost for p in judged(FIRST - {6, 8}, receipts, earliest=2).verdict.partitions] == [(6, 8)]
    assert not judged(FIRST, receipts, earliest=2, start=2).verdict.holds


def test_a_record_from_before_the_beginning_makes_later_ones_repeats() -> None:
    """3, 5 and 7 repeat what the schedule has never loaded. Where that is gone in part, what it says is not judged."""
    receipts = [replace_rows(receipt(3, 12), 4)]
    after = {offset for offset in FIRST if offset >= 3}
    assert (judged(after, receipts, start=3).holds, judged(after, receipts, start=3).repeats) == (True, 5)
    assert [p.lost for p in judged(after - {8}, receipts, start=3).verdict.partitions] == [(8,)]
    half = judged(after, receipts, start=3, earliest=2)
    assert (half.verdict.holds, half.repeats, half.unclear) == (True, 3, 2)


def test_what_is_read_to_verify_begins_a_window_earlier_where_that_is_retained() -> None:
    """By the longest window; a log that retention has cut behind the cursor too is not read at all."""
    committed = Watermarks({A: 50, B: 70}, {A: 90, B: 70}, {"t": "id"})
    assert with_look_back(committed, {A: 0, B: 75}, []) == committed
    assert with_look_back(committed, {A: 0, B: 75}, [Dedupe(4), Dedupe(9)]).earliest == {A: 41, B: 70}
    assert with_look_back(committed, {A: 45, B: 60}, [Dedupe(9)]).earliest == {A: 45, B: 61}


def test_in_a_compacted_log_no_record_with_a_key_is_surely_a_first_one() -> None:
    """What it repeats may be compacted away."""
    compacted = frozenset({"t"})
    assert judged(FIRST - {8}, [replace_rows(receipt(0, 12), 6)], compacted=compacted).unclear == 1


def test_a_commit_that_came_while_the_log_was_read_is_not_excused() -> None:
    """Its setting was not looked for: the command is run again."""
    assert not judged(FIRST, [receipt(0, 12)], known=False).holds

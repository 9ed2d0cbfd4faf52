"""The verdict on tables that aggregate, which the chaos harness trusts: it has to see what is wrong."""

from __future__ import annotations

import pytest

from tests.batches import BatchVerdict, Key, Ranges, Sums, gaps, judge_sums, ranges_of_batches
from tests.records import cursor_of, range_of, write_of
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.receipt import Receipt
from tidegate.testing.fakes import MemoryStore

Rows = dict[Key, list[Sums]]

EXPECTED = {(1, 0, 0): (2, 1, 7), (1, 0, 1): (1, 2, 9), (2, 0, 0): (3, 12, 30)}
TABLE = {key: [sums] for key, sums in EXPECTED.items()}


def of(*bounds: tuple[int, int]) -> Ranges:
    """Ranges of partitions 0, 1 and so on."""
    return tuple(OffsetRange("t", partition, *each) for partition, each in enumerate(bounds))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, (0, 0, 0, 0)),
        ({(2, 0, 0): []}, (3, 0, 0, 0)),
        ({(2, 0, 0): [(2, 7, 20)]}, (1, 0, 0, 0)),
        ({(1, 0, 0): [(2, 1, 7), (2, 1, 7)]}, (0, 2, 0, 0)),
        ({(2, 0, 0): [(4, 18, 40)]}, (0, 1, 0, 0)),
        ({(3, 0, 0): [(5, 1, 1)]}, (0, 0, 5, 0)),
        # rows of as many other records: a count alone would not see it, nor two rows where one belongs
        *[({(1, 0, 0): rows}, (0, 0, 0, 1)) for rows in ([(2, 5, 7)], [(2, 1, 8)], [(1, 0, 3), (1, 1, 4)])],
    ],
)
def test_what_a_batch_has_too_few_or_too_many_is_counted(change: Rows, told: tuple[int, ...]) -> None:
    """In records; other ones are a fault."""
    found = judge_sums(EXPECTED, TABLE | change)
    assert (found.lost, found.duplicated, found.unknown, len(found.faults)) == told
    assert found.holds == (told == (0, 0, 0, 0))
    assert found.records == 6


def test_a_verdict_on_batches_is_json_and_fails_with_a_gap() -> None:
    """It holds where there is nothing."""
    assert not judge_sums(EXPECTED, TABLE, ["a gap"]).holds
    clean = {"holds": True, "lost": 0, "duplicated": 0, "unknown": 0, "faults": []}
    assert judge_sums(EXPECTED, TABLE).to_json() == clean | {"records": 6, "rows": 6}
    assert judge_sums({}, {}) == BatchVerdict(0, 0, 0, 0, 0, ())


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (of((10, 20), (5, 9)), 0),
        *[(of(bounds, (5, 9)), 1) for bounds in ((12, 20), (8, 20), (10, 18))],
        (of((10, 20)), 1),
    ],
    ids=["whole", "gap", "overlap", "short", "partition-missing"],
)
def test_batches_lead_from_the_start_to_the_cursor_without_gap_or_overlap(second: Ranges, told: int) -> None:
    """Each partition for itself; what is beyond the cursor is not asked."""
    p0, p1 = TopicPartition("t", 0), TopicPartition("t", 1)
    cursor = cursor_of("p", 2, {p0: 20, p1: 9}, starts={p0: 0, p1: 5})
    assert len(gaps({1: of((0, 10)), 2: second, 3: of((99, 100))}, cursor)) == told


def test_the_newest_commit_says_what_a_batch_was_made_of_and_else_its_saved_ranges() -> None:
    """Copies of a saved range have to agree."""
    book = Ledger(MemoryStore(), "p")
    for seq, run, ranges in ((1, "a", of((0, 5))), (2, "a", of((5, 9), (0, 0))), (2, "b", of((5, 9)))):
        book.save_range(range_of("p", seq, run, ranges, (), {}, {}, 1))
    receipts = [Receipt(write_of("p", 1, "a", of((0, until)), "m:f", "attempt", batch=1), until, 1, rows=1) for until in (8, 6)]
    assert ranges_of_batches(book, receipts) == {1: of((0, 6)), 2: of((5, 9))}
    book.save_range(range_of("p", 2, "c", of((5, 7)), (), {}, {}, 1))
    with pytest.raises(AssertionError, match="copies of a saved range differ"):
        ranges_of_batches(book, receipts)

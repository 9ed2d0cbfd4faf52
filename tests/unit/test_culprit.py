"""Laws of the search for the record that breaks a load."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.load.culprit import Part, halves, narrowed
from tidegate.core.model.ranges import OffsetRange, total_count

RANGES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 40)), min_size=1, max_size=4).map(
    lambda cuts: tuple(OffsetRange("t", number, at, at + count) for number, (at, count) in enumerate(cuts))
)


def offsets(part: Part) -> list[tuple[int, int]]:
    return [(r.partition, offset) for r in part for offset in range(r.from_offset, r.until_offset)]


@given(RANGES.filter(lambda ranges: total_count(ranges) > 1))
def test_halves_are_the_part_in_its_order(part: Part) -> None:
    """Neither is empty, and no range of them is."""
    part = tuple(r for r in part if r.count)
    first, rest = halves(part)
    assert offsets(first) + offsets(rest) == offsets(part)
    assert total_count(first) == total_count(part) // 2
    assert all(r.count for r in (*first, *rest))


@given(RANGES, st.data())
def test_the_first_record_that_fails_is_found_by_reading_the_batch_about_twice(ranges: Part, data: st.DataObject) -> None:
    """Whichever others fail, too. Nothing is found where none does, or the first and the last do: it is not the record then."""
    held = offsets(ranges)
    bad = set(data.draw(st.lists(st.sampled_from(held), max_size=3))) if held else set()
    asked: list[int] = []

    def fails(part: Part) -> bool:
        asked.append(total_count(part))
        return bool(bad.intersection(offsets(part)))

    found = narrowed(ranges, fails, lambda: True)
    all_fail = len(bad) > 1 and {held[0], held[-1]} <= bad
    assert (offsets(found) if found else []) == ([] if all_fail else sorted(bad)[:1])
    assert sum(asked) <= 2 * len(held) + math.log2(len(held) + 1) + 3


def test_a_search_that_has_no_time_left_names_the_part_and_records_that_fail_together_are_not_blamed_alone() -> None:
    """Such as two of one key."""
    whole = (OffsetRange("t", 0, 0, 8),)
    looks = iter([True, False])
    assert narrowed(whole, lambda part: (0, 6) in offsets(part), lambda: next(looks)) == (OffsetRange("t", 0, 4, 8),)
    together = {(0, 1), (0, 6)}
    assert narrowed(whole, lambda part: together <= {*offsets(part)}, lambda: True) is None

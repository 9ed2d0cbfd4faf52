"""Which record a load fails of, where one is enough: found by loading parts of its ranges again, without writing.

Each part is half of the one before, so that all of them together read about two times what the load has read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from tidegate.core.model.ranges import OffsetRange, total_count

Part = tuple[OffsetRange, ...]


def halves(part: Part) -> tuple[Part, Part]:
    """The first half of the offsets of a part that has two or more, in its order, and the others."""
    left, first, rest = total_count(part) // 2, list[OffsetRange](), list[OffsetRange]()
    for each in part:
        cut = each.from_offset + min(left, each.count)
        left -= cut - each.from_offset
        first.append(replace(each, until_offset=cut))
        rest.append(replace(each, from_offset=cut))
    return tuple(r for r in first if r.count), tuple(r for r in rest if r.count)


def narrowed(ranges: Iterable[OffsetRange], fails: Callable[[Part], bool], go_on: Callable[[], bool]) -> Part | None:
    """The first record that fails alone, as a range of one offset; a larger part where `go_on` ended the search.

    None where the ranges fail by no single record: together they do, or not at all; or where the first record and the last one
    fail, so that it is nothing about the record. That a later record is the first to fail shows that those before it do not.
    """
    part = whole = tuple(sorted(r for r in ranges if r.count))
    seen = fails(part)
    while seen and total_count(part) > 1 and go_on():
        first, rest = halves(part)
        in_first = fails(first)
        part = first if in_first else rest
        seen = in_first or total_count(part) > 1 or fails(part)
    if not seen:
        return None
    first = (replace(whole[0], until_offset=whole[0].from_offset + 1),)
    last = (replace(whole[-1], from_offset=whole[-1].until_offset - 1),)
    return None if part == first != last and go_on() and fails(last) else part

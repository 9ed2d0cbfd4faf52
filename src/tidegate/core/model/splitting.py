"""Cutting offset ranges into the pieces that Spark tasks read, so that one large partition does not keep one core busy alone.

The arithmetic is that of Spark's `KafkaOffsetRangeCalculator`, which does the same for its own source.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tidegate.core.model.counts import check_limits
from tidegate.core.model.ranges import OffsetRange


def split_ranges(
    ranges: Iterable[OffsetRange], *, min_partitions: int | None, max_records_per_partition: int | None
) -> list[OffsetRange]:
    """The ranges in pieces, in the order of the input; the pieces of a range partition it exactly, empty ranges are dropped.

    First each is cut into pieces of at most `max_records_per_partition` offsets. Where these are fewer than `min_partitions`,
    about so many are made: each range is cut in proportion to its size; small ones stay whole, and their records do not count
    in the proportion. Raises RequestError: a limit is not a whole number of at least 1.
    """
    check_limits({"min_partitions": min_partitions, "max_records_per_partition": max_records_per_partition})
    pieces = [r for r in ranges if r.count]
    if max_records_per_partition is not None:
        pieces = [piece for r in pieces for piece in _cut(r, -(-r.count // max_records_per_partition))]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    total = sum(r.count for r in pieces)
    whole = [r for r in pieces if _parts(r.count, total, min_partitions) == 1]
    whole_partitions = {r.topic_partition for r in whole}
    rest = total - sum(r.count for r in whole)
    rest_parts = max(min_partitions - len(whole), 1)
    return [
        piece
        for r in pieces
        for piece in _cut(r, 1 if r.topic_partition in whole_partitions else _parts(r.count, rest, rest_parts))
        if piece.count
    ]


def _parts(size: int, total: int, parts: int) -> int:
    return max(math.floor(size / total * parts + 0.5), 1)


def _cut(r: OffsetRange, parts: int) -> list[OffsetRange]:
    """`parts` pieces of nearly equal size; the last ones take the rounding."""
    pieces = []
    from_offset = r.from_offset
    for left in range(parts, 0, -1):
        until_offset = from_offset + (r.until_offset - from_offset) // left
        pieces.append(OffsetRange(r.topic, r.partition, from_offset, until_offset))
        from_offset = until_offset
    return pieces

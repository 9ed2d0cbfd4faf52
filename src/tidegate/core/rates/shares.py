"""Sharing one batch-wide cap among partitions by their lag."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.core.counts import is_whole
from tidegate.core.errors import RequestError
from tidegate.core.offsets.ranges import TopicPartition


def share_limit(sizes: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """Records of each partition, in proportion to `sizes`, about `limit` together and never more than the partition's size.

    Shares are whole: those below one record round up, others down. So a partition with lag is never starved, at the price
    that a limit smaller than the number of lagging partitions is overshot. From Spark's `KafkaMicroBatchStream.rateLimit`,
    in whole-number arithmetic (Spark's doubles lose precision beyond 2^53).

    Raises:
        RequestError: the limit or a size is negative or not whole.
    """
    for name, value in [("limit", limit), *((str(tp), size) for tp, size in sizes.items())]:
        if not is_whole(value):
            raise RequestError(f"{name}: expected a whole number of records, 0 or more, got {value!r}")
    total = sum(sizes.values())
    return {tp: min(size, _share(limit * size, total)) if size else 0 for tp, size in sizes.items()}


def _share(weighted: int, total: int) -> int:
    return weighted // total if weighted >= total else min(1, weighted)

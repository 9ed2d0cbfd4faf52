"""Limits of each partition, from a limit or a rate for the whole batch, and rates for each partition."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain

from tidegate.core.model.counts import check_count
from tidegate.core.model.errors import RequestError
from tidegate.core.model.ranges import TopicPartition


def share_limit(sizes: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """Records of each partition, in proportion to `sizes`, about `limit` together and never more than the partition's size.

    Shares are whole: those below one record round up, others down. So a partition with lag is never starved, at the price that
    a limit smaller than the number of lagging partitions is overshot. From Spark's `KafkaMicroBatchStream.rateLimit`, in
    whole-number arithmetic (Spark's doubles lose precision beyond 2^53). Raises RequestError: the limit or a size is negative
    or not whole.
    """
    for name, value in [("limit", limit), *((str(tp), size) for tp, size in sizes.items())]:
        check_count(name, value)
    total = sum(sizes.values())
    return {tp: min(size, _share(limit * size, total)) if size else 0 for tp, size in sizes.items()}


def _share(weighted: int, total: int) -> int:
    return weighted // total if weighted >= total else min(1, weighted)


def max_messages_per_partition(
    lags: Mapping[TopicPartition, int],
    *,
    rate: float | None,
    max_rate_per_partition: int,
    min_rate_per_partition: int,
    interval_s: float,
) -> dict[TopicPartition, int] | None:
    """The most records that a batch may take of each partition of `lags`; None where nothing limits it.

    From Spark's `DirectKafkaInputDStream.maxMessagesPerPartition`. Raises RequestError: a number is negative, not finite, or a
    count is not whole.

    Args:
        lags: records that wait, for each partition.
        rate: records/s of the whole batch, as a rate estimator has it; shared in proportion to the lags. None or 0: none.
        max_rate_per_partition: records/s; 0: no maximum.
        min_rate_per_partition: records of each partition *per batch* (so in Spark, whatever its name says); beats the maximum.
        interval_s: seconds between batches.
    """
    counts = {"max_rate_per_partition": max_rate_per_partition, "min_rate_per_partition": min_rate_per_partition}
    for of, count in chain(counts.items(), lags.items()):
        check_count(str(of), count)
    for name, number in {"rate": rate or 0.0, "interval_s": interval_s}.items():
        if not math.isfinite(number) or number < 0:
            raise RequestError(f"{name}: expected a number, 0 or more, got {number!r}")
    if rate:
        total = sum(lags.values())
        if not total:
            return None
        shares = {tp: lag / total * rate for tp, lag in lags.items()}
        limits = {tp: min(share, max_rate_per_partition) if max_rate_per_partition else share for tp, share in shares.items()}
    else:
        limits = dict.fromkeys(lags, float(max_rate_per_partition))
    if sum(limits.values()) <= 0:
        return None
    return {tp: max(int(interval_s * limit), min_rate_per_partition) for tp, limit in limits.items()}

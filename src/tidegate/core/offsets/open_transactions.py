"""Records that are in the log and that `read_committed` does not read yet: those behind the first open transaction.

The brokers tell by two ends of a partition that they exist, and by the first record behind the last stable offset since when.
Which producer holds them back they tell to `kafka-transactions.sh` alone.

Pure: the standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.core.offsets.ranges import TopicPartition
from tidegate.core.offsets.watermarks import Watermarks


def begins(watermarks: Watermarks) -> dict[TopicPartition, int]:
    """The offset of the first open transaction's first record, of each partition that has one."""
    return {tp: watermarks.latest[tp] for tp in watermarks.held_back}


def age_s(began_ms: int | None, now_ms: int) -> float | None:
    """How long a transaction is open whose first record has this timestamp; None where that is not known."""
    return None if began_ms is None else max(0.0, (now_ms - began_ms) / 1000)


def sentence(records: int, open_s: float | None) -> str | None:
    """That so many records wait behind a transaction; None where none does."""
    if not records:
        return None
    since = "" if open_s is None else f", open for {open_s:,.0f} s"
    return f"{records:,} records wait behind an open transaction{since}"


def waiting(watermarks: Watermarks, began_ms: Mapping[TopicPartition, int], *, now_ms: int) -> str | None:
    """The `sentence` on all partitions together, with the transaction that is open for the longest time.

    Args:
        watermarks: the log.
        began_ms: the timestamp of the record at each of `begins`, epoch ms, where it is known.
        now_ms: the time, epoch ms.
    """
    return sentence(sum(watermarks.held_back.values()), age_s(min(began_ms.values(), default=None), now_ms))

"""What is asked of the brokers to announce hours: until when everything is read, and the times of a load that lost its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from tidegate.core.audit.lag import to_read, unread
from tidegate.core.model.hours import Span, Times, complete_until
from tidegate.core.model.ranges import OffsetRange, TopicPartition, merged, one_of_a_partition
from tidegate.core.model.watermarks import Assigned, IsolationLevel
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ports import Brokers
from tidegate.core.state.saved_range import SavedRange

Positions = dict[TopicPartition, int]
"""Offsets, or timestamps, by partition."""


def read_until(
    saved: SavedRange,
    cursor: Cursor,
    brokers: Callable[[], Brokers],
    *,
    level: IsolationLevel,
    assign: Assigned = None,
    grace_ms: int,
    now_ms: int,
) -> int:
    """The time (epoch ms) until which everything is read once a batch is committed. One that read to the end asks nothing.

    `cursor` is the one after the batch, and `grace_ms` how long after its timestamp a record may be written to the log. Raises
    KafkaError, OffsetsOutOfRange: the brokers do not answer, or cursor and log do not fit.
    """
    if saved.remaining == 0:
        return complete_until(saved.planned_at_ms, grace_ms, ())
    log = brokers()
    watermarks = log.watermarks(sorted({tp.topic for tp in cursor.at.offsets}), isolation_level=level)
    positions = to_read(cursor.at.offsets, watermarks, assign)
    times = log.next_timestamps(unread(positions, watermarks), isolation_level=level)
    return complete_until(now_ms, grace_ms, [times.get(tp) for tp in positions])


def times_by_ends(ranges: Iterable[OffsetRange], brokers: Brokers, *, level: IsolationLevel, window: Span) -> Times:
    """The times of a load by the first and the last record of each range: every hour between them may have records.

    Of records that the log no longer holds nothing is known. `window` is where hours are looked at (epoch ms). Raises
    KafkaError: the brokers do not answer.
    """
    ask = partial(brokers.next_timestamps, isolation_level=level)
    return Times.between([ends for layer in one_of_a_partition(merged(ranges)) for ends in _ends(layer, ask)], window)


def _ends(ranges: Sequence[OffsetRange], ask: Callable[[Positions], Positions]) -> Iterator[Span]:
    """The timestamps of the first and the last record of each range, of a partition each; nothing of one that has none.

    A log ends with the marker of a transaction, or with records of one that was aborted. The last record is then found by
    bisection.
    """
    first, last = ask({r.topic_partition: r.from_offset for r in ranges}), Positions()
    low = {r.topic_partition: r.from_offset for r in ranges if r.topic_partition in first}
    high = {r.topic_partition: r.until_offset for r in ranges if r.topic_partition in first}
    asked = {tp: until - 1 for tp, until in high.items()}
    while asked:
        found = ask(asked)
        last |= found
        low |= {tp: at for tp, at in asked.items() if tp in found}
        high |= {tp: at for tp, at in asked.items() if tp not in found}
        asked = {tp: (low[tp] + high[tp]) // 2 for tp in high if high[tp] - low[tp] > 1}
    return ((at, last.get(tp, at)) for tp, at in first.items())

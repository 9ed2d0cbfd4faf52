"""What is asked of the brokers to announce hours: until when everything is read, and the times of a load that lost its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidegate.core.announce.hours import Span, Times, complete_until
from tidegate.core.audit.views.lag import to_read, unread
from tidegate.core.offsets.isolation import IsolationLevel
from tidegate.core.offsets.ranges import OffsetRange
from tidegate.core.offsets.watermarks import Assigned
from tidegate.core.ports import Brokers
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.saved_range import SavedRange


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

    Args:
        saved: the range of the batch.
        cursor: after it.
        brokers: the log, where it is needed.
        level: the pipeline's isolation level.
        assign: the partitions that the pipeline reads, by topic.
        grace_ms: how long after its timestamp a record may be written to the log.
        now_ms: the time, epoch ms.

    Raises:
        KafkaError, OffsetsOutOfRange: the brokers do not answer, or cursor and log do not fit.
    """
    if saved.remaining == 0:
        return complete_until(saved.planned_at_ms, grace_ms, ())
    log = brokers()
    watermarks = log.watermarks(sorted({tp.topic for tp in cursor.offsets}), isolation_level=level)
    positions = to_read(cursor.offsets, watermarks, assign)
    times = log.next_timestamps(unread(positions, watermarks), isolation_level=level)
    return complete_until(now_ms, grace_ms, [times.get(tp) for tp in positions])


def times_by_ends(ranges: Iterable[OffsetRange], brokers: Brokers, *, level: IsolationLevel, window: Span) -> Times:
    """The times of a load by the first and the last record of each range: every hour between them may have records.

    Args:
        ranges: what was loaded.
        brokers: the log; of records that it no longer holds nothing is known.
        level: the pipeline's isolation level.
        window: where hours are looked at (epoch ms).

    Raises:
        KafkaError: the brokers do not answer.
    """
    read = [r for r in ranges if r.count]
    firsts = brokers.next_timestamps({r.topic_partition: r.from_offset for r in read}, isolation_level=level)
    lasts = brokers.next_timestamps({r.topic_partition: r.until_offset - 1 for r in read}, isolation_level=level)
    known = [[at for times in (firsts, lasts) if (at := times.get(r.topic_partition)) is not None] for r in read]
    return Times.between(((min(ends), max(ends)) for ends in known if ends), window)

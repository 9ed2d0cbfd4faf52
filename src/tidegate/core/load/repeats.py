"""Repeats: records that a sender has sent before. Which ones are left out follows from the log and its offsets alone.

A record is a repeat if an earlier record of its partition has the same key, at most `window` offsets before it. Offsets count,
not records and not batches, so every cut of the log into loads leaves out the same records: a retry, a replay, a backfill. A
repeat counts as an earlier record too: a key that comes again and again within the window stays one row.

A load therefore reads `window` offsets before each of its ranges (`look_back`), but nothing from before the pipeline began:
what it has never loaded makes no record a repeat.

The key is the value of a record header. A record without the header, or with an empty one, is never a repeat; of several
headers of that name the last one counts, as in Kafka's clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidegate.core.config.pipeline import Dedupe
from tidegate.core.errors import LookBackExpired
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.saved_range import SavedRange


def beginnings(cursor: Cursor, saved: SavedRange | None = None) -> dict[TopicPartition, int]:
    """The first offset of each partition that a look-back may read: where the pipeline began, or went on after a loss.

    Args:
        cursor: as it is now.
        saved: a batch that is perhaps not committed yet; what it reads first begins there.
    """
    first = {tp: max(start, cursor.resumed.get(tp, 0)) for tp, start in cursor.starts.items()}
    if saved is not None:
        from_receipt = {d.topic_partition for d in saved.decisions if d.from_reason == "rebuilt"}  # the reason is forgotten
        begun = {tp: offset for tp, offset in saved.begun.items() if tp not in from_receipt}
        first |= begun | saved.resumed
    return first


def read_beginnings(ledger: Ledger, saved: SavedRange | None = None) -> dict[TopicPartition, int]:
    """As `beginnings`, by the cursor that the ledger holds.

    Raises:
        StateUnavailable: the store does not answer, or there is no cursor though a batch is committed.
        StateCorrupt: the cursor is not what was written.
    """
    is_first = saved is not None and saved.seq == 1 and not ledger.listing().has_cursor
    return beginnings(Cursor(ledger.pipeline) if is_first else ledger.cursor(), saved)


def look_back(ranges: Iterable[OffsetRange], window: int, first: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The offset from which each partition is read to tell which records of its range are repeats.

    Args:
        ranges: what is loaded.
        window: offsets.
        first: see `beginnings`; 0 for a partition that is not in it.
    """
    return {
        r.topic_partition: max(0, min(r.from_offset, max(r.from_offset - window, first.get(r.topic_partition, 0))))
        for r in ranges
    }


def expired(
    ranges: Iterable[OffsetRange], since: Mapping[TopicPartition, int], name: str, offset: int
) -> LookBackExpired | None:
    """The error for an offset that the log does not hold any more; None where it is in no look-back.

    Args:
        ranges: what is loaded.
        since: where their look-backs begin.
        name: of a partition, as in `orders-0`.
        offset: in that partition.
    """
    for r in ranges:
        first = since.get(r.topic_partition, r.from_offset)
        if str(r.topic_partition) == name and first <= offset < r.from_offset:
            return LookBackExpired(
                f"retention deleted records from offset {first} of {r.topic_partition} on, which say what of {r} are repeats",
                fix="Lower dedupe.window of the pipeline, or keep records longer (retention.ms of the topic) and replay sooner",
                topic=r.topic,
                partition=r.partition,
                from_offset=first,
            )
    return None


class RepeatFinder:
    """Finds repeats among records that are told one by one, in the order of each partition.

    It remembers the last offset of each key within the window.

    Args:
        window: offsets.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._last: dict[TopicPartition, dict[bytes, int]] = {}

    def is_repeat(self, tp: TopicPartition, offset: int, key: bytes) -> bool:
        """Whether the record is a repeat of one that was told before."""
        last = self._last.setdefault(tp, {})
        before = last.pop(key, None)
        last[key] = offset  # the newest comes last
        while last[oldest := next(iter(last))] < offset - self._window:
            del last[oldest]
        return before is not None and offset - before <= self._window


class LoggedRepeats:
    """The repeats of a log that is read once, from its earliest records on.

    Where records are gone from the log, some of those within a window behind may be repeats of them or not. Those are
    `unclear`, and so is each record with a key in a topic whose log is compacted.

    Args:
        dedupe: what a repeat is.
        first: the offset from which each partition is read.
        begun: see `beginnings`.
        compacted: topics whose log may lose any record.
    """

    def __init__(
        self,
        dedupe: Dedupe,
        first: Mapping[TopicPartition, int],
        begun: Mapping[TopicPartition, int],
        compacted: frozenset[str] = frozenset(),
    ) -> None:
        self._dedupe = dedupe
        self._finder = RepeatFinder(dedupe.window)
        self._clear = {
            tp: at + dedupe.window if at > begun.get(tp, 0) and tp.topic not in compacted else at for tp, at in first.items()
        }
        self._compacted = compacted
        self.repeats: dict[TopicPartition, list[int]] = {tp: [] for tp in first}
        self.unclear: dict[TopicPartition, list[int]] = {tp: [] for tp in first}

    def see(self, tp: TopicPartition, offset: int, headers: Sequence[tuple[str, bytes | str | None]] | None) -> None:
        """Tell a record, in the order of its partition."""
        key = key_in(headers, self._dedupe.key)
        if not key:
            return
        if self._finder.is_repeat(tp, offset, key):
            self.repeats[tp].append(offset)
        elif offset < self._clear[tp] or tp.topic in self._compacted:
            self.unclear[tp].append(offset)


def key_in(headers: Sequence[tuple[str, bytes | str | None]] | None, name: str) -> bytes | None:
    """The key of a record by its headers; None or empty where it has none."""
    value = next((value for header, value in reversed(headers or ()) if header == name), None)
    return value.encode() if isinstance(value, str) else value

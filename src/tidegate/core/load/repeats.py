"""Repeats: records that a sender has sent before. Which ones are left out follows from the log and its offsets alone.

A record is a repeat if an earlier record of its partition has the same key, at most `window` offsets before it. Offsets count,
not records and not batches, so every cut of the log into loads leaves out the same records: a retry, a replay, a backfill. A
repeat counts as an earlier record too: a key that comes again and again within the window stays one row.

A load therefore reads `window` offsets before each of its ranges (`look_back`), whether the pipeline has loaded them or not.
What the log does not hold any more counts as nothing if it is from before the pipeline began; otherwise the load is refused.

The key is the value of a record header. A record without the header, or with an empty one, is never a repeat; of several
headers of that name the last one counts, as in Kafka's clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidegate.core.config.pipeline import Dedupe
from tidegate.core.model.errors import LookBackExpired
from tidegate.core.model.ranges import OffsetRange, TopicPartition


def reaching_before(ranges: Iterable[OffsetRange], window: int, begun: Mapping[TopicPartition, int]) -> list[str]:
    """The topics, sorted, in which a look-back reaches before the pipeline began: what their logs hold has to be asked."""
    return sorted({r.topic for r in ranges if max(0, r.from_offset - window) < begun.get(r.topic_partition, 0)})


def look_back(ranges: Iterable[OffsetRange], window: int, first: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The offset from which each partition is read to tell which records of its range are repeats within `window` offsets.

    `first` is the first offset that the log holds, at most where the pipeline began (`needed_from`); 0 for a partition that is
    not in it.
    """
    return {
        r.topic_partition: max(0, min(r.from_offset, max(r.from_offset - window, first.get(r.topic_partition, 0))))
        for r in ranges
    }


def needed_from(begun: Mapping[TopicPartition, int], earliest: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The first offset of each partition that a look-back reads: nothing before it is in the log or was loaded by the schedule.

    `begun` is where the pipeline began each partition (`Position.starts`), `earliest` the first offset that the log holds, of
    the partitions where a look-back reaches before the beginning.
    """
    return {tp: min(begun[tp], at) for tp, at in earliest.items() if tp in begun}


def expired(
    ranges: Iterable[OffsetRange], since: Mapping[TopicPartition, int], name: str, offset: int
) -> LookBackExpired | None:
    """The error for an offset that the log does not hold any more; None where it is in no look-back.

    `since` says where the look-backs begin; `name` is that of a partition, as in `orders-0`.
    """
    for r in ranges:
        first = since.get(r.topic_partition, r.from_offset)
        if str(r.topic_partition) == name and first <= offset < r.from_offset:
            return LookBackExpired(
                f"retention deleted records from offset {first} of {r.topic_partition} on, which are needed to find the "
                f"repeats in {r}",
                fix="Lower dedupe.window of the pipeline, or keep records longer (retention.ms of the topic) and replay sooner",
                topic=r.topic,
                partition=r.partition,
                from_offset=first,
            )
    return None


class RepeatFinder:
    """Finds repeats among records that are told one by one, in the order of each partition.

    It remembers the last offset of each key within the window.
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
    `unclear`, and so is each record with a key in a topic whose log is compacted. A pipeline that begins with the first record
    of the log has found nothing before it.

    Args:
        dedupe: what a repeat is.
        first: the offset from which each partition is read: a window before the first one that is judged, or the earliest.
        begun: as in `needed_from`.
        compacted: topics whose log may lose any record.
    """

    def __init__(
        self,
        dedupe: Dedupe,
        first: Mapping[TopicPartition, int],
        begun: Mapping[TopicPartition, int],
        *,
        compacted: frozenset[str] = frozenset(),
    ) -> None:
        self._dedupe = dedupe
        self._finder = RepeatFinder(dedupe.window)
        self._clear = {
            tp: at if at in (0, begun.get(tp, 0)) or tp.topic in compacted else at + dedupe.window for tp, at in first.items()
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

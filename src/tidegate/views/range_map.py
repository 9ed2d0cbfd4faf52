"""The range map: of each partition, what became of its offsets, in as many blocks as a page can show.

Its axis is the offsets, or the time from when a batch was planned until it was loaded. Blocks of a partition lie side by
side, and each is one batch where there is room. Where there is none, neighbours become one block that says how many they are
and shows the state that needs the most attention (`WORST_FIRST`). So a map has at most `2 * columns + 1` blocks a partition,
however many batches there are.

A topic that was deleted and created again begins anew: older offsets of the same numbers belong to the former topic, and are
left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from tidegate.core.model.ranges import OffsetRange, TopicPartition, by_partition, common, without
from tidegate.core.model.watermarks import Watermarks, other_topics
from tidegate.core.state.cursor import Cursor
from tidegate.views.entries import Entry

Kind = Literal["lost", "planned", "loaded", "accepted", "pending", "committed"]
"""What became of offsets: deleted by retention before they were read, a saved range that is not loaded yet, loaded and not
committed, a loss that somebody accepted, not read yet, committed."""
Mark = Literal["errors", "cold", "recreated", "replayed"]
"""What else is worth seeing: rows that are broken records, a Spark that had just started, a topic that was deleted and created
again, a replay that loaded it last."""
REPLAYED: tuple[Mark, ...] = ("replayed",)
Version = tuple[str, bool]
"""Of a transform, and whether a replay loaded by it."""
WORST_FIRST: tuple[Kind, ...] = ("lost", "planned", "loaded", "accepted", "pending", "committed")
"""What a block shows that stands for several of them."""
_RANK = {kind: rank for rank, kind in enumerate(WORST_FIRST)}


@dataclass(frozen=True, slots=True)
class MapBlock:
    """Neighbouring offsets of a partition, from one until another (exclusive), or times (epoch ms) where that is the axis.

    Attributes:
        seqs: the first and the last batch that it has offsets of; None of offsets that belong to no batch.
        batches: how many begin in it.
        transform: the version that loaded them last, by a replay or by the schedule; None where there is none, or several.
        records: how many offsets there are.
        rows: of the batches as a whole, all partitions together; 0 where that is not known, as `seconds`.
        seconds: of the same.
    """

    from_offset: Annotated[int, Field(serialization_alias="from")]
    until_offset: Annotated[int, Field(serialization_alias="until")]
    kind: Kind
    _: KW_ONLY
    seqs: tuple[int, int] | None = None
    batches: int = 0
    transform: str | None = None
    marks: tuple[Mark, ...] = ()
    records: int = 0
    rows: int = 0
    seconds: float = 0

    def joined(self, other: MapBlock) -> MapBlock:
        """This block and a later one as one."""
        seqs = (*(self.seqs or ()), *(other.seqs or ()))
        return MapBlock(
            self.from_offset,
            other.until_offset,
            min(self.kind, other.kind, key=_RANK.__getitem__),
            seqs=(min(seqs), max(seqs)) if seqs else None,
            batches=self.batches + other.batches,
            transform=self.transform if self.transform == other.transform else None,
            marks=_all_of(self.marks, other.marks),
            records=self.records + other.records,
            rows=self.rows + other.rows,
            seconds=self.seconds + other.seconds,
        )


def _all_of(marks: tuple[Mark, ...], more: Collection[Mark]) -> tuple[Mark, ...]:
    return tuple(sorted({*marks, *more})) if more else marks


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """One partition of the map; None is what is not known.

    Attributes:
        next_offset: the cursor's.
        log_start: the first offset that the log holds.
        log_end: the log's end (exclusive).
        behind: offsets that are not committed yet.
        blocks: sorted and disjoint.
    """

    topic: str
    partition: int
    next_offset: int | None
    log_start: int | None
    log_end: int | None
    behind: int | None
    blocks: tuple[MapBlock, ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        """Which."""
        return TopicPartition(self.topic, self.partition)


def partition_rows(cursor: Cursor, watermarks: Watermarks | None) -> list[PartitionRow]:
    """The rows of a map, still without blocks: those that have lost the most first, then those that are the furthest behind."""
    offsets = cursor.at.offsets
    log = watermarks or Watermarks({}, {})
    partitions = {*offsets, *log.latest}
    rows = []
    for tp in partitions:
        next_offset, start, end = offsets.get(tp), log.earliest.get(tp), log.latest.get(tp)
        # a partition that the cursor does not know is read from the first offset of its log on
        begin = (start if next_offset is None else next_offset) or 0
        behind = None if end is None else max(0, end - begin)
        rows.append(PartitionRow(**tp._asdict(), next_offset=next_offset, log_start=start, log_end=end, behind=behind))

    def urgency(row: PartitionRow) -> tuple[int, int, str, int]:
        lost = 0 if row.next_offset is None else max(0, (row.log_start or 0) - row.next_offset)
        return -lost, -(row.behind or 0), row.topic, row.partition

    return sorted(rows, key=urgency)


def offset_map(
    rows: Sequence[PartitionRow],
    batches: Iterable[Entry],
    columns: int,
    *,
    accepted: Iterable[OffsetRange] = (),
    versions: Mapping[Version, Iterable[OffsetRange]] | None = None,
    marks: Mapping[int, frozenset[Mark]] | None = None,
) -> tuple[PartitionRow, ...]:
    """The rows with their blocks, by offsets.

    `batches`, without replays, come oldest first. The smallest offsets that are worth a block of their own are one part in
    `columns` of a row. `accepted` is what retention took before it was read, as somebody accepted; `versions` is of
    `loaded_last`; `marks` are by batch.
    """
    pieces = _pieces(batches, {row.topic_partition: [] for row in rows}, marks or {})
    of_accepted = by_partition(accepted)
    of_versions = {version: by_partition(ranges) for version, ranges in (versions or {}).items()}
    drawn = []
    for row in rows:
        tp = row.topic_partition
        by_version = {version: ranges[tp] for version, ranges in of_versions.items() if tp in ranges}
        blocks = _row_blocks(row, pieces[tp], of_accepted.get(tp, ()), by_version)
        drawn.append(replace(row, blocks=level_of_detail(blocks, columns)))
    return tuple(drawn)


def time_map(
    rows: Sequence[PartitionRow],
    batches: Iterable[Entry],
    columns: int,
    *,
    now_ms: int,
    marks: Mapping[int, frozenset[Mark]] | None = None,
) -> tuple[PartitionRow, ...]:
    """The rows with their blocks, by time. A batch begins when it was planned, and ends when it was loaded first.

    One that is not loaded yet ends now. One whose plan is not known any more begins where it ends. Arguments are those of
    `offset_map`; `now_ms` is the time, epoch ms.
    """
    pieces: dict[TopicPartition, list[MapBlock]] = {row.topic_partition: [] for row in rows}
    for entry in batches:
        start, stop = _times(entry, now_ms)
        for r in entry.load.ranges:
            if r.count and r.topic_partition in pieces:
                pieces[r.topic_partition].append(_block(entry, r, start, stop, (marks or {}).get(entry.seq, frozenset())))
    return tuple(replace(row, blocks=level_of_detail(_in_order(pieces[row.topic_partition]), columns)) for row in rows)


def span(batches: Iterable[Entry], now_ms: int) -> tuple[int, int]:
    """When the first of the batches begins and the last one ends on a map by time, epoch ms."""
    times = [_times(entry, now_ms) for entry in batches]
    return min((start for start, _ in times), default=now_ms), max((end for _, end in times), default=now_ms)


def _times(entry: Entry, now_ms: int) -> tuple[int, int]:
    """When a batch begins and ends, at least a millisecond apart."""
    known = [at for at in (entry.planned_at_ms, entry.loaded_at_ms) if at is not None]
    end = now_ms if entry.state == "planned" else known[-1]
    return known[0], max(known[0] + 1, end)


def _in_order(blocks: Iterable[MapBlock]) -> list[MapBlock]:
    """Blocks of which none begins before the one before it has ended; clocks differ, and runs may have been cleared."""
    ordered: list[MapBlock] = []
    for block in sorted(blocks, key=lambda block: (block.from_offset, block.seqs)):
        begin = max(block.from_offset, ordered[-1].until_offset if ordered else block.from_offset)
        ordered.append(replace(block, from_offset=begin, until_offset=max(begin + 1, block.until_offset)))
    return ordered


def level_of_detail(blocks: Sequence[MapBlock], columns: int) -> tuple[MapBlock, ...]:
    """The same offsets in at most `2 * columns + 1` blocks; those that span a column or more stay as they are.

    The blocks are sorted and disjoint.
    """
    if not blocks:
        return ()
    column = (blocks[-1].until_offset - blocks[0].from_offset) / columns
    shown = [blocks[0]]
    for block in blocks[1:]:
        # Two neighbours that stay apart span more than a column, and such pairs lie side by side.
        if block.until_offset - shown[-1].from_offset <= column:
            shown[-1] = shown[-1].joined(block)
        else:
            shown.append(block)
    return tuple(shown)


def _pieces(
    batches: Iterable[Entry], pieces: dict[TopicPartition, list[MapBlock]], marks: Mapping[int, frozenset[Mark]]
) -> dict[TopicPartition, list[MapBlock]]:
    """A block for each batch of the given partitions; of a topic that was created again, only those of the newest one."""
    topic_ids: dict[str, str] = {}
    for entry in batches:
        former = other_topics(topic_ids, entry.load.topic_ids)
        if former:
            pieces = {tp: [] if tp.topic in former else of_partition for tp, of_partition in pieces.items()}
        topic_ids.update(entry.load.topic_ids)
        of_batch = marks.get(entry.seq, frozenset())
        for r in entry.load.ranges:
            of_partition = pieces.get(r.topic_partition)
            if not r.count or of_partition is None:
                continue
            while of_partition and of_partition[-1].until_offset > r.from_offset:
                of_partition.pop()  # of the former topic, whose id is not known, or of a batch that was planned anew
            of_partition.append(_block(entry, r, r.from_offset, r.until_offset, of_batch))
    return pieces


def _block(entry: Entry, r: OffsetRange, start: int, stop: int, marks: frozenset[Mark]) -> MapBlock:
    """A batch's block of one partition, before it is known which version loaded it last."""
    kind: Kind = "committed" if entry.state == "committed" else "loaded" if entry.state == "loaded" else "planned"
    shown = _all_of((), marks | {"recreated"} if r.topic in entry.recreated else marks)
    rows, transform = (entry.newest.rows or 0, entry.newest.write.transform) if entry.newest else (0, None)
    block = MapBlock(
        start, stop, kind, seqs=(entry.seq, entry.seq), batches=1, transform=transform, marks=shown, records=r.count
    )
    return replace(block, rows=rows, seconds=entry.seconds) if entry.seconds else block


def _row_blocks(
    row: PartitionRow,
    batches: Sequence[MapBlock],
    accepted: Sequence[OffsetRange],
    versions: Mapping[Version, Sequence[OffsetRange]],
) -> list[MapBlock]:
    """What fills a row: the batches, and lost and pending offsets, none of them twice."""
    tp = row.topic_partition
    # of a topic that was created again, and of which nothing is committed yet
    batches = [b for b in batches if b.kind != "committed" or b.from_offset < (row.next_offset or 0)]
    taken = [OffsetRange(tp.topic, tp.partition, b.from_offset, b.until_offset) for b in batches]
    blocks = [part for batch, own in zip(batches, taken, strict=True) for part in _parts(batch, own, versions)]
    start, end = row.log_start or 0, row.log_end or 0
    # as in `partition_rows`
    begin = start if row.next_offset is None else row.next_offset
    gone = max(begin, start)
    of_no_batch: tuple[tuple[Kind, Sequence[OffsetRange]], ...] = (
        ("accepted", accepted),
        ("lost", without([OffsetRange(tp.topic, tp.partition, begin, gone)], accepted) if begin < gone else ()),
        ("pending", without([OffsetRange(tp.topic, tp.partition, gone, end)], accepted) if gone < end else ()),
    )
    for kind, ranges in of_no_batch:
        first = min((r.from_offset for r in ranges), default=0)
        near = [r for r in taken if r.until_offset > first] if ranges else []  # what is not read yet is beyond most batches
        blocks += [MapBlock(r.from_offset, r.until_offset, kind, records=r.count) for r in without(ranges, near)]
    return sorted(blocks, key=lambda block: block.from_offset)


def _parts(batch: MapBlock, own: OffsetRange, versions: Mapping[Version, Sequence[OffsetRange]]) -> list[MapBlock]:
    """A batch in as many blocks as it has versions, in order; it begins in the first."""
    held: tuple[OffsetRange, ...] = (own,)
    parts: list[tuple[OffsetRange, Version | None]] = []
    # offsets that a saved range is still to load may be those of a former topic, too
    of_kind = {} if batch.kind == "planned" else versions
    for version, ranges in of_kind.items():
        whole = any(r.from_offset <= own.from_offset and own.until_offset <= r.until_offset for r in ranges)
        found = held if whole else common(held, ranges)
        parts += [(r, version) for r in found]
        held = () if whole else without(held, found) if found else held
        if not held:
            break
    parts += [(r, None) for r in held]
    return [
        replace(
            batch,
            from_offset=r.from_offset,
            until_offset=r.until_offset,
            transform=None if version is None else version[0],
            marks=_all_of(batch.marks, REPLAYED if version is not None and version[1] else ()),
            records=r.count,
            batches=int(n == 0),
        )
        for n, (r, version) in enumerate(sorted(parts, key=lambda part: part[0]))
    ]

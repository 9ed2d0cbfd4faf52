"""The range map: of each partition, what became of its offsets, in as many blocks as a page can show.

Blocks of a partition lie side by side, and each is one batch where there is room. Where there is none, neighbours become one
block that says how many they are and shows the state that needs the most attention (`WORST_FIRST`). So a map has at most
`2 * columns + 1` blocks a partition, however many batches there are.

A topic that was deleted and created again begins anew: older offsets of the same numbers belong to the former topic, and are
left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tidegate.core.audit.views.batches import Entry
from tidegate.core.offsets.algebra import common, without
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition, by_partition
from tidegate.core.offsets.watermarks import Watermarks
from tidegate.core.state.cursor import Cursor

Kind = Literal["planned", "loaded", "lost", "absent", "pending", "committed"]
"""What became of offsets: a saved range that is not loaded yet, loaded and not committed, deleted by retention before they were
read, missing in the table as somebody accepted, not read yet, committed."""

WORST_FIRST: tuple[Kind, ...] = ("planned", "loaded", "lost", "absent", "pending", "committed")
"""What a block shows that stands for several of them."""
_RANK = {kind: rank for rank, kind in enumerate(WORST_FIRST)}


@dataclass(frozen=True, slots=True)
class Block:
    """Neighbouring offsets `[from_offset, until_offset)` of a partition.

    `batches` is how many batches begin in it, `first_seq` and `last_seq` the first and last that it has offsets of; 0 and None
    of offsets that belong to no batch. `transform` is the version that loaded them last, by a replay or by the schedule; None
    where there is none, or more than one.
    """

    from_offset: int
    until_offset: int
    kind: Kind
    first_seq: int | None = None
    last_seq: int | None = None
    batches: int = 0
    transform: str | None = None

    def joined(self, other: Block) -> Block:
        """This block and a later one as one."""
        seqs = [seq for seq in (self.first_seq, self.last_seq, other.first_seq, other.last_seq) if seq is not None]
        return Block(
            self.from_offset,
            other.until_offset,
            min(self.kind, other.kind, key=_RANK.__getitem__),
            min(seqs, default=None),
            max(seqs, default=None),
            self.batches + other.batches,
            self.transform if self.transform == other.transform else None,
        )

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, as short as thousands of them should be."""
        return {
            "from": self.from_offset,
            "until": self.until_offset,
            "kind": self.kind,
            "seqs": None if self.first_seq is None else [self.first_seq, self.last_seq],
            "batches": self.batches,
            "transform": self.transform,
        }


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition of the map.

    `next_offset` is the cursor's; `log_start` and `log_end` are the log's. None: not known. Blocks are sorted and disjoint.
    """

    topic_partition: TopicPartition
    blocks: tuple[Block, ...]
    next_offset: int | None = None
    log_start: int | None = None
    log_end: int | None = None

    @property
    def behind(self) -> int:
        """Offsets that are not committed yet, as far as they are known."""
        return max(0, (self.log_end or 0) - (self.next_offset or 0))

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "topic": self.topic_partition.topic,
            "partition": self.topic_partition.partition,
            "next_offset": self.next_offset,
            "log_start": self.log_start,
            "log_end": self.log_end,
            "blocks": [block.to_json() for block in self.blocks],
        }


@dataclass(frozen=True)
class RangeMap:
    """Some partitions of a pipeline: `rows` of `partitions`, those that are the furthest behind first."""

    pipeline: str
    rows: tuple[PartitionRow, ...]
    partitions: int

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"pipeline": self.pipeline, "partitions": self.partitions, "rows": [row.to_json() for row in self.rows]}


def range_map(
    pipeline: str,
    batches: Iterable[Entry],
    cursor: Cursor,
    watermarks: Watermarks | None,
    *,
    columns: int,
    page: slice,
    lost: Iterable[OffsetRange] = (),
    versions: Mapping[str, Iterable[OffsetRange]] | None = None,
) -> RangeMap:
    """The map of a page of partitions.

    Args:
        pipeline: its name.
        batches: what it has run, the oldest first; replays are left out.
        cursor: how far it has come.
        watermarks: what Kafka holds; None where it is not known now.
        columns: the smallest offsets that are worth a block of their own are this part of a partition's row.
        page: which of the partitions, those that are the furthest behind first.
        lost: offsets that retention took before they were read, as somebody accepted.
        versions: the offsets that each version of a transform has loaded last, replays included.
    """
    ends = {} if watermarks is None else watermarks.latest
    starts = {} if watermarks is None else watermarks.earliest
    known = sorted({*cursor.offsets, *ends}, key=lambda tp: (-_behind(cursor.offsets.get(tp), ends.get(tp)), tp))
    shown = known[page]
    pieces = _pieces(batches, frozenset(shown))
    of_lost, of_absent = by_partition(lost), by_partition(cursor.absent)
    of_versions = {version: by_partition(ranges) for version, ranges in (versions or {}).items()}
    rows = []
    for tp in shown:
        row = PartitionRow(tp, (), cursor.offsets.get(tp), starts.get(tp), ends.get(tp))
        by_version = {version: ranges[tp] for version, ranges in of_versions.items() if tp in ranges}
        blocks = _row_blocks(row, pieces.get(tp, []), of_lost.get(tp, ()), of_absent.get(tp, ()), by_version)
        rows.append(replace(row, blocks=level_of_detail(blocks, columns)))
    return RangeMap(pipeline, tuple(rows), len(known))


def level_of_detail(blocks: Sequence[Block], columns: int) -> tuple[Block, ...]:
    """The same offsets in at most `2 * columns + 1` blocks; those that span a column or more stay as they are.

    Args:
        blocks: sorted and disjoint.
        columns: at least 1.
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


def _behind(next_offset: int | None, end: int | None) -> int:
    return 0 if end is None else end - (next_offset or 0)


def _pieces(batches: Iterable[Entry], shown: frozenset[TopicPartition]) -> dict[TopicPartition, list[Block]]:
    """A block for each batch of each partition; of a topic that was created again, only those of the newest one."""
    pieces: dict[TopicPartition, list[Block]] = {}
    for entry in batches:
        if entry.replay is not None:
            continue
        kind: Kind = "committed" if entry.state == "committed" else "loaded" if entry.state == "loaded" else "planned"
        for r in entry.ranges:
            if not r.count or r.topic_partition not in shown:
                continue
            of_partition = pieces.setdefault(r.topic_partition, [])
            while of_partition and of_partition[-1].until_offset > r.from_offset:
                of_partition.pop()  # of the former topic, or of a batch that was planned anew
            of_partition.append(Block(r.from_offset, r.until_offset, kind, entry.seq, entry.seq, 1))
    return pieces


def _row_blocks(
    row: PartitionRow,
    batches: Sequence[Block],
    lost: Sequence[OffsetRange],
    absent: Sequence[OffsetRange],
    versions: Mapping[str, Sequence[OffsetRange]],
) -> list[Block]:
    """What fills a row: the batches, and lost, absent and pending offsets, none of them twice."""
    tp = row.topic_partition
    # of a topic that was created again, and of which nothing is committed yet
    batches = [b for b in batches if b.kind != "committed" or b.from_offset < (row.next_offset or 0)]
    taken = [OffsetRange(tp.topic, tp.partition, b.from_offset, b.until_offset) for b in batches]
    blocks = [part for batch, own in zip(batches, taken, strict=True) for part in _parts(batch, own, absent, versions)]
    blocks += [Block(r.from_offset, r.until_offset, "lost") for r in without(lost, taken)]
    begin = max(row.next_offset or 0, row.log_start or 0)
    if row.log_end is not None and row.log_end > begin:
        waiting = [OffsetRange(tp.topic, tp.partition, begin, row.log_end)]
        blocks += [Block(r.from_offset, r.until_offset, "pending") for r in without(waiting, [*taken, *lost])]
    return sorted(blocks, key=lambda block: block.from_offset)


def _parts(
    batch: Block, own: OffsetRange, absent: Sequence[OffsetRange], versions: Mapping[str, Sequence[OffsetRange]]
) -> list[Block]:
    """A batch in as many blocks as it has kinds and versions, in order; it begins in the first."""
    missing = common([own], absent) if batch.kind == "committed" else ()
    held = without([own], missing)
    parts: list[tuple[OffsetRange, Kind, str | None]] = [(r, "absent", None) for r in missing]
    for version, ranges in versions.items():
        parts += [(r, batch.kind, version) for r in common(held, ranges)]
        held = without(held, ranges)
    parts += [(r, batch.kind, None) for r in held]
    ordered = sorted(parts, key=lambda part: part[0])
    return [
        replace(
            batch, from_offset=r.from_offset, until_offset=r.until_offset, kind=kind, transform=version, batches=int(n == 0)
        )
        for n, (r, kind, version) in enumerate(ordered)
    ]

"""Which ranges a pipeline's batches have read, and whether together they are what the cursor has passed.

For pipelines with `identity: batch`, whose rows do not say of which records they were made: the verdict makes the rows again
from the records of these ranges, and compares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.receipt import Receipt

Ranges = tuple[OffsetRange, ...]
Key = tuple[int, int, int]
"""Batch, partition and group of a row."""
Sums = tuple[int, int, int]
"""Of a row's records: how many, the sum of their offsets, the sum of their checksums."""


@dataclass(frozen=True)
class BatchVerdict:
    """A table that aggregates, against the log, counted in records.

    `lost` and `duplicated` are records too few or too many in a batch's rows, `unknown` are those in rows that no batch has;
    `faults` are rows that were made of other records, and ranges that do not lead from the start to the cursor.
    """

    records: int
    rows: int
    lost: int
    duplicated: int
    unknown: int
    faults: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether each batch is there once, made of exactly its records."""
        return not (self.lost or self.duplicated or self.unknown or self.faults)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, with the first ten faults."""
        return {"holds": self.holds, **vars(self), "faults": list(self.faults[:10])}


def judge_sums(expected: Mapping[Key, Sums], table: Mapping[Key, Sequence[Sums]], faults: Sequence[str] = ()) -> BatchVerdict:
    """Compare the rows that the records of each batch make with those that the table holds.

    Args:
        expected: of every batch that has to be there, or may be there.
        table: every row; more than one of a key is a duplicate.
        faults: what is wrong beside.
    """
    lost = duplicated = unknown = 0
    other = []
    for key in sorted(expected.keys() | table.keys()):
        rows, sums = table.get(key, ()), expected.get(key)
        held = sum(n for n, _offsets, _checks in rows)
        if sums is None:
            unknown += held
            continue
        lost += max(0, sums[0] - held)
        duplicated += max(0, held - sums[0])
        if held == sums[0] and list(rows) != [sums]:
            other.append(f"batch {key[0]} is made of other records: {list(rows)}, expected {sums}")
    records = sum(n for n, _offsets, _checks in expected.values())
    held = sum(n for rows in table.values() for n, _offsets, _checks in rows)
    return BatchVerdict(records, held, lost, duplicated, unknown, (*faults, *other))


def ranges_of_batches(book: Ledger, receipts: Sequence[Receipt]) -> dict[int, Ranges]:
    """The ranges of every batch that is saved or loaded, by its number.

    The newest commit of a batch in the table says what its rows were made of; where it is not kept any more, the saved
    ranges do, and all copies have to be the same.

    Args:
        book: the pipeline's saved state.
        receipts: of its table, oldest first, replays too.
    """
    told: dict[int, Ranges] = {r.load.batch: _read(r.load.ranges) for r in receipts if r.load.batch is not None}
    saved: dict[int, set[Ranges]] = {}
    for key in book.listing().ranges:
        if key.seq not in told:
            saved.setdefault(key.seq, set()).add(_read(book.saved_range(key.key).load.ranges))
    unclear = {seq: found for seq, found in saved.items() if len(found) > 1}
    assert not unclear, f"copies of a saved range differ: {unclear}"
    return {seq: next(iter(found)) for seq, found in saved.items()} | told


def gaps(ranges: Mapping[int, Ranges], cursor: Cursor) -> list[str]:
    """Where the committed batches do not lead from the start to the cursor, each partition without gap or overlap."""
    found = []
    at: dict[TopicPartition, int] = dict(cursor.at.starts)
    for seq in range(1, cursor.seq + 1):
        for r in ranges.get(seq, ()):
            begun = at.setdefault(r.topic_partition, r.from_offset)
            if r.from_offset != begun:
                found.append(f"batch {seq} begins {r.topic_partition} at {r.from_offset}, and {begun} was reached")
            at[r.topic_partition] = r.until_offset
    found += [f"{tp} is at {at.get(tp)}, the cursor at {end}" for tp, end in cursor.at.offsets.items() if at.get(tp) != end]
    return found


def _read(ranges: Sequence[OffsetRange]) -> Ranges:
    return tuple(sorted((r for r in ranges if r.count), key=lambda r: r.topic_partition))

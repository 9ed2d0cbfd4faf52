"""The first broken records of a batch, and the SQL that shows them in their tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidegate.core.model.columns import ERROR, OFFSET, PARTITION, TOPIC
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.rejection import Rejection

SHOWN = 10
MOST = 1000
"""Records of a batch that are read for it."""


@dataclass(frozen=True, kw_only=True)
class BrokenRecord:
    """Where a record is in the log, in words, and what is wrong with it."""

    place: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Broken:
    """The first broken records of a batch, in the order of the log.

    Attributes:
        records: of those that are in a table or a quarantine now: a replay may have loaded others again.
        more: whether there are more.
        partitions: those that have any, by name, as far as is read.
        commands: each shows those of one table.
    """

    records: tuple[BrokenRecord, ...]
    more: bool
    partitions: tuple[str, ...]
    commands: tuple[str, ...]


def broken_of(found: Mapping[str, Sequence[Rejection]], ranges: Sequence[OffsetRange], quarantine: str | None) -> Broken:
    """What is shown of the broken records of a batch's ranges, which are found by table, at most `MOST` in each."""
    in_order = sorted(one for records in found.values() for one in records)
    return Broken(
        records=tuple(BrokenRecord(place=one.place, reason=one.reason) for one in in_order[:SHOWN]),
        more=len(in_order) > SHOWN,
        partitions=tuple(dict.fromkeys(str(one.topic_partition) for one in in_order)),
        commands=tuple(
            _look(f"{table} WHERE" if table == quarantine else f"{table} WHERE {ERROR} IS NOT NULL AND", records, ranges)
            for table, records in found.items()
            if records
        ),
    )


def _look(of_table: str, records: Iterable[Rejection], ranges: Iterable[OffsetRange]) -> str:
    """The command that shows those of some partitions that have such records. Names of tables and topics need no quotes."""
    partitions = list(dict.fromkeys(one.topic_partition for one in sorted(records)))[:SHOWN]
    within = " OR ".join(
        f"{TOPIC} = '{r.topic}' AND {PARTITION} = {r.partition} AND {OFFSET} >= {r.from_offset} AND {OFFSET} < {r.until_offset}"
        for r in ranges
        if r.topic_partition in partitions
    )
    return f'tidegate sql "SELECT * FROM {of_table} ({within}) ORDER BY {OFFSET} LIMIT 100"'  # noqa: S608 - for people

"""The verdict on exactly-once: what the log holds against what the table holds, record by record.

Pure: positions in, verdict out. Nothing that wrote the table has a say in it; the callers read the log through librdkafka
(`tidegate.kafka.log`) and the table through PyIceberg (`tidegate.iceberg.origins`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.ranges import TopicPartition


@dataclass(frozen=True)
class PartitionVerdict:
    """One partition: records in the log, rows in the table, and the offsets that do not fit (sorted)."""

    topic_partition: TopicPartition
    records: int
    rows: int
    lost: tuple[int, ...]
    duplicated: tuple[int, ...]
    unknown: tuple[int, ...]

    @property
    def holds(self) -> bool:
        """Whether every record is in the table exactly once, and nothing else is."""
        return not (self.lost or self.duplicated or self.unknown)


@dataclass(frozen=True)
class Verdict:
    """All partitions, sorted."""

    partitions: tuple[PartitionVerdict, ...]

    @property
    def holds(self) -> bool:
        """Whether it holds for every partition."""
        return all(p.holds for p in self.partitions)

    def total(self, what: str) -> int:
        """The sum over partitions of `records`, `rows`, or the number of `lost`, `duplicated` or `unknown` offsets."""
        values = [getattr(p, what) for p in self.partitions]
        return sum(v if isinstance(v, int) else len(v) for v in values)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready: the verdict, the totals, and the first ten offsets of each kind that do not fit."""
        return {
            "holds": self.holds,
            **{what: self.total(what) for what in ("records", "rows", "lost", "duplicated", "unknown")},
            "partitions": [
                {
                    "partition": str(p.topic_partition),
                    "records": p.records,
                    "rows": p.rows,
                    "lost": list(p.lost[:10]),
                    "duplicated": list(p.duplicated[:10]),
                    "unknown": list(p.unknown[:10]),
                }
                for p in self.partitions
            ],
        }


def judge(log: Mapping[TopicPartition, Iterable[int]], table: Mapping[TopicPartition, Iterable[int]]) -> Verdict:
    """Compare the offsets of the records in the log with the offsets of the rows in the table.

    `unknown` are rows of no record: offsets outside the log, or partitions that it does not have.
    """
    verdicts = []
    for tp in sorted({*log, *table}):
        records = set(log.get(tp, ()))
        rows = Counter(table.get(tp, ()))
        verdicts.append(
            PartitionVerdict(
                tp,
                len(records),
                rows.total(),
                lost=tuple(sorted(records - rows.keys())),
                duplicated=tuple(sorted(offset for offset, count in rows.items() if count > 1)),
                unknown=tuple(sorted(rows.keys() - records)),
            )
        )
    return Verdict(tuple(verdicts))

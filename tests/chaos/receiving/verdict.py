"""What a sender was told against what topic and table hold. Spark has no say in it: librdkafka and PyIceberg read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from tests.chaos.verdict import Log


@dataclass(frozen=True)
class Verdict:
    """Counted in ids, and `records` and `rows` in these. The table's figures are None while it is not judged.

    Args:
        acknowledged: answered 202.
        records: of the topic.
        repeated: in the topic more than once, which is allowed.
        lost: acknowledged, and not in the topic, or not in the table.
        unknown: in topic or table, and never sent.
        rows: of the table.
        repeated_rows: rows beyond the first of an id.
        unloaded: in the topic, and not in the table.
    """

    acknowledged: int
    records: int
    repeated: int
    lost: int
    unknown: int
    rows: int | None = None
    repeated_rows: int | None = None
    unloaded: int | None = None

    @property
    def holds(self) -> bool:
        """Whether nothing that was acknowledged is lost, nothing is invented, and no row is there twice."""
        return not (self.lost or self.unknown or self.repeated_rows or self.unloaded)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"holds": self.holds, **vars(self)}

    def __str__(self) -> str:
        return ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in vars(self).items() if count is not None)


def judge(acknowledged: Collection[int], sent: int, topic: Iterable[int], table: Iterable[int] | None = None) -> Verdict:
    """Compare.

    Args:
        acknowledged: the ids that were answered 202.
        sent: the ids from 1 to this were ever sent.
        topic: the id of each record.
        table: the id of each row, when every record of the topic has been loaded; None: the table is not judged.
    """
    records = Counter(topic)
    lost, unknown = {each for each in acknowledged if each not in records}, {each for each in records if not 1 <= each <= sent}
    repeated = sum(count > 1 for count in records.values())
    if table is None:
        return Verdict(len(acknowledged), records.total(), repeated, len(lost), len(unknown))
    rows = Counter(table)
    lost |= {each for each in acknowledged if each not in rows}
    unknown |= {each for each in rows if each not in records}
    return Verdict(
        len(acknowledged),
        records.total(),
        repeated,
        len(lost),
        len(unknown),
        rows.total(),
        rows.total() - len(rows),
        sum(each not in rows for each in records),
    )


def ids_of(log: Log) -> list[int]:
    """The id of each record of a topic."""
    return [json.loads(message.value() or b"{}")["id"] for message in log.messages()]

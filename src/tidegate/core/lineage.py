"""Names of tables and topics as URIs, as those who follow data across systems know them.

The URI of a topic names the Airflow connection instead of the brokers: DAGs are read where no connection is defined.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.core.offsets.ranges import OffsetRange

MOST_TOPICS = 50
"""Topics that one event names: an event travels as a row of Airflow's database."""


def table_uri(table: str) -> str:
    """`iceberg://catalog/namespace/table` of a table's dotted name."""
    return f"iceberg://{table.replace('.', '/')}"


def topic_uris(connection: str, ranges: Iterable[OffsetRange]) -> tuple[str, ...]:
    """`kafka://connection/topic` of the topics that ranges hold offsets of, sorted; the first `MOST_TOPICS` of them."""
    topics = sorted({r.topic for r in ranges if r.count})
    return tuple(f"kafka://{connection}/{topic}" for topic in topics[:MOST_TOPICS])

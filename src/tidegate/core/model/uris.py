"""Addresses: who can reach one, tables and topics as URIs, and the paths of the pages in Airflow's UI."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import quote

from tidegate.core.model.ranges import OffsetRange

MOST_TOPICS = 50
"""Topics that one event names: an event travels as a row of Airflow's database."""


def table_uri(table: str) -> str:
    """`iceberg://catalog/namespace/table` of a table's dotted name."""
    return f"iceberg://{table.replace('.', '/')}"


def topic_uris(connection: str, ranges: Iterable[OffsetRange]) -> tuple[str, ...]:
    """`kafka://connection/topic` of the topics that ranges hold offsets of, sorted; the first `MOST_TOPICS` of them."""
    topics = sorted({r.topic for r in ranges if r.count})
    return tuple(f"kafka://{connection}/{topic}" for topic in topics[:MOST_TOPICS])


PIPELINES = "plugin/tidegate"
"""The page of all pipelines."""


def ranges_page(pipeline: str, *, batch: int | None = None) -> str:
    """The page of a pipeline's ranges, with one of its batches open."""
    return f"dags/{_part(pipeline)}/plugin/ranges" + ("" if batch is None else f"?batch={batch}")


def run_page(dag_id: str, run_id: str) -> str:
    """The page of what a DAG run read or replayed."""
    return f"dags/{_part(dag_id)}/runs/{_part(run_id)}/plugin/range"


def _part(text: str) -> str:
    return quote(text, safe="")


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from its own host alone. Of names only `localhost` is."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"

"""Laws of the URIs of tables and topics, and of the addresses of pages."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.records import COMMITTED
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.model.uris import MOST_TOPICS, ranges_page, run_page, table_uri, topic_uris


def test_tables_and_topics_have_uris() -> None:
    assert table_uri("lake.shop.orders") == "iceberg://lake/shop/orders"
    ranges = [OffsetRange("b", 0, 0, 1), OffsetRange("a", 1, 0, 1), OffsetRange("a", 0, 0, 1), OffsetRange("none", 0, 5, 5)]
    assert topic_uris("kafka_default", ranges) == ("kafka://kafka_default/a", "kafka://kafka_default/b")


def test_an_event_stays_small_however_many_topics_and_partitions_there_are() -> None:
    """It is a row of Airflow's database, and part of a request of a task."""
    ranges = [OffsetRange(f"{'t' * 200}{n % 300}", n, 0, 1) for n in range(10_000)]
    topics = topic_uris("kafka_default", ranges)
    assert len(topics) == MOST_TOPICS
    event = replace(COMMITTED, offsets=10_000, table=table_uri("a.b.c"), topics=topics)
    assert len(json.dumps(event.to_json())) < 16_000


def test_an_address_holds_any_id() -> None:
    """As one part of a path, relative to where Airflow is served."""
    assert run_page("p", "r+1:x/2 'a'") == "dags/p/runs/r%2B1%3Ax%2F2%20%27a%27/plugin/range"
    assert (ranges_page("p"), ranges_page("p", batch=7)) == ("dags/p/plugin/ranges", "dags/p/plugin/ranges?batch=7")

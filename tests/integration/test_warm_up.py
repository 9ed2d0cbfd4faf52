"""The warm-up of a real Spark Connect server: it loads, and nothing of it stays."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from tidegate.core.config.names import WARM_UP_TOPIC
from tidegate.waiting import wait_until
from tidegate_local import warm_up
from tidegate_local.platform import WARM_UP, Platform
from tidegate_local.topics import create_topic


def topics(platform: Platform) -> set[str]:
    """The names of the broker's topics."""
    return set(AdminClient({"bootstrap.servers": platform.bootstrap_servers}).list_topics(timeout=10).topics)


def test_a_warm_up_does_every_load_and_leaves_no_topic_no_table_and_no_file(
    platform: Platform, spark: SparkSession, kafka: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each load says in its result that it read its records; otherwise nothing was compiled.

    Twice, since the second one needs the name of the first one's topic; that may have been there before, also with other
    partitions.
    """
    from tidegate.spark import load  # noqa: PLC0415 - imported by the other tests of this process anyway

    read: list[int | None] = []
    original = load.load_range

    def counted(*args: object, **kwargs: object) -> object:
        result = original(*args, **kwargs)  # type: ignore[arg-type]
        read.append(result.observed.records)
        return result

    monkeypatch.setattr(load, "load_range", counted)
    namespaces = spark.sql("SHOW NAMESPACES IN lake").collect()
    warehouse = sorted((platform.state_dir / "lake").rglob("*"))
    create_topic(kafka, WARM_UP_TOPIC, 1)
    reported: list[str] = []
    platform._warm_up([], lambda _, state: reported.append(state))
    assert reported == ["loading", "ready"]
    assert wait_until(lambda: WARM_UP_TOPIC not in topics(platform), 10.0)
    warm_up.warm_up(platform)
    assert read == [warm_up.PARTITIONS * warm_up.RECORDS] * warm_up.LOADS
    assert wait_until(lambda: WARM_UP_TOPIC not in topics(platform), 10.0)
    assert spark.sql("SHOW NAMESPACES IN lake").collect() == namespaces
    assert sorted((platform.state_dir / "lake").rglob("*")) == warehouse
    assert not (platform.state_dir / "spark" / WARM_UP).exists()

"""The warm-up of a real Spark Connect server: it loads, and nothing of it stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from tidegate.core.config.names import WARM_UP_TOPIC
from tidegate.core.model.errors import PlatformError
from tidegate.waiting import wait_until
from tidegate_local import warm_up, warm_up_loads
from tidegate_local.platform import Platform
from tidegate_local.topics import create_topic


def topics(platform: Platform) -> set[str]:
    """The names of the broker's topics."""
    return set(AdminClient({"bootstrap.servers": platform.bootstrap_servers}).list_topics(timeout=10).topics)


def test_a_warm_up_does_every_load_and_leaves_no_topic_no_table_and_no_file(
    platform: Platform, spark: SparkSession, kafka: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    warm_up.run(platform.state_dir, platform.project_dir, platform._child_environment(), tmp_path / "log")
    assert wait_until(lambda: WARM_UP_TOPIC not in topics(platform), 10.0)
    warm_up_loads.warm_up(platform)
    assert read == [warm_up_loads.PARTITIONS * warm_up_loads.RECORDS] * warm_up_loads.LOADS
    assert wait_until(lambda: WARM_UP_TOPIC not in topics(platform), 10.0)
    assert spark.sql("SHOW NAMESPACES IN lake").collect() == namespaces
    assert sorted((platform.state_dir / "lake").rglob("*")) == warehouse
    assert not (platform.state_dir / "spark" / warm_up.NAME).exists()


def test_a_warm_up_that_fails_says_why(platform: Platform, tmp_path: Path) -> None:
    """The error names the log and that nothing has to be done."""
    with pytest.raises(PlatformError, match=r"could not be warmed up: .*No platform was started.*Nothing has to be done"):
        warm_up.run(tmp_path / "nothing", tmp_path, platform._child_environment(), tmp_path / "log")

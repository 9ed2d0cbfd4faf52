"""One real broker and one real Spark Connect server for all tests here; no test may stop them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.catalogs import let_pyiceberg_find
from tidegate.core.load.job import LoadJob, LoadResult
from tidegate.kafka.settings import planning_client
from tidegate.local import Platform
from tidegate.spark.load import load_range
from tidegate.spark.session import connect


@pytest.fixture(scope="package")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Kafka and Spark Connect in a temporary folder, stopped by their pid files whatever happens."""
    made = Platform(tmp_path_factory.mktemp("platform"), Path(__file__).parents[2])
    try:
        made.up(("kafka", "spark"))
        yield made
    finally:
        made.down()


@pytest.fixture
def catalog(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyIceberg in this process knows the platform's catalog."""
    let_pyiceberg_find(platform, monkeypatch)


@pytest.fixture
def kafka(platform: Platform) -> dict[str, str]:
    """The planning client's settings."""
    return planning_client({"bootstrap.servers": platform.bootstrap_servers}, connection="c", client_id="test").settings


@pytest.fixture(scope="module")
def spark(platform: Platform) -> Iterator[SparkSession]:
    """One session for all loads of a module."""
    with connect(platform.spark_remote, name="tests") as session:
        yield session


@pytest.fixture
def load(spark: SparkSession, spark_jobs: Path) -> Callable[[LoadJob], LoadResult]:
    """`load_range` in that session, of the transforms in the module's own folder (its fixture `spark_jobs`)."""
    return lambda job: load_range(spark, job, spark_jobs=spark_jobs)

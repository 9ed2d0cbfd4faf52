"""One real broker and one Spark Connect server for all tests here, which none may stop, and one broker that each may."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.catalogs import let_pyiceberg_find
from tests.integration.private_broker import PrivateBroker, new_asking_broker, running
from tests.integration.shell import Shell, new_shell
from tests.records import changed, load_job
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.jobs import LoadJob, LoadResult
from tidegate.kafka.settings import planning_client
from tidegate.spark.load import load_range
from tidegate.spark.session import connect
from tidegate_local.platform import Platform

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PyIceberg's SQLAlchemy engine and gRPC leave sockets and files to the garbage collector."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@pytest.fixture(scope="package")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Kafka and Spark Connect in a temporary folder, stopped by their pid files whatever happens."""
    made = Platform(tmp_path_factory.mktemp("platform"), HERE.parents[1])
    try:
        made.up(("kafka", "spark"))
        yield made
    finally:
        made.down()


@pytest.fixture(scope="package")
def breakable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateBroker]:
    """The broker of `own`."""
    made = new_asking_broker(tmp_path_factory.mktemp("own") / "kafka")
    with running(made):
        yield made


@pytest.fixture
def own(breakable: PrivateBroker) -> PrivateBroker:
    """A broker that a test may hold, stop and kill, and that asks on one listener who may do what."""
    breakable.server.start()
    return breakable


@pytest.fixture(scope="package")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """The only platform here that has an Airflow."""
    with new_shell(tmp_path_factory.mktemp("project")) as made:
        yield made


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


@pytest.fixture
def job_of(platform: Platform) -> Callable[..., LoadJob]:
    """Makes jobs of ranges on the platform's broker, each into a table of its own."""

    def make(transform: str, *ranges: OffsetRange, seq: int = 0, **what: object) -> LoadJob:
        options = {"kafka.bootstrap.servers": platform.bootstrap_servers}
        return changed(load_job("flights", seq, "r", ranges, transform, f"lake.it.t{uuid.uuid4().hex}", options), **what)

    return make

"""The whole platform, once for all tests here, in a project folder of its own.

Each module adds its own topics, pipelines and tables, and its pipelines are removed after it: the DAG processor and every task
read all files of pipelines.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.catalogs import let_pyiceberg_find
from tests.e2e.project import Project
from tests.e2e.statsd import Statsd, serving
from tests.failpoints import disarm
from tests.projects import whole_platform
from tidegate.airflow.remote.api import AirflowApi
from tidegate_local.platform import Platform

HERE = Path(__file__).parent


@pytest.fixture(scope="package")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The project folder."""
    return Project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="package")
def statsd() -> Iterator[Statsd]:
    """Where the platform's Airflow sends its metrics."""
    with serving() as made:
        yield made


@pytest.fixture(scope="package")
def platform(project: Project, statsd: Statsd) -> Iterator[Platform]:
    """Kafka, Spark Connect and Airflow, stopped by their pid files whatever happens."""
    with whole_platform(project.root, extra_env=project.environment | statsd.environment) as made:
        made.sync_pools({"tidegate_lake_demo_flights": 4})
        yield made


@pytest.fixture(scope="module", autouse=True)
def own_pipelines(project: Project) -> Iterator[None]:
    """The pipelines of a module are removed after it."""
    yield
    project.remove_pipelines()


@pytest.fixture
def api(platform: Platform) -> Iterator[AirflowApi]:
    """Airflow's REST API."""
    with platform.api() as client:
        yield client


@pytest.fixture
def catalog(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyIceberg in this process knows the platform's catalog."""
    let_pyiceberg_find(platform, monkeypatch)


@pytest.fixture
def fail_points(project: Project) -> Iterator[Path]:
    """The folder in which a test arms fail points; none of them outlives it."""
    yield project.fail_points
    disarm(project.fail_points)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Commands that run in this process leave the files of PyIceberg's SQLAlchemy engine to the garbage collector."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))

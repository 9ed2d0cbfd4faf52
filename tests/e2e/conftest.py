"""The whole platform, once for all tests here, in a project folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.catalogs import let_pyiceberg_find
from tests.e2e.project import Project
from tidegate.airflow.remote.api import AirflowApi
from tidegate.local import Platform
from tidegate.testing.failpoints import disarm


@pytest.fixture(scope="package")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The project folder."""
    return Project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="package")
def platform(project: Project) -> Iterator[Platform]:
    """Kafka, Spark Connect and Airflow, stopped by their pid files whatever happens."""
    made = Platform(project.root / ".tidegate", project.root, extra_env=project.environment)
    try:
        made.up()
        made.sync_pools({"tidegate_lake_demo_flights": 4})
        yield made
    finally:
        made.down()


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

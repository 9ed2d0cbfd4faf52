"""A real Spark Connect server obeys the laws of the port."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from tests.integration.loading import SPARK_JOBS, new_topic
from tests.topics import write
from tidegate.airflow.runners import ConnectRunner
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.planning.patience import Patience
from tidegate.core.state.jobs import LoadJob
from tidegate.sinks.iceberg.history import IcebergReader
from tidegate.testing.contracts.job_runner import JobRunnerContract
from tidegate_local.platform import Platform


@pytest.mark.usefixtures("catalog")
class TestConnectRunner(JobRunnerContract):
    @pytest.fixture
    def topic(self, platform: Platform) -> str:
        name = new_topic(platform)
        write({"bootstrap.servers": platform.bootstrap_servers}, name, 0, [b"{}"] * 10)
        return name

    @pytest.fixture
    def job(self, job_of: Callable[..., LoadJob], topic: str) -> LoadJob:
        return job_of("transforms.flights:flights", OffsetRange(topic, 0, 0, 10), seq=1)

    @pytest.fixture
    def sink(self) -> IcebergReader:
        return IcebergReader()

    @pytest.fixture
    def runner(self, platform: Platform) -> ConnectRunner:
        log = logging.getLogger(__name__)
        return ConnectRunner(
            lambda: platform.spark_remote, spark_jobs=SPARK_JOBS, patience=Patience(for_s=0.0, tell=log.warning), log=log
        )

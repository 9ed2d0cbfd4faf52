"""A real Spark Connect server obeys the laws of the port."""

from __future__ import annotations

import logging
import uuid

import pytest

from tests.integration.loading import SPARK_JOBS
from tests.records import load_job
from tests.topics import make_topic, write
from tidegate.airflow.runners.connect import ConnectRunner
from tidegate.core.load.job import LoadJob
from tidegate.core.offsets.ranges import OffsetRange
from tidegate.core.schedule.patience import Patience
from tidegate.iceberg.history import IcebergReader
from tidegate.local import Platform
from tidegate.testing.contracts.job_runner import JobRunnerContract


@pytest.mark.usefixtures("catalog")
# PyIceberg's SQLAlchemy engine and gRPC leave sockets and files to the garbage collector
@pytest.mark.filterwarnings("ignore::ResourceWarning")
class TestConnectRunner(JobRunnerContract):
    @pytest.fixture
    def topic(self, platform: Platform) -> str:
        settings = {"bootstrap.servers": platform.bootstrap_servers}
        name = make_topic(settings, f"runner-{uuid.uuid4().hex[:8]}", 1)
        write(settings, name, 0, [b"{}"] * 10)
        return name

    @pytest.fixture
    def job(self, platform: Platform, topic: str) -> LoadJob:
        options = {"kafka.bootstrap.servers": platform.bootstrap_servers}
        ranges = (OffsetRange(topic, 0, 0, 10),)
        return load_job("flights", 1, "r", ranges, "transforms.flights:flights", f"lake.it.t{uuid.uuid4().hex}", options)

    @pytest.fixture
    def sink(self) -> IcebergReader:
        return IcebergReader()

    @pytest.fixture
    def runner(self, platform: Platform) -> ConnectRunner:
        log = logging.getLogger(__name__)
        return ConnectRunner(lambda: platform.spark_remote, spark_jobs=SPARK_JOBS, patience=Patience(0.0, log.warning), log=log)

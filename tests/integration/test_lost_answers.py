"""Loads by a real spark-submit whose answer is lost: the receipt in the table is the answer, and nothing is committed twice."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from tests.integration.loading import SPARK_JOBS, rows
from tests.records import load_job
from tests.topics import make_topic, write
from tidegate.airflow.runners.submit import JOB_FILE, SubmitRunner
from tidegate.core.load.job import LoadJob
from tidegate.core.load.receipt import Observed
from tidegate.core.offsets.ranges import OffsetRange
from tidegate.core.schedule.patience import Patience
from tidegate.iceberg.history import IcebergReader
from tidegate.local import Platform

SECRET = "hush-hush-4711"  # noqa: S105 - not one

pytestmark = [
    pytest.mark.usefixtures("catalog"),
    # PyIceberg's SQLAlchemy engine leaves sockets and files to the garbage collector
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def job(platform: Platform) -> LoadJob:
    """Sixty records into a table of its own."""
    topic = make_topic({"bootstrap.servers": platform.bootstrap_servers}, f"lost-{uuid.uuid4().hex[:8]}", 1)
    write({"bootstrap.servers": platform.bootstrap_servers}, topic, 0, [b"{}"] * 60)
    options = {"kafka.bootstrap.servers": platform.bootstrap_servers, "kafka.ssl.key.password": SECRET}
    ranges = (OffsetRange(topic, 0, 0, 60),)
    return load_job("flights", 1, "r", ranges, "transforms.flights:flights", f"lake.it.t{uuid.uuid4().hex}", options)


class Submitted:
    """spark-submit on this machine, whose driver is cut off from whoever waits for its answer."""

    def __init__(self, platform: Platform, node: Path) -> None:
        self.platform, self.node, self.output = platform, node, ""

    def here(self, arguments: list[str], files: str | None) -> None:
        """The driver writes its answer, and somebody deletes it."""
        assert files is None
        self._run(arguments, Path.cwd())
        Path(arguments[3]).unlink()

    def elsewhere(self, arguments: list[str], files: str | None) -> None:
        """As cluster mode has it: the driver sees no folder of the task's, and a copy of the file in its working directory."""
        assert files is not None
        shutil.copy(files, self.node)
        nowhere = [word.replace(str(Path(files).parent), str(self.node / "not-mounted")) for word in arguments]
        assert nowhere[1].endswith(f"not-mounted/{JOB_FILE}")
        self._run(nowhere, self.node)

    def _run(self, arguments: list[str], folder: Path) -> None:
        environment = {**os.environ, **self.platform.environment()}
        command = [str(Path(environment["SPARK_HOME"]) / "bin" / "spark-submit"), str(SPARK_JOBS / "load_range.py"), *arguments]
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=180, check=False)
        self.output = done.stdout
        assert SECRET not in done.stdout + done.stderr
        if done.returncode:
            raise RuntimeError(f"Error code is: {done.returncode}")

    def runner(self, *, elsewhere: bool) -> SubmitRunner:
        return SubmitRunner(
            self.elsewhere if elsewhere else self.here,
            lambda: None,
            elsewhere=elsewhere,
            sink=IcebergReader(),
            patience=Patience(0.0, print),
            log=logging.getLogger(__name__),
        )


def test_a_lost_answer_is_found_by_its_receipt_and_nothing_is_committed_twice(
    platform: Platform, job: LoadJob, tmp_path: Path
) -> None:
    """First the answer is deleted; then the load is run again on a machine that cannot write one, and finds the commit."""
    submitted = Submitted(platform, tmp_path)
    first = submitted.runner(elsewhere=False).run(job)
    assert "60 records read, 60 rows written" in submitted.output
    assert (first.receipt.rows, first.observed, first.landed_before) == (60, Observed(None, None), False)
    assert first.receipt.covers(job.load.ranges)

    again = submitted.runner(elsewhere=True).run(job)
    assert "already holds this load" in submitted.output
    assert "the result cannot be written" in submitted.output
    assert (again.receipt, again.landed_before) == (first.receipt, True)

    assert IcebergReader().receipts(job.table, job.load.pipeline) == [first.receipt]
    assert [row["_kafka_offset"] for row in rows(platform, job)] == list(range(60))

"""Loads by a real spark-submit whose answer is lost: the receipt in the table is the answer, and nothing is committed twice."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.loading import SPARK_JOBS, new_topic, offsets, submitted
from tests.records import changed
from tests.topics import write
from tidegate.airflow.runners import INSTALLED, JOB_FILE, SubmitRunner
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.planning.patience import Patience
from tidegate.core.state.jobs import LoadJob
from tidegate.core.state.receipt import Observed
from tidegate.sinks.iceberg.history import IcebergReader
from tidegate_local.platform import Platform

SECRET = "hush-hush-4711"  # noqa: S105 - not one

pytestmark = pytest.mark.usefixtures("catalog")


@pytest.fixture
def job(platform: Platform, job_of: Callable[..., LoadJob]) -> LoadJob:
    """Sixty records into a table of its own."""
    topic = new_topic(platform)
    write({"bootstrap.servers": platform.bootstrap_servers}, topic, 0, [b"{}"] * 60)
    made = job_of("transforms.flights:flights", OffsetRange(topic, 0, 0, 60), seq=1)
    return changed(made, kafka_options={**made.reading.kafka_options, "kafka.ssl.key.password": SECRET})


class Submitted:
    """The installed application by spark-submit, whose driver is cut off from whoever waits for its answer."""

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
        done = submitted(self.platform, INSTALLED, *arguments, "--spark-jobs", SPARK_JOBS, cwd=folder)
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
            patience=Patience(for_s=0.0, tell=print),
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
    assert offsets(platform, job) == list(range(60))

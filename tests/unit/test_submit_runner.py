"""Laws of runners of loads: all obey their port, and spark-submit finds its answer whether or not a file comes back."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest import mock

import pytest

from tests.records import load_job, write_of
from tidegate.airflow.runners import EXCHANGE_DIR, JOB_FILE, SubmitRunner
from tidegate.core.model.errors import SinkUnavailable, SparkJobFailed, TidegateError, TransformError
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.planning.patience import Patience
from tidegate.core.state.history import TableHistory
from tidegate.core.state.jobs import LoadJob, LoadResult, MaintenanceJob
from tidegate.core.state.receipt import Observed, Receipt
from tidegate.testing.contracts.job_runner import JobRunnerContract
from tidegate.testing.fakes import FakeReader, FakeRunner

RANGES = (OffsetRange("t", 0, 0, 5),)
JOB = load_job("p", 3, "run", RANGES, "m:f", "lake.a.b", {"kafka.sasl.jaas.config": "hunter2"})
OBSERVED = Observed(5, 5, 70, first_last={})
NONE = Patience(for_s=0.0, tell=print)


@dataclass
class Driver:
    """Does with each job what a test says, in the place of spark-submit."""

    sink: FakeReader
    does: Callable[[LoadJob, Path], None] = lambda *_: None
    jobs: list[LoadJob] = field(default_factory=list)
    files: list[str | None] = field(default_factory=list)
    modes: list[int] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    killed: int = 0

    def submit(self, arguments: list[str], files: str | None) -> None:
        assert "hunter2" not in " ".join(arguments)
        assert arguments[0::2] == ["--job", "--result"]
        job_file, result_file = map(Path, arguments[1::2])
        self.jobs.append(LoadJob.from_json(json.loads(job_file.read_text())))
        self.files.append(files)
        self.modes += [stat.S_IMODE(job_file.stat().st_mode), stat.S_IMODE(job_file.parent.stat().st_mode)]
        self.folders.append(job_file.parent)
        self.does(self.jobs[-1], result_file)

    def kill(self) -> None:
        self.killed += 1

    def land(self, job: LoadJob) -> Receipt:
        load = write_of(job.load.pipeline, job.load.seq, job.load.run_id, job.load.ranges, "m:f@1", job.attempt or "?")
        self.sink.found.append(Receipt(load, len(self.sink.found) + 1, 1, rows=5))
        return self.sink.found[-1]

    def lose(self, job: LoadJob, _: Path) -> None:
        self.land(job)

    def runner(self, *, elsewhere: bool = False, patience: Patience = NONE) -> SubmitRunner:
        return SubmitRunner(self.submit, self.kill, elsewhere=elsewhere, sink=self.sink, patience=patience, log=mock.Mock())


@pytest.fixture(autouse=True)
def no_exchange_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(EXCHANGE_DIR, raising=False)


@pytest.fixture
def driver() -> Driver:
    return Driver(FakeReader())


def test_a_job_goes_by_a_file_that_only_its_owner_reads_and_the_answer_comes_by_file(driver: Driver) -> None:
    def answer(job: LoadJob, result_file: Path) -> None:
        result_file.write_text(json.dumps(LoadResult(driver.land(job), OBSERVED, {"write": 0.1}).to_json()))

    driver.does = answer
    assert driver.runner().run(JOB) == LoadResult(driver.sink.found[0], OBSERVED, {"write": 0.1})
    assert replace(driver.jobs[0], attempt=None) == JOB
    assert (driver.modes, driver.folders[0].exists()) == ([0o600, 0o700], False)


def test_each_run_of_a_job_is_an_attempt_of_its_own(driver: Driver) -> None:
    """Or the receipt of one would pass for that of another."""
    runner = driver.runner()
    for _ in range(2):
        with pytest.raises(SparkJobFailed, match="ended without an answer"):
            runner.run(JOB)
    assert len({job.attempt for job in driver.jobs} | {None}) == 3


@pytest.mark.parametrize(
    ("commits", "left", "error", "why"),
    [
        (False, {"error": TransformError("no such function").to_dict()}, TransformError, "no such function"),
        (True, None, SparkJobFailed, r"spark-submit failed: Error code is: 137\.\. See the driver's output"),
    ],
)
def test_a_driver_that_failed_is_a_failed_job_though_it_has_committed(
    driver: Driver, left: object, error: type[TidegateError], why: str, *, commits: bool
) -> None:
    """Its own error says more than an exit code. It has not checked its commit: the next try looks for that, and checks it."""

    def fail(job: LoadJob, result_file: Path) -> None:
        if commits:
            driver.land(job)
        if left is not None:
            result_file.write_text(json.dumps(left))
        raise RuntimeError("Error code is: 137.\nLast output")

    driver.does = fail
    with pytest.raises(error, match=why) as failed:
        driver.runner().run(JOB)
    assert failed.value.retryable == commits


@pytest.mark.parametrize("left", [None, "", "{"])
def test_an_answer_that_is_lost_is_found_by_the_receipt_of_its_attempt(driver: Driver, left: str | None) -> None:
    """What the driver observed stays unknown; how long it took does not."""

    def lose(job: LoadJob, result_file: Path) -> None:
        driver.land(replace(job, attempt="of somebody else"))
        driver.land(job)
        driver.land(replace(job, attempt="of a zombie"))
        if left is not None:
            result_file.write_text(left)

    driver.does = lose
    result = driver.runner().run(JOB)
    assert (result.receipt, result.observed) == (driver.sink.found[1], Observed(None, None))
    assert (result.landed_before, [*result.seconds]) == (False, ["submit"])


def test_only_a_driver_elsewhere_gets_a_copy_of_a_job(driver: Driver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Copies hold credentials: none is made where the driver reads the file itself."""
    driver.does = driver.lose
    driver.runner().run(JOB)
    driver.runner(elsewhere=True).run(JOB)
    monkeypatch.setenv(EXCHANGE_DIR, str(tmp_path))
    driver.runner(elsewhere=True).run(JOB)
    assert driver.files == [None, str(driver.folders[1] / JOB_FILE), None]
    assert [folder.parent == tmp_path for folder in driver.folders] == [False, False, True]


def test_a_catalog_that_is_away_is_waited_for_without_another_submission(driver: Driver) -> None:
    """The job is done; only its receipt is looked for again, and not among those of expired snapshots, which may be many."""
    absences = [SinkUnavailable("away")] * 2

    class Away(FakeReader):
        def history(self, table: str, *, expired: bool = False) -> TableHistory:
            assert not expired
            if absences:
                raise absences.pop()
            return super().history(table)

    driver.sink, driver.does, lines = Away(), driver.lose, list[str]()
    result = driver.runner(patience=Patience(for_s=60.0, tell=lines.append, sleep=lambda _: None)).run(JOB)
    assert result.receipt == driver.sink.found[0]
    assert (len(driver.jobs), len(lines)) == (1, 2)


def test_a_runner_that_is_stopped_kills_its_driver(driver: Driver) -> None:
    runner = driver.runner()
    runner.stop()
    assert (driver.killed, runner.lost) == (1, 0)


@pytest.fixture
def job() -> LoadJob:
    return JOB


@pytest.fixture
def sink() -> FakeReader:
    return FakeReader()


class TestFakeRunner(JobRunnerContract):
    @pytest.fixture
    def runner(self, sink: FakeReader) -> FakeRunner:
        return FakeRunner(sink)


class TestSubmitted(JobRunnerContract):
    answers = True

    @pytest.fixture
    def runner(self, sink: FakeReader) -> SubmitRunner:
        def submit(arguments: list[str], _: str | None) -> None:
            job_file, result_file = map(Path, arguments[1::2])
            order, spark = json.loads(job_file.read_text()), FakeRunner(sink)
            done = spark.maintain(MaintenanceJob.from_json(order)) if "step" in order else spark.run(LoadJob.from_json(order))
            if self.answers:
                result_file.write_text(json.dumps(done.to_json()))

        return SubmitRunner(submit, lambda: None, elsewhere=not self.answers, sink=sink, patience=NONE, log=mock.Mock())


class TestSubmittedElsewhere(TestSubmitted):
    answers = False

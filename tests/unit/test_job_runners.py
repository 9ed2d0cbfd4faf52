"""The runner in memory obeys the laws of the port, and so does spark-submit whether or not its answers come back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.records import load_job
from tidegate.airflow.runners.submit import SubmitRunner
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.planning.patience import Patience
from tidegate.core.state.jobs import LoadJob, LoadResult, Maintained, MaintenanceJob
from tidegate.testing.contracts.job_runner import JobRunnerContract
from tidegate.testing.fakes import FakeReader, FakeRunner


@pytest.fixture
def job() -> LoadJob:
    return load_job("p", 3, "run", (OffsetRange("t", 0, 0, 5),), "m:f", "lake.a.b", {})


@pytest.fixture
def sink() -> FakeReader:
    return FakeReader()


class TestFakeRunner(JobRunnerContract):
    @pytest.fixture
    def runner(self, sink: FakeReader) -> FakeRunner:
        return FakeRunner(sink)


class Submitted(JobRunnerContract):
    """A driver in memory."""

    answers = True

    @pytest.fixture
    def runner(self, sink: FakeReader) -> SubmitRunner:
        def submit(arguments: list[str], files: str | None) -> None:
            del files
            job_file, result_file = map(Path, arguments[1::2])
            order = json.loads(job_file.read_text())
            runner = FakeRunner(sink)
            result: LoadResult | Maintained
            if "step" in order:
                result = runner.maintain(MaintenanceJob.from_json(order))
            else:
                result = runner.run(LoadJob.from_json(order))
            if self.answers:
                result_file.write_text(json.dumps(result.to_json()))

        class Silent:
            def info(self, *_: object) -> None: ...

        patience = Patience(for_s=0.0, tell=print)
        return SubmitRunner(submit, lambda: None, elsewhere=not self.answers, sink=sink, patience=patience, log=Silent())


class TestSubmitted(Submitted): ...


class TestSubmittedElsewhere(Submitted):
    answers = False

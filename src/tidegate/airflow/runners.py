"""Ways to run the Spark job of a task, which picks one by the type of its connection.

`ConnectRunner`: Spark Connect, a server that stays warm, whose client this process is. `SubmitRunner`: spark-submit, a driver
of its own, which may run on another machine.

    the job     goes by file, never by argv: it may be longer than argv takes, and holds the brokers' credentials. A driver that
                spark-submit runs itself (client mode) reads the file where it is; to any other, spark-submit copies it
    the answer  comes by file, where the driver can write one; otherwise it is the receipt that the driver's commit left in the
                table, and what only the driver knew (records read, seconds of each phase) stays unknown. A step of
                maintenance leaves no receipt: there it is only known that the driver ended well

A driver that failed, and left no file to say why, is a failed job: its commit may have landed, but nobody has judged it
(`tidegate.spark.load`). The next try looks for the receipt first, and judges it.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.core.load.answer import answer_by_receipt
from tidegate.core.model.errors import SparkJobFailed, SparkUnavailable, TidegateError
from tidegate.core.planning.patience import Patience
from tidegate.core.state.jobs import LoadJob, LoadResult, Maintained, MaintenanceJob
from tidegate.core.state.ports import SinkReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXCHANGE_DIR = "TIDEGATE_EXCHANGE_DIR"
"""Environment: a folder that drivers on other machines see too, if there is one. Then job and answer go through it."""
JOB_FILE = "tidegate-job.json"
"""The job's file, which a driver elsewhere finds in its working directory."""
INSTALLED = Path(__file__).resolve().parents[1] / "spark" / "submit" / "__main__.py"
"""The application of projects that have no `spark_jobs/load_range.py` of their own; it needs `--spark-jobs`."""


@dataclass
class ConnectRunner:
    """The `JobRunner` port over a Spark Connect server. Each job has a session of its own.

    `url` returns `sc://host:port`, with parameters after `/;`: it is asked for each job, since the server may have moved.
    `patience` learns here that the server answers.
    """

    url: Callable[[], str]
    _: KW_ONLY
    spark_jobs: Path
    patience: Patience
    log: Any
    lost: int = field(default=0, init=False)
    _session: SparkSession | None = field(default=None, init=False)

    def run(self, job: LoadJob) -> LoadResult:
        """As the port."""
        from tidegate.spark.load import load_range  # noqa: PLC0415 - only a Spark job needs Spark's client

        with self._connected(f"tidegate-{job.load.pipeline}-{job.load.seq}") as session:
            return load_range(session, job, spark_jobs=self.spark_jobs)

    def maintain(self, job: MaintenanceJob) -> Maintained:
        """As the port."""
        from tidegate.sinks import maintain  # noqa: PLC0415 - as above
        from tidegate.spark.errors import translated  # noqa: PLC0415 - as above

        with (
            self._connected(f"tidegate-{job.pipeline}-{job.step}") as session,
            translated(pipeline=job.pipeline, table=job.table),
        ):
            return maintain(session, job)

    @contextmanager
    def _connected(self, name: str) -> Iterator[SparkSession]:
        from tidegate.spark.session import connect  # noqa: PLC0415 - as above

        url = self.url()
        self.log.info("opening a session of Spark Connect, %s", url.partition("/;")[0])
        try:
            with connect(url, name=name) as self._session:
                self.patience.answered(SparkUnavailable)
                try:
                    yield self._session
                except SparkUnavailable:
                    self.lost += 1
                    raise
        finally:
            self._session = None

    def stop(self) -> None:
        """Interrupt the session's operations; as the port."""
        if self._session is not None:
            from tidegate.spark.session import interrupt  # noqa: PLC0415 - as above

            interrupt(self._session)


@dataclass
class SubmitRunner:
    """The `JobRunner` port over spark-submit.

    `submit` runs spark-submit with these arguments of the application, and with this value of `--files` (None: no files); it
    returns when the driver has ended, and raises when it failed. `kill` ends the driver that runs, if there is one.
    `elsewhere`: it runs on another machine. `sink` finds the receipt of a driver whose answer is lost.
    """

    submit: Callable[[list[str], str | None], None]
    kill: Callable[[], None]
    _: KW_ONLY
    elsewhere: bool
    sink: SinkReader
    patience: Patience
    log: Any
    lost: int = field(default=0, init=False)  # a driver ends only itself

    def run(self, job: LoadJob) -> LoadResult:
        """As the port."""
        if job.refused is not None and (job.redo or self._found(job, {}) is None):
            raise TidegateError.from_dict(job.refused)  # a driver elsewhere may have no way to say so
        job = replace(job, attempt=str(uuid.uuid4()))
        answer, failure, seconds = self._answer(job)
        if answer is not None:
            return LoadResult.from_json(answer)
        result = None
        if failure is None:
            self.log.info("the driver ended well, and its answer is not here: looking for its receipt in %s", job.table)
            result = self._found(job, {"submit": round(seconds, 4)})
        if result is None:
            raise _without_answer(failure, "whether its commit landed is looked up by the next try") from failure
        return result

    def maintain(self, job: MaintenanceJob) -> Maintained | None:
        """As the port."""
        answer, failure, _ = self._answer(job)
        if failure is not None:
            raise _without_answer(failure, "the table holds the same rows, and the step may be done again") from failure
        return None if answer is None else Maintained.from_json(answer)

    def stop(self) -> None:
        """As the port."""
        self.kill()

    def _answer(self, job: LoadJob | MaintenanceJob) -> tuple[dict[str, Any] | None, Exception | None, float]:
        """The driver's answer, how spark-submit failed, and its seconds. Raises the error that the driver left."""
        failure: Exception | None = None
        with _exchange(job) as (job_file, result_file):
            copied = self.elsewhere and EXCHANGE_DIR not in os.environ
            started = time.monotonic()
            try:
                self.submit(["--job", str(job_file), "--result", str(result_file)], str(job_file) if copied else None)
            except Exception as error:  # noqa: BLE001 - the driver's own error, where it left one, says more
                failure = error
            seconds = time.monotonic() - started
            answer = _read(result_file)
        if answer is not None and "error" in answer:
            raise TidegateError.from_dict(answer["error"]) from failure
        return answer, failure, seconds

    def _found(self, job: LoadJob, seconds: Mapping[str, float]) -> LoadResult | None:
        # in the table's own snapshots: the driver has just found it there, or written it
        receipts = self.patience.through(lambda: self.sink.history(job.table).receipts(job.load.pipeline))
        return answer_by_receipt(job, receipts, seconds)


def _without_answer(failure: Exception | None, then: str) -> SparkJobFailed:
    message = "spark-submit ended without an answer" if failure is None else f"spark-submit failed: {failure}"
    return SparkJobFailed(message.splitlines()[0], fix=f"See the driver's output in this task's log; {then}")


@contextmanager
def _exchange(job: LoadJob | MaintenanceJob) -> Iterator[tuple[Path, Path]]:
    """A folder for one job and its answer, readable by its owner only, and gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="tidegate-job-", dir=os.environ.get(EXCHANGE_DIR)) as folder:
        job_file = Path(folder) / JOB_FILE
        job_file.touch(mode=0o600)
        job_file.write_text(json.dumps(job.to_json()), encoding="utf-8")
        yield job_file, Path(folder) / "result.json"


def _read(result_file: Path) -> dict[str, Any] | None:
    """The driver's answer; None where there is none that can be read."""
    try:
        answer: dict[str, Any] = json.loads(result_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return answer


def application_of(spark_jobs: Path) -> Path:
    """The project's `load_range.py`, where the folder has one, else that of the installed package."""
    own = spark_jobs / "load_range.py"
    return own if own.is_file() else INSTALLED


def options_of(spark_jobs: Path) -> list[str]:
    """The application's options beside order and answer: a project's own imports the transforms that are beside it."""
    return ["--spark-jobs", str(spark_jobs)] if application_of(spark_jobs) == INSTALLED else []

"""Runs a Spark job of a task through Spark Connect: on a server that stays warm, whose client this process is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.core.model.errors import SparkUnavailable
from tidegate.core.planning.patience import Patience
from tidegate.core.state.jobs import LoadJob, LoadResult, Maintained, MaintenanceJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ConnectRunner:
    """The `JobRunner` port over a Spark Connect server. Each job has a session of its own.

    Args:
        url: returns `sc://host:port`, with parameters after `/;`; asked for each job, since the server may have moved.
        spark_jobs: the folder that transforms are imported from.
        patience: of the task, which waits for the server; it learns here that the server answers.
        log: of the task.
    """

    def __init__(self, url: Callable[[], str], *, spark_jobs: Path, patience: Patience, log: Any) -> None:
        self._url = url
        self._spark_jobs = spark_jobs
        self._patience = patience
        self._log = log
        self._session: SparkSession | None = None
        self.lost = 0

    def run(self, job: LoadJob) -> LoadResult:
        """As the port."""
        from tidegate.spark.load import load_range  # noqa: PLC0415 - only a Spark job needs Spark's client

        with self._connected(f"tidegate-{job.load.pipeline}-{job.load.seq}") as session:
            return load_range(session, job, spark_jobs=self._spark_jobs)

    def maintain(self, job: MaintenanceJob) -> Maintained:
        """As the port."""
        from tidegate.sinks.registry import maintain  # noqa: PLC0415 - as above
        from tidegate.spark.errors import translated  # noqa: PLC0415 - as above

        with (
            self._connected(f"tidegate-{job.pipeline}-{job.step}") as session,
            translated(pipeline=job.pipeline, table=job.table),
        ):
            return maintain(session, job)

    @contextmanager
    def _connected(self, name: str) -> Iterator[SparkSession]:
        from tidegate.spark.session import connect  # noqa: PLC0415 - as above

        url = self._url()
        self._log.info("opening a session of Spark Connect, %s", url.partition("/;")[0])
        try:
            with connect(url, name=name) as self._session:
                self._patience.answered(SparkUnavailable)
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

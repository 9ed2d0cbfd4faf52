"""What each task with a Spark job has: a runner by the type of its connection, and the wait for a server that is away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Connection, Context
from airflow.sdk.exceptions import AirflowException

from tidegate.airflow.connections import extra_of, get_connection
from tidegate.airflow.operators.tasks import Patient
from tidegate.airflow.runners import ConnectRunner, SubmitRunner, application_of, options_of
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import ConfigError, SparkUnavailable, TidegateError
from tidegate.core.planning.patience import Patience, is_away
from tidegate.core.state.ports import JobRunner
from tidegate.sinks import reader_of

T = TypeVar("T")
MOST_LOST = 1
"""Times that one try begins its job again after Spark died under it."""
TYPES = ("spark_connect", "spark")
"""Types of connections that a job runs through."""


class SparkTask(Patient, SparkSubmitOperator):
    """A task that runs a Spark job: through Spark Connect or spark-submit, by the connection's type.

    It waits for a server that is away, and then runs the job again. A Spark Connect server that died under the job is waited
    for `MOST_LOST` times a try: a job that ends its server must not do so again and again. `spark_jobs` is the folder of the
    transforms, and of the project's own `load_range.py` where it has one.
    """

    ui_color = "#cfe3cf"

    def __init__(self, *, pipeline: Pipeline, spark_jobs: Path, **kwargs: Any) -> None:
        super().__init__(
            pipeline=pipeline,
            application=str(application_of(spark_jobs)),
            conn_id=pipeline.spark.connection,
            name=f"tidegate-{pipeline.name}",
            durable=False,  # a second submission finds the receipt of the first; a driver found again has no answer to read
            **kwargs,
        )
        self.spark_jobs = spark_jobs
        self._runner: JobRunner | None = None

    def through_spark(self, call: Callable[[JobRunner], T], context: Context, patience: Patience) -> T:
        """What the call makes of the runner; it is made again where Spark was away.

        Raises TidegateError: Spark, or what the call raises. AirflowException: the task was stopped, and runs on until Airflow
        ends it.
        """
        if self._stopped:
            raise AirflowException("the task was stopped before this job")
        runner = self._runner = self._runner_of(self.spark_connection(), context, patience)
        return patience.through(lambda: call(runner), waits_for=lambda error: self._waits_for(error, runner))

    def spark_connection(self) -> Connection:
        """The connection that loads go through. Raises ConfigError: there is none, or it is of another type than `TYPES`."""
        named = self.pipeline.spark.connection
        connection = get_connection(named, expected="spark_connect (a warm server) or spark (spark-submit)")
        if connection.conn_type not in TYPES:
            raise ConfigError(
                f"connection {named} is of type {connection.conn_type}",
                fix=f"Use a connection of one of the types {', '.join(TYPES)}",
                connection=named,
            )
        return connection

    def _runner_of(self, connection: Connection, context: Context, patience: Patience) -> JobRunner:
        if connection.conn_type == "spark_connect":
            if self.pipeline.spark.max_executors is not None:
                self.log.warning("spark.max_executors has no effect: the Spark Connect server has its own executors")
            return ConnectRunner(self._connect_url, spark_jobs=self.spark_jobs, patience=patience, log=self.log)
        return SubmitRunner(
            lambda arguments, files: self._submit(context, arguments, files),
            self._kill,
            elsewhere=extra_of(connection).get("deploy-mode") == "cluster",
            sink=reader_of(self.pipeline.sink.kind),
            patience=patience,
            log=self.log,
        )

    def _waits_for(self, error: TidegateError, runner: JobRunner) -> bool:
        if isinstance(error, SparkUnavailable) and runner.lost > MOST_LOST:
            self.log.warning("Spark was lost %d times under this job; it may be the cause, so the try fails", runner.lost)
            return False
        return is_away(error)

    def _connect_url(self) -> str:
        from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook  # noqa: PLC0415 - only on this way

        url: str = SparkConnectHook(self.pipeline.spark.connection).get_connection_url()
        return url

    def _submit(self, context: Context, arguments: list[str], files: str | None) -> None:
        self._hook = None  # the one of an earlier submission has that one's arguments
        self.application_args, self.files = [*arguments, *options_of(self.spark_jobs)], files
        SparkSubmitOperator.execute(self, context)  # not this class's own, which is what called

    def _kill(self) -> None:
        if self._hook is not None:
            SparkSubmitOperator.on_kill(self)

    def on_kill(self) -> None:
        """Stop the job: interrupt the Connect session's operations, or kill the submitted driver; stop waiting for a server."""
        self._stopped = True
        if self._runner is not None:
            self._runner.stop()

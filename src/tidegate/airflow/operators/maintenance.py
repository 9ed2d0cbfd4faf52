"""The tasks of `<pipeline>__maintain`: plan, and one for each step (`tidegate.sinks.iceberg.maintenance`)."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from tidegate.airflow.operators.spark import SparkTask
from tidegate.airflow.operators.tasks import Patient
from tidegate.core.config.pipeline import Maintenance, Step
from tidegate.core.maintenance.advice import state_of
from tidegate.core.state.jobs import MaintenanceJob
from tidegate.sinks import reader_of
from tidegate.waiting import now_ms


class PlanMaintenanceOperator(Patient):
    """Says what there is to maintain; skips the run where there is no table, or nothing may change."""

    ui_color = "#dbe9f6"

    def execute(self, context: Context) -> None:
        """Look at the table.

        Raises AirflowSkipException: there is no table yet, or it is a dry run. SinkUnavailable: the catalog does not answer.
        """
        table = self.pipeline.sink.table
        history = self.patience(context).through(lambda: reader_of(self.pipeline.sink.kind).history(table))
        if not history.exists:
            line = f"There is nothing to maintain: table {table} does not exist yet."
        else:
            line = f"{table}: {state_of(history, self.pipeline.maintenance or Maintenance(), now_ms=now_ms())}."
        dry = bool(context["params"].get("dry_run"))
        if dry:
            line = f"Dry run: nothing was changed. {line}"
        self.log.info("%s", line)
        self.note(context, line)
        if dry or not history.exists:
            raise AirflowSkipException(line)


class MaintainOperator(SparkTask):
    """Does one step of maintenance. To do it again does no harm."""

    ui_color = "#e6dccb"

    def __init__(self, *, step: Step, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.step = step

    def execute(self, context: Context) -> dict[str, Any] | None:  # type: ignore[override]
        """Do it, and hand on what was counted; None where spark-submit ended well without an answer."""
        job = MaintenanceJob(
            pipeline=self.pipeline.name,
            table=self.pipeline.sink.table,
            step=self.step,
            now_ms=now_ms(),
            sink=self.pipeline.sink.kind,
            maintenance=self.pipeline.maintenance or Maintenance(),
            quarantine=self.pipeline.quarantine_table,
        )
        done = self.through_spark(lambda runner: runner.maintain(job), context, self.patience(context))
        line = f"{self.step}: done; what it counted is in the driver's log" if done is None else str(done)
        (self.log.warning if done is not None and done.warning else self.log.info)("%s", line)
        self.note(context, line)
        return None if done is None else done.to_json()

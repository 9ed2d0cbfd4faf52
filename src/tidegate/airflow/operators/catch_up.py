"""The task after the commit of a pipeline with `catch_up: true`: while more than one batch waits, it starts the next run."""

from __future__ import annotations

from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from tidegate.core.config.names import CATCH_UP_RUN
from tidegate.core.config.pipeline import Pipeline


class CatchUpOperator(TriggerDagRunOperator):
    """Triggers the pipeline's next run where this run left records behind; it starts when this run has ended.

    The new run's id has the number of its batch and the start of this run, so a task that is tried again triggers no second
    run. Neither a paused DAG nor a run that was cleared triggers one.
    """

    ui_color = "#e3d9f0"

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(trigger_dag_id=pipeline.name, logical_date=None, skip_when_already_exists=True, **kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> None:
        """Trigger the next run.

        Raises:
            AirflowSkipException: no more records waited than the batch took, the run was cleared or is a backfill's, or the
                DAG is paused.
        """
        ti, run = context["ti"], context["dag_run"]
        plan = ti.xcom_pull(task_ids="plan") or {}
        remaining = plan.get("remaining", 0)
        if not remaining:
            raise AirflowSkipException("no records waited beyond this batch")
        if run.clear_number:
            raise AirflowSkipException("the run was cleared: it starts no other one")
        if ti.get_dag(self.trigger_dag_id).is_paused:
            raise AirflowSkipException(f"{remaining:,} records wait, but the DAG is paused")
        self.log.info("%s records waited beyond this batch: the next run starts now", f"{remaining:,}")
        self.trigger_run_id = f"{CATCH_UP_RUN}{plan['seq'] + 1}__{run.start_date:%Y%m%dT%H%M%S.%f}"
        super().execute(context)

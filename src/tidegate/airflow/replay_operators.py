"""The tasks of a replay: plan, load (mapped over the chunks), verify. What happens is decided in `tidegate.core.replay.run`."""

from __future__ import annotations

import time
from typing import Any

from airflow.sdk import Asset, AssetAlias, Context
from airflow.sdk.exceptions import AirflowSkipException

from tidegate.airflow import notes
from tidegate.airflow.operators import (
    SHOWN,
    SparkLoad,
    as_note,
    log_replay,
    now_ms,
    ports_of,
    replay_answer,
    replay_event,
    verified,
)
from tidegate.airflow.retries import Patient
from tidegate.airflow.store import VariableStore
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.errors import RequestError
from tidegate.core.replay.report import ReplayReport
from tidegate.core.replay.request import ReplayRequest
from tidegate.core.replay.run import plan_replay
from tidegate.core.state.ledger import Ledger

POLL_S = 1.0
REPLAY = "replay"
"""The XCom that tells of the saved replay; what the plan returns is the list of chunks that `load` is mapped over."""


class PlanReplayOperator(Patient):
    """Saves all chunks of this run's replay, before the first load. A dry run tells what would be, and changes nothing."""

    ui_color = "#dbe9f6"

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> list[int]:
        """Plan, or find again this run's replay; the numbers of the chunks to load.

        Raises:
            AirflowSkipException: it is a dry run.
            TidegateError: see `tidegate.core.replay.run.plan_replay`.
        """
        params = context["params"]
        dry = bool(params.get("dry_run"))
        request = ReplayRequest.from_params(params)
        ports, run_id = ports_of(self.pipeline, self.log), context["run_id"]
        planned = self.patience().through(
            lambda: plan_replay(self.pipeline, run_id, request, save=not dry, now_ms=now_ms(), **ports)
        )
        told = log_replay(planned, self.log)
        if dry:
            told.insert(0, "Dry run: nothing was changed.")
            context["ti"].xcom_push(key="dry_run", value=_in_short(planned.report) if planned.report else {})
        context["ti"].xcom_push(key=notes.XCOM_KEY, value=as_note(told))
        if dry:
            raise AirflowSkipException("dry run: nothing was changed")
        context["ti"].xcom_push(key=REPLAY, value=replay_answer(planned))
        return list(planned.todo)


def _in_short(report: ReplayReport) -> dict[str, Any]:
    """The report in constant size; the log has all of it."""
    told = report.to_json()
    told["partitions"] = len(report.records)
    del told["records"]
    for name in ("lost", "replaces"):
        told[f"{name}_count"] = len(told[name])
        told[name] = told[name][:SHOWN]
    return told


class LoadChunkOperator(SparkLoad):
    """Replaces, in the sink, the rows of one chunk.

    Args:
        chunk: its number.
    """

    def __init__(self, *, chunk: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.chunk = chunk

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Load the saved chunk and hand on the receipt found in the sink. What has landed is written again only on purpose.

        Raises:
            TidegateError: as `run_job`.
        """
        ti = context["ti"]
        plan = ti.xcom_pull(task_ids="plan", key=REPLAY)
        if not plan:
            raise RequestError("this run has no replay to load", fix="Clear the run's plan task")
        self._wait_for_turn(context, plan["parallel"])
        saved = Ledger(VariableStore(), self.pipeline.name).saved_replay(plan["key"])
        redo = plan["redo"] or self.cleared(context)
        return self.run_job(self.order_chunk(saved, self.chunk, redo=redo), context)

    def _wait_for_turn(self, context: Context, parallel: int | None) -> None:
        """Wait until fewer than `parallel` chunks before this one are being loaded; the first of them never waits.

        Airflow has no such limit for one run. It is kept here in the process: giving the slot back and coming again
        (a reschedule) is a race in its scheduler, which may take the first ending for that of the second coming.
        """
        ti = context["ti"]
        place = ti.map_index or 0
        while parallel is not None and place >= parallel:
            states = ti.get_task_states(dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id])
            running = (name for name, state in states.get(ti.run_id, {}).items() if state == "running")
            before = sum(int(name.rpartition("_")[2]) < place for name in running)
            if before < parallel:
                return
            time.sleep(POLL_S)


class VerifyReplayOperator(Patient):
    """Checks that the table holds every chunk's receipt, by one version of the transform, of the topics that were planned.

    Then the table's asset gets an event, as after a commit. The outlet is an alias, since an asset as outlet gets an event
    whatever table the replay wrote to.
    """

    ui_color = "#f6e3c5"

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(outlets=[AssetAlias(name=pipeline.replay_dag)], **kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> dict[str, Any]:
        """The verdict.

        Raises:
            ReceiptMismatch: chunks are missing; the message names them.
            TidegateError: see `tidegate.core.replay.run.verify_replay`.
        """
        plan = context["ti"].xcom_pull(task_ids="plan", key=REPLAY)
        if not plan:
            raise RequestError("this run has no replay to verify", fix="See the log of its plan task")
        saved, verdict = verified(self.pipeline, plan["key"], self.patience(), self.log)
        if saved.table == self.pipeline.sink.table:  # a trial's table is nobody's asset
            asset, alias = Asset(name=saved.table), self.outlets[0]
            context["outlet_events"][alias].add(asset, extra=replay_event(saved, verdict))
        return verdict

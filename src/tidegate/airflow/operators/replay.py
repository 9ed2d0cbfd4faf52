"""The first task of a replay: it saves all chunks (`tidegate.core.replay.run`), over which the load is mapped."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from tidegate.airflow import notes
from tidegate.airflow.operators.shared import REPLAY, SHOWN, as_note, now_ms, ports_of
from tidegate.airflow.retries import Patient
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.ranges import total_count
from tidegate.core.replay.request import ReplayRequest
from tidegate.core.replay.run import PlannedReplay, plan_replay
from tidegate.core.replay.verdict import ReplayReport
from tidegate.core.state.saved_replay import turns

DRY_RUN, REPORT = "dry_run", "report"
"""The XComs of what a replay would do, and of what one that is planned does."""


class PlanReplayOperator(Patient):
    """Saves all chunks of this run's replay, before the first load. A dry run reports what it would do, and changes nothing."""

    ui_color = "#dbe9f6"

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> list[list[int]]:
        """Plan, or find again this run's replay; the numbers of the chunks to load, by the task that loads them.

        Raises:
            AirflowSkipException: it is a dry run.
            TidegateError: see `tidegate.core.replay.run.plan_replay`.
        """
        params = context["params"]
        dry = bool(params.get("dry_run"))
        request = ReplayRequest.from_params(params)
        ports, run_id = ports_of(self.pipeline, self.log), context["run_id"]
        planned = self.patience(context).through(
            lambda: plan_replay(self.pipeline, run_id, request, save=not dry, now_ms=now_ms(), **ports)
        )
        lines = log_replay(planned, self.log)
        if dry:
            lines.insert(0, "Dry run: nothing was changed.")
        if planned.report is not None:
            report = {"table": planned.saved.table, "transform": planned.saved.transform, **_in_short(planned.report)}
            context["ti"].xcom_push(key=DRY_RUN if dry else REPORT, value=report)
        context["ti"].xcom_push(key=notes.XCOM_KEY, value=as_note(lines))
        if dry:
            raise AirflowSkipException("dry run: nothing was changed")
        context["ti"].xcom_push(key=REPLAY, value=replay_answer(planned))
        return turns(planned.saved.chunks, planned.todo)


def _in_short(report: ReplayReport) -> dict[str, Any]:
    """The report in constant size; the log has all of it."""
    short = report.to_json()
    short["partitions"] = len(report.records)
    del short["records"]
    for name in ("lost", "replaces"):
        short[f"{name}_count"] = len(short[name])
        short[name] = short[name][:SHOWN]
    return short


def log_replay(planned: PlannedReplay, log: Any) -> list[str]:
    """Log what is replayed, and what that does; returns the same lines."""
    saved = planned.saved
    how = "planned now"
    if planned.origin == "own":
        how = "this run's own, saved by an earlier try; " + (
            "all of it landed: loading it again" if planned.redo else f"{len(planned.todo)} chunks are missing"
        )
    what = f"replay {saved.name} of {saved.load.pipeline} into {saved.table} by {saved.transform}"
    lines = [f"{what}, {len(saved.chunks)} chunks: {how}"]
    lines += planned.report.lines() if planned.report is not None else []
    for line in lines:
        log.info("%s", line)
    return lines


def replay_answer(planned: PlannedReplay) -> dict[str, Any]:
    """What the plan of a replay hands on: its Variable's key, and how to load."""
    saved = planned.saved
    return {
        "replay": saved.name,
        "key": planned.key,
        "origin": planned.origin,
        "redo": planned.redo,
        "chunks": len(saved.chunks),
        "parallel": saved.parallel,
        "records": total_count(saved.selection),
        "formerly": list(planned.formerly),
    }

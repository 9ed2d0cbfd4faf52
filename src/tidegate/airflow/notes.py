"""The listener of the runs of our DAGs, which Airflow calls in the scheduler, and of their tasks that fail.

When a run starts, it makes the pool that the run's loads wait for (`tidegate.airflow.declared`). When a run ends, it writes the
run's note, which the Airflow UI shows first: what was planned, how many broken records were loaded and, where the run failed,
what failed, the fix, and what the next run does. A task cannot write its own run's note, so tasks leave the texts as XComs. A
note that a person wrote stays; one of this listener is replaced when the run was cleared and ended again. A note is a
convenience: whatever fails here is logged, and never fails a run. So are the metrics that only the scheduler can send.

When a try of a task fails, the error's message and fix become an XCom, in the task's process, before the task's end is known to
the scheduler. That is no callback of the DAG: Airflow sends those of killed tasks to its DAG processor with the run's
parameters. There is nothing to tell there, and a request that it cannot read ends it, again after each restart. Only errors of
`tidegate.core.model.errors` are quoted, since their texts are made for people, and Airflow masks in them what it masks in logs;
of any other error only the kind is told.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

from airflow.listeners import hookimpl

from tidegate.airflow import declared, metrics
from tidegate.core.config.names import BACKFILL, MAINTAIN_DAG
from tidegate.core.config.pipeline import Pipeline, Step
from tidegate.core.model.errors import TidegateError
from tidegate.core.planning import run_notes
from tidegate.core.state.ledger import cursor_from, cursor_key

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy.orm import Session

XCOM_KEY, FAILURE_KEY = "tidegate_note", "tidegate_failure"
"""The XComs of a line of a run's note, and of the message and fix of a failed task's error."""
log = logging.getLogger(__name__)


@hookimpl
def on_dag_run_running(dag_run: DagRun, msg: str) -> None:
    """Airflow calls this when a run starts."""
    del msg
    try:
        declared.make_missing(dag_run)
    except Exception:
        log.exception("the pool of run %s is not made", dag_run.run_id)
        raise  # the transaction may be unusable: Airflow logs this, too, and begins the transaction anew


@hookimpl
def on_dag_run_success(dag_run: DagRun, msg: str) -> None:
    """Airflow calls this when a run succeeded, and by the other name when it failed."""
    write_note(dag_run, msg)
    send_metrics(dag_run)


on_dag_run_failed = on_dag_run_success


@hookimpl
def on_task_instance_failed(previous_state: object, task_instance: Any, error: object) -> None:
    """Airflow calls this in the task's process when a try failed; in its servers, too, where there is only a text."""
    del previous_state
    if isinstance(error, BaseException):
        save_failure(task_instance, error)


def write_note(dag_run: DagRun, msg: str) -> None:
    """Write the run's note, unless a person did, or the DAG is not ours."""
    from sqlalchemy.orm import object_session  # noqa: PLC0415 - the metadata database, which only servers have

    try:
        session = object_session(dag_run)
        if session is None or declared.declared_by(dag_run, session) is None:
            return
        # Airflow keeps who wrote a note; this listener is nobody
        if (written := dag_run.dag_run_note) and written.content and written.user_id is not None:
            return
        tasks = _Tasks(dag_run, session)
        failed = tasks.failure(timed_out=msg == "timed_out") if dag_run.state == "failed" else None
        failed = run_notes.UNVERIFIED if tasks.unverified else failed
        text = run_notes.note(tasks.lines(), "\n".join(filter(None, (tasks.xcom("load", XCOM_KEY), failed))))
        if text is not None and text != dag_run.note:
            dag_run.note = text
    except Exception:
        log.exception("run %s has no note", dag_run.run_id)


def send_metrics(dag_run: DagRun) -> None:
    """Say as metrics whether the pipeline goes on, and which replays failed; of a DAG that is not ours, nothing.

    Not of a backfill's run: the schedule does not wait for it.
    """
    from sqlalchemy.orm import object_session  # noqa: PLC0415 - as above

    try:
        session = object_session(dag_run)
        of = declared.declared_by(dag_run, session) if session is not None else None
        failed = dag_run.state == "failed"
        if of is None or session is None:
            return
        if dag_run.dag_id == of.pipeline and dag_run.run_type != BACKFILL:
            metrics.run_ended(of.pipeline, at_s=None if failed else time.time())
        elif dag_run.dag_id == of.replay_dag and (failed or _Tasks(dag_run, session).unverified):
            metrics.replay_failed(of.pipeline)
    except Exception:
        log.exception("run %s sends no metrics", dag_run.run_id)


class _Tasks:
    """The states and XComs of a run's tasks."""

    def __init__(self, dag_run: DagRun, session: Session) -> None:
        self._run = dag_run
        self._session = session

    def xcom(self, task_id: str, key: str, map_index: int = -1) -> Any:
        """A task's XCom; None where there is none."""
        from airflow.models.xcom import XComModel  # noqa: PLC0415 - as above

        newest = self._session.scalars(
            XComModel.get_many(
                run_id=self._run.run_id, key=key, task_ids=task_id, dag_ids=self._run.dag_id, map_indexes=map_index, limit=1
            )
        ).first()
        return None if newest is None else XComModel.deserialize_value(newest)

    def _is_committed(self, plan: Any) -> bool:
        """Whether the cursor is past the batch of a plan: a task may fail after that, or be cleared. False: it is not known."""
        from airflow.models.variable import Variable  # noqa: PLC0415 - as above
        from sqlalchemy import select  # noqa: PLC0415

        try:
            saved = self._session.scalar(select(Variable).where(Variable.key == cursor_key(self._run.dag_id)))
            return bool(saved is not None and cursor_from(str(saved.val), self._run.dag_id).seq >= plan["seq"])
        except (TidegateError, LookupError, TypeError):
            return False

    @property
    def unverified(self) -> bool:
        """Whether a replay is a success to Airflow, and has no verdict.

        Airflow skips what has not run in a run that is marked, and looks at the last task alone once some tasks are cleared.
        """
        if self._run.state != "success":
            return False
        states = {task.task_id: task.state for task in self._instances()}
        judged = states.get("verify") == "success" and self.xcom("verify", "return_value") is not None
        return "verify" in states and states.get("plan") == "success" and not judged

    def _instances(self) -> Sequence[TaskInstance]:
        from airflow.models.taskinstance import TaskInstance  # noqa: PLC0415 - as above
        from sqlalchemy import select  # noqa: PLC0415

        of_run = TaskInstance.dag_id == self._run.dag_id, TaskInstance.run_id == self._run.run_id
        return self._session.scalars(select(TaskInstance).where(*of_run)).all()

    @property
    def _is_maintenance(self) -> bool:
        return self._run.dag_id.endswith(MAINTAIN_DAG)

    def lines(self) -> str:
        """What the tasks left for the note: the plan, each step of maintenance, and the last task."""
        steps = get_args(Step) if self._is_maintenance else ("commit", "verify")
        return "\n".join(text for task in ("plan", *steps) if (text := self.xcom(task, XCOM_KEY)))

    def failure(self, *, timed_out: bool) -> str:
        """What failed first, how to fix it, and what the next run does."""
        tasks = self._instances()
        order = {"plan": 0, "load": 1}
        ends = "skipped" if timed_out else "failed"
        ended = sorted((t for t in tasks if t.state == ends), key=lambda t: (order.get(t.task_id, 2), t.map_index))
        kind: run_notes.Kind = "maintenance" if self._is_maintenance else "schedule"
        if any(t.task_id == "verify" for t in tasks):
            kind = "replay"
        plan = self.xcom("plan", "replay" if kind == "replay" else "return_value")
        if not ended:
            return f"{run_notes.FAILED}no task of its own. {run_notes.next_run('', plan, kind)}"
        first = ended[0]
        name = first.task_id if first.map_index < 0 else f"{first.task_id}[{first.rendered_map_index}]"
        error = self.xcom(first.task_id, FAILURE_KEY, first.map_index)
        next_run = run_notes.next_run(first.task_id, plan, kind, committed=self._is_committed(plan))
        return run_notes.failure(name, error, next_run, timed_out=timed_out)


def save_failure(ti: Any, error: BaseException) -> None:
    """Airflow's task runner tells the listener when a try of a task failed. What fails here is logged, and hides nothing."""
    pipeline = getattr(getattr(ti, "task", None), "pipeline", None)
    if not isinstance(pipeline, Pipeline):
        return
    from airflow.sdk._shared.secrets_masker import redact  # noqa: PLC0415 - parsing the DAG needs no masker

    try:
        ti.xcom_push(key=FAILURE_KEY, value=redact(described(error)))
    except Exception:
        log.exception("this failure is not in the note of its run")
    if ti.dag_id == pipeline.name:  # not of its replays, nor of maintenance
        metrics.failed(pipeline.name)


def described(error: object) -> dict[str, Any]:
    """Message and fix of an error, without secrets."""
    name = type(error).__name__
    if isinstance(error, TidegateError):
        return {"error": name, "message": f"{name}: {error.message}", "fix": error.fix}
    return {"error": name, "message": name, "fix": "See the task's log"}

"""The plan of a run as the note of its DAG run, where the Airflow UI shows it first.

A task cannot write its own run's note, so `plan` leaves the text as an XCom, and this listener, which Airflow calls in the
scheduler when the run ends, makes a note of it. A note that somebody wrote stays. A note is a convenience: whatever fails here
is logged, and never fails a run.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow.listeners import hookimpl

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

XCOM_KEY = "note"
LONGEST = 1000  # of Airflow's own column

log = logging.getLogger(__name__)


@hookimpl
def on_dag_run_success(dag_run: DagRun, msg: str) -> None:
    """Airflow calls this when a run succeeded."""
    del msg
    write_note(dag_run)


@hookimpl
def on_dag_run_failed(dag_run: DagRun, msg: str) -> None:
    """Airflow calls this when a run failed."""
    del msg
    write_note(dag_run)


def write_note(dag_run: DagRun) -> None:
    """Make the plan's text the run's note, unless the run has one, or no plan of ours."""
    from airflow.models.xcom import XComModel  # noqa: PLC0415 - the metadata database, which only the scheduler has
    from sqlalchemy.orm import object_session  # noqa: PLC0415

    try:
        session = object_session(dag_run)
        if session is None or dag_run.note:
            return
        found = session.scalars(
            XComModel.get_many(run_id=dag_run.run_id, key=XCOM_KEY, task_ids="plan", dag_ids=dag_run.dag_id, limit=1)
        ).first()
        if found is not None:
            dag_run.note = str(XComModel.deserialize_value(found))[:LONGEST]
    except Exception:
        log.exception("the plan of run %s is not in its note", dag_run.run_id)

"""What Airflow's database has of runs: their states and notes, their tasks, and what tasks handed on.

Every question opens a short session of its own. All of them block, so routes call them in threads.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from airflow.models.dagrun import DagRun
from airflow.models.pool import Pool
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from sqlalchemy import func, select
from sqlalchemy.orm import selectinload

from tidegate.core.config.names import RECEIVE_DAG
from tidegate.views.waiting import Slots, Task

NEWEST = 50
"""Runs of a DAG that are read."""
HOLDING = (TaskInstanceState.SCHEDULED, TaskInstanceState.QUEUED, TaskInstanceState.RUNNING)
"""States of a task that holds a slot, or waits for one."""
PAGE = 500
"""Ids of one question: databases bound the parameters of a statement."""


def runs(dag_id: str, run_ids: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The newest runs of a DAG as Airflow's REST API lists them, the oldest first, or those of these ids.

    Beside Airflow's own fields, `since_ms` is when each was started, or queued, `ended_ms` when it ended, 0 where it has not
    (epoch ms).
    """
    newest = select(DagRun).where(DagRun.dag_id == dag_id).order_by(DagRun.run_after.desc(), DagRun.id.desc()).limit(NEWEST)
    newest = newest.options(selectinload(DagRun.dag_run_note))  # not note by note
    if run_ids is not None:
        newest = newest.where(DagRun.run_id.in_(run_ids))
    with create_session(scoped=False) as session:
        return [
            {
                "dag_run_id": run.run_id,
                "state": str(run.state),
                "note": run.note,
                "run_type": str(run.run_type),
                "triggering_user_name": run.triggering_user_name,
                "since_ms": _ms(run.start_date or run.queued_at or run.run_after),
                "ended_ms": 0 if run.end_date is None else _ms(run.end_date),
            }
            for run in session.scalars(newest)
        ][::-1]


def tasks(dag_id: str, run_id: str) -> list[Task]:
    """The tasks of a run."""
    of = select(
        TaskInstance.task_id,
        TaskInstance.map_index,
        TaskInstance.state,
        TaskInstance.pool,
        TaskInstance.end_date,
        TaskInstance.retry_delay_override,
        TaskInstance.retry_reason,
    ).where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
    with create_session(scoped=False) as session:
        return [
            Task(
                name=row.task_id if row.map_index < 0 else f"{row.task_id}[{row.map_index}]",
                state=str(row.state),
                pool=row.pool,
                retry_at_ms=_retry_ms(row.state, row.end_date, row.retry_delay_override),
                retry_reason=row.retry_reason,
            )
            for row in session.execute(of.order_by(TaskInstance.task_id, TaskInstance.map_index))
        ]


def slots(pool: str) -> Slots:
    """The slots of a pool."""
    with create_session(scoped=False) as session:
        of = session.scalar(select(Pool).where(Pool.pool == pool))
        return Slots(pool, None) if of is None else Slots(pool, int(of.slots), int(of.occupied_slots(session=session)))


def receiver_slots() -> dict[str, int]:
    """The slots of each pool that instances of receivers hold or wait for, by the pool."""
    of = select(TaskInstance.pool, func.sum(TaskInstance.pool_slots)).where(TaskInstance.state.in_(HOLDING))
    # of a receiver's tasks, those that last are mapped
    of = of.where(TaskInstance.dag_id.endswith(RECEIVE_DAG, autoescape=True), TaskInstance.map_index >= 0)
    with create_session(scoped=False) as session:
        return {pool: int(taken) for pool, taken in session.execute(of.group_by(TaskInstance.pool))}


def handed_on(dag_id: str, run_ids: Sequence[str], key: str, *, tasks: Sequence[str]) -> dict[tuple[str, str, int], Any]:
    """What tasks of some runs handed on under a key (XComs), by run, task and map index.

    Values are read as JSON and no more: nobody's class is made here.
    """
    found: dict[tuple[str, str, int], Any] = {}
    with create_session(scoped=False) as session:
        for at in range(0, len(run_ids), PAGE):
            of = select(XComModel).where(XComModel.dag_id == dag_id, XComModel.run_id.in_(run_ids[at : at + PAGE]))
            of = of.where(XComModel.key == key, XComModel.task_id.in_(tasks))
            for each in session.scalars(of):
                found[each.run_id, each.task_id, each.map_index] = _plain(each.value)
    return found


def _plain(value: Any) -> Any:
    """What the database has: a value as a task sent it, or JSON text, as Airflow's own servers write it."""
    if isinstance(value, str):
        with suppress(ValueError):
            return json.loads(value)
    return value


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _retry_ms(state: str | None, ended: datetime | None, delay_s: float | None) -> int | None:
    """When a task that has failed is tried again; None where nothing says when."""
    if state != TaskInstanceState.UP_FOR_RETRY or ended is None or delay_s is None:
        return None
    return _ms(ended) + round(delay_s * 1000)

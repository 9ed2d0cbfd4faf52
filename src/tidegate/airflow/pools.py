"""The pool of each sink, which loads wait for.

Airflow never runs a task whose pool does not exist, and says so in the scheduler's log only. So a missing pool is made when
a run starts, by the plugin's listener in the scheduler: no other part may write pools, and a pipeline's file may come at any
time. The DAG tells the scheduler which pool it needs (`tidegate.airflow.declared`). A pool that exists keeps its slots: they
are for operators to tune.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tidegate.airflow.declared import Declared
from tidegate.core.config.pipeline import POOL_DESCRIPTION, Pipeline, pool_command

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from airflow.sdk import Context
    from sqlalchemy import Insert
    from sqlalchemy.orm import Session

log = logging.getLogger(__name__)
task_log = logging.getLogger("airflow.task")


def declared(pipeline: Pipeline, *, waits: bool = True) -> dict[str, Any]:
    """Arguments of a DAG's plan task, by which the scheduler knows the pipeline and its pool.

    `waits` is whether tasks of the DAG wait for a slot, which the log of the plan says then.
    """
    named = {"doc_json": Declared.of(pipeline).to_doc()}
    return {**named, "pre_execute": _Tell(pipeline)} if waits else named


class _Tell:
    """Says in the log of the plan what the load waits for, and how to make it where nothing else did."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def __call__(self, context: Context) -> None:
        del context
        task_log.info(
            "loads wait for a slot of the pool %s; if one stays scheduled, run `%s`",
            self._pipeline.pool,
            pool_command(self._pipeline.pool, self._pipeline.sink.slots),
        )


def declared_by(dag_run: DagRun, session: Session) -> Declared | None:
    """What the DAG of a run says of itself; None where it is not ours."""
    from airflow.models.dagbag import DBDagBag  # noqa: PLC0415 - the metadata database, which only servers have

    dag = dag_run.dag or DBDagBag().get_dag_for_run(dag_run, session=session)
    plan = dag.task_dict.get("plan") if dag is not None else None
    return Declared.in_doc(getattr(plan, "doc_json", None))


def make_missing(dag_run: DagRun) -> None:
    """Make the pool that the run's loads wait for, unless it is there or the DAG is not ours."""
    from sqlalchemy.orm import object_session  # noqa: PLC0415 - as above

    session = object_session(dag_run)
    declared = declared_by(dag_run, session) if session is not None else None
    if session is None or declared is None:
        return
    # part of the scheduler's own transaction, which must neither commit here nor fail on what another scheduler made meanwhile
    insertion = session.execute(_insert(session.get_bind().dialect.name, declared))
    if getattr(insertion, "rowcount", 0) == 1:
        log.info("made the pool %s with %d slots", declared.pool, declared.slots)


def _insert(dialect: str, declared: Declared) -> Insert:
    """An insertion that changes nothing where the pool exists."""
    from airflow.models.pool import Pool  # noqa: PLC0415 - as above
    from sqlalchemy.dialects import mysql, postgresql, sqlite  # noqa: PLC0415

    row = {"pool": declared.pool, "slots": declared.slots, "description": POOL_DESCRIPTION, "include_deferred": False}
    if dialect == "mysql":
        return mysql.insert(Pool).prefix_with("IGNORE").values(**row)
    if dialect == "postgresql":
        return postgresql.insert(Pool).on_conflict_do_nothing().values(**row)
    return sqlite.insert(Pool).on_conflict_do_nothing().values(**row)

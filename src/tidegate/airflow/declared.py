"""What a DAG of ours says of itself to Airflow's servers: whose it is, and what they need to know of the pipeline.

Servers do not read the files of pipelines. The scheduler has to make a pool, and the pages show lag and batches. So the plan
task of each DAG carries it in its documentation, which is part of the serialized DAG.

Airflow never runs a task whose pool does not exist, and says so in the scheduler's log only. So a missing pool is made when
a run starts, by the plugin's listener in the scheduler. A pool that exists keeps its slots: they are for operators to tune.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperatorLink

from tidegate.core.config.names import LONGEST_POOL, REPLAY_DAG
from tidegate.core.config.pipeline import POOL_DESCRIPTION, Pipeline, pool_command
from tidegate.core.config.sinks import ICEBERG
from tidegate.core.model.counts import is_whole
from tidegate.core.model.uris import run_page
from tidegate.core.model.watermarks import IsolationLevel

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from airflow.sdk import Context
    from sqlalchemy import Insert
    from sqlalchemy.orm import Session

MARK = "tidegate"
log = logging.getLogger(__name__)
task_log = logging.getLogger("airflow.task")
OPERATORS = {
    "plan": ["PlanOperator", "PlanReplayOperator"],
    "load": ["LoadOperator"],
    "finish": ["FinishOperator", "CatchUpOperator"],
}
"""The operators that have the link, by the module of `tidegate.airflow.operators` that they are in. They are not
imported here: that would import Spark's provider in the API server."""


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A pipeline, as its DAGs declare it. A DAG that an older version has serialized lacks the later ones.

    `assign` are the partitions that it reads, by topic; None: all of its topics. `quarantine` is a table; None: it has none.
    `max_records` is the limit of a run; None: it has none. `catch_up`: a run that leaves something behind starts the next one.
    `retires`: it goes on without partitions that are gone. `shared_with` are the pipelines that its file names as owners of the
    table, too; `by_batch`: rows are known by their batch.
    """

    pipeline: str
    pool: str
    slots: int
    table: str = ""
    sink: str = ICEBERG.name
    connection: str = ""
    isolation_level: IsolationLevel = "read_committed"
    interval_s: float | None = None
    mean_interval_s: float | None = None
    assign: Mapping[str, tuple[int, ...]] | None = None
    quarantine: str | None = None
    max_records: int | None = None
    catch_up: bool = False
    retires: bool = False
    shared_with: tuple[str, ...] = ()
    by_batch: bool = False

    @property
    def replay_dag(self) -> str:
        """The id of the DAG that replays the pipeline."""
        return f"{self.pipeline}{REPLAY_DAG}"

    @staticmethod
    def of(pipeline: Pipeline) -> Declared:
        """What the DAGs of a pipeline declare."""
        return Declared(
            pipeline=pipeline.name,
            pool=pipeline.pool,
            slots=pipeline.sink.slots,
            table=pipeline.sink.table,
            sink=pipeline.sink.kind,
            connection=pipeline.source.connection,
            isolation_level=pipeline.source.isolation_level,
            interval_s=pipeline.fixed_interval_s,
            mean_interval_s=pipeline.mean_interval_s,
            assign=pipeline.source.assign,
            quarantine=pipeline.quarantine_table,
            max_records=pipeline.limits.max_records,
            catch_up=pipeline.catch_up,
            retires=pipeline.source.on_deleted == "retire",
            shared_with=pipeline.sink.shared_with,
            by_batch=pipeline.identity == "batch",
        )

    @staticmethod
    def in_doc(doc: str | None) -> Declared | None:
        """What the documentation of a plan task says; None where the DAG is not ours."""
        try:
            said = json.loads(doc or "{}")[MARK]
            declared = Declared(**{f.name: said[f.name] for f in fields(Declared) if f.name in said})
        except (ValueError, KeyError, TypeError):
            return None
        # an insertion of a pool that fails would end the scheduler's transaction
        valid = isinstance(declared.pool, str) and 0 < len(declared.pool) <= LONGEST_POOL and is_whole(declared.slots, 1)
        return declared if valid else None

    def to_doc(self) -> str:
        """The documentation of a plan task."""
        return json.dumps({MARK: asdict(self)})


def of_plan(pipeline: Pipeline, *, waits: bool = True) -> dict[str, Any]:
    """Arguments of a DAG's plan task, by which the scheduler knows the pipeline and its pool.

    `waits` is whether tasks of the DAG wait for a slot, which the log of the plan says then.
    """
    named = {"doc_json": Declared.of(pipeline).to_doc()}
    return {**named, "pre_execute": partial(_tell, pipeline)} if waits else named


def _tell(pipeline: Pipeline, context: Context) -> None:  # noqa: ARG001 - Airflow's
    """Say in the log of the plan what the load waits for, and how to make it where nothing else did."""
    make = pool_command(pipeline.pool, pipeline.sink.slots)
    task_log.info("loads wait for a slot of the pool %s; if one stays scheduled, run `%s`", pipeline.pool, make)


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
    if session is None or (declared := declared_by(dag_run, session)) is None:
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


class PageLink(BaseOperatorLink):
    """Leads to the page of the task's run, also while the task runs. Airflow finds operators by name and module."""

    name = "Tidegate"
    operators: ClassVar[list[Any]] = [
        SimpleNamespace(__name__=name, __module__=f"tidegate.airflow.operators.{module}")
        for module, names in OPERATORS.items()
        for name in names
    ]

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The page's address below Airflow's; empty where the DAG is not ours: Airflow finds mapped tasks by name alone."""
        plan = operator.dag.task_dict.get("plan")
        declared = Declared.in_doc(getattr(plan, "doc_json", None))
        if declared is None or ti_key.dag_id not in (declared.pipeline, declared.replay_dag):
            return ""
        return run_page(ti_key.dag_id, ti_key.run_id)

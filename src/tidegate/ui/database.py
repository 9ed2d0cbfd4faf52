"""What routes read of Airflow's database inside its API server: Variables, DAGs, and runs with their tasks and XComs.

Variables are read by a session, as Airflow's own routes do: `Variable` of the task SDK does not know the database there, and
`Variable.get` of Airflow's models takes a database that does not answer for a missing key. Every question opens a short session
of its own. All of them block, so routes call them in threads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from typing import Any, TypeVar

from airflow.configuration import ensure_secrets_loaded
from airflow.models.dag import DagModel, DagTag
from airflow.models.dag_version import DagVersion
from airflow.models.dagrun import DagRun
from airflow.models.errors import ParseImportError
from airflow.models.pool import Pool
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.models.variable import Variable
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from sqlalchemy import func, select
from sqlalchemy.orm import Session, selectinload

from tidegate.airflow.declared import MARK, Declared
from tidegate.airflow.store import answering, asking_airflow, shadowed
from tidegate.core.config.names import PIPELINES, RECEIVE_DAG
from tidegate.core.model.errors import masked
from tidegate.views.overview import Slots, Task

T = TypeVar("T")
RAISED, LATER = "ConfigError: ", "\n\nThe above exception"
"""What a traceback says before the message of an error in such a file, and before what was raised from it."""
PARSED_AT_ONCE = timedelta(seconds=10)
"""DAGs of one file whose parses lie further apart are not in the file together."""
NEWEST = 50
"""Runs of a DAG that are read."""
HOLDING = (TaskInstanceState.SCHEDULED, TaskInstanceState.QUEUED, TaskInstanceState.RUNNING)
"""States of a task that holds a slot, or waits for one."""
PAGE = 500
"""Ids of one question: databases bound the parameters of a statement."""


@dataclass(frozen=True)
class KnownDag:
    """A DAG of ours: what it declares, whether it is paused, whether Airflow still finds it in its file, and its bundle.

    Airflow says itself that it does not, but a minute late, by `stale_dag_threshold`; by then it has also deleted the error.
    """

    declared: Declared
    _: KW_ONLY
    paused: bool
    current: bool = True
    bundle: str | None = None


class Dags:
    """The DAGs of ours. A serialized DAG is decoded once, and again when it has changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, Declared | None]] = {}

    def pipelines(self) -> dict[str, KnownDag]:
        """The DAGs of all pipelines, by id; also those that Airflow does not find any more."""
        return {dag_id: found for dag_id, found in self._find().items() if found.declared.pipeline == dag_id}

    def find(self, dag_id: str) -> KnownDag | None:
        """One DAG of ours, of a pipeline's schedule, its replays or its maintenance; None where it is not ours."""
        return self._find(dag_id).get(dag_id)

    def _find(self, dag_id: str | None = None) -> dict[str, KnownDag]:
        file = DagModel.bundle_name, DagModel.relative_fileloc
        newest = func.max(DagModel.last_parsed_time).over(partition_by=file)  # all DAGs of a file are parsed at once
        tagged = select(DagModel.dag_id, DagModel.is_paused, DagModel.is_stale, DagModel.bundle_name)
        tagged = tagged.add_columns(DagModel.last_parsed_time.label("parsed"), newest.label("newest"))
        tagged = tagged.join(DagTag, DagTag.dag_id == DagModel.dag_id).where(DagTag.name == MARK)
        with create_session(scoped=False) as session:
            rows = {row.dag_id: row for row in session.execute(tagged) if dag_id in (None, row.dag_id)}
            declared = self._declared_by(list(rows), session)
        if dag_id is None:
            self._known = {each: known for each, known in self._known.items() if each in rows}
        return {
            each: KnownDag(said, paused=bool(row.is_paused), current=_is_current(row), bundle=row.bundle_name)
            for each, said in declared.items()
            for row in [rows[each]]
        }

    def _declared_by(self, dag_ids: Sequence[str], session: Session) -> dict[str, Declared]:
        newest = select(DagVersion.dag_id, func.max(DagVersion.version_number).label("number"))
        newest = newest.join(SerializedDagModel, SerializedDagModel.dag_version_id == DagVersion.id)
        of = newest.where(DagVersion.dag_id.in_(dag_ids)).group_by(DagVersion.dag_id).subquery()
        hashes = select(SerializedDagModel.dag_id, SerializedDagModel.dag_hash)
        hashes = hashes.join(DagVersion, SerializedDagModel.dag_version_id == DagVersion.id)
        hashes = hashes.join(of, (DagVersion.dag_id == of.c.dag_id) & (DagVersion.version_number == of.c.number))
        found = {row.dag_id: row.dag_hash for row in session.execute(hashes)}
        known = self._known  # which another thread may replace
        changed = [each for each, dag_hash in found.items() if known.get(each, ("", None))[0] != dag_hash]
        if changed:
            for serialized in SerializedDagModel.get_latest_serialized_dags(dag_ids=changed, session=session):
                said = Declared.in_doc(_plan_doc(serialized.data))
                known[serialized.dag_id] = found[serialized.dag_id], said
        declared = {each: known[each][1] for each in found if each in known}
        return {each: said for each, said in declared.items() if said is not None}


def _is_current(row: Any) -> bool:
    left_out = row.parsed is not None and row.newest - row.parsed > PARSED_AT_ONCE
    return not row.is_stale and not left_out


def _plan_doc(data: Mapping[str, Any] | None) -> str | None:
    """The documentation of the plan task in a serialized DAG, which is not made a DAG for it: that takes ten times as long."""
    tasks = (task.get("__var", task) for task in (data or {}).get("dag", {}).get("tasks", ()))
    return next((task.get("doc_json") for task in tasks if task.get("task_id") == "plan"), None)


def file_errors() -> dict[tuple[str | None, str], str]:
    """Why files of pipelines cannot be read, by bundle and pipeline, as Airflow's import errors say."""
    with create_session(scoped=False) as session:
        of = select(ParseImportError.bundle_name, ParseImportError.filename, ParseImportError.stacktrace)
        rows = session.execute(of).all()
    files = ((row.bundle_name, PurePosixPath(row.filename or ""), row.stacktrace or "") for row in rows)
    return {
        (bundle, file.stem): masked(why.rpartition(RAISED)[2].partition(LATER)[0].strip())
        for bundle, file, why in files
        if file.parent.name == PIPELINES and file.suffix in (".yaml", ".yml")
    }


def shadow_of(key: str) -> str | None:
    """That a secrets backend of the API server answers in the place of a saved Variable; None where none does.

    Those of the workers, which may have others, are named by the task that fails of it.
    """
    name = answering(ensure_secrets_loaded(), key)
    return None if name is None else str(shadowed(key, f"the API server's {name}"))


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


class DatabaseStore:
    """Variables in Airflow's database, with one short session a call; every failure is a `StateUnavailable`."""

    def keys(self, prefix: str) -> list[str]:
        """Every key that starts with `prefix`, sorted; letters compare exactly, also where the database compares loosely."""
        with asking_airflow("list", prefix), create_session(scoped=False) as session:
            keys = session.scalars(select(Variable.key).where(Variable.key.startswith(prefix, autoescape=True)))
            return sorted(key for key in keys if key.startswith(prefix))

    def get(self, key: str) -> str:
        """The text of a listed key."""
        with asking_airflow("read", key), create_session(scoped=False) as session:
            variable = session.scalar(select(Variable).where(Variable.key == key))
            if variable is None or variable.key != key:
                raise KeyError(key)
            if variable.val is None:  # Airflow has logged why
                raise ValueError("the Fernet key of this Airflow does not decrypt it")
            return str(variable.val)

    def values(self, keys: Sequence[str]) -> dict[str, str]:
        """The texts of listed keys, in few questions; without those that are gone by now, or that cannot be decrypted."""
        found: dict[str, str] = {}
        for at in range(0, len(keys), PAGE):
            with asking_airflow("read", f"{keys[at]} and others"), create_session(scoped=False) as session:
                for variable in session.scalars(select(Variable).where(Variable.key.in_(keys[at : at + PAGE]))):
                    if variable.val is not None:
                        found[variable.key] = str(variable.val)
        return found

    def put(self, key: str, value: str, description: str) -> None:
        """Write one key."""
        with asking_airflow("write", key), create_session(scoped=False) as session:
            Variable.set(key, value, description=description, session=session)

    def delete(self, key: str) -> None:
        """Remove one key."""
        with asking_airflow("delete", key), create_session(scoped=False) as session:
            Variable.delete(key, session=session)


class Held(DatabaseStore):
    """Values that were read at once."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def get(self, key: str) -> str:
        """The text of a key that was read."""
        return self._values[key]

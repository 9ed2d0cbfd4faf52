"""What routes read inside Airflow's API server of DAGs and brokers.

Every question opens a short session of Airflow's database of its own. All of them block, so routes call them in threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import PurePosixPath
from threading import Lock
from typing import Any, TypeVar

from airflow.configuration import ensure_secrets_loaded
from airflow.models.connection import Connection
from airflow.models.dag import DagModel, DagTag
from airflow.models.dag_version import DagVersion
from airflow.models.errors import ParseImportError
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.session import create_session
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from tidegate.airflow.connections import extra_of, get_connection
from tidegate.airflow.declared import MARK, Declared
from tidegate.airflow.store import answering, shadowed
from tidegate.core.config.names import PIPELINES
from tidegate.core.model.errors import BrokerUnavailable
from tidegate.kafka.brokers import AdminBrokers
from tidegate.kafka.settings import planning_client

T = TypeVar("T")

TIMEOUT_S = 5.0
REFUSED_S = 1.0
"""Refused connections: a page is shown without the log rather than late."""
AWAY_S = 10.0
"""How long brokers that did not answer are not asked again."""
IDLE_S = 600.0
"""How long a client is kept that nobody needs."""
RAISED = "ConfigError: "
"""What a traceback says before the message of an error in such a file."""


@dataclass(frozen=True)
class KnownDag:
    """A DAG of ours: what it declares, whether it is paused, whether Airflow still finds it in its file, and its bundle."""

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
        tagged = select(DagModel.dag_id, DagModel.is_paused, DagModel.is_stale, DagModel.bundle_name)
        tagged = tagged.join(DagTag, DagTag.dag_id == DagModel.dag_id).where(DagTag.name == MARK)
        if dag_id is not None:
            tagged = tagged.where(DagModel.dag_id == dag_id)
        with create_session(scoped=False) as session:
            rows = {row.dag_id: row for row in session.execute(tagged)}
            declared = self._declared_by(list(rows), session)
        if dag_id is None:
            self._known = {each: known for each, known in self._known.items() if each in rows}
        return {
            each: KnownDag(
                said, paused=bool(rows[each].is_paused), current=not rows[each].is_stale, bundle=rows[each].bundle_name
            )
            for each, said in declared.items()
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
        (bundle, file.stem): why.rpartition(RAISED)[2].strip()
        for bundle, file, why in files
        if file.parent.name == PIPELINES and file.suffix in (".yaml", ".yml")
    }


def shadow_of(key: str) -> str | None:
    """That a secrets backend of the API server answers in the place of a saved Variable; None where none does.

    Those of the workers, which may have others, are named by the task that fails of it.
    """
    name = answering(ensure_secrets_loaded(), key)
    return None if name is None else str(shadowed(key, f"the API server's {name}"))


class Kafka:
    """The brokers of each connection, by one client for all who ask. `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._clients: dict[str, _Client] = {}

    def ask(self, connection: str, question: Callable[[AdminBrokers], T]) -> T:
        """The answer of the brokers that a connection names. One question at a time of each connection.

        Clients that nobody has needed for `IDLE_S` are closed, and one whose connection has changed.

        Raises:
            ConfigError: there is no such connection, or it names no broker.
            BrokerUnavailable: no broker answers; also within `AWAY_S` after one that did not answer.
            KafkaError: what a broker refuses.
        """
        settings, now = _settings(connection), self._clock()
        with self._lock:
            old = {name for name, each in self._clients.items() if now - each.asked_at > IDLE_S}
            known = self._clients.get(connection)
            if known is not None and known.settings != settings:
                old.add(connection)
            unneeded = [self._clients.pop(name) for name in old]
            client = self._clients.setdefault(connection, _Client(settings, self._clock))
            client.asked_at = now
        for each in unneeded:
            each.close()
        return client.ask(question)

    def close(self) -> None:
        """Close all clients."""
        with self._lock:
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()


class _Client:
    """One client of a connection's brokers, which is opened when they are asked."""

    def __init__(self, settings: dict[str, str], clock: Callable[[], float]) -> None:
        self.settings = settings
        self.asked_at = 0.0
        self._clock = clock
        self._lock = Lock()
        self._brokers: AdminBrokers | None = None
        self._away: tuple[float, BrokerUnavailable] | None = None

    def ask(self, question: Callable[[AdminBrokers], T]) -> T:
        with self._lock:
            if self._away is not None and self._clock() < self._away[0]:
                raise self._away[1]
            if self._brokers is None:
                self._brokers = AdminBrokers(self.settings, timeout_s=TIMEOUT_S, refused_s=REFUSED_S)
            try:
                return question(self._brokers)
            except BrokerUnavailable as error:
                self._away = self._clock() + AWAY_S, error
                raise

    def close(self) -> None:
        """Close it, after the question that is being asked."""
        with self._lock:
            if self._brokers is not None:
                self._brokers.close()
                self._brokers = None


def _settings(connection: str) -> dict[str, str]:
    found = get_connection(connection, expected="a Kafka connection", find=Connection.get_connection_from_secrets)
    return planning_client(extra_of(found), connection=connection, client_id="tidegate-ui").settings

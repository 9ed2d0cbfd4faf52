"""What routes read inside Airflow's API server: DAGs of pipelines, their runs, saved state, brokers and tables.

Every question opens a short session of Airflow's database of its own. All of them block, so routes call them in threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, TypeVar

from airflow.models.connection import Connection
from airflow.models.dag import DagModel, DagTag
from airflow.models.dagrun import DagRun
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.session import create_session
from sqlalchemy import select

from tidegate.airflow.connections import extra_of, get_connection
from tidegate.airflow.declared import MARK, Declared
from tidegate.core.errors import BrokerUnavailable
from tidegate.kafka.brokers import AdminBrokers
from tidegate.kafka.settings import planning_client

T = TypeVar("T")

TIMEOUT_S = 5.0
REFUSED_S = 1.0
"""Refused connections: a page is shown without the log rather than late."""
AWAY_S = 10.0
"""How long brokers that did not answer are not asked again."""
RUNS = 30
"""Newest runs of a DAG that are read, to find why it stopped."""


def pipelines(dag_ids: Sequence[str]) -> dict[str, tuple[Declared, bool]]:
    """Those of these DAGs that are pipelines', by id, each with whether it is paused."""
    tagged = select(DagModel.dag_id, DagModel.is_paused).join(DagTag, DagTag.dag_id == DagModel.dag_id)
    tagged = tagged.where(DagTag.name == MARK, DagModel.is_stale.is_(False), DagModel.dag_id.in_(dag_ids))
    found = {}
    with create_session(scoped=False) as session:
        paused = {row.dag_id: row.is_paused for row in session.execute(tagged)}
        for serialized in SerializedDagModel.get_latest_serialized_dags(dag_ids=list(paused), session=session):
            declared = Declared.in_doc(_plan_doc(serialized.data))
            if declared is not None and declared.pipeline == serialized.dag_id:
                found[serialized.dag_id] = declared, bool(paused[serialized.dag_id])
    return found


def _plan_doc(data: Mapping[str, Any] | None) -> str | None:
    """The documentation of the plan task in a serialized DAG, which is not made a DAG for it: that takes ten times as long."""
    tasks = (task.get("__var", task) for task in (data or {}).get("dag", {}).get("tasks", ()))
    return next((task.get("doc_json") for task in tasks if task.get("task_id") == "plan"), None)


def runs(dag_id: str, run_ids: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The newest runs of a DAG as Airflow's REST API lists them, the oldest first, with `since_ms`; or those of these ids."""
    newest = select(DagRun).where(DagRun.dag_id == dag_id).order_by(DagRun.run_after.desc(), DagRun.id.desc()).limit(RUNS)
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
                "since_ms": int((run.start_date or run.queued_at or run.run_after).timestamp() * 1000),
            }
            for run in session.scalars(newest)
        ][::-1]


class Kafka:
    """The brokers of each connection, by one client for all who ask."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._clients: dict[str, _Client] = {}

    def ask(self, connection: str, question: Callable[[AdminBrokers], T]) -> T:
        """The answer of the brokers that a connection names. One question at a time of each connection.

        Raises:
            ConfigError: there is no such connection, or it names no broker.
            BrokerUnavailable: no broker answers; also within `AWAY_S` after one that did not answer.
            KafkaError: what a broker refuses.
        """
        settings = _settings(connection)
        with self._lock:
            client = self._clients.get(connection)
            if client is None or client.settings != settings:
                client = self._clients[connection] = _Client(settings)
        return client.ask(question)


class _Client:
    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings
        self._lock = Lock()
        self._brokers = AdminBrokers(settings, timeout_s=TIMEOUT_S, refused_s=REFUSED_S)
        self._away: tuple[float, BrokerUnavailable] | None = None

    def ask(self, question: Callable[[AdminBrokers], T]) -> T:
        with self._lock:
            if self._away is not None and time.monotonic() < self._away[0]:
                raise self._away[1]
            try:
                return question(self._brokers)
            except BrokerUnavailable as error:
                self._away = time.monotonic() + AWAY_S, error
                raise


def _settings(connection: str) -> dict[str, str]:
    found = get_connection(connection, expected="a Kafka connection", find=Connection.get_connection_from_secrets)
    return planning_client(extra_of(found), connection=connection, client_id="tidegate-ui").settings

"""The schedule seen from outside Airflow: what a command needs to plan, to accept and to measure.

Variables and connections come through Airflow's REST API: of the Airflow that `TIDEGATE_AIRFLOW_URL` names, with
`TIDEGATE_AIRFLOW_USER` and `TIDEGATE_AIRFLOW_PASSWORD`, or `TIDEGATE_AIRFLOW_TOKEN`; or of whichever a caller has. The API
hides a connection's secrets; where there are some, the command finds the connection in the environment, as Airflow itself does:
`AIRFLOW_CONN_<ID>` with JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from tidegate.airflow.remote.api import AirflowApi
from tidegate.airflow.remote.client import PASSWORD, TOKEN, URL, USER
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import ConfigError, PlatformError, StateError, StateUnavailable
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.ports import SinkReader, StateStore
from tidegate.kafka.brokers import AdminBrokers
from tidegate.kafka.client import PERSON_S, REFUSED_S
from tidegate.kafka.settings import planning_client
from tidegate.sinks import reader_of

HIDDEN = "***"


@contextmanager
def _state() -> Iterator[None]:
    try:
        yield
    except PlatformError as error:
        raise StateUnavailable(error.message, fix=error.fix, **error.fields) from error


class ApiStore(StateStore):
    """The `StateStore` port over Airflow's REST API; every failure is a `StateUnavailable`."""

    def __init__(self, api: AirflowApi) -> None:
        self._api = api
        self._listed: dict[str, str] = {}

    def keys(self, prefix: str) -> list[str]:
        """Every key that starts with `prefix`."""
        with _state():
            self._listed = self._api.variables(prefix)
        return sorted(self._listed)

    def get(self, key: str) -> str:
        """The text of a listed key, as it was listed: the listing brings the values, a thousand in ten answers."""
        if key in self._listed:
            return self._listed[key]
        with _state():
            return self._api.variable(key)

    def put(self, key: str, value: str, description: str) -> None:
        """Write one key."""
        self._listed.pop(key, None)
        with _state():
            self._api.set_variable(key, value, description)

    def delete(self, key: str) -> None:
        """Remove one key."""
        self._listed.pop(key, None)
        with _state():
            try:
                self._api.delete_variable(key)
            except PlatformError as error:
                if error.fields.get("status") != HTTPStatus.NOT_FOUND:
                    raise


class Remote:
    """One Airflow from outside, with the brokers and the catalog that its pipelines name."""

    def __init__(self, api: AirflowApi, tell: Callable[[str], object] = str) -> None:
        self.api = api
        self._tell = tell
        self.store = ApiStore(api)

    def reader(self, pipeline: Pipeline) -> SinkReader:
        """What reads the pipeline's table."""
        return reader_of(pipeline.sink.kind)

    def kafka(self, pipeline: Pipeline) -> dict[str, str]:
        """The planning client's settings of the pipeline's Kafka connection.

        Raises ConfigError: there is no such connection, or its secrets are hidden.
        """
        connection = pipeline.source.connection
        return planning_client(
            self._extra(connection), connection=connection, client_id=f"tidegate-{pipeline.name}-cli"
        ).settings

    def brokers(self, pipeline: Pipeline) -> AdminBrokers:
        """The `Brokers` port of the pipeline, for somebody who waits: it gives up sooner than a task does."""
        return AdminBrokers(self.kafka(pipeline), timeout_s=PERSON_S, refused_s=REFUSED_S, tell=self._tell)

    def cursor(self, pipeline: Pipeline) -> Cursor:
        """The pipeline's cursor. Raises StateError: there is none, or it cannot be read or believed."""
        ledger = Ledger(self.store, pipeline.name)
        if not ledger.listing().has_cursor:
            raise StateError(f"pipeline {pipeline.name} has no cursor yet", fix="Run it once")
        return ledger.cursor()

    def runs(self, pipeline: str) -> list[dict[str, Any]]:
        """The pipeline's runs that Airflow knows, the oldest first; none where it has no such DAG."""
        return [] if self.api.dag(pipeline) is None else self.api.dag_runs(pipeline)

    def active_runs(self, pipeline: str) -> list[str]:
        """The pipeline's runs that are queued or running."""
        return [run["dag_run_id"] for run in self.runs(pipeline) if run["state"] in ("queued", "running")]

    def _extra(self, connection: str) -> dict[str, Any]:
        variable = f"AIRFLOW_CONN_{connection.upper()}"
        value: Any
        if variable in os.environ:
            value, where = _json(os.environ[variable]), variable
            value = value.get("extra", {}) if isinstance(value, dict) else None
        else:
            entry = self.api.find(f"/connections/{quote(connection, safe='')}")
            if entry is None:
                raise ConfigError(f"Airflow has no connection {connection}", fix="Add it under Admin > Connections")
            value, where = entry["extra"] or {}, f"connection {connection}"
        extra = _json(value) if isinstance(value, str) else value
        if not isinstance(extra, dict):
            raise ConfigError(
                f"the extra of {where} is not a JSON object", fix='Write it like {"bootstrap.servers": "host:9092"}'
            )
        if HIDDEN in extra.values():
            raise ConfigError(
                f"Airflow's API hides the secrets of connection {connection}",
                fix=f"Give the connection to this command as JSON in the environment, as {variable}",
            )
        return extra


def named_api(tell: Callable[[str], object] = str) -> AirflowApi | None:
    """A client of the Airflow that the environment names; None where it names none. `tell` hears what takes long."""
    url = os.environ.get(URL)
    if url is None:
        return None
    login = os.environ.get(USER, "admin"), os.environ.get(PASSWORD, "")
    return AirflowApi(url, *login, token=os.environ.get(TOKEN), tell=tell)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None

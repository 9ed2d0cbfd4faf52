"""Airflow connections as the settings of clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow.sdk import Connection

from tidegate.core.model.errors import ConfigError


def get_connection(connection_id: str, *, expected: str, find: Callable[[str], Any] | None = None) -> Connection:
    """The connection of that id. `find` asks Airflow; a task, which is the usual caller, asks by its SDK.

    Raises:
        ConfigError: Airflow has none, or cannot say.
    """
    try:
        connection: Connection = (find or Connection.get)(connection_id)
    except Exception as error:
        raise ConfigError(
            f"Airflow has no connection {connection_id} ({type(error).__name__})",
            fix=f"Add it under Admin > Connections, as {expected}",
            connection=connection_id,
        ) from error
    return connection


def extra_of(connection: Connection) -> dict[str, Any]:
    """The connection's extra as a mapping.

    Raises:
        ConfigError: it is not a JSON object.
    """
    try:
        extra = connection.extra_dejson
    except Exception as error:
        raise ConfigError(
            f"the extra of connection {connection.conn_id} is not a JSON object",
            fix='Write it like {"bootstrap.servers": "host:9092"}',
            connection=connection.conn_id,
        ) from error
    return dict(extra)

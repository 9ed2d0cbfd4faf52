"""Airflow connections as the settings of clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow.sdk import Connection

from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import ConfigError
from tidegate.kafka.settings import Translated, planning_client

if TYPE_CHECKING:
    from tidegate.kafka.brokers import AdminBrokers


def get_connection(connection_id: str, *, expected: str, find: Callable[[str], Any] | None = None) -> Connection:
    """The connection of that id, which `find` asks Airflow for; a task asks by its SDK. Raises ConfigError: there is none."""
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
    """The connection's extra as a mapping. Raises ConfigError: it is not a JSON object."""
    try:
        return {**connection.extra_dejson}
    except Exception as error:
        raise ConfigError(
            f"the extra of connection {connection.conn_id} is not a JSON object",
            fix='Write it like {"bootstrap.servers": "host:9092"}',
            connection=connection.conn_id,
        ) from error


def kafka_settings(pipeline: Pipeline, purpose: str, client: Callable[..., Translated], log: Any) -> dict[str, str]:
    """A client's settings, from the pipeline's connection."""
    return client_settings(pipeline.source.connection, f"tidegate-{pipeline.name}-{purpose}", client, log)


def client_settings(connection: str, client_id: str, client: Callable[..., Translated], log: Any) -> dict[str, str]:
    """A client's settings, from a connection; what was changed on the way is logged (never a secret)."""
    extra = extra_of(get_connection(connection, expected="a Kafka connection"))
    translated = client(extra, connection=connection, client_id=client_id)
    for note in translated.notes:
        log.info("connection %s: %s", connection, note)
    return translated.settings


def brokers_of(pipeline: Pipeline, purpose: str, log: Any, **limits: Any) -> AdminBrokers:
    """The pipeline's brokers; `limits` are those of `AdminBrokers`."""
    from tidegate.kafka.brokers import AdminBrokers  # noqa: PLC0415 - parsing the DAG needs no Kafka client

    return AdminBrokers(kafka_settings(pipeline, purpose, planning_client, log), **limits)

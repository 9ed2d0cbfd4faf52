"""What several tasks need: the ports over a pipeline's connections, the clock, and the text of a run's note."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from tidegate.airflow.connections import extra_of, get_connection
from tidegate.airflow.store import VariableStore
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import RequestError
from tidegate.core.planning import run_notes
from tidegate.core.state.ledger import is_of_run
from tidegate.kafka.settings import Translated, planning_client
from tidegate.sinks.registry import reader_of

if TYPE_CHECKING:
    from tidegate.kafka.brokers import AdminBrokers

_PLAN_ANEW = "Nothing was loaded. Clear the run's plan task, with the tasks after it: it finds its range again"
REPLAY = "replay"
"""The XCom that names a saved replay; what the plan of one returns is the list of chunks that `load` is mapped over."""
SHOWN = 5
"""Entries of a list in an XCom; the log has all of them."""


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


def brokers_of(pipeline: Pipeline, purpose: str, log: Any) -> AdminBrokers:
    """The pipeline's brokers."""
    from tidegate.kafka.brokers import AdminBrokers  # noqa: PLC0415 - parsing the DAG needs no Kafka client

    return AdminBrokers(kafka_settings(pipeline, purpose, planning_client, log))


def ports_of(pipeline: Pipeline, log: Any) -> dict[str, Any]:
    """The ports of a plan, as keyword arguments."""
    return {"store": VariableStore(), "brokers": brokers_of(pipeline, "plan", log), "sink": reader_of(pipeline.sink.kind)}


def plan_of(context: Context, *, replays: bool = False) -> dict[str, Any]:
    """What the plan task of this run has handed on; `replays` says whether it is of the DAG of replays.

    Raises:
        RequestError: it handed on nothing, or somebody has edited it: what it names is not what this run has saved.
    """
    plan = context["ti"].xcom_pull(task_ids="plan", key=REPLAY if replays else "return_value")
    if not plan:
        raise RequestError("this run has no plan", fix="Clear the run's plan task, with the tasks after it")
    if not isinstance(plan, dict) or not is_of_run(str(plan.get("key")), context["run_id"]):
        raise plan_edited()
    return plan


def plan_edited() -> RequestError:
    """The error of a task that finds something else than what the plan of its run hands on."""
    return RequestError("the XCom of this run's plan task is not what it handed on", fix=_PLAN_ANEW)


def now_ms() -> int:
    """The time, epoch ms."""
    return time.time_ns() // 1_000_000


def as_note(lines: Iterable[str]) -> str:
    """The text of a run's note, as much of it as Airflow keeps."""
    return "\n".join(lines)[: run_notes.LONGEST]


def broken(errors: int) -> str:
    """How many rows are of broken records, for a log and a note."""
    return f"rows of broken records: {errors}, each with the reason in its column _error"

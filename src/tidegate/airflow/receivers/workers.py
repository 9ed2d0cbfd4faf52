"""Which workers are up, and which queues each takes tasks from: a port, with an adapter for each executor that can tell.

Airflow itself keeps no list of workers. LocalExecutor has one, the host of its tasks. CeleryExecutor's workers answer when they
are asked. Of other executors nothing is known: they count as one worker, which is always up.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Container
from typing import Any, Protocol

from tidegate.core.receivers.assignment import NOWHERE
from tidegate.core.receivers.placement import Worker

ANSWER_S = 2.0
"""How long Celery's workers have for an answer. All of it is waited, since nobody knows how many there are."""

log = logging.getLogger(__name__)


class Workers(Protocol):
    """Where instances of receivers can run now."""

    def live(self) -> list[tuple[Worker, Container[str]]]:
        """The workers that are up, each with the queues that it takes tasks from."""


class EveryQueue:
    """The queues of a worker that takes all tasks."""

    def __contains__(self, queue: object) -> bool:
        """Whatever its name."""
        return True


class LocalWorkers:
    """LocalExecutor runs every task where it runs itself, which is here."""

    def live(self) -> list[tuple[Worker, Container[str]]]:
        """This host, with every queue."""
        host = socket.gethostname()
        return [(Worker(host, host), EveryQueue())]


class CeleryWorkers:
    """CeleryExecutor's workers, which are named `celery@host`.

    Args:
        app: the Celery application.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    def live(self) -> list[tuple[Worker, Container[str]]]:
        """Those that answer within `ANSWER_S`, in the order of their names."""
        queues = self._app.control.inspect(timeout=ANSWER_S).active_queues() or {}  # None: no worker answers
        return [
            (Worker(name, name.partition("@")[2] or name), frozenset(queue["name"] for queue in of))
            for name, of in sorted(queues.items())
        ]


class UnknownWorkers:
    """Another executor's.

    Args:
        executor: its name, for the log.
    """

    def __init__(self, executor: str) -> None:
        self._executor = executor

    def live(self) -> list[tuple[Worker, Container[str]]]:
        """One that has no name, with every queue."""
        log.warning("the workers of %s are not known: instances run wherever it runs them", self._executor)
        return [(Worker(NOWHERE, NOWHERE), EveryQueue())]


def workers() -> Workers:
    """The workers of the executor that Airflow is configured with; of several, the first, which runs tasks that name none."""
    from airflow.sdk.configuration import conf  # noqa: PLC0415 - parsing the DAG needs no workers

    executor = _class_name(conf.get("core", "executor"))
    if executor == "LocalExecutor":
        return LocalWorkers()
    if executor == "CeleryExecutor":
        return CeleryWorkers(_celery_app())
    return UnknownWorkers(executor)


def _class_name(configured: str) -> str:
    """The class of the first executor: the setting is a list, of names, modules with a class, and aliases of them."""
    first, *_ = re.split("[,;]", configured)
    return first.strip().rpartition("=")[2].rpartition(":")[2].rpartition(".")[2]


def _celery_app() -> Any:
    from airflow.providers.celery.executors import celery_executor  # noqa: PLC0415 - a provider that not every Airflow has

    return celery_executor.app

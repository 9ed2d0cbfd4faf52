"""Which workers are up, and which queues each takes tasks from, as far as the executor can tell.

Airflow itself keeps no list of workers. LocalExecutor has one, the host of its tasks. CeleryExecutor's workers answer when they
are asked. Of other executors nothing is known: they count as one worker, which is always up.
"""

from __future__ import annotations

import logging
import re
import socket
from typing import Any

from airflow.sdk.configuration import conf

from tidegate_receivers.rules.placement import NOWHERE, Live, Worker

ANSWER_S = 2.0
"""How long Celery's workers have for an answer. All of it is waited, since nobody knows how many there are."""

log = logging.getLogger(__name__)


class EveryQueue:
    """The queues of a worker that takes all tasks."""

    def __contains__(self, queue: object) -> bool:
        """Whatever its name."""
        return True


def live_workers() -> Live:
    """The workers of the executor that Airflow is configured with; of several, the first, which runs tasks that name none."""
    # the setting is a list, of names, modules with a class, and aliases of them
    first, *_ = re.split("[,;]", conf.get("core", "executor"))
    executor = re.split("[=:.]", first.strip())[-1]
    if executor == "CeleryExecutor":
        from airflow.providers.celery.executors import celery_executor  # noqa: PLC0415 - a provider that not every Airflow has

        return celery_workers(celery_executor.app)
    host = socket.gethostname()  # LocalExecutor runs every task where it runs itself, which is here
    if executor != "LocalExecutor":
        log.warning("the workers of %s are not known: instances run wherever it runs them", executor)
        host = NOWHERE
    return [(Worker(host, host), EveryQueue())]


def celery_workers(app: Any) -> Live:
    """CeleryExecutor's workers, named `celery@host`: those that answer within `ANSWER_S`, in the order of their names.

    Args:
        app: the Celery application.
    """
    queues = app.control.inspect(timeout=ANSWER_S).active_queues() or {}  # None: no worker answers
    return [
        (Worker(name, name.partition("@")[2] or name), frozenset(queue["name"] for queue in of))
        for name, of in sorted(queues.items())
    ]

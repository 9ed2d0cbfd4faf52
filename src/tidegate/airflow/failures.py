"""What a failed task leaves for its run's note: the error's message and fix, as an XCom.

Called by Airflow in the task's process, before the task's end is known to the scheduler; and, without an error, in the DAG
processor, where the task's process is gone. Only errors of `tidegate.core.errors` are quoted, since their texts are made for
people, and Airflow masks in them what it masks in logs; of any other error only the kind is told.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tidegate.airflow import metrics
from tidegate.core.errors import TidegateError

if TYPE_CHECKING:
    from airflow.sdk import Context

XCOM_KEY = "tidegate_failure"

log = logging.getLogger(__name__)


def save_failure(context: Context) -> None:
    """Airflow calls this when a try of a task failed. What fails here is logged, and hides nothing."""
    error = context.get("exception")
    if error is None:
        # the DAG processor does not answer: who writes an XCom there hangs until it is killed, and no DAG is parsed meanwhile
        return
    from airflow.sdk._shared.secrets_masker import redact  # noqa: PLC0415 - parsing the DAG needs no masker

    try:
        context["ti"].xcom_push(key=XCOM_KEY, value=redact(described(error)))
    except Exception:
        log.exception("this failure is not in the note of its run")
    pipeline = getattr(context.get("task"), "pipeline", None)
    if pipeline is not None and context["dag"].dag_id == pipeline.name:  # not of its replays, nor of maintenance
        metrics.failed(pipeline.name)


def described(error: object) -> dict[str, Any]:
    """Message and fix of an error, without secrets."""
    name = type(error).__name__
    if isinstance(error, TidegateError):
        return {"error": name, "message": f"{name}: {error.message}", "fix": error.fix}
    return {"error": name, "message": name, "fix": "See the task's log"}

"""What a failed task leaves for its run's note: the error's message and fix, as an XCom.

Called by the listener in the task's process, before the task's end is known to the scheduler. It is no callback of the DAG:
Airflow sends those of killed tasks to its DAG processor with the run's parameters. There is nothing to tell there, and a
request that it cannot read ends it, again after each restart. Only errors of `tidegate.core.model.errors` are quoted, since
their texts are made for people, and Airflow masks in them what it masks in logs; of any other error only the kind is told.
"""

from __future__ import annotations

import logging
from typing import Any

from tidegate.airflow import metrics
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import TidegateError

XCOM_KEY = "tidegate_failure"

log = logging.getLogger(__name__)


def save_failure(ti: Any, error: BaseException) -> None:
    """Airflow's task runner tells the listener when a try of a task failed. What fails here is logged, and hides nothing."""
    pipeline = getattr(getattr(ti, "task", None), "pipeline", None)
    if not isinstance(pipeline, Pipeline):
        return
    from airflow.sdk._shared.secrets_masker import redact  # noqa: PLC0415 - parsing the DAG needs no masker

    try:
        ti.xcom_push(key=XCOM_KEY, value=redact(described(error)))
    except Exception:
        log.exception("this failure is not in the note of its run")
    if ti.dag_id == pipeline.name:  # not of its replays, nor of maintenance
        metrics.failed(pipeline.name)


def described(error: object) -> dict[str, Any]:
    """Message and fix of an error, without secrets."""
    name = type(error).__name__
    if isinstance(error, TidegateError):
        return {"error": name, "message": f"{name}: {error.message}", "fix": error.fix}
    return {"error": name, "message": name, "fix": "See the task's log"}

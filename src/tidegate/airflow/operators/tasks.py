"""What the tasks of a pipeline have in common.

They wait inside a try for a server that is away, retry where an error says that it can help, open the ports over the pipeline's
connections, read what their plan has handed on, and leave lines for the note of their run.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NoReturn

from airflow.sdk import BaseOperator, Context, RetryDecision, RetryPolicy
from airflow.sdk.exceptions import AirflowException, AirflowTaskTimeout

from tidegate.airflow.connections import brokers_of
from tidegate.airflow.notes import XCOM_KEY
from tidegate.airflow.store import VariableStore
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import RequestError, TidegateError, some
from tidegate.core.planning import run_notes
from tidegate.core.planning.patience import Patience
from tidegate.core.state.ledger import is_of_run
from tidegate.sinks import reader_of
from tidegate.waiting import now_ms

WAITING = "tidegate_waiting"
"""The XCom that says which server a running task waits for; empty when it waits for none any more."""
LONGEST_S = 600.0
NAP_S = 0.2
"""How soon a task that waits sees that it is stopped."""
REPLAY = "replay"
"""The XCom that names a saved replay; what the plan of one returns is the list of chunks that `load` is mapped over."""
SHOWN = 5
"""Entries of a list in an XCom; the log has all of them."""


class Patient(BaseOperator):
    """A task of a pipeline that waits, `wait_s` a try, for the servers that it needs."""

    _stopped = False
    _waited = False
    _patience: Patience | None = None

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def note(self, context: Context, *lines: str) -> None:
        """Leave the lines for the note of the run (`tidegate.airflow.notes`), as much of them as Airflow keeps."""
        context["ti"].xcom_push(key=XCOM_KEY, value="\n".join(lines)[: run_notes.LONGEST])

    def patience(self, context: Context) -> Patience:
        """That of this try: an operator is executed once."""

        def show(waited_for: str | None) -> None:
            try:
                context["ti"].xcom_push(key=WAITING, value=waited_for or "")
            except Exception as error:  # noqa: BLE001 - what pages show must not end a wait
                self.log.warning("what this task waits for cannot be shown: %s", error)

        if self._patience is None:
            self._patience = Patience(for_s=self.pipeline.wait_s, tell=self.log.warning, sleep=self._sleep, show=show)
        return self._patience

    def took(self, context: Context) -> dict[str, Any]:
        """When this task has worked until now (epoch ms), for an XCom.

        `disturbed`: it has waited for a server, or failed before, and its time says nothing of the batch.
        """
        started = context["ti"].start_date
        return {
            "started_ms": None if started is None else int(started.timestamp() * 1000),
            "ended_ms": now_ms(),
            "disturbed": self._waited or context["ti"].try_number > 1,
        }

    def handed_on(self, context: Context) -> dict[str, Any]:
        """As `took`, for the task after this one: with `paused`, whether its DAG keeps that from starting."""
        took, paused = self.took(context), False
        with contextlib.suppress(Exception):  # an API that is away costs a figure
            paused = bool(context["ti"].get_dag(context["ti"].dag_id).is_paused)
        return {**took, "paused": paused}

    def _sleep(self, seconds: float) -> None:
        self._waited = True
        # in naps: Python goes on with a sleep after the handler of a signal has returned
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._stopped:
                raise AirflowException("the task was stopped while it waited for a server")
            time.sleep(min(left, NAP_S))

    def on_kill(self) -> None:
        """Stop waiting."""
        self._stopped = True


class RetryWhatCanHeal(RetryPolicy):
    """Decides by `TidegateError.retryable`; other errors keep Airflow's own rule. A task that hung has had its time.

    The delay doubles from `first_delay_s` with every try, up to ten minutes.
    """

    def __init__(self, first_delay_s: float) -> None:
        self.first_delay_s = first_delay_s

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """The decision for one failed try; Airflow calls it in the task's process."""
        del max_tries, context
        if isinstance(exception, AirflowTaskTimeout):
            return RetryDecision.fail(reason="It was stopped at the end of its time")
        if not isinstance(exception, TidegateError):
            return RetryDecision.default()
        name = type(exception).__name__
        if not exception.retryable:
            return RetryDecision.fail(reason=f"{name}: trying again cannot help")
        delay = min(self.first_delay_s * 2 ** (try_number - 1), LONGEST_S)
        return RetryDecision.retry(delay=timedelta(seconds=delay), reason=f"{name}: trying again in {delay:g} s")


def ports_of(pipeline: Pipeline, log: Any) -> dict[str, Any]:
    """The ports of a plan, as keyword arguments."""
    return {"store": VariableStore(), "brokers": brokers_of(pipeline, "plan", log), "sink": reader_of(pipeline.sink.kind)}


class _Plan(dict[str, Any]):
    """What a plan task has handed on. What was left out of it, by hand or by another version, is an error with its fix."""

    def __missing__(self, _key: str) -> NoReturn:
        raise plan_edited()


def plan_of(context: Context, *, replays: bool = False) -> dict[str, Any]:
    """What the plan task of this run has handed on; `replays` says whether it is of the DAG of replays.

    Raises RequestError: it handed on nothing, or somebody has edited it: what it names is not what this run has saved. So does
    asking it for what it lacks.
    """
    plan = context["ti"].xcom_pull(task_ids="plan", key=REPLAY if replays else "return_value")
    if not plan:
        raise RequestError("this run has no plan", fix="Clear the run's plan task, with the tasks after it")
    if not isinstance(plan, dict) or not is_of_run(str(plan.get("key")), context["run_id"]):
        raise plan_edited()
    return _Plan(plan)


def plan_edited() -> RequestError:
    """The error of a task that finds something else than what the plan of its run hands on."""
    again = "Nothing was loaded. Clear the run's plan task, with the tasks after it: it finds its range again"
    return RequestError("the XCom of this run's plan task is not what it handed on", fix=again)


def said_of(columns: Sequence[object], errors: int | None, pipeline: Pipeline) -> list[str]:
    """For a log and a note: what loads have changed of their table's columns, and how many records are broken, or rejected."""
    lines = [f"columns of the table: {some(map(str, columns))}"] if columns else []
    if errors and pipeline.quarantine is not None:
        broken = "" if "decode" in pipeline.quarantine.on else "rows of broken records (column _error), and "
        lines.append(f"{broken}records in quarantine (`tidegate quarantine {pipeline.name}` shows them): {errors}")
    elif errors:
        lines.append(f"rows of broken records: {errors}, each with the reason in its column _error")
    return lines

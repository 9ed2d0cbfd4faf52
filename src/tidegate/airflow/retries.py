"""Wait inside a try for a server that is away; retry where an error says that it can help; fail at once where it cannot."""

from __future__ import annotations

import contextlib
import time
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseOperator, Context, RetryDecision, RetryPolicy
from airflow.sdk.exceptions import AirflowException

from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import TidegateError
from tidegate.core.planning.patience import Patience

WAITING = "tidegate_waiting"
"""The XCom that says which server a running task waits for; empty when it waits for none any more."""
LONGEST_S = 600.0
NAP_S = 0.2
"""How soon a task that waits sees that it is stopped."""


class Patient(BaseOperator):
    """A task of a pipeline that waits, `wait_s` a try, for the servers that it needs."""

    pipeline: Pipeline
    _stopped = False
    _waited = False
    _patience: Patience | None = None

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
            "ended_ms": time.time_ns() // 1_000_000,
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
    """Decides by `TidegateError.retryable`; other errors keep Airflow's own rule.

    The delay doubles from `first_delay_s` with every try, up to ten minutes.
    """

    def __init__(self, first_delay_s: float) -> None:
        self.first_delay_s = first_delay_s

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """The decision for one failed try; Airflow calls it in the task's process."""
        del max_tries, context
        if not isinstance(exception, TidegateError):
            return RetryDecision.default()
        name = type(exception).__name__
        if not exception.retryable:
            return RetryDecision.fail(reason=f"{name}: trying again cannot help")
        delay = min(self.first_delay_s * 2 ** (try_number - 1), LONGEST_S)
        return RetryDecision.retry(delay=timedelta(seconds=delay), reason=f"{name}: trying again in {delay:g} s")

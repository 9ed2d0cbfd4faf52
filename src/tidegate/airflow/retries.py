"""Retry where an error says that trying again can help, and fail at once where it cannot."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import Context, RetryDecision, RetryPolicy

from tidegate.errors import TidegateError

LONGEST_S = 600.0


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

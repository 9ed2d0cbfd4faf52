"""A rate that follows what the last batches achieved."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from tidegate.core.errors import RequestError, StateCorrupt


@dataclass(frozen=True)
class PidState:
    """What a `PidRateEstimator` remembers between batches: times in ms, rates in records/s."""

    first_run: bool = True
    latest_time_ms: int = -1
    latest_rate: float = -1.0
    latest_error: float = -1.0

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)

    @staticmethod
    def from_json(value: dict[str, Any]) -> PidState:
        """The inverse of `to_json`.

        Raises:
            StateCorrupt: the value is not what `to_json` makes.
        """
        try:
            return PidState(**value)
        except TypeError as error:
            raise StateCorrupt(f"the state of a rate estimator cannot be read ({error})", fix="Rebuild the cursor") from error


class PidRateEstimator:
    """Records/s that the next batch may take, from how fast the last one was and how long it waited.

    A proportional-integral-derivative controller, as Spark's `PIDRateEstimator`:

        error            = latest rate - measured rate
        historical error = scheduling delay * measured rate / batch interval     (records that piled up, as a rate)
        new rate         = latest rate - proportional * error - integral * historical error - derivative * change of error

    Args:
        batch_interval_ms: time between batches.
        proportional, integral, derivative: the three gains, each at least 0.
        min_rate: records/s; the result is never lower.
        state: what another estimator remembered (`state`).

    Raises:
        RequestError: an argument is out of its bounds.
    """

    def __init__(
        self,
        batch_interval_ms: float,
        proportional: float = 1.0,
        integral: float = 0.2,
        derivative: float = 0.0,
        min_rate: float = 100.0,
        *,
        state: PidState | None = None,
    ) -> None:
        for name, value, strict in (
            ("batch_interval_ms", batch_interval_ms, True),
            ("proportional", proportional, False),
            ("integral", integral, False),
            ("derivative", derivative, False),
            ("min_rate", min_rate, True),
        ):
            if not math.isfinite(value) or value < 0 or (strict and value == 0):
                raise RequestError(f"{name}: expected a number {'above' if strict else 'from'} 0, got {value!r}")
        self.batch_interval_ms = batch_interval_ms
        self.proportional = proportional
        self.integral = integral
        self.derivative = derivative
        self.min_rate = min_rate
        self.state = state or PidState()

    def compute(self, time_ms: int, elements: int, processing_delay_ms: float, scheduling_delay_ms: float) -> float | None:
        """The new rate in records/s; None after the first valid call, which only measures, and where a call is skipped.

        Skipped, and without any change of state: a time that is not after the last one, no elements, no processing time.

        Args:
            time_ms: when the batch ended.
            elements: records of the batch.
            processing_delay_ms: how long the batch worked.
            scheduling_delay_ms: how long it waited before.
        """
        before = self.state
        if time_ms <= before.latest_time_ms or elements <= 0 or processing_delay_ms <= 0:
            return None
        measured = elements / processing_delay_ms * 1000
        if before.first_run:
            self.state = PidState(first_run=False, latest_time_ms=time_ms, latest_rate=measured, latest_error=0.0)
            return None
        elapsed_s = (time_ms - before.latest_time_ms) / 1000
        error = before.latest_rate - measured
        historical_error = scheduling_delay_ms * measured / self.batch_interval_ms
        change = (error - before.latest_error) / elapsed_s
        rate = max(
            before.latest_rate - self.proportional * error - self.integral * historical_error - self.derivative * change,
            self.min_rate,
        )
        self.state = PidState(first_run=False, latest_time_ms=time_ms, latest_rate=rate, latest_error=error)
        return rate

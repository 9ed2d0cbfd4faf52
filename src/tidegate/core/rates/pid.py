"""Spark's rate control: a rate that follows what the last batches achieved, and the policy of it behind the gate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass
from typing import Any, ClassVar

from tidegate.core.model.errors import ConfigError, RequestError
from tidegate.core.rates.policy import (
    INITIAL_RATE,
    LATEST_MS,
    MOST_RATE,
    BatchTiming,
    LearningPolicy,
    check_interval,
    check_number,
    is_number,
    whole_records,
)

MIN_RATE = 100.0
"""Spark's least rate, in records/s."""


@dataclass(frozen=True)
class PidState:
    """What a `PidRateEstimator` remembers between batches: times in ms, rates in records/s."""

    first_run: bool = True
    latest_time_ms: int = -1
    _: KW_ONLY
    latest_rate: float = -1.0
    latest_error: float = -1.0


@dataclass(eq=False)
class PidRateEstimator:
    """Records/s that the next batch may take, from how fast the last one was and how long it waited.

    A proportional-integral-derivative controller, as Spark's `PIDRateEstimator`:

        error            = latest rate - measured rate
        historical error = scheduling delay * measured rate / batch interval     (records that piled up, as a rate)
        new rate         = latest rate - proportional * error - integral * historical error - derivative * change of error

    Raises RequestError: an argument is out of its bounds.

    Args:
        batch_interval_ms: time between batches.
        proportional, integral, derivative: the three gains, each at least 0.
        min_rate: records/s; the result is never lower.
        state: what another estimator remembered (`state`).
    """

    batch_interval_ms: float
    proportional: float = 1.0
    integral: float = 0.2
    derivative: float = 0.0
    min_rate: float = MIN_RATE
    _: KW_ONLY
    state: PidState = PidState()

    def __post_init__(self) -> None:
        for name in ("batch_interval_ms", "proportional", "integral", "derivative", "min_rate"):
            value, strict = getattr(self, name), name in ("batch_interval_ms", "min_rate")
            if not math.isfinite(value) or value < 0 or (strict and value == 0):
                raise RequestError(f"{name}: expected a number {'above' if strict else 'from'} 0, got {value!r}")

    def compute(self, time_ms: int, elements: int, processing_delay_ms: float, scheduling_delay_ms: float) -> float | None:
        """The new rate in records/s; None after the first valid call, which only measures, and where a call is skipped.

        Skipped, and without any change of state: a time that is not after the last one, no elements, no processing time.
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


@dataclass(frozen=True, kw_only=True)
class PidPolicy(LearningPolicy):
    """The next bound is the estimator's rate for one interval; the first one stays until the estimator gives a rate.

    Raises ConfigError: an argument is out of its bounds, or `initial_rate` is below `min_rate`.

    Args:
        interval_s: seconds between runs.
        initial_rate: records/s of the first bound; None: `INITIAL_RATE`, or `min_rate` where that is higher.
        min_rate: records/s; no rate of the estimator is lower. None: Spark's 100, or `initial_rate` where that is lower.
        proportional, integral, derivative: the gains, each at least 0.
    """

    interval_s: float
    initial_rate: float | None = None
    min_rate: float | None = None
    proportional: float = 1.0
    integral: float = 0.2
    derivative: float = 0.0

    name: ClassVar[str] = "pid"

    def __post_init__(self) -> None:
        check_interval(self.interval_s)
        for rate in ("initial_rate", "min_rate"):
            if getattr(self, rate) is not None:
                check_number(rate, getattr(self, rate), most=MOST_RATE)
        for gain in ("proportional", "integral", "derivative"):
            check_number(gain, getattr(self, gain), strict=False)
        if self.initial_rate is not None and self.min_rate is not None and self.initial_rate < self.min_rate:
            raise ConfigError(
                f"initial_rate {self.initial_rate:g} is below min_rate {self.min_rate:g}",
                fix="Set initial_rate to at least min_rate, or leave one of them out",
                setting="initial_rate",
            )

    def terms(self, state: Mapping[str, Any]) -> dict[str, float]:
        """As the base class says: the estimator's rate and error."""
        known = self._believed(state)
        learned = not known["first_run"]
        return {"rate (records/s)": known["latest_rate"], "error (records/s)": known["latest_error"]} if learned else {}

    def _first_bound(self) -> int:
        rate = max(INITIAL_RATE, self._min_rate()) if self.initial_rate is None else self.initial_rate
        return whole_records(rate * self.interval_s)

    def _min_rate(self) -> float:
        if self.min_rate is not None:
            return self.min_rate
        return MIN_RATE if self.initial_rate is None else min(MIN_RATE, self.initial_rate)

    def _least(self) -> int:
        """The records of `min_rate` in an interval, rounded up, but not for the last digit of a product of floats."""
        return max(1, math.ceil(self._min_rate() * self.interval_s * (1 - 1e-12)))

    def _nothing_learned(self) -> dict[str, Any]:
        return _estimate(PidState())

    def _plausible(self, state: Mapping[str, Any]) -> bool:
        rate, error, least = state["latest_rate"], state["latest_error"], min(self._least(), self._first_bound())
        learned = state["first_run"] is False and is_number(rate) and is_number(error)
        return learned and 0 < rate <= MOST_RATE and abs(error) <= MOST_RATE and state["bound"] >= least

    def _learn(self, known: dict[str, Any], timing: BatchTiming) -> dict[str, Any]:
        ended_at_ms = min(timing.ended_at_ms, LATEST_MS + 1)
        times = (known["ended_at_ms"], known["ahead_ms"])
        last = max((time for time in times if time is not None and time < ended_at_ms), default=-1)
        estimator = PidRateEstimator(
            self.interval_s * 1000,
            self.proportional,
            self.integral,
            self.derivative,
            self._min_rate(),
            state=PidState(known["first_run"], last, latest_rate=known["latest_rate"], latest_error=known["latest_error"]),
        )
        rate = estimator.compute(ended_at_ms, timing.records, timing.run_ms, timing.scheduling_delay_ms)
        learned = {"bound": known["bound"], **_estimate(estimator.state)}
        if rate is not None:
            learned["bound"] = max(self._whole_bound(rate * self.interval_s, timing.records), self._least())
        return learned if self._plausible(learned) else {}


def _estimate(state: PidState) -> dict[str, Any]:
    """What the estimator remembers, without its time: the policy has one already."""
    return {name: value for name, value in asdict(state).items() if name != "latest_time_ms"}

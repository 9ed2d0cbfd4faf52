"""Spark's rate control as a policy: `PidRateEstimator`, behind the gate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from tidegate.core.errors import ConfigError
from tidegate.core.rates.checks import INITIAL_RATE, MOST_RATE, check_interval, check_number, is_number
from tidegate.core.rates.learning import LATEST_MS, LearningPolicy, whole_records
from tidegate.core.rates.pid import PidRateEstimator, PidState
from tidegate.core.rates.timing import BatchTiming

MIN_RATE = 100.0
"""Spark's least rate, in records/s."""


@dataclass(frozen=True)
class PidPolicy(LearningPolicy):
    """The next bound is the estimator's rate for one interval; the first one stays until the estimator gives a rate.

    Args:
        interval_s: seconds between runs.
        initial_rate: records/s of the first bound; None: `INITIAL_RATE`, or `min_rate` where that is higher.
        min_rate: records/s; no rate of the estimator is lower. None: Spark's 100, or `initial_rate` where that is lower.
        proportional, integral, derivative: the gains, each at least 0.

    Raises:
        ConfigError: an argument is out of its bounds, or `initial_rate` is below `min_rate`.
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
        """As the port: the estimator's rate and error."""
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
        rate, error, least = state["latest_rate"], state["latest_error"], self._least()
        if not (is_number(rate) and is_number(error) and abs(error) <= MOST_RATE):
            return False
        if state["first_run"] is True:
            return bool(state["bound"] == self._first_bound())
        return state["first_run"] is False and 0 < rate <= MOST_RATE and state["bound"] >= min(least, self._first_bound())

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
            state=PidState(known["first_run"], last, known["latest_rate"], known["latest_error"]),
        )
        rate = estimator.compute(ended_at_ms, timing.records, timing.run_ms, timing.scheduling_delay_ms)
        learned = {"bound": known["bound"], **_estimate(estimator.state)}
        if rate is not None:
            learned["bound"] = max(self._whole_bound(rate * self.interval_s, timing.records), self._least())
        return learned if self._plausible(learned) else {}


def _estimate(state: PidState) -> dict[str, Any]:
    """What the estimator remembers, without its time: the policy has one already."""
    return {name: value for name, value in asdict(state).items() if name != "latest_time_ms"}

"""The policies by name, and which one a pipeline's settings ask for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from tidegate.core.model.errors import ConfigError
from tidegate.core.rates.cost import Cost
from tidegate.core.rates.pid import PidPolicy
from tidegate.core.rates.policy import (
    INITIAL_RATE,
    BatchTiming,
    LearningPolicy,
    RatePolicy,
    check_interval,
    check_number,
    check_records,
    whole_records,
)

MOST_OVERHEAD = 0.9
"""Largest share of a run that its overhead may have: where it is larger in a run of the target time, runs take longer."""
GROWTH = (3.0, 4.0)
"""The bound may grow to 3 times the last batch, to 4 times where its speed allows that: a forecast holds near its sizes."""
UNKNOWN, APART = 0.25, 1.25
"""While the standard deviation of the overhead exceeds this share of the target, sizes differ at least by this factor:
batches of similar size do not tell the overhead from the cost of records."""
_COST = {f.name: f"cost_{f.name}" for f in fields(Cost)}


@dataclass(frozen=True)
class StaticPolicy(RatePolicy):
    """Every batch has the same bound. Raises ConfigError: an argument is out of its bounds.

    `max_records` are those of a batch; None: no bound.
    """

    interval_s: float
    max_records: int | None = None

    def __post_init__(self) -> None:
        check_interval(self.interval_s)
        if self.max_records is not None:
            check_records("max_records", self.max_records)

    def start(self) -> dict[str, Any]:
        """As the base class says."""
        return {"policy": "static"}

    def bound(self, state: Mapping[str, Any]) -> int | None:  # noqa: ARG002 - it learns nothing
        """As the base class says."""
        return self.max_records

    def observe(self, state: Mapping[str, Any], timing: BatchTiming) -> dict[str, Any]:  # noqa: ARG002 - it learns nothing
        """As the base class says: always the same state."""
        return self.start()


@dataclass(frozen=True)
class AimingPolicy(LearningPolicy):
    """A policy whose full runs are to take a share of the interval. Raises ConfigError: an argument is out of its bounds.

    `utilization` is the share of the interval that a full run takes, above 0 and at most 1, and `initial_records` the first
    bound; None: `INITIAL_RATE` for one interval.
    """

    interval_s: float
    utilization: float = 0.9
    initial_records: int | None = None

    def __post_init__(self) -> None:
        check_interval(self.interval_s)
        check_number("utilization", self.utilization, most=1)
        if self.initial_records is not None:
            check_records("initial_records", self.initial_records)

    @property
    def target_s(self) -> float:
        """Seconds that a full run is to take."""
        return self.utilization * self.interval_s

    def _first_bound(self) -> int:
        if self.initial_records is None:
            return whole_records(INITIAL_RATE * self.interval_s)
        return self.initial_records


@dataclass(frozen=True)
class FixedPointPolicy(AimingPolicy):
    """The next bound is records * utilization * interval / run time (Das, Zhong, Stoica and Shenker, SoCC '14).

    It takes the time of a run for proportional to its records. With an overhead of `a` seconds a run, an error of the bound
    shrinks by the factor a / (utilization * interval) a batch. `TargetPolicy` also estimates that overhead.

    Arguments as `AimingPolicy`.
    """

    name: ClassVar[str] = "fixed_point"

    def _learn(self, known: dict[str, Any], timing: BatchTiming) -> dict[str, Any]:  # noqa: ARG002 - the last batch is enough
        exact = timing.records * (self.target_s * 1000) / timing.run_ms
        return {"bound": self._whole_bound(exact, timing.records)}


@dataclass(frozen=True)
class TargetPolicy(AimingPolicy):
    """The next bound is (utilization * interval - a) / b, for the cost t = a + b * n of a batch (`Cost`).

    Arguments as `AimingPolicy`.
    """

    name: ClassVar[str] = "target"

    def cost(self, state: Mapping[str, Any]) -> Cost | None:
        """The cost of a batch as far as the state knows it; None before the first full batch."""
        known = self._believed(state)
        return None if known["cost_b"] is None else Cost(**{name: known[key] for name, key in _COST.items()})

    def terms(self, state: Mapping[str, Any]) -> dict[str, float]:
        """As the base class says: overhead and cost of a record."""
        cost = self.cost(state)
        return {} if cost is None else {"a (s)": cost.a, "b (s/record)": cost.b}

    def _nothing_learned(self) -> dict[str, Any]:
        return dict.fromkeys(_COST.values())

    def _plausible(self, state: Mapping[str, Any]) -> bool:
        return Cost(**{name: state[key] for name, key in _COST.items()}).plausible

    def _learn(self, known: dict[str, Any], timing: BatchTiming) -> dict[str, Any]:
        records, run_s = timing.records, timing.run_ms / 1000
        last = self.cost(known)
        cost = last.after(records, run_s, interval_s=self.interval_s) if last else Cost.first(records, run_s)
        return {
            "bound": self._whole_bound(self._size(cost, records, run_s), records),
            **{key: getattr(cost, name) for name, key in _COST.items()},
        }

    def _size(self, cost: Cost, records: int, run_s: float) -> float:
        """Records of the next batch, after one of `records` in `run_s` seconds."""
        for_records_s = max(self.target_s - cost.a, cost.a * (1 - MOST_OVERHEAD) / MOST_OVERHEAD)
        least, most = GROWTH
        size = min(for_records_s / cost.b, max(least, min(most, self.target_s / run_s)) * records)
        if math.sqrt(cost.var_a) <= UNKNOWN * self.target_s:
            return size
        return max(size, records * APART) if run_s <= self.target_s else min(size, records / APART)


POLICIES: Mapping[str, type[StaticPolicy | PidPolicy | FixedPointPolicy | TargetPolicy]] = {
    "static": StaticPolicy,
    "pid": PidPolicy,
    "fixed_point": FixedPointPolicy,
    "target": TargetPolicy,
}


def make_rate_policy(settings: Mapping[str, Any], *, interval_s: float) -> RatePolicy:
    """The policy of `settings`, such as `{"policy": "target", "utilization": 0.8}`, for runs `interval_s` apart.

    Settings, each with a default: `static` has `max_records` (no bound); `pid` has `initial_rate`, `min_rate` (records/s),
    `proportional`, `integral`, `derivative`; `fixed_point` and `target` have `utilization` (0.9) and `initial_records`. Raises
    ConfigError: the policy or a setting is unknown, a value is out of its bounds, or limits contradict each other.
    """
    if not isinstance(settings, Mapping):
        raise ConfigError(f"backpressure: expected settings by name, got {settings!r}", fix="Write {policy: target}")
    name = settings.get("policy")
    policies = ", ".join(POLICIES)
    if not isinstance(name, str) or name not in POLICIES:
        raise ConfigError(f"policy: expected one of {policies}, got {name!r}", fix=f"Set policy to one of {policies}")
    known = settings_of(name)
    unknown = [str(setting) for setting in settings if setting not in ("policy", *known)]
    if unknown:
        raise ConfigError(
            f"policy {name} has no setting {', '.join(unknown)}", fix=f"Its settings are {', '.join(known)}", policy=name
        )
    return POLICIES[name](interval_s=interval_s, **{name: settings[name] for name in known if name in settings})


def settings_of(policy: str) -> list[str]:
    """The names of a policy's settings."""
    return [f.name for f in fields(POLICIES[policy]) if f.name != "interval_s"]

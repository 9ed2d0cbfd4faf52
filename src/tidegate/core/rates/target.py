"""The policy that aims at a time: as many records as a run of that time holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from tidegate.core.rates.aiming import AimingPolicy
from tidegate.core.rates.cost import Cost
from tidegate.core.rates.timing import BatchTiming

MOST_OVERHEAD = 0.9
"""Largest share of a run that its overhead may have: where it is larger in a run of the target time, runs take longer."""

GROWTH = (3.0, 4.0)
"""The bound may grow to 3 times the last batch, to 4 times where its speed allows that: a forecast holds near its sizes."""

UNKNOWN, APART = 0.25, 1.25
"""While the standard deviation of the overhead exceeds this share of the target, sizes differ at least by this factor:
batches of similar size do not tell the overhead from the cost of records."""

_COST = {f.name: f"cost_{f.name}" for f in fields(Cost)}


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
        """As the port: overhead and cost of a record."""
        cost = self.cost(state)
        return {} if cost is None else {"a (s)": cost.a, "b (s/record)": cost.b}

    def _nothing_learned(self) -> dict[str, Any]:
        return dict.fromkeys(_COST.values())

    def _plausible(self, state: Mapping[str, Any]) -> bool:
        values = {name: state[key] for name, key in _COST.items()}
        if all(value is None for value in values.values()):
            return bool(state["bound"] == self._first_bound())
        return Cost(**values).plausible

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

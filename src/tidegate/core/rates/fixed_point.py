"""The batch size of Das, Zhong, Stoica and Shenker (SoCC '14): what the last batch's speed does in the time of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tidegate.core.rates.aiming import AimingPolicy
from tidegate.core.rates.timing import BatchTiming


@dataclass(frozen=True)
class FixedPointPolicy(AimingPolicy):
    """The next bound is records * utilization * interval / run time.

    It takes the time of a run for proportional to its records. With an overhead of `a` seconds a run, an error of the bound
    shrinks by the factor a / (utilization * interval) a batch. `TargetPolicy` also estimates that overhead.

    Arguments as `AimingPolicy`.
    """

    name: ClassVar[str] = "fixed_point"

    def _nothing_learned(self) -> dict[str, Any]:
        return {}

    def _plausible(self, state: Mapping[str, Any]) -> bool:  # noqa: ARG002 - it adds nothing to the state
        return True

    def _learn(self, known: dict[str, Any], timing: BatchTiming) -> dict[str, Any]:  # noqa: ARG002 - the last batch is enough
        exact = timing.records * (self.target_s * 1000) / timing.run_ms
        return {"bound": self._whole_bound(exact, timing.records)}

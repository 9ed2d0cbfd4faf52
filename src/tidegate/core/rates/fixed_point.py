"""The batch size of Das, Zhong, Stoica and Shenker (SoCC '14): what the last batch's speed does in the time of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tidegate.core.rates.checks import check_interval, check_number, check_records
from tidegate.core.rates.learning import LearningPolicy, initial_records
from tidegate.core.rates.timing import BatchTiming


@dataclass(frozen=True)
class FixedPointPolicy(LearningPolicy):
    """The next bound is records * utilization * interval / run time.

    It takes the time of a run for proportional to its records. With an overhead of `a` seconds a run, an error of the bound
    shrinks by the factor a / (utilization * interval) a batch. `TargetPolicy` also estimates that overhead.

    Args:
        interval_s: seconds between runs.
        utilization: share of the interval that a full run takes, above 0 and at most 1.
        initial_records: the first bound; None: `INITIAL_RATE` for one interval.

    Raises:
        ConfigError: an argument is out of its bounds.
    """

    interval_s: float
    utilization: float = 0.9
    initial_records: int | None = None

    name: ClassVar[str] = "fixed_point"

    def __post_init__(self) -> None:
        check_interval(self.interval_s)
        check_number("utilization", self.utilization, most=1)
        if self.initial_records is not None:
            check_records("initial_records", self.initial_records)

    def _first_bound(self) -> int:
        return initial_records(self.interval_s, self.initial_records)

    def _nothing_learned(self) -> dict[str, Any]:
        return {}

    def _plausible(self, state: Mapping[str, Any]) -> bool:  # noqa: ARG002 - it adds nothing to the state
        return True

    def _learn(self, known: dict[str, Any], timing: BatchTiming) -> dict[str, Any]:  # noqa: ARG002 - the last batch is enough
        exact = timing.records * (self.utilization * self.interval_s * 1000) / timing.run_ms
        return {"bound": self._whole_bound(exact, timing.records)}

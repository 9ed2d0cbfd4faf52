"""What `fixed_point` and `target` share: the share of the interval that a run is to take, and the first bound."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.core.rates.checks import INITIAL_RATE, check_interval, check_number, check_records
from tidegate.core.rates.learning import LearningPolicy, whole_records


@dataclass(frozen=True)
class AimingPolicy(LearningPolicy):
    """A policy whose full runs are to take a share of the interval.

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

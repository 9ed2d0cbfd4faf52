"""The policy that learns nothing: one bound for every batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.core.rates.checks import check_interval, check_records
from tidegate.core.rates.timing import BatchTiming


@dataclass(frozen=True, slots=True)
class StaticPolicy:
    """Every batch has the same bound.

    Args:
        interval_s: seconds between runs.
        max_records: records of a batch; None: no bound.

    Raises:
        ConfigError: an argument is out of its bounds.
    """

    interval_s: float
    max_records: int | None = None

    def __post_init__(self) -> None:
        check_interval(self.interval_s)
        if self.max_records is not None:
            check_records("max_records", self.max_records)

    def start(self) -> dict[str, Any]:
        """As the port."""
        return {"policy": "static"}

    def reads(self, state: Mapping[str, Any]) -> bool:
        """As the port."""
        return dict(state) == self.start()

    def terms(self, state: Mapping[str, Any]) -> dict[str, float]:  # noqa: ARG002 - the port has it
        """As the port: none."""
        return {}

    def bound(self, state: Mapping[str, Any]) -> int | None:  # noqa: ARG002 - the port has it
        """As the port."""
        return self.max_records

    def observe(self, state: Mapping[str, Any], timing: BatchTiming) -> dict[str, Any]:  # noqa: ARG002 - the port has them
        """As the port: always the same state."""
        return self.start()

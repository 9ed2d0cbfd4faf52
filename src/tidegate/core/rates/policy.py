"""The port of rate policies: how many records the next batch may hold, learned from what earlier batches took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tidegate.core.rates.timing import BatchTiming


class RatePolicy(Protocol):
    """Decides the most records of the next batch.

    A policy object keeps nothing between calls. Its state is strict JSON, which the caller saves with the cursor. A state that
    the policy cannot read counts as `start()`, whatever it holds: no saved value makes a batch endless, empty or unbounded.
    """

    def start(self) -> dict[str, Any]:
        """The state before the first batch."""
        ...

    def reads(self, state: Mapping[str, Any]) -> bool:
        """Whether the state is one that this policy has made, so that it does not count as `start()`."""
        ...

    def terms(self, state: Mapping[str, Any]) -> dict[str, float]:
        """What the bound is computed from, by name and unit, for people; empty where nothing is learned."""
        ...

    def bound(self, state: Mapping[str, Any]) -> int | None:
        """The most records of the next batch, at least 1; None: no bound."""
        ...

    def observe(self, state: Mapping[str, Any], timing: BatchTiming) -> dict[str, Any]:
        """The state after a committed batch; `state` itself stays as it is.

        Only batches of the schedule are observed: no replays, backfills, cleared, skipped or failed runs.
        """
        ...

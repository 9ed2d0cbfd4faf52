"""A pipeline's rate policy together with the state of it that the pipeline's cursor holds.

The saved value names the settings that the state was learned under. Under other settings the policy starts anew, and the bound
says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from tidegate.core.model.counts import check_count
from tidegate.core.model.times import past
from tidegate.core.rates.policies import AimingPolicy, make_rate_policy
from tidegate.core.rates.policy import TIMES, BatchTiming, RatePolicy, is_number


@dataclass(frozen=True, slots=True)
class RateBound:
    """The most records that a rate policy allows a batch, and why.

    Raises RequestError: the bound is no whole number from 1. ValueError: the terms are no numbers by name.

    Args:
        policy: the policy's name.
        records: the bound, at least 1.
        terms: what the policy computed it from, by name (`RatePolicy.terms`).
        reset: why the policy started anew with this batch; None where it did not.
        limiting: whether the bound is what ended the batch: more records waited.
        applied: whether it was applied; not where a trigger asks for a range of its own.
    """

    policy: str
    records: int
    _: KW_ONLY
    terms: Mapping[str, float]
    reset: str | None = None
    limiting: bool = False
    applied: bool = True

    def __post_init__(self) -> None:
        check_count("records", self.records, least=1)
        if not isinstance(self.terms, Mapping) or not all(map(is_number, self.terms.values())):
            raise ValueError(f"the terms of a bound must be numbers by name, not {self.terms!r}")

    def __str__(self) -> str:
        """One line for people."""
        terms = "".join(f", {name} {value:.4g}" for name, value in self.terms.items())
        effect = "it limits this batch" if self.limiting else "this batch is smaller"
        effect = effect if self.applied else "not applied, since the run was triggered for a range of its own"
        anew = "" if self.reset is None else f"; started anew: {self.reset}"
        return f"{self.policy} allows {self.records:,} records{terms}; {effect}{anew}"


@dataclass(frozen=True)
class RateControl:
    """A policy by its settings."""

    settings: Mapping[str, Any]
    interval_s: float

    def __post_init__(self) -> None:
        self.policy()

    def bound(self, saved: Mapping[str, Any]) -> RateBound | None:
        """The bound of the next batch; None where the policy has none.

        `saved` is the cursor's `rate_state`, empty before the first batch.
        """
        policy = self.policy()
        state, reset = self._state(policy, saved)
        records = policy.bound(state)
        return None if records is None else RateBound(self.settings["policy"], records, terms=policy.terms(state), reset=reset)

    def observed(self, saved: Mapping[str, Any], timing: BatchTiming, *, catching_up: bool = False) -> dict[str, Any]:
        """The cursor's `rate_state` after a batch. `saved` is the one before it; `catching_up` is as in `without_headroom`."""
        policy = self.policy()
        state, _ = self._state(policy, saved)
        # batches are committed in their order, so a later time than this one's is of a clock that ran ahead
        ahead = [name for name in TIMES if state.get(name) is not None and past(state[name], timing.ended_at_ms) is None]
        state = {**state, **dict.fromkeys(ahead)}
        if catching_up:
            policy = without_headroom(policy)
        return self.saved(policy.observe(state, timing))

    def saved(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The cursor's `rate_state` that holds this state of the policy."""
        return {"settings": self._stated, "state": state}

    def policy(self) -> RatePolicy:
        """The policy of these settings."""
        return make_rate_policy(self.settings, interval_s=self.interval_s)

    @property
    def _stated(self) -> dict[str, Any]:
        return {**self.settings, "interval_s": self.interval_s}

    def _state(self, policy: RatePolicy, saved: Mapping[str, Any]) -> tuple[Mapping[str, Any], str | None]:
        """The state to go on from, and why it is a new one where something was saved."""
        if not saved:
            return policy.start(), None
        state, before = saved.get("state"), saved.get("settings")
        if not isinstance(before, Mapping) or not isinstance(state, Mapping):
            return policy.start(), "the saved state cannot be read"
        if before != self._stated:
            return policy.start(), f"the settings changed ({_changes(before, self._stated)})"
        if not policy.reads(state):
            return policy.start(), "the saved state cannot be read"
        return state, None


def without_headroom(policy: RatePolicy) -> RatePolicy:
    """The policy of a pipeline that catches up: the next run starts at once, so a run may fill the whole interval."""
    return replace(policy, utilization=1.0) if isinstance(policy, AimingPolicy) else policy


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Each setting that differs, with both values; of another policy, its name alone."""
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    names = ["policy"] if "policy" in changed else changed
    return ", ".join(f"{name} from {before.get(name, 'its default')} to {now.get(name, 'its default')}" for name in names)

"""What must hold between the settings of `backpressure`, and between them and the limits: the policies' own rules.

Pure: the standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.core.errors import ConfigError
from tidegate.core.rates.choice import POLICIES, make_rate_policy, settings_of

ANY_INTERVAL_S = 60.0
"""For rules that do not depend on the interval."""
STATED_BOUNDS = {"max_records", "initial_records", "initial_rate", "min_rate"}
"""Settings that state the first bound, or the least."""


@dataclass(frozen=True)
class SettingsOfPolicy:
    """The settings are of the policy that is chosen, and do not contradict each other."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """As JSON Schema: for each policy, the settings of the others are null. Without `policy`, it is `static`."""
        every = {setting for name in POLICIES for setting in settings_of(name)}
        return {
            "allOf": [
                {
                    "if": {"properties": {"policy": {"const": name}}, "required": [] if name == "static" else ["policy"]},
                    "then": {"properties": {other: {"type": "null"} for other in sorted(every.difference(settings_of(name)))}},
                }
                for name in POLICIES
            ]
        }

    def faults(self, held: Any, path: str) -> list[str]:
        """One sentence, where they are not."""
        try:
            make_rate_policy(held.settings, interval_s=ANY_INTERVAL_S)
        except ConfigError as error:
            return [f"{path.removesuffix('.')}: {error}"]
        return []


@dataclass(frozen=True)
class BoundWithinLimits:
    """A first bound that is stated is not above `limits.max_records`."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """As JSON Schema: nothing, since a schema cannot compare two settings."""
        return {}

    def faults(self, held: Any, path: str) -> list[str]:
        """One sentence, where it is above."""
        control, most = held.rate_control, held.limits.max_records
        stated = control is not None and bool(STATED_BOUNDS & control.settings.keys())
        first = control.bound({}) if control is not None and stated else None
        if most is None or first is None or first.records <= most:
            return []
        return [f"{path}backpressure: its first bound of {first.records} records is above limits.max_records {most}; lower one"]

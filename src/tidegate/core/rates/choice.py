"""Which policy a pipeline's settings ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tidegate.core.errors import ConfigError
from tidegate.core.rates.fixed_point import FixedPointPolicy
from tidegate.core.rates.pid_policy import PidPolicy
from tidegate.core.rates.policy import RatePolicy
from tidegate.core.rates.static import StaticPolicy
from tidegate.core.rates.target import TargetPolicy

POLICIES = {"static": StaticPolicy, "pid": PidPolicy, "fixed_point": FixedPointPolicy, "target": TargetPolicy}


def make_rate_policy(settings: Mapping[str, Any], *, interval_s: float) -> RatePolicy:
    """The policy of `settings`, such as `{"policy": "target", "utilization": 0.8}`.

    Settings, each with a default: `static` has `max_records` (no bound); `pid` has `initial_rate`, `min_rate` (records/s),
    `proportional`, `integral`, `derivative`; `fixed_point` and `target` have `utilization` (0.9) and `initial_records`.

    Args:
        settings: `policy`, and settings of that policy.
        interval_s: seconds between runs.

    Raises:
        ConfigError: the policy or a setting is unknown, a value is out of its bounds, or limits contradict each other.
    """
    if not isinstance(settings, Mapping):
        raise ConfigError(f"backpressure: expected settings by name, got {settings!r}", fix="Write {policy: target}")
    name = settings.get("policy")
    policies = ", ".join(POLICIES)
    if not isinstance(name, str) or name not in POLICIES:
        raise ConfigError(f"policy: expected one of {policies}, got {name!r}", fix=f"Set policy to one of {policies}")
    policy = POLICIES[name]
    known = settings_of(name)
    unknown = [str(setting) for setting in settings if setting not in ("policy", *known)]
    if unknown:
        raise ConfigError(
            f"policy {name} has no setting {', '.join(unknown)}", fix=f"Its settings are {', '.join(known)}", policy=name
        )
    chosen: RatePolicy = policy(interval_s=interval_s, **{name: settings[name] for name in known if name in settings})
    return chosen


def settings_of(policy: str) -> list[str]:
    """The names of a policy's settings."""
    return [f.name for f in fields(POLICIES[policy]) if f.name != "interval_s"]

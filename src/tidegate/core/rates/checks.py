"""What settings of rate policies may be. Each check raises a ConfigError that names the setting, the value and the fix."""

from __future__ import annotations

import math

from tidegate.core.model.counts import is_whole
from tidegate.core.model.errors import ConfigError

MOST_RECORDS = 2**63 - 1
"""Kafka's offsets are 64-bit integers."""

INITIAL_RATE = 1000.0
"""Records/s of a first batch, where the settings do not say: a few seconds of work for the slowest sink measured."""


MOST_RATE = 1e9
"""Records/s beyond every pipeline: no bound is higher, and a saved one that is higher is not believed."""

MOST_SECONDS = 366 * 24 * 3600
"""Of an interval, and of a run."""


def check_interval(seconds: object) -> None:
    """The time between runs, above 0 and at most 366 days."""
    check_number("interval_s", seconds, most=MOST_SECONDS)


def check_number(name: str, value: object, *, least: float = 0.0, most: float = math.inf, strict: bool = True) -> None:
    """A finite number above `least` (`strict`) or from it, and at most `most`."""
    in_bounds = is_number(value) and (value > least if strict else value >= least) and value <= most  # type: ignore[operator]
    if not in_bounds:
        limit = "" if most == math.inf else f", at most {most:,.10g}"
        expected = f"a number {'above' if strict else 'of at least'} {least:g}{limit}"
        raise ConfigError(f"{name}: expected {expected}, got {value!r}", fix=f"Set {name} to {expected}", setting=name)


def check_records(name: str, value: object) -> None:
    """A whole number of records from 1."""
    if not is_whole(value, 1, MOST_RECORDS):
        expected = "a whole number of records from 1 to 2^63 - 1"
        raise ConfigError(f"{name}: expected {expected}, got {value!r}", fix=f"Set {name} to {expected}", setting=name)


def is_number(value: object) -> bool:
    """Whether the value is a finite number that a float can hold, and no bool."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond every float
        return False

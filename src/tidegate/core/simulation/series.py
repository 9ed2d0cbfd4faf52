"""What is drawn of a simulation, as points over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.core.simulation.plant import Trace

Points = Sequence[tuple[float, float]]
"""(second, value), in order."""


@dataclass(frozen=True)
class Series:
    """What is drawn of a trace.

    Args:
        lag: records that waited when a run was due.
        size: records of each batch, when it started.
        run_s: seconds that each batch took, when it started.
        skipped_s: the interval for each run that was skipped while records may have waited, when it was due.
    """

    lag: Points
    size: Points
    run_s: Points
    skipped_s: Points

    @staticmethod
    def of(trace: Trace, interval_s: float) -> Series:
        """The points of a trace of runs that are due every interval."""
        batches, skipped = trace.batches, trace.skipped
        return Series(
            lag=sorted([(b.due_s, float(b.lag)) for b in batches] + [(skip.due_s, float(skip.lag)) for skip in skipped]),
            size=[(b.started_s, float(b.records)) for b in batches],
            run_s=[(b.started_s, b.run_s) for b in batches],
            skipped_s=[(skip.due_s, interval_s) for skip in skipped if skip.reason != "nothing to read"],
        )


def largest(points: Points, seconds: float, parts: int, *, hold: bool = False) -> list[float]:
    """The largest value within each of so many equal parts of the time; without one: 0, or the value before (`hold`)."""
    found: list[list[float]] = [[] for _ in range(parts)]
    for second, value in points:
        found[_part(second, seconds, parts)].append(value)
    values, last = [], 0.0
    for part in found:
        values.append(max(part, default=last if hold else 0.0))
        last = part[-1] if part else last
    return values


def total(points: Points, seconds: float, parts: int) -> list[float]:
    """The sum of the values within each of so many equal parts of the time."""
    sums = [0.0] * parts
    for second, value in points:
        sums[_part(second, seconds, parts)] += value
    return sums


def _part(second: float, seconds: float, parts: int) -> int:
    return min(int(second * parts / seconds + 1e-9), parts - 1)  # a point on a border is in the later part

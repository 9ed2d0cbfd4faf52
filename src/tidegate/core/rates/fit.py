"""How well t = a + b * n explains what a pipeline's last batches took: least squares of the relative error.

`Cost` follows the cost from batch to batch. A fit looks back at many batches at once: for advice, for a simulation, and to
judge the model itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from tidegate.core.errors import RequestError
from tidegate.core.rates.checks import MOST_RECORDS, MOST_SECONDS, is_number
from tidegate.core.rates.learning import FULL_PERCENT
from tidegate.core.rates.timing import BatchTiming

MOST_BATCHES = 100
"""The last batches that a fit looks at."""
RECENT_BATCHES = 20
"""The last batches that decisions look at: older ones show what was true once."""

UNEXPLAINED = 0.35
"""Relative error from which on the model does not explain a batch."""

LEAST_SPREAD = 1.15
"""The largest of the sizes over the smallest, below which they cannot tell the overhead from the cost of a record."""

LEAST_RECORD_S = 1e-12
"""Of each record: where the times of batches do not depend on their sizes, the rest is noise of floats."""

MOST_DOUBT = 0.15
"""Standard error of the overhead as a share of the median time, above which it is not told from the cost of a record."""


@dataclass(frozen=True)
class Fit:
    """The cost t = a + b * n of a pipeline's batches, and how well it explains them.

    Args:
        a: seconds of a run that do not depend on its records.
        b: seconds of each record, above 0.
        batches: how many batches were looked at.
        left_out: batches without records, or without a measured time.
        r_squared: share of the variance of the times that the model explains; None where all times are equal.
        median_error, worst_error: |t - (a + b * n)| / t.
        unexplained: when batches ended (epoch ms) whose error is above `UNEXPLAINED`.
        separate: whether the sizes differ enough to tell `a` from `b`. Otherwise `a` is what the runs spent outside their Spark
            jobs, which is the least that it can be.
        given: which of `a` and `b` was not estimated, but given.
        overhead_error_s: standard error of `a`; None where it was not estimated from the sizes.
    """

    a: float
    b: float
    batches: int
    left_out: int
    r_squared: float | None
    median_error: float
    worst_error: float
    unexplained: tuple[int, ...]
    separate: bool
    given: tuple[str, ...] = ()
    overhead_error_s: float | None = None

    def sentences(self) -> tuple[str, ...]:
        """For people: the model, how well it explains the batches, and what it rests on."""
        told = [
            (
                f"a run takes {shown(self.a)} s and {shown(1e6 * self.b)} s for each million records, "
                f"by the last {self.batches} batches"
            )
        ]
        share = "" if self.r_squared is None else f" and {max(0.0, self.r_squared):.0%} of the variance of the times"
        told.append(
            f"the model explains {self.batches - len(self.unexplained)} of them within {UNEXPLAINED:.0%}{share}; "
            f"its error is {self.median_error:.1%} in the median, {self.worst_error:.1%} at worst"
        )
        if self.given:
            told.append(f"{' and '.join(self.given)} was given" if len(self.given) == 1 else "a and b were given")
        elif not self.separate:
            told.append(
                "the batches do not tell the overhead of a run from the cost of a record, since their sizes are alike or their "
                "times do not grow with them: "
                "a is what the runs spent outside their Spark jobs, and may be more"
            )
        if self.left_out:
            told.append(f"batches without records or time, left out: {self.left_out}")
        return tuple(told)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**asdict(self), "unexplained": list(self.unexplained), "given": list(self.given)}


def fit_cost(timings: Sequence[BatchTiming], *, a: float | None = None, b: float | None = None) -> Fit:
    """The cost of a batch, from the last batches of a pipeline.

    Minimizes the sum of ((a + b * n - t) / t)^2 with a >= 0 and b > 0: a noise of 10 % weighs the same in short and long runs.

    Args:
        timings: batches, oldest first; the last `MOST_BATCHES` count.
        a: seconds of a run that do not depend on its records, where that is known already.
        b: seconds of each record, where that is known already.

    Raises:
        RequestError: no batch was measured, or a given number is out of its bounds.
    """
    check_cost(a=a, b=b)
    last = timings[-MOST_BATCHES:]
    points = [_Point(t.records, t.run_ms / 1000, t.load_ms / 1000, t.ended_at_ms) for t in last if _measured(t)]
    if not points:
        raise RequestError(
            "there is no batch with records whose time was measured",
            fix="Let the pipeline run some batches, or give the cost of a batch (a and b)",
        )
    given = tuple(name for name, value in (("a", a), ("b", b)) if value is not None)
    line = None if given else _line(points)
    doubt = None
    if line is not None:
        overhead, record, doubt = line
    elif a is not None:
        overhead, record = a, _record_s(points, a) if b is None else b
    elif b is not None:
        overhead, record = _overhead_s(points, b), b
    else:
        overhead = min(max(0.0, p.run_s - p.load_s) for p in points)
        record = _record_s(points, overhead)
    errors = [abs(p.run_s - overhead - record * p.records) / p.run_s for p in points]
    return Fit(
        a=overhead,
        b=record,
        batches=len(points),
        left_out=len(last) - len(points),
        r_squared=_r_squared(points, overhead, record),
        median_error=median(errors),
        worst_error=max(errors),
        unexplained=tuple(p.ended_at_ms for p, error in zip(points, errors, strict=True) if error > UNEXPLAINED),
        separate=line is not None,
        given=given,
        overhead_error_s=doubt,
    )


def shown(number: float) -> str:
    """Three digits, or all of a whole part that has more."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def check_cost(*, a: float | None = None, b: float | None = None) -> None:
    """Raises RequestError where `a` is no time from 0, or `b` no time above 0."""
    if a is not None and not (is_number(a) and 0 <= a <= MOST_SECONDS):
        raise RequestError(
            f"a: expected the seconds of a run that do not depend on its records, from 0, got {a!r}",
            fix="Give a number from 0, such as --a 5",
        )
    if b is not None and not (is_number(b) and LEAST_RECORD_S <= b <= MOST_SECONDS):
        raise RequestError(
            f"b: expected the seconds of each record, at least 1e-12, got {b!r}", fix="Give a number above 0, such as --b 1e-5"
        )


def arrival_rate(timings: Sequence[BatchTiming]) -> float | None:
    """Records/s that arrive, as the batches show; None where they do not.

    Two batches that took all that waited have loaded, with those between them, what arrived from the start of the first to the
    start of the last.
    """
    last = timings[-MOST_BATCHES:]
    whole = [k for k, t in enumerate(last) if t.bound is None or 100 * t.records < FULL_PERCENT * t.bound]
    if len(whole) < 2:
        return None
    first, until = whole[0], whole[-1]
    span_ms = (last[until].ended_at_ms - last[until].run_ms) - (last[first].ended_at_ms - last[first].run_ms)
    return sum(t.records for t in last[first + 1 : until + 1]) / span_ms * 1000 if span_ms > 0 else None


@dataclass(frozen=True, slots=True)
class _Point:
    """One measured batch: records, seconds of its run and of its Spark job, and when it ended (epoch ms)."""

    records: int
    run_s: float
    load_s: float
    ended_at_ms: int


def _measured(timing: BatchTiming) -> bool:
    measured = 0 < timing.records <= MOST_RECORDS and 0 < timing.run_ms <= 1000 * MOST_SECONDS
    return measured and timing.load_ms <= 1000 * MOST_SECONDS


def _line(points: Sequence[_Point]) -> tuple[float, float, float] | None:
    """Overhead, cost of a record, and standard error of the overhead; None where the sizes do not tell them apart.

    With u = 1/t and v = n/t it is the regression of 1 on u and v through the origin.
    """
    sizes = [p.records for p in points]
    if len(points) < 3 or max(sizes) < LEAST_SPREAD * min(sizes):
        return None
    scale = fmean(sizes)  # so that both columns are of one magnitude
    us = [1 / p.run_s for p in points]
    vs = [p.records / scale / p.run_s for p in points]
    uu, uv, vv = (sum(x * y for x, y in zip(*pair, strict=True)) for pair in ((us, us), (us, vs), (vs, vs)))
    determinant = uu * vv - uv * uv
    if determinant <= 1e-12 * uu * vv:
        return None
    overhead = (sum(us) * vv - sum(vs) * uv) / determinant
    record = (sum(vs) * uu - sum(us) * uv) / determinant
    residual = sum((1 - overhead * u - record * v) ** 2 for u, v in zip(us, vs, strict=True))
    doubt = math.sqrt(residual / (len(points) - 2) * vv / determinant)
    if record / scale < LEAST_RECORD_S or doubt > MOST_DOUBT * median(p.run_s for p in points):
        return None
    if overhead < 0:
        overhead, record = 0.0, sum(vs) / vv
    return overhead, record / scale, doubt


def _record_s(points: Sequence[_Point], overhead: float) -> float:
    """The cost of a record for a known overhead, above 0."""
    weights = sum((p.records / p.run_s) ** 2 for p in points)
    exact = sum((p.records / p.run_s) * (1 - overhead / p.run_s) for p in points) / weights
    # the records' part of a run is at least a hundredth of it, as for `Cost`: no size is without limit
    return max(exact, 0.01 * min(p.run_s / p.records for p in points), LEAST_RECORD_S)


def _overhead_s(points: Sequence[_Point], record: float) -> float:
    """The overhead for a known cost of a record, from 0."""
    weights = sum(1 / p.run_s**2 for p in points)
    return max(0.0, sum((1 - record * p.records / p.run_s) / p.run_s for p in points) / weights)


def _r_squared(points: Sequence[_Point], overhead: float, record: float) -> float | None:
    mean = fmean(p.run_s for p in points)
    total = sum((p.run_s - mean) ** 2 for p in points)
    rest = sum((p.run_s - overhead - record * p.records) ** 2 for p in points)
    return 1 - rest / total if total > 1e-12 * len(points) * mean**2 else None

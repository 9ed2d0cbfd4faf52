"""The cost t = a + b * n that a pipeline's last batches show: least squares of the relative error.

`Cost` follows the cost from batch to batch. A fit looks back at many batches at once, for advice and for a simulation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from statistics import fmean, median
from typing import Any

from tidegate.core.model.errors import RequestError
from tidegate.core.rates.checks import MOST_RECORDS, MOST_SECONDS, is_number
from tidegate.core.rates.policy import FULL_PERCENT
from tidegate.core.rates.timing import BatchTiming

MOST_BATCHES = 100
"""The last batches that a fit looks at."""
RECENT_BATCHES = 20
"""The last batches that decisions look at: older ones show what was true once."""

LEAST_SPREAD = 1.15
"""The largest of the sizes over the smallest, below which they cannot tell the overhead from the cost of a record."""

LEAST_RECORD_S = 1e-12
"""Of each record: where the times of batches do not depend on their sizes, the rest is noise of floats."""

MOST_DOUBT = 0.15
"""Standard error of the overhead as a share of the median time, above which it is not told from the cost of a record."""


@dataclass(frozen=True)
class Fit:
    """The cost t = a + b * n of a pipeline's batches.

    Args:
        a: seconds of a run that do not depend on its records.
        b: seconds of each record, above 0.
        batches: how many batches it rests on.
        separate: whether `a` and `b` are told apart, since the sizes differ enough or one of the two was given. Otherwise `a`
            is what the runs spent outside their Spark jobs, which is the least that it can be.
    """

    a: float
    b: float
    batches: int
    _: KW_ONLY
    separate: bool

    def sentences(self) -> tuple[str, ...]:
        """For people: the cost, and what it rests on."""
        told = f"{cost_told(self.a, self.b)}, by the last {self.batches} batches"
        doubt = (
            "the batches do not tell the overhead of a run from the cost of a record, since their sizes are alike or their "
            "times do not grow with them: a is what the runs spent outside their Spark jobs, and may be more"
        )
        return (told,) if self.separate else (told, doubt)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def fit_cost(timings: Sequence[BatchTiming], *, a: float | None = None, b: float | None = None) -> Fit:
    """The cost of a batch, from the last batches of a pipeline.

    Minimizes the sum of ((a + b * n - t) / t)^2 with a >= 0 and b > 0: a noise of 10 % weighs the same in short and long runs.

    Args:
        timings: batches, oldest first; the last `MOST_BATCHES` count. Those without records or a measured time are left out.
        a: seconds of a run that do not depend on its records, where that is known already.
        b: seconds of each record, where that is known already.

    Raises:
        RequestError: no batch was measured, or a given number is out of its bounds.
    """
    check_cost(a=a, b=b)
    points = [_Point(t.records, t.run_ms / 1000, t.load_ms / 1000) for t in timings[-MOST_BATCHES:] if _measured(t)]
    if not points:
        raise RequestError(
            "there is no batch with records whose time was measured",
            fix="Let the pipeline run some batches, or give the cost of a batch (a and b)",
        )
    if a is not None:
        return Fit(a, _record_s(points, a) if b is None else b, len(points), separate=True)
    if b is not None:
        return Fit(_overhead_s(points, b), b, len(points), separate=True)
    if (line := _line(points)) is not None:
        return Fit(*line, len(points), separate=True)
    least = min(max(0.0, p.run_s - p.load_s) for p in points)
    return Fit(least, _record_s(points, least), len(points), separate=False)


def cost_told(a: float, b: float) -> str:
    """The cost t = a + b * n in words."""
    return f"a run takes {shown(a)} s and {shown(1e6 * b)} s for each million records"


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
    """One measured batch: records, and seconds of its run and of its Spark job."""

    records: int
    run_s: float
    load_s: float


def _measured(timing: BatchTiming) -> bool:
    measured = 0 < timing.records <= MOST_RECORDS and 0 < timing.run_ms <= 1000 * MOST_SECONDS
    return measured and timing.load_ms <= 1000 * MOST_SECONDS


def _line(points: Sequence[_Point]) -> tuple[float, float] | None:
    """Overhead and cost of a record; None where the sizes do not tell them apart.

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
    return overhead, record / scale


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

"""The cost of a batch, t = a + b * n: the overhead `a` of a run, and the seconds `b` of each record.

`Cost` follows it from one batch to the next, by a Kalman filter of the two numbers. Batches of equal size show only the sum of
the two, so they change `b` alone; batches of different size separate the two. Where the cost changes at once, what was known of
`b` is forgotten, and `a` is kept: it depends on the platform, `b` on the sink and the records. Noise is taken for relative to
the time of a run, and is measured: a quiet platform is followed closely, a noisy one calmly.

`Fit` looks back at many batches at once, for advice and for a simulation: least squares of the relative error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from statistics import fmean, median
from typing import Any

from tidegate.core.model.errors import RequestError
from tidegate.core.rates.policy import FULL_PERCENT, MOST_RECORDS, MOST_SECONDS, BatchTiming, is_number

NOISE = 0.05
"""Relative standard deviation of a run's time, assumed at first; from then on it is measured, within these bounds."""
LEAST_NOISE, MOST_NOISE = 0.03, 0.2
FIRST_DOUBT = 0.5
"""Standard deviation of the overhead after the first batch, as a share of its time."""
DRIFT = 0.05
"""By how much of itself the cost of a record may change between two batches, unnoticed."""
SURPRISE, MEMORY = 3.5, 0.8
"""The cost has changed at once where the sum of the errors exceeds this many standard deviations. What an error counts shrinks
by the factor with every batch: one large error exceeds it, or a few of the same sign."""
SUDDEN_OVERHEAD, SUDDEN_INTERVAL = 0.1, 0.02
"""By how much of itself, and of the interval, the overhead may have changed where the cost has changed at once."""
DIFFERENT_SIZE = 0.2
"""Least difference of the logarithms of two sizes that separates `a` from `b`: smaller ones come from the noise itself."""
LEAST_SHARE = 0.02
"""The least share of a batch's time that is due to its records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """An estimate of t = a + b * n.

    Args:
        a: seconds of a run that do not depend on its records.
        b: seconds of each record.
        var_a: variance of `a`.
        lean: by how much `b` is wrong for each second that `a` is wrong.
        var_b: variance of `b` if `a` is right.
        noise: relative standard deviation of a run's time.
        strain: the sum of the last errors, in standard deviations.
        n: records of the last batch that told `a` from `b`: by `DIFFERENT_SIZE` more or less than the one that did before.
    """

    a: float
    b: float
    var_a: float
    lean: float
    var_b: float
    noise: float
    strain: float
    n: int

    @staticmethod
    def first(n: int, t: float) -> Cost:
        """From one batch of `n` records in `t` seconds: all of it is taken for the cost of records, until others differ."""
        t = min(t, MOST_SECONDS)
        b = t / n
        return Cost(a=0.0, b=b, var_a=(FIRST_DOUBT * t) ** 2, lean=-1 / n, var_b=(NOISE * b) ** 2, noise=NOISE, strain=0.0, n=n)

    def after(self, n: int, t: float, *, interval_s: float) -> Cost:
        """After one more batch; a run of more than `MOST_SECONDS` counts as one of that: its clock was set."""
        t = min(t, MOST_SECONDS)
        prior = replace(self, var_b=self.var_b + (DRIFT * self.b) ** 2)
        forecast = self.a + self.b * n
        error = t - forecast
        change = error / forecast
        strain = MEMORY * self.strain + error / math.sqrt(prior.variance(n))
        if abs(strain) > SURPRISE:
            doubt = 4 * max(1.0, change**2)
            var_a = self.var_a + doubt * (SUDDEN_OVERHEAD * self.a) ** 2 + (SUDDEN_INTERVAL * interval_s) ** 2
            prior = replace(prior, var_a=var_a, lean=0.0, var_b=doubt * self.b**2)
            strain = 0.0
        seen = min(abs(change), 3 * self.noise)
        noise = min(max(math.sqrt(0.9 * self.noise**2 + 0.1 * seen**2), LEAST_NOISE), MOST_NOISE)
        cost = replace(prior, noise=noise, strain=strain).updated(n, error).bounded(n, t)
        return cost if cost.plausible else Cost.first(n, t)

    @property
    def plausible(self) -> bool:
        """Whether the numbers are those of an estimate: arithmetic on them does not overflow."""
        return (
            all(is_number(getattr(self, name)) for name in self.__slots__)
            and 0 <= self.a <= MOST_SECONDS
            and 1e-24 <= self.b <= MOST_SECONDS
            and min(self.var_a, self.var_b) >= 0
            and max(self.var_a, self.var_b) <= 1e20
            and abs(self.lean) <= 1e3
            and LEAST_NOISE <= self.noise <= MOST_NOISE
            and abs(self.strain) <= SURPRISE
            and isinstance(self.n, int)
            and 1 <= self.n <= 2**63
        )

    def _noise_variance(self, n: int) -> float:
        return (self.noise * (self.a + self.b * n)) ** 2

    def variance(self, n: int) -> float:
        """Of the error of a forecast: by the overhead, the cost of a record, and noise."""
        return (1 + self.lean * n) ** 2 * self.var_a + n**2 * self.var_b + self._noise_variance(n)

    def updated(self, n: int, error: float) -> Cost:
        """The filter's step: `b` if `a` is right, then `a`, with which `b` leans."""
        gain_b = n * self.var_b / (n**2 * self.var_b + self._noise_variance(n))
        lean = self.lean - gain_b * (1 + self.lean * n)
        lever = 1 + self.lean * n
        differs = abs(math.log(n / self.n)) > DIFFERENT_SIZE
        gain_a = lever * self.var_a / self.variance(n) if differs else 0.0
        return replace(
            self,
            a=self.a + gain_a * error,
            b=self.b + (gain_b + lean * gain_a) * error,
            var_a=self.var_a * max(0.0, 1 - gain_a * lever),
            lean=lean,
            var_b=self.var_b * max(0.0, 1 - gain_b * n),
            n=n if differs else self.n,
        )

    def bounded(self, n: int, t: float) -> Cost:
        """The nearest estimate with 0 <= a < t and b > 0, after a batch of `n` records in `t` seconds."""
        a = min(max(self.a, 0.0), (1 - LEAST_SHARE) * t)
        return replace(self, a=a, b=max(self.b + self.lean * (a - self.a), LEAST_SHARE * t / n))


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

    It rests on so many `batches`. `separate`: `a` and `b` are told apart, since the sizes differ enough or one of the two was
    given. Otherwise `a` is what the runs spent outside their Spark jobs, which is the least that it can be.
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
    """The cost of a batch, from the last `MOST_BATCHES` that have records and a measured time, oldest first.

    Minimizes the sum of ((a + b * n - t) / t)^2 with a >= 0 and b > 0: a noise of 10 % weighs the same in short and long runs.
    `a` (seconds of a run) and `b` (seconds of each record) are given where they are known already. Raises RequestError: no
    batch was measured, or a given number is out of its bounds.
    """
    check_cost(a=a, b=b)
    most_ms = 1000 * MOST_SECONDS
    points = [
        _Point(t.records, t.run_ms / 1000, t.load_ms / 1000)
        for t in timings[-MOST_BATCHES:]
        if 0 < t.records <= MOST_RECORDS and 0 < t.run_ms <= most_ms and t.load_ms <= most_ms
    ]
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

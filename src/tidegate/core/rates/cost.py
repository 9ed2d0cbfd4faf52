"""The cost of a batch, t = a + b * n, estimated from one batch after the other.

A Kalman filter of two numbers: the overhead `a` of a run, and the seconds `b` of each record. Batches of equal size show only
the sum of the two, so they change `b` alone; batches of different size separate the two. Where the cost changes at once,
what was known of `b` is forgotten, and `a` is kept: it depends on the platform, `b` on the sink and the records.

Noise is taken for relative to the time of a run, and is measured: a quiet platform is followed closely, a noisy one calmly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tidegate.core.rates.checks import MOST_SECONDS, is_number

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

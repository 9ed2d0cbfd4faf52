"""Laws of the fit of t = a + b * n to a pipeline's last batches."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidegate.core.model.errors import RequestError
from tidegate.core.rates import BatchTiming
from tidegate.core.rates.fit import Fit, arrival_rate, fit_cost

A, B = 5.0, 1e-5


def batch(records: int, run_s: float, minute: int = 1, *, bound: int | None = None, load_s: float = 0.0) -> BatchTiming:
    return BatchTiming(records, bound, round(run_s * 1000), round(load_s * 1000), 0, minute * 60_000)


def batches(count: int = 60, *, noise: float = 0.0, seed: int = 0, least: float = 1e5, most: float = 5e6) -> list[BatchTiming]:
    chance = random.Random(seed)  # noqa: S311 - noise of a model, no secret
    sizes = [round(chance.uniform(least, most)) for _ in range(count)]
    return [batch(n, (A + B * n) * chance.gauss(1, noise), k, load_s=B * n) for k, n in enumerate(sizes, 1)]


def test_a_cost_that_the_model_describes_is_found() -> None:
    """To the rounding of milliseconds."""
    found = fit_cost(batches())
    assert [found.a, found.b] == pytest.approx([A, B], rel=1e-3)
    assert found.separate
    assert found.batches == 60


@given(st.floats(0, 100), st.floats(1e-7, 1e-2), st.lists(st.integers(1000, 10**7), min_size=5, max_size=30))
def test_any_exact_cost_is_explained(a: float, b: float, sizes: list[int]) -> None:
    """Whether or not the sizes tell a from b, every batch of one size costs what it cost."""
    timings = [batch(n, a + b * n, k) for k, n in enumerate(sizes)]
    assume(all(t.run_ms > 1000 for t in timings))
    found = fit_cost(timings)
    assert found.a >= 0
    assert found.b > 0
    if found.separate:
        assert all(found.a + found.b * t.records == pytest.approx(t.run_ms / 1000, rel=0.01) for t in timings)


@pytest.mark.parametrize("noise", [0.05, 0.1])
def test_noise_moves_the_fit_by_little(noise: float) -> None:
    """Over 60 batches: the overhead within the noise, the records' cost within 10 %."""
    for seed in range(20):
        found = fit_cost(batches(noise=noise, seed=seed))
        assert found.separate
        assert found.a == pytest.approx(A, rel=noise)
        assert found.b == pytest.approx(B, rel=0.1)


def test_only_the_last_hundred_batches_count() -> None:
    """An older cost is forgotten."""
    old = [batch(n, 100 + n / 1000, k) for k, n in enumerate(range(1000, 2000), 1)]
    assert fit_cost([*old, *batches(100)]) == fit_cost(batches(100))


@pytest.mark.parametrize(
    "timings",
    [
        [batch(1_000_000, 15, load_s=11)],
        [batch(1_000_000, 15, load_s=11)] * 30,
        [batch(1_000_000, 15, load_s=11), batch(1_100_000, 16, load_s=12), batch(1_050_000, 15.5, load_s=11.5)],
        [batch(1_000_000, 15, load_s=11), batch(2_000_000, 30, load_s=26), batch(3_000_000, 25, load_s=21)],
        [batch(100, 4.001, load_s=0.001), batch(200, 3e7, load_s=3e7 - 4), batch(300, 3e7, load_s=3e7 - 4)],
        [batch(10**9, 4.001, load_s=0.001), batch(1, 3e7, load_s=3e7 - 4), batch(2, 3e7, load_s=3e7 - 4)],
    ],
    ids=["one", "equal", "alike", "contradicting", "a slow server", "one that outweighs all"],
)
def test_sizes_that_do_not_tell_a_from_b_leave_the_overhead_outside_the_job(timings: list[BatchTiming]) -> None:
    """What the runs spent outside their Spark jobs is the least that it can be; the fit says so."""
    found = fit_cost(timings)
    assert not found.separate
    assert found.a == pytest.approx(4)
    assert found.b > 0
    assert "do not tell the overhead of a run from the cost of a record" in found.sentences()[-1]


def test_an_overhead_is_never_negative() -> None:
    """Where the line goes through the origin from below, all of a run is for records."""
    found = fit_cost([batch(n, 1e-5 * n - 2, n // 1_000_000) for n in (1_000_000, 2_000_000, 3_000_000, 4_000_000)])
    assert found.separate
    assert found.a == 0
    assert 0 < found.b < 1e-5


def test_a_number_that_is_given_is_kept_and_the_other_one_estimated() -> None:
    """Also from batches of one size."""
    same = [batch(1_000_000, 15, k) for k in range(5)]
    assert fit_cost(same, a=3).b == pytest.approx(12e-6)
    assert fit_cost(same, b=1e-5).a == pytest.approx(5)
    assert fit_cost(same, b=1e-3).a == 0
    assert fit_cost(same, a=100).b == pytest.approx(0.01 * 15e-6)
    assert fit_cost(same, a=5, b=2e-5) == Fit(5, 2e-5, 5, separate=True)


@pytest.mark.parametrize(
    ("given_cost", "message"),
    [
        *[({"a": value}, "a: expected the seconds of a run") for value in (-1, math.nan, math.inf, 10**9, True, "5")],
        *[({"b": value}, "b: expected the seconds of each record") for value in (0, -1e-5, math.nan, math.inf, 1e-13)],
    ],
)
def test_a_given_number_is_refused_by_name(given_cost: dict[str, Any], message: str) -> None:
    """With the fix."""
    with pytest.raises(RequestError, match=message) as refused:
        fit_cost(batches(), **given_cost)
    assert refused.value.fix


def test_batches_that_measured_nothing_are_left_out() -> None:
    """No records, no time, absurd numbers; nothing but those is refused."""
    nothing = [batch(0, 5), batch(100, 0), batch(2**63, 5), replace(batch(100, 5), run_ms=10**12)]
    found = fit_cost([*nothing, *batches(20)])
    assert found == fit_cost(batches(20))
    for timings in ([], nothing):
        with pytest.raises(RequestError, match="no batch with records whose time was measured"):
            fit_cost(timings)


def test_the_arrival_rate_is_what_arrived_between_two_batches_that_took_all() -> None:
    """A batch at its bound does not tell how much waited."""
    timings = [batch(600, 10, 1), batch(1000, 10, 2, bound=1000), batch(200, 10, 3, bound=1000), batch(1000, 10, 4, bound=1000)]
    assert arrival_rate(timings) == pytest.approx(1200 / 120)
    assert arrival_rate(timings[:2]) is None
    assert arrival_rate([]) is None
    assert arrival_rate([timings[0], timings[0]]) is None

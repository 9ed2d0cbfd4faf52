"""Laws of what is simulated: the model from history or as given, and the event in the second third of the time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidegate.core.config.pipeline import Limits
from tidegate.core.model.errors import ConfigError, RequestError
from tidegate.core.rates import BatchTiming
from tidegate.simulation.experiment import Experiment, Model, experiment, limits_of, model_of
from tidegate.simulation.steps import Steps

T, A, B = 60.0, 5.0, 1e-5


def timing(records: int, minute: int, *, bound: int | None = None) -> BatchTiming:
    run_ms = round((A + B * records) * 1000)
    return BatchTiming(records, bound, run_ms, run_ms - 4000, 0, minute * 60_000 + run_ms)


HISTORY = [timing(1_000_000 + 500_000 * (k % 3), k) for k in range(1, 10)]


def model(**given: Any) -> Model:
    return model_of(HISTORY, interval_s=T, **given)


def test_a_model_comes_from_the_history() -> None:
    """Cost and load; what is given wins."""
    found = model()
    assert [found.a, found.b] == pytest.approx([A, B], rel=0.01)
    assert found.arrival_rate == pytest.approx(25_000)
    assert found.arrival_source == "history"
    assert found.fit is not None
    assert found.fit.separate
    given = model(a=7.0, b=2e-5, rate=0.0)
    assert (given.a, given.b, given.arrival_rate, given.arrival_source, given.fit) == (7.0, 2e-5, 0.0, "given", None)
    assert given.advice.full_batch == 2_350_000
    assert model(b=2e-5).b == 2e-5


def test_without_a_known_load_half_of_a_full_one_arrives() -> None:
    """Also where not even an empty run fits into the interval."""
    bounded = [timing(1_000_000, k, bound=1_000_000) for k in range(3)]
    found = model_of(bounded, interval_s=T, a=A)
    assert found.arrival_source == "half of a full load"
    assert found.arrival_rate == pytest.approx(0.5 * 4_900_000 / T, rel=0.01)
    assert model_of([], interval_s=T, a=100, b=B).arrival_rate == pytest.approx(45_000)


@pytest.mark.parametrize(
    "wrong", [{"a": -1}, {"a": 1, "b": 0}, {"rate": float("nan")}, {"utilization": 0}, {"interval_s": 0}, {"timings": []}]
)
def test_a_model_of_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    """By name."""
    with pytest.raises((ConfigError, RequestError)):
        model_of(**{"timings": HISTORY, "interval_s": T, **wrong})


@pytest.mark.parametrize(
    ("asked", "seconds", "since_s", "until_s"),
    [
        ({}, 9000, 0, 0),
        ({"event": "step"}, 9000, 3000, 6000),
        ({"event": "quiet"}, 9000, 3000, 4200),
        ({"event": "outage"}, 10_800, 3602.5, 7202.5),
        ({"event": "step", "lasting_s": 6000}, 18_000, 6000, 12_000),
        ({"event": "step", "seconds": 1000.0, "lasting_s": 60}, 1000, 300, 360),
        ({"load": Steps([(0, 1.0), (20_000, 2.0)])}, 23_000, 0, 0),
        ({"load": Steps([(0, 1.0)])}, 9000, 0, 0),
    ],
)
def test_an_event_begins_with_the_second_third_of_the_time(
    asked: dict[str, Any], seconds: float, since_s: float, until_s: float
) -> None:
    """Which is at least 150 intervals, three times the event, and what the load needs."""
    made = experiment(model(), **asked)
    assert [made.seconds, made.since_s, made.until_s] == pytest.approx([seconds, since_s, until_s], rel=1e-3)
    assert (made.event is None) == ("event" not in asked)


def test_an_event_changes_the_plant() -> None:
    """By its factor, which is 3 for a step and 10 for the burst after quiet hours."""

    def made(**asked: Any) -> Experiment:
        return experiment(model(a=A, b=B, rate=1000.0), **asked, partitions=7)

    assert Steps.of(made(event="step").plant.record_s).at(3000) == pytest.approx(3 * B)
    assert Steps.of(made(event="step", factor=5).plant.record_s).at(3000) == pytest.approx(5 * B)
    quiet = Steps.of(made(event="quiet").plant.arrivals)
    assert [quiet.at(s) for s in (0, 3000, 4200, 4260)] == pytest.approx([1000, 10, 49_000_000 / T, 1000])
    assert made(event="outage").plant.outages == ((3602.5, 7202.5),)
    assert made().plant.partitions == 7
    assert "costs 5 times" in str(made(event="step", factor=5).event)


def test_limits_of_a_pipeline_are_those_of_a_plan() -> None:
    """Bytes count only where the size of a record is known: a real first batch would probe."""
    limits = Limits(
        max_records=5, min_records=2, max_delay_s=9, max_rate_per_partition=3, min_rate_per_partition=2, max_bytes=100
    )
    made = limits_of(limits, 10.0)
    assert (made.limits, made.record_bytes) == (limits, 10.0)
    assert limits_of(limits, None).limits == replace(limits, max_bytes=None)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"factor": 2}, "factor: requires"),
        ({"event": "outage", "factor": 3}, "factor: requires"),
        ({"event": "step", "factor": 1001}, "factor: expected"),
        ({"lasting_s": 2}, "lasting: requires"),
        ({"event": "step", "lasting_s": 0}, "lasting: expected"),
        ({"seconds": -1.0}, "hours: expected"),
        ({"event": "step", "seconds": 600.0}, "longer than the simulated 600 s"),
        ({"noise": 2}, "noise: expected"),
    ],
)
def test_an_event_that_does_not_fit_is_refused(asked: dict[str, Any], message: str) -> None:
    """By name."""
    with pytest.raises((ConfigError, RequestError), match=message):
        experiment(model(), **asked)

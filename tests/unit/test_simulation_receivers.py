"""Laws of simulated receivers: nothing is dropped, and each policy of back-pressure keeps what it promises."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.airflow.receivers import downstream
from tidegate.core.errors import ConfigError, RequestError
from tidegate.core.rates.control import RateControl
from tidegate.core.receivers.backpressure import Backpressure
from tidegate.core.simulation import receivers
from tidegate.core.simulation.bursts import POLICIES, Burst, Throttled, backpressures, burst, compare_receivers, longest_s
from tidegate.core.simulation.plant import Plant
from tidegate.core.simulation.receivers import Flow, Inlet, Sample
from tidegate.ingest import intake, supervisor

T, A, FULL = 20.0, 2.0, 4000
B = (0.9 * T - A) / FULL
"""A full batch takes nine tenths of the interval."""
SPEED = FULL / T
BACKLOG = 2 * FULL
TARGET = RateControl({"policy": "target", "initial_records": FULL}, T)


def inlet(times: float = 0.5, **changes: Any) -> Inlet:
    """A receiver whose senders send so many times as much as the pipeline loads."""
    return Inlet(Plant(T, A, B, times * SPEED), **{"control": TARGET, "instances": 2, **changes})


def under(policy: str, asked: Burst, *, seed: int = 0, max_backlog: int = BACKLOG, **settings: Any) -> Throttled:
    (done,) = compare_receivers(asked, backpressures(settings, [policy], max_backlog), seed=seed)
    return done


def intervals(flow: Flow, since: float, until: float) -> list[Sample]:
    return [sample for sample in flow.samples if since * T <= sample.second < until * T]


loads = st.floats(0.1, 3)
factors = st.floats(1, 20)


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(POLICIES), loads, factors, st.integers(1, 5), st.integers(0, 99))
def test_nothing_is_dropped(policy: str, times: float, factor: float, instances: int, seed: int) -> None:
    """At all times, what was sent is at the senders, in buffers, in the topic, or loaded."""
    asked = burst(inlet(times, instances=instances, buffer=500), factor=factor, lasting_s=T, seconds=15 * T)
    flow = under(policy, asked, seed=seed).flow
    assert len(flow.samples) == receivers.SAMPLES + 1
    for sample in flow.samples:
        assert sample.sent == sample.waiting + sample.buffered + sample.lag + sample.loaded
        assert min(sample.waiting, sample.buffered, sample.lag) >= 0
        assert sample.buffered <= 500 * instances
    assert flow.most_buffered <= 500
    assert flow.most_lag >= max(sample.lag for sample in flow.samples)
    assert [sample.sent for sample in flow.samples] == sorted(sample.sent for sample in flow.samples)


@settings(max_examples=12, deadline=None)
@given(
    loads,
    factors,
    st.integers(1, 5),
    st.sampled_from([FULL, BACKLOG, 5 * FULL]),
    st.sampled_from([0.2, 1.0, 3.0]),
    st.integers(0, 99),
)
def test_credit_keeps_the_topic_within_its_backlog(
    times: float, factor: float, instances: int, max_backlog: int, block_s: float, seed: int
) -> None:
    """One instance to the record, several to a hundredth, whatever is sent and however long Kafka takes for a block."""
    asked = burst(inlet(times, instances=instances, block_s=block_s), factor=factor, lasting_s=2 * T, seconds=16 * T)
    most = under("credit", asked, seed=seed, max_backlog=max_backlog, safe_rate=0).flow.most_lag
    assert most <= max_backlog * (1.0 if instances == 1 else 1.01)


@settings(max_examples=8, deadline=None)
@given(factors, st.integers(1, 5), st.integers(20, 400), st.integers(0, 99))
def test_watermark_passes_its_mark_by_what_is_taken_in_between_two_looks(
    factor: float, instances: int, max_rate: int, seed: int
) -> None:
    """And by the block that is on its way, and the turn that was reserved."""
    asked = burst(inlet(instances=instances, max_rate=max_rate), factor=factor, lasting_s=2 * T, seconds=16 * T)
    most = under("watermark", asked, seed=seed).flow.most_lag
    between_s = receivers.LISTEN_S + 3 * receivers.ANSWER_S + 4 * asked.inlet.block_s
    assert most <= 0.9 * BACKLOG + instances * max_rate * between_s + instances


def test_watermark_goes_on_at_the_low_mark() -> None:
    """Until then nothing is taken in; the burst is worked off all the same."""
    done = under("watermark", burst(inlet(max_rate=2000)))
    stopped = [rate for second, rate in done.taken if 12 * T <= second < 15 * T]
    assert min(stopped) == 0 < max(stopped)
    assert done.figures.worked_off_s is not None
    assert done.figures.held_s > 0


def test_static_passes_everything_on() -> None:
    """At once, or at the maximum of its instances."""
    asked = burst(inlet())
    done = under("static", asked)
    assert done.figures.most_waiting <= 4 * 0.5 * SPEED  # of a second
    assert done.figures.held_s == 0
    assert done.figures.most_backlogs > 1.5
    slow = under("static", burst(inlet(max_rate=SPEED / 2)))
    assert max(rate for _, rate in slow.taken) <= 1.1 * SPEED
    assert slow.figures.held_s > 0


@pytest.mark.parametrize("instances", [1, 3])
def test_rate_takes_in_what_the_pipeline_loads(instances: int) -> None:
    """While more is sent than that, whatever policy it learns by; the topic's backlog does not grow."""
    asked = burst(inlet(3, instances=instances), factor=1, seconds=60 * T)
    done = under("rate", asked)
    rates = [rate for second, rate in done.taken if second >= 30 * T]
    assert sum(rates) / len(rates) == pytest.approx(SPEED, rel=0.1)
    early, late = intervals(done.flow, 20, 40), intervals(done.flow, 40, 60)
    assert max(sample.lag for sample in late) <= 1.1 * max(sample.lag for sample in early)


def test_every_policy_works_the_burst_off_and_none_waits_without_need() -> None:
    """Before the burst nothing is held back by any of them."""
    asked = burst(inlet())
    done = compare_receivers(asked, backpressures({}, POLICIES, BACKLOG))
    for each in done:
        assert each.figures.worked_off_s is not None, each.name
        assert max(sample.waiting for sample in intervals(each.flow, 1, 10)) <= SPEED
        assert each.figures.unloaded == each.flow.samples[-1].unloaded
        assert 0 < each.figures.mean_delay_s < each.figures.longest_delay_s
    assert len({each.figures.loaded // FULL for each in done}) == 1


def test_an_instance_that_hears_nothing_of_use_waits() -> None:
    """With `safe_rate` 0 and a backlog that nothing empties, nothing more comes: the simulation ends all the same."""
    away = Plant(T, A, B, SPEED, outages=((0.0, 1000 * T),), backlog=BACKLOG)
    done = under("credit", burst(Inlet(away), seconds=16 * T), safe_rate=0)
    assert done.flow.batches == []
    assert done.flow.samples[-1].lag == BACKLOG
    assert done.figures.worked_off_s is None
    assert done.figures.held_s > 0


def test_one_seed_has_one_result() -> None:
    """Another one has other looks, and other noise."""
    asked = burst(inlet())
    noisy = replace(asked, inlet=replace(asked.inlet, plant=replace(asked.inlet.plant, noise=0.2)))
    first, again, other = (under("credit", noisy, seed=seed).to_json() for seed in (3, 3, 4))
    assert json.dumps(first) == json.dumps(again) != json.dumps(other)
    assert first["settings"]["policy"] == "credit"


def test_progress_is_told_before_each_policy() -> None:
    """How many are done."""
    told: list[int] = []
    compare_receivers(burst(inlet(), seconds=16 * T), backpressures({}, ["static", "rate"], 1), progress=told.append)
    assert told == [0, 1]


def test_a_receiver_is_simulated_as_the_runtime_runs_it() -> None:
    """Its pauses are those of the supervisor, the intake and the port of the platform."""
    assert (receivers.LISTEN_S, receivers.TELL_S) == (supervisor.LISTEN_S, supervisor.STATUS_S)
    assert receivers.LOOK_S == downstream.LOOK_S
    assert receivers.NEAR_S == intake.LOOK_S
    usual = intake.Limits()
    assert Inlet.block_s == usual.block_interval_s


def test_a_burst_is_between_what_came_before_and_what_comes_after() -> None:
    """Ten intervals, five, and 25."""
    asked = burst(inlet())
    assert (asked.since_s, asked.until_s, asked.seconds) == (10 * T, 15 * T, 40 * T)
    assert [asked.inlet.sent.at(second) / SPEED for second in (0, 10 * T, 15 * T)] == [0.5, 2.0, 0.5]
    assert asked.event == "4 times as much is sent"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"factor": 0}, "burst: expected a number above 0"),
        ({"lasting_s": -1}, "lasting: expected a number above 0"),
        ({"seconds": 0}, "hours: expected a number above 0"),
        ({"seconds": 15 * T}, "longer than the simulated 300 s"),
    ],
)
def test_what_is_no_burst_is_refused(changes: dict[str, float], message: str) -> None:
    """By name."""
    with pytest.raises((ConfigError, RequestError), match=message):
        burst(inlet(), **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"instances": 0}, "instances: expected a whole number from 1"),
        ({"buffer": 0}, "buffer: expected a whole number from 1"),
        ({"block_s": 0}, "block_s: expected a number above 0"),
        ({"max_rate": -1}, "max_rate: expected records/s from 0"),
    ],
)
def test_what_is_no_receiver_is_refused(changes: dict[str, float], message: str) -> None:
    """By name."""
    with pytest.raises((ConfigError, RequestError), match=message):
        inlet(**changes)


def test_what_would_take_too_long_is_refused() -> None:
    """Before it begins."""
    with pytest.raises(RequestError, match="more than 10,000,000 blocks"):
        inlet(instances=1000).run(Backpressure(), 1e5)
    with pytest.raises(RequestError, match="policy: expected one of static, rate, watermark, credit, got 'storm'"):
        backpressures({}, ["storm"], 1)


def test_the_longest_wait_is_that_of_the_first_who_still_waits() -> None:
    """Counted from when as many had been sent."""
    gone = [(0, 0), (10, 0), (20, 5), (20, 20)]
    samples = [Sample(float(k), sent, sent - left, 0, 0, 0) for k, (sent, left) in enumerate(gone)]
    assert longest_s(samples, lambda sample: sample.sent - sample.waiting) == 1
    assert longest_s([Sample(float(k), 10, 10, 0, 0, 0) for k in range(5)], lambda _: 0) == 4
    assert longest_s(samples, lambda sample: sample.sent) == 0

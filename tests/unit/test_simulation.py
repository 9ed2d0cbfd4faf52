"""Laws of simulations: the modelled pipeline, loads from files, scenarios, and the comparison of policies."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tidegate.core.config.pipeline import Limits
from tidegate.core.model.errors import ConfigError, RequestError
from tidegate.core.planning.plan import RangePolicy
from tidegate.core.rates import BatchTiming
from tidegate.core.rates.policies import make_rate_policy
from tidegate.core.rates.policy import RatePolicy
from tidegate.simulation import plant as plants
from tidegate.simulation.experiment import (
    Experiment,
    Model,
    compare,
    experiment,
    limits_of,
    model_of,
    overlong,
    parse_policy,
    policy_at,
    summarize,
)
from tidegate.simulation.plant import Plant, PlantBatch, Skipped, Steps, Trace, read_load

T, A, B = 60.0, 6.0, 1e-5
BEST = 4_800_000
PLANT = Plant(T, A, record_s=B, arrivals=2 / B)
UNBOUNDED = make_rate_policy({"policy": "static"}, interval_s=10)
TEN = make_rate_policy({"policy": "static", "max_records": 10}, interval_s=10)


def batch(started_s: float, run_s: float, records: int, lag: int = 0) -> PlantBatch:
    return PlantBatch(started_s, started_s, started_s + run_s, records=records, bound=None, lag=max(lag, records))


def test_a_load_is_read_from_a_csv() -> None:
    load = read_load(["second, records_per_s, note", "0, 1000, x", "600, 2e4,", "900.5,0"], name="burst.csv")
    assert list(load.values) == [(0, 1000), (600, 20_000), (900.5, 0)]
    assert list(read_load(["records_per_s,second", "5,0"], name="x").values) == [(0, 5)]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "line 1: the column second is missing"),
        (["second,rate", "0,1"], "line 1: the column records_per_s is missing"),
        (["second,records_per_s"], "line 1: there is no row"),
        (["second,records_per_s", "5,1"], "line 2: the first second is 5, not 0"),
        (["second,records_per_s", "0,1", "9,1", "9,2"], "line 4: second 9 is not after second 9"),
        (["second,records_per_s", "0,1", "-9,2"], "line 3: second: expected a number from 0 to 31,622,400, got '-9'"),
        (["second,records_per_s", "0,nan"], "line 2: records_per_s: expected a number from 0"),
        (["second,records_per_s", "0"], "line 2: records_per_s: expected a number from 0 to 1,000,000,000, got ''"),
        (["second,records_per_s", '0,"' + "1" * 200_000 + '"'], "line 2: field larger than field limit"),
    ],
)
def test_a_csv_that_is_no_load_is_refused_by_its_line(lines: list[str], message: str) -> None:
    with pytest.raises(RequestError) as refused:
        read_load(lines, name="burst.csv")
    assert message in str(refused.value)
    assert str(refused.value).startswith("burst.csv, line ")
    assert "second,records_per_s" in refused.value.fix


def test_all_policies_are_compared_at_one_utilization() -> None:
    """Where the load exceeds what can be loaded, each rests near the same size."""
    names = ("static", "pid", "fixed_point", "target")
    seen: list[int] = []
    policies = {name: policy_at({"policy": name}, PLANT, 0.8) for name in names}
    done = compare(PLANT, policies, 100 * T, progress=seen.append)
    assert seen == [0, 1, 2, 3]
    assert [each.name for each in done] == list(names)
    for each in done:
        assert each.trace.batches[-1].records == pytest.approx((0.8 * T - A) / B, rel=0.06), each.name
        json.dumps(each.to_json(), allow_nan=False)
    assert len(done[0].to_json()["batches"]) == done[0].summary.batches


def test_settings_win_over_the_utilization_of_the_comparison() -> None:
    assert policy_at({"policy": "static", "max_records": 7}, PLANT, 0.9)[0].bound({}) == 7
    target = {"policy": "target", "utilization": 0.5}
    assert policy_at(target, PLANT, 0.9) == (make_rate_policy(target, interval_s=T), 1.0)
    assert policy_at({"policy": "unlimited"}, PLANT, 0.9)[0].bound({}) is None
    pid = {"policy": "pid", "initial_rate": 0.01, "min_rate": 0.001}
    assert policy_at(pid, PLANT, 0.5) == (make_rate_policy(pid, interval_s=T), 0.5)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("pid, min_rate=10,proportional=0.8", {"policy": "pid", "min_rate": 10, "proportional": 0.8}),
        ("static,max_records=1e6", {"policy": "static", "max_records": 1_000_000}),
        ("unlimited", {"policy": "unlimited"}),
    ],
)
def test_a_policy_is_written_with_its_settings(text: str, settings: dict[str, Any]) -> None:
    """Numbers without a fraction are whole."""
    assert repr(parse_policy(text)) == repr(settings)


def test_a_trace_is_told_in_few_figures() -> None:
    """Skipped time is that of runs that were due while another one ran, or in an outage; an idle run is none."""
    batches = [batch(60, 10, 100), batch(120, 100, 100, lag=300), batch(220, 10, 100, lag=250), batch(280, 20, 150)]
    batches.append(batch(340, 5, 10))
    skipped = [Skipped(180, "the run before", 200), Skipped(400, "nothing to read", 0), Skipped(460, "outage", 700)]
    told = summarize(Trace(batches, skipped), T)
    assert (told.batches, told.records, told.overlong, told.longest_run_s) == (5, 460, 1, 100)
    assert (told.most_lag, told.last_lag, told.skipped_s, told.idle) == (700, 700, 120, 1)
    assert told.backlog_s == 300 - 120
    assert summarize(Trace(batches[:2]), T).backlog_s is None
    assert summarize(Trace(), T).backlog_s == 0
    lags = [(60, 100), (120, 300), (180, 200), (220, 250), (280, 150), (340, 10), (400, 0), (460, 700)]
    assert Trace(batches, skipped).lags == lags
    assert overlong([batch(0, 75, 1), batch(0, 75.1, 1)], T) == 1


def timing(records: int, minute: int, *, bound: int | None = None) -> BatchTiming:
    run_ms = round((5 + B * records) * 1000)
    return BatchTiming(records, bound, run_ms, run_ms - 4000, 0, minute * 60_000 + run_ms)


HISTORY = [timing(1_000_000 + 500_000 * (k % 3), k) for k in range(1, 10)]


def model(**given: Any) -> Model:
    return model_of(**{"timings": HISTORY, "interval_s": T, **given})


def test_a_model_comes_from_the_history() -> None:
    found = model()
    assert [found.a, found.b] == pytest.approx([5, B], rel=0.01)
    assert found.arrival_rate == pytest.approx(25_000)
    assert found.arrival_source == "history"
    assert found.fit is not None
    assert found.fit.separate
    given = model(a=7.0, b=2e-5, rate=0.0)
    assert (given.a, given.b, given.arrival_rate, given.arrival_source, given.fit) == (7.0, 2e-5, 0.0, "given", None)
    assert given.advice.full_batch == 2_350_000
    assert model(b=2e-5).b == 2e-5


def test_without_a_known_load_half_of_a_full_one_arrives() -> None:
    bounded = [timing(1_000_000, k, bound=1_000_000) for k in range(3)]
    found = model_of(bounded, interval_s=T, a=5)
    assert found.arrival_source == "half of a full load"
    assert found.arrival_rate == pytest.approx(0.5 * 4_900_000 / T, rel=0.01)
    assert model_of([], interval_s=T, a=100, b=B).arrival_rate == pytest.approx(45_000)


@pytest.mark.parametrize(
    ("asked", "seconds", "since_s", "until_s"),
    [
        ({}, 9000, 0, 0),
        ({"event": "step"}, 9000, 3000, 6000),
        ({"event": "outage"}, 10_800, 3602.5, 7202.5),
        ({"event": "step", "lasting_s": 6000}, 18_000, 6000, 12_000),
        ({"event": "step", "seconds": 1000.0, "lasting_s": 60}, 1000, 300, 360),
        ({"load": Steps([(0, 1.0), (20_000, 2.0)])}, 23_000, 0, 0),
        ({"load": Steps([(0, 1.0)])}, 9000, 0, 0),
    ],
)
def test_an_event_begins_with_the_second_third(asked: dict[str, Any], seconds: float, since_s: float, until_s: float) -> None:
    """Which is at least 150 intervals, three times the event, and what the load needs."""
    made = experiment(model(), **asked)
    assert [made.seconds, made.since_s, made.until_s] == pytest.approx([seconds, since_s, until_s], rel=1e-3)
    assert (made.event is None) == ("event" not in asked)


def test_an_event_changes_the_plant() -> None:
    def made(**asked: Any) -> Experiment:
        return experiment(model(a=5, b=B, rate=1000.0), **asked, partitions=7)

    stepped = Steps.of(made(event="step").plant.record_s)
    assert [stepped.at(second) for second in (2999, 3000, 6000)] == [B, pytest.approx(3 * B), B]
    assert Steps.of(made(event="step", factor=5).plant.record_s).at(3000) == pytest.approx(5 * B)
    assert made(event="outage").plant.outages == ((3602.5, 7202.5),)
    assert made().plant.partitions == 7
    assert "costs 5 times" in str(made(event="step", factor=5).event)


def test_limits_of_a_pipeline_are_those_of_a_plan() -> None:
    """Bytes count only where the size of a record is known: a real first batch would probe."""
    limits = Limits(5, min_records=2, max_delay_s=9, max_rate_per_partition=3, min_rate_per_partition=2, max_bytes=100)
    made = limits_of(limits, 10.0)
    assert (made.limits, made.record_bytes) == (limits, 10.0)
    assert limits_of(limits, None).limits == replace(limits, max_bytes=None)


NAMED = r"expected|no batch"
NOTHING_KNOWN: dict[str, Any] = {"timings": []}


def plant_of(**changes: Any) -> Plant:
    return Plant(**{"interval_s": 10, "overhead_s": 1.0, "record_s": 0.1, "arrivals": 1.0, **changes})


@pytest.mark.parametrize(
    ("made", "message"),
    [
        *(
            (partial(experiment, model(), **asked), message)
            for asked, message in (
                ({"factor": 2}, "factor: requires"),
                ({"event": "outage", "factor": 3}, "factor: requires"),
                ({"event": "step", "factor": 1001}, "factor: expected"),
                ({"lasting_s": 2}, "lasting: requires"),
                ({"event": "step", "lasting_s": 0}, "lasting: expected"),
                ({"seconds": -1.0}, "hours: expected"),
                ({"event": "step", "seconds": 600.0}, "longer than the simulated 600 s"),
                ({"noise": 2}, "noise: expected"),
            )
        ),
        *(
            (partial(Steps, values), message)
            for values, message in (
                ([], "begins at second 0"),
                ([(1, 2.0)], "begins at second 0"),
                ([(0, 2.0), (0, 3.0)], "second 0 is not after second 0"),
                ([(0, 2.0), (9, 3.0), (5, 3.0)], "second 5 is not after second 9"),
                ([(0, 2.0), (math.nan, 3.0)], "second nan is not after second 0"),
                ([(0, -2.0)], "at second 0: expected a number from 0, got -2.0"),
                ([(0, 1.0), (5, math.inf)], "at second 5: expected a number from 0, got inf"),
            )
        ),
        *(
            (partial(parse_policy, text), f"got '{got}'")
            for text, got in (("vegas", "vegas"), ("pid,min_rate", "min_rate"), ("pid,=3", "=3"))
        ),
        *((partial(parse_policy, f"pid,min_rate={value}"), f"got 'min_rate={value}'") for value in ("nan", "x")),
        *((partial(plant_of, **{name: -1}), NAMED) for name in ("interval_s", "backlog", "partitions", "overhead_s", "noise")),
        *((partial(plant_of, **{name: math.nan}), NAMED) for name in ("noise", "record_s", "arrivals")),
        *((partial(plant_of, partitions=many), NAMED) for many in (0, 10_001)),
        *((partial(model, **{name: 0}), NAMED) for name in ("utilization", "interval_s")),
        *((partial(model, **wrong), NAMED) for wrong in ({"a": -1}, {"a": 1, "b": 0}, {"rate": math.nan}, NOTHING_KNOWN)),
        *((partial(policy_at, {"policy": name, "gain": 1}, PLANT, 0.9), "no setting gain") for name in ("unlimited", "static")),
        (partial(policy_at, {"policy": "static"}, plant_of(overhead_s=10.0), 0.9), "static: an empty run takes 10 s"),
        (partial(policy_at, {"policy": "static"}, PLANT, 1.5), "utilization"),
        (partial(plant_of().run, TEN, 0), "seconds: expected a number above 0"),
        (partial(plant_of().run, TEN, 2_000_001), "more than 200,000 runs"),
    ],
)
def test_what_cannot_be_simulated_is_refused(made: Callable[[], object], message: str) -> None:
    with pytest.raises((ConfigError, RequestError), match=message):
        made()


def test_a_number_in_steps_holds_until_the_next_one_and_is_multiplied_during_a_time() -> None:
    """Its sum is exact over any time; other steps stay where they were."""
    steps = Steps([(0, 2.0), (10, 5.0)])
    assert [steps.at(second) for second in (0, 9.9, 10, 99)] == [2.0, 2.0, 5.0, 5.0]
    assert (steps.total(0, 10), steps.total(8, 12), steps.total(20, 30)) == (20.0, 14.0, 50.0)
    assert Steps.of(steps) is steps
    assert list(steps.during(5, 15, 3).values) == [(0, 2.0), (5, 6.0), (10, 15.0), (15, 5.0)]
    assert list(Steps.of(1.0).during(0, 10, 2).values) == [(0, 2.0), (10, 1.0)]


def test_every_record_is_loaded_once_and_costs_what_the_model_says() -> None:
    """A run without lag is skipped, and what a bound leaves waits. The log ends at the last offset."""
    batches = Plant(10, 1.0, record_s=0.1, arrivals=Steps([(0, 3.0), (20, 0.0)])).run(UNBOUNDED, 100).batches
    assert [(b.due_s, b.started_s, b.records, b.bound, b.lag) for b in batches] == [(at, at, 30, None, 30) for at in (10, 20)]
    assert [b.run_s for b in batches] == pytest.approx([4.0, 4.0])
    bounded = Plant(10, 1.0, record_s=0.1, arrivals=0.0, backlog=25).run(TEN, 100).batches
    assert [(b.records, b.lag) for b in bounded] == [(10, 25), (10, 15), (5, 5)]
    absurd = Plant(10, 1.0, record_s=0.0, arrivals=1e300).run(UNBOUNDED, 30).batches
    assert [b.records for b in absurd] == [2**63 - 1]


def test_a_batch_gets_a_share_of_the_policys_bound() -> None:
    """One record at least; a whole bound is not rounded."""
    plant = Plant(10, 1.0, record_s=0.1, arrivals=0.0, backlog=2**53 + 1)
    assert [plant.run(TEN, 11, share=share).batches[0].bound for share in (1, 0.75, 0.01)] == [10, 8, 1]
    most = make_rate_policy({"policy": "static", "max_records": 2**63 - 1}, interval_s=10)
    assert plant.run(most, 11).batches[0].records == 2**53 + 1


DRY, LATER = "nothing to read", "the run before"


@pytest.mark.parametrize(
    ("overhead_s", "arrivals", "outages", "seconds", "ran", "skipped"),
    [
        # of the runs that became due while one ran only the latest is started, when that has ended
        (25.0, 1.0, [], 60, [(10, 10, 35), (30, 35, 60)], [(20, LATER, 10), (40, LATER, 20), (50, LATER, 30)]),
        (1e9, 1.0, [], 60, [(10, 10, 1e9 + 10)], [(due, LATER, due - 10) for due in (20, 30, 40, 50)]),
        (
            *(12.0, Steps([(0, 0.0), (10, 1.0)]), [(45, 55)], 60),
            *([(20, 20, 32), (30, 32, 44), (40, 44, 66)], [(10, DRY, 0), (50, LATER, 10)]),
        ),
        # what an outage has left of the run that meets it is done after it
        (
            *(4.0, 1.0, [(22, 52), (75, 85)], 90, [(10, 10, 14), (20, 20, 54), (50, 54, 58), (60, 60, 64), (70, 70, 74)]),
            [(30, LATER, 10), (40, LATER, 20), (80, "outage", 30)],
        ),
        (1.0, 1.0, [(15, 35)], 50, [(10, 10, 11), (40, 40, 41)], [(20, "outage", 10), (30, "outage", 20)]),
    ],
)
def test_a_run_that_is_due_runs_later_or_is_skipped_with_its_reason(
    overhead_s: float, arrivals: Steps | float, outages: list[tuple[float, float]], seconds: float, ran: Any, skipped: Any
) -> None:
    trace = Plant(10, overhead_s, record_s=0.0, arrivals=arrivals, outages=outages).run(TEN, seconds)
    assert [(batch.due_s, batch.started_s, batch.ended_s) for batch in trace.batches] == ran
    assert trace.skipped == [Skipped(*each) for each in skipped]


def test_noise_is_the_same_for_the_same_seed() -> None:
    plant = Plant(10, 1.0, record_s=0.1, arrivals=5.0, noise=0.1)
    assert plant.run(TEN, 100, seed=1) == plant.run(TEN, 100, seed=1) != plant.run(TEN, 100, seed=2)


@pytest.mark.parametrize("partitions", [1, 3, 7])
def test_the_planner_shares_the_bound_among_the_partitions(partitions: int) -> None:
    """By their lag, rounded down: a batch is short of its bound by less than a record each."""
    policy = make_rate_policy({"policy": "static", "max_records": 100}, interval_s=10)
    trace = Plant(10, 1.0, record_s=0.0, arrivals=0.0, backlog=1000, partitions=partitions).run(policy, 200)
    assert sum(batch.records for batch in trace.batches) == 1000
    assert all(100 - partitions < batch.records <= 100 for batch in trace.batches[:9])


@pytest.mark.parametrize(
    ("limits", "plant", "policy", "batches"),
    [
        (Limits(max_records=4), {"backlog": 30}, TEN, [(due, 4) for due in (10, 20, 30, 40, 50)]),
        (Limits(max_rate_per_partition=1), {"backlog": 30, "partitions": 2}, UNBOUNDED, [(10, 20), (20, 10)]),
        (Limits(min_records=30, max_delay_s=1000), {"arrivals": 1.0}, UNBOUNDED, [(10, 10), (40, 30)]),
    ],
)
def test_the_pipelines_own_limits_hold_beside_the_bound(
    limits: Limits, plant: dict[str, Any], policy: RatePolicy, batches: list[tuple[int, int]]
) -> None:
    """As in a real plan: the least of both, a rate for each partition, and batches that wait for enough records."""
    made = Plant(10, 1.0, record_s=0.0, **{"arrivals": 0.0, **plant}, limits=RangePolicy(limits=limits))
    assert [(batch.due_s, batch.records) for batch in made.run(policy, 60).batches] == batches


def test_catching_up_starts_the_next_run_at_once_after_one_that_left_records_behind() -> None:
    """Then runs are due in their intervals again; no run of the schedule is counted as skipped."""
    trace = Plant(10, 2.0, record_s=0.0, arrivals=0.0, backlog=95, catch_up=True).run(TEN, 100)
    assert [batch.started_s for batch in trace.batches] == [10, 12, 14, 16, 18, 20, 22, 24, 26, 28]
    assert {skip.reason for skip in trace.skipped} == {"nothing to read"}
    unbounded = Plant(10, 2.0, record_s=0.0, arrivals=1.0, catch_up=True).run(UNBOUNDED, 50)
    assert [batch.started_s for batch in unbounded.batches] == [10, 20, 30, 40]


def test_a_simulation_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plants, "MOST_RUNS", 20)
    with pytest.raises(RequestError, match="more than 20 batches"):
        plant_of(overhead_s=0.0, record_s=0.0, arrivals=1000.0, catch_up=True).run(TEN, 100)

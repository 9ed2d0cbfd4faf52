"""Laws of simulations: loads from files, scenarios, the comparison of policies, and what is drawn of it."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.bench.rate_policies import growing, part, settled_after
from tidegate.core.model.errors import ConfigError, RequestError
from tidegate.core.rates.policies import make_rate_policy
from tidegate.simulation import experiment
from tidegate.simulation.comparison import compare, overlong, parse_policy, policy_at, summarize
from tidegate.simulation.plant import Plant, PlantBatch, Skipped, Trace
from tidegate.simulation.steps import Steps, read_load

T, A, B = 60.0, 6.0, 1e-5
BEST = 4_800_000
PLANT = Plant(T, A, record_s=B, arrivals=2 / B)


def batch(started_s: float, run_s: float, records: int, lag: int = 0) -> PlantBatch:
    return PlantBatch(started_s, started_s, started_s + run_s, records, None, max(lag, records))


def test_a_load_is_read_from_a_csv() -> None:
    """Each rate holds until the next one; further columns are ignored, spaces too."""
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
    """With the fix."""
    with pytest.raises(RequestError) as refused:
        read_load(lines, name="burst.csv")
    assert message in str(refused.value)
    assert str(refused.value).startswith("burst.csv, line ")
    assert "second,records_per_s" in refused.value.fix


def test_a_scenario_changes_a_plant_for_a_time() -> None:
    """Cost, arrivals, outages; the rest stays."""
    stepped = Steps.of(experiment.step(PLANT, since_s=600, until_s=1200).record_s)
    assert [stepped.at(second) for second in (0, 600, 1200)] == [B, 3 * B, B]
    calm = experiment.quiet(PLANT, since_s=600, until_s=1200, quiet_rate=1.0, burst=600)
    assert [Steps.of(calm.arrivals).at(second) for second in (0, 600, 1200, 1260)] == [2 / B, 1.0, 10.0, 2 / B]
    again = Steps.of(experiment.quiet(calm, since_s=300, until_s=600, quiet_rate=2.0, burst=60).arrivals)
    assert [again.at(second) for second in (300, 600, 660, 1200, 1260)] == [2.0, 1.0, 1.0, 10.0, 2 / B]
    away = experiment.outage(experiment.outage(PLANT, since_s=1, until_s=2), since_s=3, until_s=4)
    assert list(away.outages) == [(1, 2), (3, 4)]
    rising = Steps.of(growing(PLANT, since_s=600).record_s)
    costs = [rising.at(600 + k * T) / B for k in (0, 10, 20, 29, 40, 50)]
    assert costs == pytest.approx([1, 2, 3, 3, 2, 1])


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
    """A bound, a utilization; `unlimited` takes all that waits."""
    assert policy_at({"policy": "static", "max_records": 7}, PLANT, 0.9)[0].bound({}) == 7
    target = {"policy": "target", "utilization": 0.5}
    assert policy_at(target, PLANT, 0.9) == (make_rate_policy(target, interval_s=T), 1.0)
    assert policy_at({"policy": "unlimited"}, PLANT, 0.9)[0].bound({}) is None
    pid = {"policy": "pid", "initial_rate": 0.01, "min_rate": 0.001}
    assert policy_at(pid, PLANT, 0.5) == (make_rate_policy(pid, interval_s=T), 0.5)


@pytest.mark.parametrize("name", ["unlimited", "static"])
def test_a_policy_without_a_bound_has_no_headroom(name: str) -> None:
    """`unlimited` takes other settings as `static` does."""
    with pytest.raises(ConfigError, match="has no setting gain"):
        policy_at({"policy": name, "gain": 1.0}, PLANT, 0.9)


def test_static_needs_an_interval_that_is_longer_than_the_overhead() -> None:
    """Otherwise no bound would do; the policy is named."""
    with pytest.raises(RequestError, match="static: an empty run takes 60 s, longer than 90% of the interval of 60 s"):
        policy_at({"policy": "static"}, Plant(T, T, record_s=B, arrivals=1.0), 0.9)
    with pytest.raises(ConfigError, match="utilization"):
        policy_at({"policy": "static"}, PLANT, 1.5)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("target", {"policy": "target"}),
        ("pid, min_rate=10,proportional=0.8", {"policy": "pid", "min_rate": 10, "proportional": 0.8}),
        ("static,max_records=1e6", {"policy": "static", "max_records": 1_000_000}),
        ("unlimited", {"policy": "unlimited"}),
    ],
)
def test_a_policy_is_written_with_its_settings(text: str, settings: dict[str, Any]) -> None:
    """Numbers without a fraction are whole."""
    parsed = parse_policy(text)
    assert parsed == settings
    assert [type(value) for value in parsed.values()] == [type(value) for value in settings.values()]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vegas", "policy: expected one of static, pid, fixed_point, target, unlimited, got 'vegas'"),
        ("pid,min_rate", "expected a setting as name=number, got 'min_rate'"),
        ("pid,=3", "expected a setting as name=number, got '=3'"),
        ("pid,min_rate=nan", "got 'min_rate=nan'"),
        ("pid,min_rate=x", "got 'min_rate=x'"),
    ],
)
def test_a_policy_that_is_none_is_refused_by_name(text: str, message: str) -> None:
    """With the fix."""
    with pytest.raises(RequestError) as refused:
        parse_policy(text)
    assert message in str(refused.value)


def test_a_trace_is_told_in_few_figures() -> None:
    """Skipped time is that of runs that were due while another one ran, or in an outage; an idle run is none."""
    batches = [
        batch(60, 10, 100),
        batch(120, 100, 100, lag=300),
        batch(220, 10, 100, lag=250),
        batch(280, 20, 150),
        batch(340, 5, 10),
    ]
    skipped = [Skipped(180, "the run before", 200), Skipped(400, "nothing to read", 0), Skipped(460, "outage", 700)]
    told = summarize(Trace(batches, skipped), T)
    assert (told.batches, told.records, told.overlong, told.longest_run_s) == (5, 460, 1, 100)
    assert (told.most_lag, told.last_lag, told.skipped_s, told.idle) == (700, 700, 120, 1)
    assert told.backlog_s == 300 - 120
    assert summarize(Trace(batches[:2]), T).backlog_s is None
    assert summarize(Trace(), T).backlog_s == 0


def test_batches_have_settled_when_all_later_ones_are_near_the_best() -> None:
    """Within 25 %."""
    batches = [batch(60 * k, 60, size) for k, size in enumerate((100, 400, 74, 76, 100, 125))]
    assert settled_after(batches, 100) == 3
    assert settled_after(batches[3:], 100) == 0
    assert overlong([batch(0, 75, 1), batch(0, 75.1, 1)], T) == 1
    assert [b.records for b in part(batches, 1, 3)] == [400, 74]


def test_the_lags_of_a_trace_are_those_of_all_runs_that_were_due() -> None:
    """In the order of their times, whether they loaded or were skipped."""
    skipped = [Skipped(180, "outage", 20), Skipped(500, "nothing to read", 0)]
    trace = Trace([batch(60, 10, 100), batch(240, 70, 50, lag=90)], skipped)
    assert trace.lags == [(60, 100), (180, 20), (240, 90), (500, 0)]


def test_a_burst_from_a_file_drains_under_every_policy() -> None:
    """The same load, the same records."""
    load = read_load(["second,records_per_s", f"0,{0.3 / B}", f"1800,{3 / B}", f"2400,{0.3 / B}"], name="burst.csv")
    plant = Plant(T, A, record_s=B, arrivals=load, partitions=4)
    policies = {name: policy_at({"policy": name}, plant, 0.9) for name in ("static", "pid", "fixed_point", "target")}
    for each in compare(plant, policies, 6 * 3600):
        assert each.summary.backlog_s is not None, each.name
        assert each.summary.overlong == 0
        assert each.summary.most_lag > 5 * BEST
        assert math.isclose(each.summary.records + each.summary.last_lag, load.total(0, 6 * 3600), rel_tol=0.02)

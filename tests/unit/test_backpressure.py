"""Laws of a pipeline under a rate policy: its bound in a plan, and its state in the cursor."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import changed, cursor_of
from tests.unit.world import P0, World
from tidegate.core.config.pipeline import Backpressure, Limits, Pipeline, Sink, Source, Spark
from tidegate.core.model.errors import StateCorrupt
from tidegate.core.model.ranges import TopicPartition, total_count
from tidegate.core.model.watermarks import Watermarks
from tidegate.core.planning.capacity import outlook
from tidegate.core.planning.rebuild import rebuild
from tidegate.core.planning.run import Planned
from tidegate.core.rates import BatchTiming
from tidegate.core.rates.advice import Advice
from tidegate.core.rates.control import RateBound, RateControl
from tidegate.core.state.cursor import MOST_TIMINGS, Cursor
from tidegate.core.state.saved_range import SavedRange
from tidegate.testing.fakes import FakeBrokers

P1 = TopicPartition("t", 1)
TARGET = Backpressure("target", initial_records=10)
PIPELINE = Pipeline("p", Source(("t",)), "m:f", sink=Sink("lake.a.b"), limits=Limits(interval_s=10), backpressure=TARGET)
CONTROL = RateControl({"policy": "target", "initial_records": 10}, 10.0)


def took(records: int, run_s: float, ended_ms: int, bound: int | None = None) -> BatchTiming:
    return BatchTiming(records, bound or records, round(1000 * run_s), 0, 0, ended_ms)


def limited(log_end: int = 1000, **changes: Any) -> World:
    return World(pipeline=replace(PIPELINE, **changes), brokers=FakeBrokers(latest={P0: log_end}))


def rate(found: Planned | RateBound | None) -> RateBound:
    """The policy's bound, which there is."""
    bound = found.saved.why.rate if isinstance(found, Planned) else found
    assert bound is not None
    return bound


def run(world: World, run_id: str, run_s: float) -> Planned:
    """A batch that took so long."""
    planned = world.planned(run_id)
    saved = planned.saved
    world.commit(planned, timing=took(total_count(saved.load.nonempty), run_s, world.now_ms, saved.allowed))
    return planned


def test_the_first_batch_is_bounded_and_each_next_one_by_what_the_last_ones_took() -> None:
    """The bound aims at 0.9 of the interval; bound and terms are in the saved range, what was learned in the cursor."""
    world = limited()
    first = run(world, "run1", run_s=3.0).saved
    assert first.why.rate == RateBound("target", 10, terms={}, limiting=True)
    assert (total_count(first.load.ranges), first.remaining) == (10, 990)
    assert first.why.decisions[0].until_reason == "backpressure"
    second = rate(world.planned("run2"))
    assert (second.records, second.terms) == (30, {"a (s)": 0.0, "b (s/record)": pytest.approx(0.3)})
    assert (world.cursor.remaining, world.cursor.pace.timings) == (990, (took(10, 3.0, 1),))


@pytest.mark.parametrize(
    ("policy", "limits", "bound", "read", "after"),
    [
        # max_records cuts a batch below the policy's bound, and does not lower it
        (Backpressure("target"), Limits(max_records=4, interval_s=10), 10_000, 4, {"bound": 10_000}),
        # static bounds every batch as max_records does, so that policies can be compared
        (Backpressure("static", max_records=7), Limits(interval_s=10), 7, 7, {"policy": "static"}),
    ],
)
def test_a_batch_is_bounded_by_its_policy_and_by_the_limits_of_the_pipeline(
    policy: Backpressure, limits: Limits, bound: int, read: int, after: dict[str, Any]
) -> None:
    world = limited(limits=limits, backpressure=policy)
    for n in range(3):
        saved = run(world, f"run{n}", run_s=3.0).saved
        assert saved.why.rate == RateBound(str(policy.policy), bound, terms={}, limiting=read == bound)
        assert total_count(saved.load.ranges) == read
    assert world.cursor.pace.rate_state["state"].items() >= after.items()


def test_a_month_in_which_the_dag_was_paused_lowers_no_bound() -> None:
    """Neither does a date that a person gives a run: no smaller batch would have been earlier."""
    bounds = []
    for delay_ms in (0, 30 * 86_400_000):
        world = limited(100_000, backpressure=Backpressure("pid", initial_rate=100.0))
        for seq in (1, 2):
            planned = world.planned(f"run{seq}")
            timing = took(total_count(planned.saved.load.nonempty), 2.0, world.now_ms + 10_000 * seq, planned.saved.allowed)
            world.commit(planned, timing=replace(timing, scheduling_delay_ms=delay_ms if seq == 2 else 0))
        bounds.append(world.cursor.pace.rate_state["state"]["bound"])
    assert bounds[0] == bounds[1] > 1000


def test_a_batch_whose_time_is_not_known_teaches_nothing() -> None:
    """It was cleared, retried, or landed in an earlier try."""
    world = limited()
    run(world, "run1", run_s=3.0)
    before = world.cursor.pace
    world.run("run2")
    assert (world.cursor.pace.rate_state, len(world.cursor.pace.timings)) == (before.rate_state, 1)


def test_the_bound_is_shared_by_lag_within_the_rate_of_each_partition_and_raised_to_the_minimum() -> None:
    """A partition that its rate holds back leaves its share to the others; each gets its least records."""
    brokers = FakeBrokers(latest={P0: 900, P1: 100})
    limits = Limits(interval_s=10, max_rate_per_partition=5, min_rate_per_partition=20)

    def planned(bound: int) -> tuple[dict[int, int], list[str]]:
        policy = Backpressure("target", initial_records=bound)
        saved = World(pipeline=replace(PIPELINE, limits=limits, backpressure=policy), brokers=brokers).planned("run1").saved
        return {r.partition: r.count for r in saved.load.ranges}, [d.until_reason for d in saved.why.decisions]

    assert planned(100) == ({0: 50, 1: 50}, ["max_rate_per_partition"] * 2)
    assert planned(60) == ({0: 30, 1: 30}, ["backpressure"] * 2)
    assert planned(2) == ({0: 20, 1: 20}, ["backpressure"] * 2)


def test_a_rate_is_kept_while_a_pipeline_catches_up() -> None:
    """Runs that start at once get what the rate allows for the time since the last one, not for a whole interval."""
    limits = Limits(interval_s=10, max_rate_per_partition=5)
    for catch_up, most in ((True, 10), (False, 50)):
        world = limited(limits=limits, backpressure=Backpressure(), catch_up=catch_up)
        assert total_count(world.run("run1").saved.load.ranges) == 50
        world.now_ms += 1999
        assert total_count(world.run("run2").saved.load.ranges) == most


@given(st.dictionaries(st.integers(0, 30), st.integers(1, 1000), min_size=1), st.integers(1, 100))
def test_a_batch_of_all_that_its_partitions_are_given_is_full(lags: dict[int, int], bound: int) -> None:
    """Whole records for each partition are up to one less than its share: a bound of 10 gives 4 and 5 to two partitions."""
    brokers = FakeBrokers(latest={TopicPartition("t", partition): lag for partition, lag in lags.items()})
    world = World(pipeline=replace(PIPELINE, backpressure=Backpressure("target", initial_records=bound)), brokers=brokers)
    full = rate(run(world, "run1", run_s=0.001)).limiting or sum(lags.values()) >= 0.95 * bound
    assert (world.cursor.pace.rate_state["state"]["bound"] > bound) == full


def test_whoever_triggers_a_run_with_max_records_gets_them() -> None:
    """The number takes the place of every other bound; the policy is not misled."""
    world = limited()
    planned = world.planned("run1", max_records=500)
    assert total_count(planned.saved.load.ranges) == 500
    assert planned.saved.remaining == 500
    assert planned.saved.why.rate == RateBound("target", 10, terms={}, applied=False)
    assert str(planned.saved.why.rate).endswith("not applied, since the run was triggered for a range of its own")
    assert total_count(limited().planned("run1", until={P0: 500}).saved.load.ranges) == 500
    few = world.planned("run1b", max_records=1)
    world.commit(few, timing=took(500, 5.0, 1, bound=10))
    assert world.cursor.pace.rate_state["state"]["bound"] > 100


def test_a_change_of_the_settings_starts_the_policy_anew_and_says_so() -> None:
    """Its policy, one of its settings, or the interval; once a batch is observed, the reason is gone."""
    world = limited()
    run(world, "run1", run_s=3.0)
    world.pipeline = replace(PIPELINE, backpressure=Backpressure("target", utilization=0.5, initial_records=10))
    changed = rate(run(world, "run2", run_s=3.0))
    reason = "the settings changed (utilization from its default to 0.5)"
    assert (changed.records, changed.reset) == (10, reason)
    assert str(changed) == f"target allows 10 records; it limits this batch; started anew: {reason}"
    assert rate(world.planned("run3")).reset is None
    other = rate(CONTROL.bound({"settings": {"policy": "pid", "interval_s": 20.0}, "state": {}}))
    assert other.reset == "the settings changed (policy from pid to target)"


def test_a_pipeline_without_a_policy_forgets_what_one_has_learned() -> None:
    """A policy that comes back weeks later does not go on from what was true then."""
    world = limited()
    run(world, "run1", run_s=3.0)
    world.pipeline = replace(PIPELINE, backpressure=Backpressure())
    saved = world.run("run2").saved
    assert (saved.why.rate, saved.allowed) == (None, None)
    assert total_count(saved.load.ranges) == 990
    assert world.cursor.pace.rate_state == {}


def test_while_it_catches_up_a_run_may_fill_the_interval() -> None:
    """The next run starts at once, so the headroom is spent; without more records behind, it is kept."""
    for catch_up, bound in ((True, 33), (False, 30)):
        world = limited(catch_up=catch_up)
        run(world, "run1", run_s=3.0)
        assert world.cursor.pace.rate_state["state"]["bound"] == bound
    done = limited(log_end=10, catch_up=True)
    run(done, "run1", run_s=3.0)
    assert done.cursor.pace.rate_state["state"]["bound"] == 30
    pid = RateControl({"policy": "pid"}, 10.0)
    assert pid.observed({}, took(9, 3.0, 1), catching_up=True) == pid.observed({}, took(9, 3.0, 1))


def test_the_terms_of_pid_are_its_rate_and_error() -> None:
    """From the first batch that it has measured; `fixed_point` learns nothing but its bound."""
    assert RateControl({"policy": "fixed_point"}, 10.0).bound({}) == RateBound("fixed_point", 10_000, terms={})
    control = RateControl({"policy": "pid", "initial_rate": 100, "min_rate": 1}, 10.0)
    assert control.bound({}) == RateBound("pid", 1000, terms={})
    state = control.observed({}, took(1000, 5.0, 10_000))
    after = rate(control.bound(control.observed(state, took(1000, 5.0, 20_000))))
    assert after.terms == {"rate (records/s)": 200.0, "error (records/s)": 0.0}
    assert str(replace(after, limiting=False)) == (
        "pid allows 2,000 records, rate (records/s) 200, error (records/s) 0; this batch is smaller"
    )


KEYS = st.sampled_from(["settings", "state", "bound"])
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)


@given(st.dictionaries(KEYS, VALUES | st.lists(VALUES, max_size=3) | st.dictionaries(KEYS, VALUES)))
def test_no_saved_state_makes_a_batch_endless_empty_or_unbounded(saved: dict[str, Any]) -> None:
    """It counts as none, and the reason says so."""
    bound = rate(CONTROL.bound(saved))
    assert (bound.records, bound.reset is None) == (10, not saved)
    assert CONTROL.observed(saved, took(10, 3.0, 1))["state"]["bound"] == 30


@pytest.mark.parametrize("poison", [-1, 0, 10**30, "7", None, float("inf")])
def test_a_poisoned_bound_counts_as_none(poison: Any) -> None:
    state = CONTROL.observed({}, took(10, 3.0, 1))
    state["state"]["bound"] = poison
    bound = rate(CONTROL.bound(state))
    assert (bound.records, bound.reset) == (10, "the saved state cannot be read")
    static = RateControl({"policy": "static", "max_records": 3}, 10.0)
    read = static.bound({"settings": {"policy": "static", "max_records": 3, "interval_s": 10.0}, "state": {"bound": poison}})
    assert read == RateBound("static", 3, terms={}, reset="the saved state cannot be read")


def test_a_cursor_keeps_a_bounded_number_of_timings_and_ignores_what_is_none() -> None:
    """They are for people and for forecasts: no batch depends on them."""
    world = limited(backpressure=Backpressure("static", max_records=1))
    world.ledger.save_cursor(cursor_of("p", timings=(took(1, 3.0, 1),) * MOST_TIMINGS))
    run(world, "run1", run_s=2.0)
    kept = world.cursor.pace.timings
    assert kept == (took(1, 3.0, 1),) * (MOST_TIMINGS - 1) + (took(1, 2.0, world.now_ms),)
    value = world.cursor.to_json()
    assert Cursor.from_json(json.loads(json.dumps(value))).pace.timings == kept
    assert len(json.dumps(value["timings"])) < 6000
    for poison in (None, "x", [None], [[1]], [[-1, 2, 3, 4, 5, 6]], {"a": 1}):
        assert Cursor.from_json({**value, "timings": poison}).pace.timings == ()
    assert Cursor.from_json({**value, "remaining": "many"}).remaining == 0


def test_a_saved_range_keeps_its_bound_and_one_that_is_not_is_refused_by_name() -> None:
    """A range is written once and never edited."""
    world = limited()
    planned = world.planned("run1")
    value = world.ledger.saved_range(planned.key).to_json()
    assert SavedRange.from_json(value) == planned.saved
    assert SavedRange.from_json({**value, "remaining": "many"}).remaining == 0
    for poison in ({"records": 0}, {"records": "x"}, {"terms": 5}, {"terms": {"a": "x"}}):
        with pytest.raises(StateCorrupt):
            SavedRange.from_json({**value, "rate": {**value["rate"], **poison}})


def arrive(world: World, records: int) -> None:
    """Within the 10 s until the next plan."""
    world.brokers.latest[P0] += records
    world.now_ms += 9_999


def kept_up(records: int, *, batches: int = 8, interval_s: float | None = 10) -> World:
    """A pipeline of batches that took 1 s and 0.1 s a record, and for which that many records have arrived in the last 10 s."""
    world = limited(limits=Limits(interval_s=interval_s), backpressure=Backpressure(), log_end=0)
    for n in range(batches):
        arrive(world, 10 + n)
        run(world, f"run{n}", 2 + 0.1 * n)
    arrive(world, records)
    return world


def advised(world: World) -> Advice:
    """What the next plan says, which is something."""
    advice = world.planned("next").advice
    assert advice is not None
    return advice


@pytest.mark.parametrize(
    ("arrived", "holds", "verdict"),
    [
        (95, False, "falls behind at any interval: 9.5 records/s arrive"),
        (85, False, "8.5 records/s arrive, and a run every 10 s loads at most 8 records/s"),
        (85, False, "it would keep up with an interval of 20 s or longer"),
        (50, True, "5 records/s"),
    ],
)
def test_a_plan_says_when_the_interval_cannot_hold_what_arrives(arrived: int, verdict: str, *, holds: bool) -> None:
    """By what its last batches took, and what has come since the last one."""
    advice = advised(kept_up(arrived))
    assert (advice.holds, verdict in advice.verdict) == (holds, True)
    assert (round(advice.a, 3), round(advice.b, 3), advice.arrival_rate) == (1.0, 0.1, arrived / 10)


@pytest.mark.parametrize(
    ("batches", "interval_s", "change"),
    [(7, 10, {}), (8, None, {}), *((8, 10, {"fired_at_ms": poison}) for poison in (10**12, "x", float("nan"), -1, 10**30))],
)
def test_nothing_is_said_where_too_little_is_known(batches: int, interval_s: float | None, change: dict[str, Any]) -> None:
    """Too few batches, no interval, a clock that went back, or a time that is none; an adopted range is not judged either."""
    world = kept_up(95, batches=batches, interval_s=interval_s)
    world.ledger.save_cursor(Cursor.from_json({**world.cursor.to_json(), **change}))
    assert world.planned("next").advice is None
    assert world.planned("other").advice is None
    empty = tuple(took(0, 1.0, n, bound=1) for n in range(8))
    assert outlook(PIPELINE, cursor_of("p", fired_at_ms=1, timings=empty), Watermarks({}, {}), now_ms=2) is None


def test_what_a_new_partition_holds_has_not_arrived_since() -> None:
    """A topic that is added brings its past along. Nor has a backlog that the last batch left behind."""
    world = kept_up(50)
    world.brokers.latest[P1] = 10**6
    assert advised(world).arrival_rate == 5.0
    world = kept_up(500)
    world.pipeline = replace(world.pipeline, limits=Limits(interval_s=10, max_records=480))
    world.run("behind")
    world.now_ms += 9_999
    advice = advised(world)
    assert (advice.arrival_rate, advice.backlog) == (0.0, 20)


@pytest.mark.parametrize("spark", [Spark(), Spark(cores=2), Spark(max_executors=4)])
def test_times_that_do_not_depend_on_the_records_stop_no_batch(spark: Spark) -> None:
    """What they would say of a record is noise of floats."""
    world = limited(backpressure=Backpressure(), log_end=0, spark=spark)
    for n in range(12):
        arrive(world, 1000 * (n + 1))
        run(world, f"run{n}", 5.0)
    assert world.cursor.seq == 12


def test_a_rebuilt_cursor_knows_what_earlier_batches_took() -> None:
    """No offset depends on it, and nobody has to learn it again."""
    world = limited()
    run(world, "run1", run_s=3.0)
    before = changed(world.cursor, record_bytes=7.0)
    after = rebuild("p", world.sink.found, before=before).cursor
    assert after.pace == replace(before.pace, timing=None)

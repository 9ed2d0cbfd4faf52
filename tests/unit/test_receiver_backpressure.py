"""Laws of back-pressure from a pipeline to the receiver before it: policies, limits, and a backlog that never stops both."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.records import cursor_of
from tidegate.core.config.pipeline import LagSchedule, Limits, Pipeline, Sink, Source
from tidegate.core.model.errors import RequestError
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.model.watermarks import Watermarks
from tidegate.core.rates import BatchTiming
from tidegate.core.rates.control import RateControl
from tidegate_receivers.config.files import downstream_faults
from tidegate_receivers.config.receiver import Listen, Receiver, ReceiverBackpressure
from tidegate_receivers.rules.limits import RateLimiter, WatermarkThrottle
from tidegate_receivers.runtime.backpressure import Heard, Taken, Throttle, loadable_rate, records_behind

A, B, NEW = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)
NOTHING = Taken(0, 0)


def throttle(policy: Any, max_rate: float | None = None, **settings: Any) -> Throttle:
    return Throttle(ReceiverBackpressure(policy, **settings), max_rate)


def test_static_knows_nothing_but_its_maximum() -> None:
    """Whatever it hears, however late. A safe rate of 0 takes in nothing, and the maximum bounds it too."""
    this = throttle("static", 70)
    assert this.heard is None
    this.hear(Heard(lag=10**9, rate=1), NOTHING, 0)
    this.stored(10**6)
    assert (this.limit(10**6), this.room(10**6), this.is_deaf(10**6)) == (70, math.inf, False)
    assert (throttle("credit", safe_rate=0).room(0), throttle("credit", 5, safe_rate=100).limit(0)) == (0, 5)


@pytest.mark.parametrize(("rate", "instances", "limit"), [(90, 1, 50), (90, 2, 45), (90, 3, 30), (None, 3, 50)])
def test_rate_is_the_instances_part_of_what_the_pipeline_loads(rate: float | None, instances: int, limit: float) -> None:
    this = throttle("rate", 50)
    this.hear(Heard(lag=10**9, rate=rate, instances=instances), NOTHING, 0)
    assert (this.limit(0), this.room(0)) == (limit, math.inf)
    assert this.acquire(int(limit), 0) == 0
    assert this.delay_s(0) == pytest.approx(int(limit) / limit)


@pytest.mark.parametrize(
    ("lag", "in_flight", "instances", "room"),
    [
        (0, 0, 1, 100), (60, 0, 1, 40), (60, 30, 1, 10), (99, 1, 1, 0), (500, 0, 1, 0),
        (0, 0, 2, 25), (60, 0, 5, 4), (97, 0, 2, 1),
    ],
)  # fmt: skip
def test_credit_is_the_free_places_or_a_part_of_half_of_them(lag: int, in_flight: int, instances: int, room: int) -> None:
    """What is stored after the look began takes places, too."""
    this = throttle("credit", max_backlog=100)
    this.stored(40 + in_flight)
    this.ended(40)
    taken = this.taken
    assert taken == Taken(40 + in_flight, in_flight)
    this.hear(Heard(lag=lag, instances=instances), taken, 0)
    assert this.room(0) == room
    this.stored(room)
    assert this.room(0) == 0
    this.hear(Heard(lag=0), taken, 1)
    assert this.room(1) == 100 - in_flight - room


@given(
    st.integers(1, 4),
    st.integers(8, 500),
    st.lists(st.tuples(st.sampled_from(["store", "land", "load"]), st.integers(0, 3), st.integers(1, 400)), max_size=120),
)
def test_under_credit_the_backlog_stays_within_its_bound_whatever_is_stored_and_landed_between_two_looks(
    instances: int, most: int, steps: list[tuple[str, int, int]]
) -> None:
    """Each instance looks as often as the others: in turn, at any place between what else happens. Rounding adds one each."""
    end = loaded = 0
    each = [throttle("credit", max_backlog=most, safe_rate=0) for _ in range(instances)]
    flying = [0] * instances
    for number, (step, which, many) in enumerate(steps):
        looks = each[number % instances]
        looks.hear(Heard(lag=end - loaded, instances=instances), looks.taken, number)
        at = which % instances
        if step == "store":
            fits = int(max(0, min(many, each[at].room(number))))
            each[at].stored(fits)
            flying[at] += fits
        elif step == "land":
            lands = min(many, flying[at])
            each[at].ended(lands)
            flying[at] -= lands
            end += lands
        else:
            loaded = min(end, loaded + many)
        assert end - loaded + sum(flying) <= most + instances


def fill(count: int, max_backlog: int, *, lands: bool) -> int:
    """Every instance looks in turn, again and again, and stores all that it may; records stored or landed at the end."""
    throttles = [throttle("credit", max_backlog=max_backlog) for _ in range(count)]
    landed = 0
    for second in range(40):
        for each in throttles:
            each.hear(Heard(lag=landed, instances=count), each.taken, float(second))
            each.stored(max(0, int(each.room(float(second)))))
        for each in throttles if lands else ():
            landed += each.taken.in_flight
            each.ended(each.taken.in_flight)
    return sum(each.taken.stored for each in throttles)


@given(st.integers(1, 20), st.integers(20, 10**6))
def test_together_instances_fill_the_backlog_and_never_pass_it(count: int, max_backlog: int) -> None:
    """To less than a record for each of them. Records that are long on their way make no room: each counts its own as all's."""
    assert max_backlog - count < fill(count, max_backlog, lands=True) <= max_backlog
    assert fill(count, max_backlog, lands=False) <= max_backlog


@pytest.mark.parametrize("max_backlog", [1, 3, 9])
def test_a_backlog_of_fewer_places_than_instances_is_used(max_backlog: int) -> None:
    """Each takes one while nothing waits; otherwise all would wait for ever."""
    assert fill(10, max_backlog, lands=True) == 10


@pytest.mark.parametrize(("lag", "goes_on"), [(79, True), (80, False), (50, False), (21, False), (20, True)])
def test_watermark_stops_at_the_high_mark_of_the_backlog_and_goes_on_at_the_low_one(lag: int, *, goes_on: bool) -> None:
    """Between the marks it stays as it was, here stopped; what is in flight counts as backlog."""
    this = throttle("watermark", max_backlog=100, high=0.8, low=0.2)
    this.hear(Heard(lag=0 if goes_on and lag > 20 else 85), NOTHING, 0)
    this.hear(Heard(lag=lag - 5), Taken(5, 5), 1)
    assert this.room(1) == (math.inf if goes_on else 0)
    assert this.limit(1) == math.inf


def test_watermark_stops_for_the_buffer_of_any_instance_until_its_flag_expires() -> None:
    this, rooms = throttle("watermark", max_backlog=100, silence=30), []
    for now_s, buffers in (
        *((age_s, {"a": (0.95, age_s), "b": (0.1, 0.0)}) for age_s in (0.0, 29.0, 31.0)),
        *((now_s, {"b": (share, 0.0)}) for now_s, share in ((32.0, 0.91), (33.0, 0.3))),
    ):
        this.hear(Heard(lag=0, buffers=buffers), NOTHING, now_s)
        rooms.append(this.room(now_s))
    assert rooms == [0, 0, math.inf, 0, math.inf]


@pytest.mark.parametrize("policy", ["rate", "watermark", "credit"])
def test_an_instance_that_hears_nothing_goes_on_at_its_safe_rate(policy: Any) -> None:
    """Before the first word, and when the last one is old. It goes by what it hears again at once."""
    this = throttle(policy, safe_rate=7, silence=30)
    assert (this.is_deaf(0), this.limit(0), this.room(0)) == (True, 7, math.inf)
    this.hear(Heard(lag=10**6, rate=1000), NOTHING, 5)
    assert (this.is_deaf(34.9), this.limit(34.9)) == (False, 1000 if policy == "rate" else math.inf)
    assert (this.room(34.9) > 0) is (policy == "rate")
    assert (this.is_deaf(35), this.limit(35), this.room(35)) == (True, 7, math.inf)
    this.hear(Heard(lag=0, rate=500), NOTHING, 40)
    assert (this.is_deaf(40), this.limit(40)) == (False, 500 if policy == "rate" else math.inf)


def test_a_pipeline_is_behind_by_what_the_log_holds_and_it_has_not_loaded() -> None:
    """Expired records are gone, and partitions that it never reads do not count; a topic that was created anew does."""
    log = Watermarks({A: 10, B: 0, NEW: 2}, {A: 100, B: 50, NEW: 7}, {"t": "id"})
    assert records_behind(None, log) == 90 + 50 + 5
    assert records_behind(cursor_of("p", offsets={A: 60, B: 50}, topic_ids={"t": "id"}), log) == 40 + 0 + 5
    assert records_behind(cursor_of("p", offsets={A: 3, B: 80}, topic_ids={"t": "id"}), log) == 90 + 0 + 5
    assert records_behind(cursor_of("p", offsets={A: 60, B: 50}, topic_ids={"t": "before"}), log) == 90 + 50 + 5
    assert [records_behind(None, log.assigned({"t": parts})) for parts in ((0, 2), ())] == [90 + 5, 0]


@pytest.mark.parametrize(
    ("policy", "most", "remaining", "rate"),
    [
        (None, None, 0, None), (None, 600, 0, 10), (500, 600, 0, 500 / 60), (900, 600, 0, 10), (None, 600, 300, 5),
        (None, 600, 10**9, 1), (600, None, 60, 9),
    ],
)  # fmt: skip
def test_a_pipeline_loads_its_bound_each_interval_without_what_it_has_left_behind(
    policy: int | None, most: int | None, remaining: int, rate: float | None
) -> None:
    control = None if policy is None else RateControl({"policy": "static", "max_records": policy}, 60)
    assert loadable_rate(control, most, cursor_of("p", remaining=remaining), 60) == (rate and pytest.approx(rate))
    if not remaining:  # as one that has not run
        assert loadable_rate(control, most, None, 60) == rate


def test_a_pipeline_loads_by_what_its_policy_has_learned() -> None:
    control = RateControl({"policy": "fixed_point", "initial_records": 600}, 60)
    learned = control.observed({}, BatchTiming(600, 600, 30_000, 20_000, 0, 60_000))
    assert loadable_rate(control, None, cursor_of("p", rate_state=learned), 60) == 1080 / 60


NAN, INF = math.nan, math.inf


def refused(make: Any, *words: Any, **settings: Any) -> bool:
    """With a fix."""
    with pytest.raises(RequestError) as caught:
        make(*words, **settings)
    return bool(caught.value.fix)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        *[(RateLimiter, rates) for rates in ((-1, None), (NAN, None), (100, -0.1))],
        *[(WatermarkThrottle, marks) for marks in ((0.4, 0.4), (1.1, 0.4), (0.9, -0.1), (NAN, 0.4), (0.9, NAN))],
        *[(WatermarkThrottle, (0.9, 0.4, expiry_s)) for expiry_s in (0, NAN)],
    ],
)
def test_negative_rates_and_marks_that_contradict_each_other_are_refused(make: Any, words: tuple[float | None, ...]) -> None:
    assert refused(make, *words)


@given(st.one_of(st.none(), st.floats(0)), st.one_of(st.none(), st.floats(0)), st.lists(st.floats()))
@example(100, 50, [0.0])
def test_a_limit_is_the_last_valid_rate_and_never_above_the_maximum(
    max_rate: float | None, initial_rate: float | None, updates: list[float]
) -> None:
    limiter = RateLimiter(max_rate, initial_rate)
    for rate in updates:
        limiter.update(rate)
    maximum = max_rate or INF
    rates = [INF if initial_rate is None else initial_rate, *(rate for rate in updates if rate > 0)]
    assert limiter.limit == min(rates[-1], maximum)


def test_a_changed_limit_holds_at_once() -> None:
    limiter, waits = RateLimiter(1000, 1), []
    for rate, records, now_s in ((1, 1000, 0.0), (1000, 1000, 0.5), (100, 1, 1.0)):
        limiter.update(rate)
        waits.append(limiter.acquire(records, now_s))
    assert waits == [0.0, 0.5, 10.0]


def test_no_limit_lets_everything_through_and_a_limit_of_nothing_nothing() -> None:
    assert [RateLimiter().acquire(10**9, 5.0) for _ in range(3)] == [0.0] * 3
    limiter = RateLimiter(initial_rate=0)
    assert [limiter.acquire(5, 0.0), limiter.acquire(5, 1.0), limiter.delay_s(5.0)] == [INF] * 3
    limiter.update(5)
    assert [limiter.acquire(5, 2.0), limiter.acquire(5, 2.0)] == [0.0, 1.0]
    limiter.update(5e-324)
    assert limiter.acquire(5, 4.0) == INF
    limiter.update(5)
    assert limiter.acquire(5, 5.0) == 0.0


@given(st.floats(0.1, 1e6), st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 100)), min_size=1, max_size=30))
def test_a_block_waits_until_the_one_before_is_paid_for_and_no_longer(limit: float, asked: list[tuple[int, float]]) -> None:
    """So no window takes more than its time at the limit and one block. Who asks for the delay reserves nothing."""
    limiter, now_s, due_s = RateLimiter(limit), 0.0, 0.0
    for records, pause_s in asked:
        now_s += pause_s
        wait_s = max(0.0, due_s - now_s)
        assert [limiter.delay_s(now_s), limiter.acquire(records, now_s)] == pytest.approx([wait_s] * 2, abs=1e-6)
        due_s = now_s + wait_s + records / limit


@pytest.mark.parametrize(("records", "now_s"), [(0, 0.0), (1.5, 0.0), (1, NAN), (1, INF)])
def test_a_refused_block_takes_no_time(records: Any, now_s: float) -> None:
    limiter = RateLimiter(1)
    assert refused(limiter.acquire, records, now_s)
    assert limiter.acquire(1, 0.0) == 0.0


@pytest.mark.parametrize("expiry_s", [10.0, INF])
def test_a_flag_that_has_expired_is_forgotten(expiry_s: float) -> None:
    """Whatever the clock does. A report between the marks renews it. It may never expire; the marks may be all and nothing."""
    throttle = WatermarkThrottle(1.0, 0.0, expiry_s=expiry_s)
    throttle.report("a", 10, 10, now_s=0.0)
    throttle.report("a", 5, 10, now_s=8.0)
    assert [throttle.throttled(at_s) for at_s in (17.9, 1e300, 10.0)] == [True, *[expiry_s == INF] * 2]


@pytest.mark.parametrize(
    ("used", "capacity", "now_s"), [(-1, 10, 50.0), (0, 0, 50.0), (0.5, 10, 50.0), (0, 10.0, 50.0), (0, 10, NAN), (0, 10, INF)]
)
def test_a_refused_report_changes_nothing(used: Any, capacity: Any, now_s: float) -> None:
    throttle = WatermarkThrottle()
    throttle.report("a", 9, 10, now_s=0.0)
    throttle.report("b", 9, 10, now_s=20.0)
    assert refused(throttle.report, "b", used, capacity, now_s=now_s)
    assert math.isfinite(now_s) or refused(throttle.throttled, now_s)
    assert [throttle.throttled(at_s) for at_s in (49.0, 50.0)] == [True, False]


class Throttling(RuleBasedStateMachine):
    """The throttle agrees with the whole history of reports, read again each time."""

    def __init__(self) -> None:
        super().__init__()
        self.throttle = WatermarkThrottle(0.75, 0.25, expiry_s=5)
        self.reports: dict[str, list[tuple[int, int, int]]] = {}
        self.now_s = 0

    @rule(instance=st.sampled_from("abc"), used=st.integers(0, 14), capacity=st.sampled_from([1, 2, 5, 8, 12]))
    def report(self, instance: str, used: int, capacity: int) -> None:
        self.throttle.report(instance, used, capacity, now_s=self.now_s)
        self.reports.setdefault(instance, []).append((self.now_s, used, capacity))

    @rule(seconds=st.integers(1, 6))
    def time_passes(self, seconds: int) -> None:
        self.now_s += seconds

    def up(self, instance: str) -> bool:
        """Whether the flag of an instance is up: raised, not lowered since, and never without a report for 5 s since."""
        flag, last_s = False, 0
        for at_s, used, capacity in self.reports[instance]:
            flag = used > capacity // 4 and (used >= 3 * capacity // 4 or (flag and at_s - last_s < 5))
            last_s = at_s
        return flag and self.now_s - last_s < 5

    @invariant()
    def one_flag_is_enough(self) -> None:
        assert self.throttle.throttled(self.now_s) == any(map(self.up, self.reports))


TestThrottling = Throttling.TestCase


PIPELINE = Pipeline("p", Source(("t",)), "m:f", sink=Sink("lake.a.b"))
CREDIT = ReceiverBackpressure("credit", "p", 1000)
WATERMARK = ReceiverBackpressure("watermark", "p", 1000)


def faults(stated: ReceiverBackpressure, pipeline: Pipeline, instances: int = 1) -> list[str]:
    receiver = Receiver("r", "http", "t", listen=Listen(8080), instances=instances, backpressure=stated)
    return downstream_faults([receiver], {"p": pipeline}).get("r", [])


@pytest.mark.parametrize(
    ("stated", "instances", "most"),
    [(CREDIT, 1, 1000), (CREDIT, 4, 997), (WATERMARK, 1, 401), (replace(WATERMARK, high=0.9, low=0.2), 2, 201)],
)
def test_a_backlog_below_which_no_run_starts_is_refused(stated: ReceiverBackpressure, instances: int, most: int) -> None:
    """Whether the limits or the schedule say so; a longest wait, or another topic, starts runs all the same."""
    for setting, allowed, refused in (
        ("limits.min_records", {"limits": Limits(min_records=most)}, {"limits": Limits(min_records=most + 1)}),
        ("schedule.lag", {"schedule": LagSchedule(most)}, {"schedule": LagSchedule(most + 1)}),
    ):
        assert faults(stated, replace(PIPELINE, **allowed), instances) == []
        (fault,) = faults(stated, replace(PIPELINE, **refused), instances)
        stops = f"stops at {most}" if stated.policy == "credit" else f"once it has stopped, goes on at {most - 1}"
        assert f"below {most + 1} unread records ({setting}), and the receiver {stops};" in fault
    assert faults(stated, replace(PIPELINE, limits=Limits(min_records=9999, max_delay_s=60))) == []
    assert faults(stated, replace(PIPELINE, schedule=LagSchedule(9999, 60))) == []
    assert faults(stated, replace(PIPELINE, limits=Limits(min_records=9999), source=Source(("t", "u")))) == []


@pytest.mark.parametrize("low", [0.4, 0.2])
@pytest.mark.parametrize("least", [201, 202, 401, 402, 460, 900])
@pytest.mark.parametrize("planned", [460, 640, 899, 900])
def test_a_receiver_that_is_not_refused_goes_on_whatever_a_run_leaves_behind(low: float, least: int, planned: int) -> None:
    """A run is planned at some backlog, senders reach the high mark meanwhile, and runs start while enough is unread."""
    stated = replace(WATERMARK, low=low)
    if faults(stated, replace(PIPELINE, limits=Limits(min_records=least))):
        return
    throttle = Throttle(stated, None)
    lag, now_s, batch = 900, 0.0, planned
    throttle.hear(Heard(lag=lag), throttle.taken, now_s)
    while throttle.room(now_s) == 0:
        assert lag >= least, "no run starts, and no record comes"
        lag, now_s, batch = lag - min(lag, batch), now_s + 1, least
        throttle.hear(Heard(lag=lag), throttle.taken, now_s)

"""Laws of what a plan says of the lag, and of what it asks the brokers for that."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.records import cursor_of, range_of
from tidegate.airflow.operators import PlanOperator, plan
from tidegate.core.config.pipeline import Limits, Pipeline, Sink, Source
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.planning.plan import Skip
from tidegate.core.planning.run import Planned
from tidegate.core.state.cursor import Cursor
from tidegate.testing.fakes import FakeBrokers

MINUTE, NOW = 60_000, 100 * 60_000 + 5_000
P0 = TopicPartition("t", 0)
PIPELINE = Pipeline("p", Source(("t",)), "m:f", Sink("lake.a.b"), limits=Limits(None, interval_s=10))
SAVED = range_of("p", 2, "r", (OffsetRange("t", 0, 10, 30),), (), {"t": "id"}, {}, NOW, remaining=70)

Tell = Callable[[Planned | Skip], dict[str, Any]]


@pytest.fixture
def brokers() -> FakeBrokers:
    """The record at offset 10 is nine seconds old, and kept for a minute."""
    return FakeBrokers(latest={P0: 105}, times={P0: [0] * 10 + [NOW - 9_000] * 95}, retention={"t": MINUTE})


@pytest.fixture
def tell(brokers: FakeBrokers, monkeypatch: pytest.MonkeyPatch) -> Tell:
    """What a plan sends that comes to this; Airflow's metrics are on."""
    sent: dict[str, Any] = {}
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
    monkeypatch.setattr("airflow.sdk.observability.stats.gauge", lambda name, value, **_: sent.update({name: value}))
    monkeypatch.setattr(plan, "ports_of", lambda *_: {"brokers": brokers})
    monkeypatch.setattr(plan, "now_ms", lambda: NOW)

    def run(outcome: Planned | Skip) -> dict[str, Any]:
        monkeypatch.setattr(plan, "plan_batch", lambda *_, **__: outcome)
        sent.clear()
        context: Any = {"dag_run": SimpleNamespace(run_type="manual", clear_number=0), "run_id": "r", "params": {}}
        assert PlanOperator(task_id="plan", pipeline=PIPELINE)._plan(context) is outcome
        return {name.removeprefix("tidegate.lag.").removesuffix(".p"): value for name, value in sent.items()}

    return run


def after(planned_ms: int | None) -> Cursor:
    """A cursor at offset 10, whose batch was planned then."""
    return cursor_of("p", 1, {P0: 10}, fired_at_ms=planned_ms)


def planned(cursor: Cursor, origin: Any = "planned") -> Planned:
    return Planned(saved=SAVED, key="key", origin=origin, cursor=cursor)


NOW_KNOWN = {"records": 95, "seconds": 9, "retention_left_s": 51}
"""What the brokers say; more records have come since the plan."""


@pytest.mark.parametrize(
    ("outcome", "sent"),
    [
        (planned(after(NOW - 5_000)), {"records": 90}),  # of the same minute: those that it takes, and those that it leaves
        (planned(after(NOW - 5_001)), NOW_KNOWN),
        (planned(cursor_of("p")), {"records": 90}),  # there is no cursor that could be behind
        *[(planned(after(NOW), origin), {}) for origin in ("adopted", "own")],  # saved when fewer records waited
        *[(planned(after(NOW - MINUTE), origin), NOW_KNOWN) for origin in ("adopted", "own")],
        (Skip("nothing new", 0, after(NOW - MINUTE)), {"records": 0, "seconds": 0}),  # the commonest run of a quiet pipeline
    ],
)
def test_a_plan_says_how_many_records_wait_and_asks_once_a_minute_how_old_they_are(
    tell: Tell, brokers: FakeBrokers, outcome: Planned | Skip, sent: dict[str, Any]
) -> None:
    """A run of the same minute, a first one, and one that finds nothing ask nobody."""
    assert (tell(outcome), brokers.asked) == (sent, int(sent is NOW_KNOWN))


@pytest.mark.parametrize(("ago_ms", "asked"), [(0, 1), (4_000, 0)])
def test_runs_that_wait_for_more_records_ask_once_a_minute_too(
    tell: Tell, brokers: FakeBrokers, monkeypatch: pytest.MonkeyPatch, ago_ms: int, asked: int
) -> None:
    """The last batch is long ago, but a run every ten seconds: the first of a minute asks."""
    monkeypatch.setattr(plan, "now_ms", lambda: NOW + 10_000 - ago_ms if ago_ms else NOW)
    assert tell(Skip("95 records wait", 95, after(1)))["records"] == 95
    assert brokers.asked == asked


def test_brokers_that_do_not_answer_fail_no_plan(tell: Tell, brokers: FakeBrokers) -> None:
    """What the plan knows is sent all the same."""
    brokers.away = True
    assert tell(planned(after(None))) == {"records": 90}


def test_nobody_is_asked_where_metrics_go_nowhere(tell: Tell, brokers: FakeBrokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's default."""
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "False")
    tell(planned(after(None)))
    assert brokers.asked == 0

"""Laws of the metrics of batches, and of what a plan says of the lag."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from tests.records import cursor_of, range_of, write_of
from tidegate.airflow import metrics, notes
from tidegate.airflow.operators import plan
from tidegate.airflow.operators.plan import PlanOperator
from tidegate.core.audit.lag import TotalLag
from tidegate.core.config.pipeline import Limits, Pipeline, Sink, Source
from tidegate.core.model.errors import BrokerUnavailable
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.planning.plan import Skip
from tidegate.core.planning.run import Planned
from tidegate.core.rates import BatchTiming
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.jobs import LoadResult
from tidegate.core.state.receipt import Observed, Receipt
from tidegate.testing.fakes import FakeBrokers
from tidegate.views.metrics import METRICS, PHASES, RECEIVER
from tidegate_receivers.runtime.supervisor import LeaseReport, Status

SAVED = range_of("orders", 7, "r", (), (), {}, {}, 0, remaining=40)
TIMING = BatchTiming(100, None, run_ms=4000, load_ms=1500, scheduling_delay_ms=20, ended_at_ms=0)
RESULT = LoadResult(
    Receipt(write_of("orders", 7, "r", (), "m:f@1", "a"), 1, 1, rows=90),
    Observed(100, 90, errors=3),
    {"write": 1.2},
    spark_age_s=120.0,
)
TAGS = {"pipeline": "orders"}
PIPELINE = Pipeline("orders", Source(("orders",)), "m:f", sink=Sink("lake.shop.orders"))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What was sent, by name; 1 of a counter."""
    found: dict[str, Any] = {}

    def gauge(name: str, value: float, *, tags: dict[str, str]) -> None:
        assert tags == TAGS
        found[name.removeprefix("tidegate.").removeprefix("batch.")] = value

    def incr(name: str, *, count: float, tags: dict[str, str]) -> None:
        gauge(name, count, tags=tags)

    for module in ("airflow.sdk.observability.stats", "airflow.observability.stats"):
        monkeypatch.setattr(f"{module}.gauge", gauge)
        monkeypatch.setattr(f"{module}.incr", incr)
    return found


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            {"result": RESULT, "timing": TIMING, "interval_s": 60},
            {"rows": 90, "errors": 3, "interval_s": 60, "write_s": 1.2, "records": 100}
            | {"run_s": 4.0, "load_s": 1.5, "delay_s": 0.02},
        ),
        ({"result": None, "timing": None, "interval_s": None}, {}),
    ],
)
def test_a_batch_says_what_it_took(sent: dict[str, Any], how: dict[str, Any], said: dict[str, float]) -> None:
    """What is not known is not sent: this policy set no bound, and an empty batch only fixes starts."""
    metrics.committed(SAVED, **how)
    assert sent == {f"{name}.orders": value for name, value in {"seq": 7, "remaining": 40, "committed": 1, **said}.items()}


@pytest.mark.parametrize(("age_s", "cold"), [(0.0, 1), (119.9, 1), (120.0, None), (None, None)])
def test_a_load_on_a_spark_that_has_just_started_is_counted_as_cold(
    sent: dict[str, Any], age_s: float | None, cold: int | None
) -> None:
    """Its code was loaded and compiled on the way. Where the age is not known, nothing is said."""
    metrics.committed(SAVED, result=replace(RESULT, spark_age_s=age_s), timing=None, interval_s=None)
    assert sent.get("cold.orders") == cold


@pytest.mark.parametrize(("dag_id", "counted"), [("orders", {"failed.orders": 1}), ("orders__replay", {})])
def test_a_failed_try_is_counted(sent: dict[str, Any], dag_id: str, counted: dict[str, int]) -> None:
    """Of the schedule; replays and maintenance have runs of their own."""
    task = SimpleNamespace(pipeline=PIPELINE)
    notes.save_failure(SimpleNamespace(xcom_push=lambda **_what: None, task=task, dag_id=dag_id), BrokerUnavailable("away"))
    assert sent == counted


def test_metrics_that_cannot_be_sent_fail_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The log says so."""
    monkeypatch.setattr("airflow.sdk.observability.stats.incr", mock.Mock(side_effect=OSError("no route")))
    metrics.skipped("orders")
    assert "metrics of orders are not sent" in caplog.text


def test_each_metric_of_the_list_is_sent_and_no_other(sent: dict[str, Any]) -> None:
    """Here all that belong to pipelines, by tasks and by the scheduler; triggers and receivers have laws of their own."""
    result = replace(RESULT, seconds=dict.fromkeys(PHASES, 1.0), spark_age_s=1.0)
    metrics.committed(SAVED, result=result, timing=replace(TIMING, bound=200), interval_s=60)
    metrics.skipped("orders")
    metrics.failed("orders")
    metrics.waiting("orders", 7)
    metrics.lagging("orders", TotalLag(partitions=1, records_behind=7, seconds_behind=3.5, retention_left_s=9.0))
    metrics.replayed("orders", offsets=5, rows=4)
    metrics.run_ended("orders", at_s=1.0)
    metrics.replay_failed("orders")
    listed = {f"{m.name}.orders" for m in METRICS.values() if m.group not in ("trigger", "receiver")}
    assert {name if "." in name.removesuffix(".orders") else f"batch.{name}" for name in sent} == listed


def test_what_a_receiver_sends_is_in_its_status() -> None:
    """A part of it, by the same names."""
    assert set(RECEIVER) <= {f.name for kind in (Status, LeaseReport) for f in fields(kind)}


def test_no_record_that_waits_has_no_age(sent: dict[str, Any]) -> None:
    """So that a pipeline that has caught up does not keep its last one; of others the plan does not know it."""
    metrics.waiting("orders", 7)
    assert sent == {"lag.records.orders": 7}
    metrics.waiting("orders", 0)
    assert sent == {"lag.records.orders": 0, "lag.seconds.orders": 0}


MINUTE, NOW = 60_000, 100 * 60_000 + 5_000
P0 = TopicPartition("t", 0)
OF_TEN_SECONDS = Pipeline("p", Source(("t",)), "m:f", sink=Sink("lake.a.b"), limits=Limits(None, interval_s=10))
PLANNED = range_of("p", 2, "r", (OffsetRange("t", 0, 10, 30),), (), {"t": "id"}, {}, NOW, remaining=70)

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
        assert PlanOperator(task_id="plan", pipeline=OF_TEN_SECONDS)._plan(context) is outcome
        return {name.removeprefix("tidegate.lag.").removesuffix(".p"): value for name, value in sent.items()}

    return run


def after(planned_ms: int | None) -> Cursor:
    """A cursor at offset 10, whose batch was planned then."""
    return cursor_of("p", 1, {P0: 10}, fired_at_ms=planned_ms)


def planned(cursor: Cursor, origin: Any = "planned") -> Planned:
    return Planned(saved=PLANNED, key="key", origin=origin, cursor=cursor)


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
        (Skip("95 records wait", 95, after(1)), NOW_KNOWN),  # a run every ten seconds: the first of the minute asks
    ],
)
def test_a_plan_says_how_many_records_wait_and_asks_once_a_minute_how_old_they_are(
    tell: Tell, brokers: FakeBrokers, outcome: Planned | Skip, sent: dict[str, Any]
) -> None:
    """A run of the same minute, a first one, and one that finds nothing ask nobody."""
    assert (tell(outcome), brokers.asked) == (sent, int(sent is NOW_KNOWN))


def test_brokers_that_do_not_answer_fail_no_plan_and_are_not_asked_where_metrics_go_nowhere(
    tell: Tell, brokers: FakeBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the plan knows is sent all the same. That nothing is sent is Airflow's default."""
    brokers.away = True
    assert tell(planned(after(None))) == {"records": 90}
    asked = brokers.asked
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "False")
    tell(planned(after(None)))
    assert brokers.asked == asked

"""Laws of the metrics of batches."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.records import range_of, write_of
from tidegate.airflow import failures, metrics
from tidegate.core.audit.lag import TotalLag
from tidegate.core.config.pipeline import Pipeline, Sink, Source
from tidegate.core.model.errors import BrokerUnavailable
from tidegate.core.rates import BatchTiming
from tidegate.core.state.jobs import LoadResult
from tidegate.core.state.receipt import Observed, Receipt
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
PIPELINE = Pipeline("orders", Source(("orders",)), "m:f", Sink("lake.shop.orders"))


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


def test_a_batch_says_what_it_took(sent: dict[str, Any]) -> None:
    """What is not known is not sent: this policy set no bound."""
    metrics.committed(SAVED, result=RESULT, timing=TIMING, interval_s=60)
    assert sent == {
        "seq.orders": 7,
        "rows.orders": 90,
        "errors.orders": 3,
        "remaining.orders": 40,
        "interval_s.orders": 60,
        "write_s.orders": 1.2,
        "records.orders": 100,
        "run_s.orders": 4.0,
        "load_s.orders": 1.5,
        "delay_s.orders": 0.02,
        "committed.orders": 1,
    }


def test_a_batch_without_records_says_only_that_it_was_committed(sent: dict[str, Any]) -> None:
    """It only fixes where new partitions start."""
    metrics.committed(SAVED, result=None, timing=None, interval_s=None)
    assert sent == {"seq.orders": 7, "remaining.orders": 40, "committed.orders": 1}


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
    failures.save_failure(SimpleNamespace(xcom_push=lambda **_what: None, task=task, dag_id=dag_id), BrokerUnavailable("away"))
    assert sent == counted


def test_metrics_that_cannot_be_sent_fail_nothing(
    sent: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so."""

    def fail(*_what: Any, **_tags: Any) -> None:
        raise OSError("no route")

    monkeypatch.setattr("airflow.sdk.observability.stats.incr", fail)
    metrics.skipped("orders")
    assert "metrics of orders are not sent" in caplog.text


def test_each_metric_of_the_list_is_sent_and_no_other(sent: dict[str, Any]) -> None:
    """Here all that belong to pipelines, by tasks and by the scheduler; triggers and receivers have laws of their own."""
    seconds = dict.fromkeys(PHASES, 1.0)
    result = replace(RESULT, seconds=seconds, spark_age_s=1.0)
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

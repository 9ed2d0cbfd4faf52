"""Laws of tasks whose servers are away: they wait within one try, and end when they are stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from airflow.sdk.exceptions import AirflowException

import tidegate.airflow.operators.plan
import tidegate.airflow.operators.spark
import tidegate.airflow.retries
import tidegate.spark.load
import tidegate.spark.session
from tests.records import load_job, write_of
from tidegate.airflow.operators import LoadOperator, PlanOperator
from tidegate.airflow.retries import WAITING
from tidegate.core.config.pipeline import Pipeline, Sink, Source
from tidegate.core.model.errors import BrokerUnavailable, SinkUnavailable, SparkUnavailable, TidegateError
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.planning.plan import Skip
from tidegate.core.state.jobs import LoadResult
from tidegate.core.state.receipt import Observed, Receipt

RANGES = (OffsetRange("t", 0, 0, 5),)
JOB = load_job("p", 1, "run", RANGES, "m:f", "lake.a.b", {})
LOADED = LoadResult(Receipt(write_of("p", 1, "run", RANGES, "m:f@1", "a"), 7, 1, rows=5), Observed(5, 5), {"write": 0.1})


def pipeline(**changes: Any) -> Pipeline:
    return Pipeline("p", Source(("t",)), "m:f", Sink("lake.a.b"), **changes)


@pytest.fixture(autouse=True)
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Sleeping only moves the clock."""
    now = [0.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(tidegate.airflow.retries, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: now[0]))
    return slept


class Spark:
    """A server that ends connections and loads with these errors, one after the other, before it works."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, connecting: list[TidegateError], loading: list[TidegateError]) -> None:
        self.connecting, self.loading, self.loads = connecting, loading, 0

        @contextmanager
        def connect(_: str, *, name: str) -> Iterator[object]:
            del name
            if self.connecting:
                raise self.connecting.pop(0)
            yield object()

        def load_range(*_: object, **__: object) -> LoadResult:
            self.loads += 1
            if self.loading:
                raise self.loading.pop(0)
            return LOADED

        monkeypatch.setattr(tidegate.spark.session, "connect", connect)
        monkeypatch.setattr(tidegate.spark.load, "load_range", load_range)
        monkeypatch.setattr(SparkConnectHook, "__init__", lambda *_: None)
        monkeypatch.setattr(SparkConnectHook, "get_connection_url", lambda _: "sc://here")
        found = SimpleNamespace(conn_type="spark_connect", conn_id="c")
        monkeypatch.setattr(tidegate.airflow.operators.spark, "get_connection", lambda *_, **__: found)


def load(**changes: Any) -> LoadOperator:
    return LoadOperator(task_id="load", pipeline=pipeline(**changes), spark_jobs=Path())


def gone() -> SparkUnavailable:
    return SparkUnavailable("the Spark server does not answer")


def test_a_task_shows_what_it_waits_for_while_it_waits(monkeypatch: pytest.MonkeyPatch, naps: list[float]) -> None:
    """As an XCom, which is empty again once the server answers; a push that fails does not end the wait.

    Refused connections are waited out however many there are: nothing was begun, so nothing can have been lost.
    """
    pushed: list[tuple[str, str]] = []

    class Ti:
        def xcom_push(self, key: str, value: str) -> None:
            pushed.append((key, value))
            if not value:
                raise ConnectionError("Airflow's API server is away, too")

    spark = Spark(monkeypatch, [gone() for _ in range(12)], [])
    assert load().run_job(JOB, {"ti": Ti()})["receipt"]["snapshot"] == 7  # type: ignore[typeddict-item]
    assert pushed == [(WAITING, "SparkUnavailable: the Spark server does not answer"), (WAITING, "")]
    assert (spark.loads, 60 < sum(naps) < 600) == (1, True)


def test_a_load_that_lost_its_server_is_done_again_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks its receipt up first. A job that ends its server each time fails its try."""
    spark = Spark(monkeypatch, [], [gone()])
    assert load().run_job(JOB, {})["receipt"]["snapshot"] == 7
    assert spark.loads == 2
    spark = Spark(monkeypatch, [], [gone(), gone()])
    with pytest.raises(SparkUnavailable):
        load().run_job(JOB, {})
    assert spark.loads == 2


def test_a_catalog_or_broker_that_is_away_under_a_load_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark tells of them; it is there itself."""
    spark = Spark(monkeypatch, [], [SinkUnavailable("away"), SinkUnavailable("away"), BrokerUnavailable("away")])
    assert load().run_job(JOB, {})["receipt"]["snapshot"] == 7
    assert spark.loads == 4


def test_a_server_that_stays_away_fails_the_try_in_time(monkeypatch: pytest.MonkeyPatch, naps: list[float]) -> None:
    """`wait_s` seconds after it was missed; then the retries have their turn. With 0 at once."""
    Spark(monkeypatch, [gone() for _ in range(1000)], [])
    ticks = iter(range(10**6))
    monkeypatch.setattr("tidegate.airflow.retries.Patience", with_clock(lambda: float(next(ticks))))
    with pytest.raises(SparkUnavailable):
        load(wait_s=90).run_job(JOB, {})
    naps.clear()
    with pytest.raises(SparkUnavailable):
        load(wait_s=0).run_job(JOB, {})
    assert naps == []


def test_a_try_waits_for_all_of_its_servers_together() -> None:
    """For the brokers that say how far a load looks back, and for Spark: what the one took, the other has not."""
    task = load()
    assert task.patience({}) is task.patience({})


def with_clock(clock: Any) -> Any:
    """The class with another clock."""
    from tidegate.core.planning.patience import Patience  # noqa: PLC0415 - the real one, which the test replaces where it is used

    return lambda for_s, tell, sleep, show: Patience(for_s=for_s, tell=tell, clock=clock, sleep=sleep, show=show)


def test_a_task_that_is_stopped_while_it_waits_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when its run is over: `timeout_s` ends a run whatever its tasks wait for."""
    Spark(monkeypatch, [gone() for _ in range(1000)], [])
    task = load()
    began = time.monotonic()

    def killed(_: float) -> None:
        task.on_kill()

    stopped = SimpleNamespace(sleep=killed, monotonic=lambda: 0.0)
    monkeypatch.setattr(tidegate.airflow.retries, "time", stopped)
    with pytest.raises(AirflowException, match="stopped while it waited"):
        task.run_job(JOB, {})
    assert time.monotonic() - began < 60


def test_a_plan_waits_for_its_brokers_and_its_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    """It plans with the time of the moment when they answer."""
    errors: list[TidegateError] = [BrokerUnavailable("away"), SinkUnavailable("away")]
    times: list[int] = []

    def plan(*_: object, now_ms: int, **__: object) -> Skip:
        times.append(now_ms)
        if errors:
            raise errors.pop(0)
        return Skip("nothing new")

    clock = iter((1, 2, 3))
    monkeypatch.setattr(tidegate.airflow.operators.plan, "plan_batch", plan)
    monkeypatch.setattr(tidegate.airflow.operators.plan, "ports_of", lambda *_: {})
    monkeypatch.setattr(tidegate.airflow.operators.plan, "now_ms", lambda: next(clock))
    task = PlanOperator(task_id="plan", pipeline=pipeline())
    run = SimpleNamespace(run_type="manual", clear_number=0)
    context: Any = {"dag_run": run, "run_id": "r", "params": {}, "ti": SimpleNamespace(xcom_push=lambda **_: None)}
    with pytest.raises(Exception, match="nothing new"):
        task.execute(context)
    assert times == [1, 2, 3]

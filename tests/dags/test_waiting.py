"""Laws of the load's job: what spark-submit is told of it, and how it waits within one try for servers that are away."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from airflow.sdk.exceptions import AirflowException

import tidegate.airflow.operators.plan
import tidegate.airflow.operators.spark
import tidegate.airflow.operators.tasks
import tidegate.spark.load
import tidegate.spark.session
from tests.records import cursor_of, load_job, range_of, replay_of, write_of
from tidegate.airflow.operators import load, spark
from tidegate.airflow.operators.load import LoadOperator
from tidegate.airflow.operators.plan import PlanOperator
from tidegate.airflow.operators.tasks import WAITING
from tidegate.airflow.runners import INSTALLED, JOB_FILE
from tidegate.core.config.pipeline import Dedupe, Pipeline, Sink, Source, Spark, Split
from tidegate.core.model.errors import (
    BrokerUnavailable,
    ConfigError,
    SinkUnavailable,
    SparkJobFailed,
    SparkUnavailable,
    TidegateError,
)
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.model.watermarks import Watermarks
from tidegate.core.planning.patience import Patience
from tidegate.core.planning.plan import Skip
from tidegate.core.rates.advice import Resources
from tidegate.core.state.cursor import Position
from tidegate.core.state.jobs import LoadResult
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.receipt import Load, Observed, Receipt
from tidegate.core.state.saved_range import Decision
from tidegate.testing.fakes import FakeReader, MemoryStore
from tidegate.waiting import wait_until

RANGES = (OffsetRange("t", 0, 0, 5),)
JOB = load_job("p", 1, "run", RANGES, "m:f", "lake.a.b", {})
LOADED = LoadResult(Receipt(write_of("p", 1, "run", RANGES, "m:f@1", "a"), 7, 1, rows=5), Observed(5, 5), {"write": 0.1})


def pipeline(**changes: Any) -> Pipeline:
    return Pipeline("p", Source(("t",)), "m:f", sink=Sink("lake.a.b"), **changes)


@pytest.fixture(autouse=True)
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Sleeping only moves the clock."""
    now = [0.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(tidegate.airflow.operators.tasks, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: now[0]))
    return slept


class Server:
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


def loads(**changes: Any) -> LoadOperator:
    return LoadOperator(task_id="load", pipeline=pipeline(**changes), spark_jobs=Path())


def gone() -> SparkUnavailable:
    return SparkUnavailable("the Spark server does not answer")


def test_a_task_shows_what_it_waits_for_while_it_waits(monkeypatch: pytest.MonkeyPatch, naps: list[float]) -> None:
    """As an XCom, which is empty again once the server answers; a push that fails does not end the wait."""
    pushed: list[tuple[str, str]] = []

    class Ti:
        def xcom_push(self, key: str, value: str) -> None:
            pushed.append((key, value))
            if not value:
                raise ConnectionError("Airflow's API server is away, too")

    spark = Server(monkeypatch, [gone() for _ in range(12)], [])
    assert loads().run_job(JOB, {"ti": Ti()})["receipt"]["snapshot"] == 7  # type: ignore[typeddict-item]
    assert pushed == [(WAITING, "SparkUnavailable: the Spark server does not answer"), (WAITING, "")]
    assert (spark.loads, 60 < sum(naps) < 600) == (1, True)


@pytest.mark.parametrize(
    ("errors", "loaded", "lands"),
    [
        ([gone()], 2, True),  # it looks its receipt up first
        ([gone(), gone()], 2, False),  # a job that ends its server each time fails its try
        ([SinkUnavailable("away"), SinkUnavailable("away"), BrokerUnavailable("away")], 4, True),  # of which Spark tells
    ],
)
def test_a_load_that_lost_a_server_is_done_again_once_and_waits_for_a_catalog_or_broker(
    monkeypatch: pytest.MonkeyPatch, errors: list[TidegateError], loaded: int, *, lands: bool
) -> None:
    spark = Server(monkeypatch, [], [*errors])
    with nullcontext() if lands else pytest.raises(SparkUnavailable):
        assert loads().run_job(JOB, {})["receipt"]["snapshot"] == 7
    assert spark.loads == loaded


def test_a_server_that_stays_away_fails_the_try_in_time(monkeypatch: pytest.MonkeyPatch, naps: list[float]) -> None:
    """`wait_s` seconds after it was missed; then the retries have their turn. With 0 at once."""
    Server(monkeypatch, [gone() for _ in range(1000)], [])
    clock = mock.Mock(side_effect=map(float, range(10**6)))
    monkeypatch.setattr("tidegate.airflow.operators.tasks.Patience", partial(Patience, clock=clock))
    for wait_s in (90, 0):
        naps.clear()
        with pytest.raises(SparkUnavailable):
            loads(wait_s=wait_s).run_job(JOB, {})
        assert bool(naps) == bool(wait_s)


def test_a_try_waits_for_all_of_its_servers_together() -> None:
    """For the brokers that say how far a loads looks back, and for Spark: what the one took, the other has not."""
    task = loads()
    assert task.patience({}) is task.patience({})


def test_a_task_that_is_stopped_while_it_waits_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when its run is over: `timeout_s` ends a run whatever its tasks wait for."""
    Server(monkeypatch, [gone() for _ in range(1000)], [])
    task, began = loads(), time.monotonic()
    stopped = SimpleNamespace(sleep=lambda _: task.on_kill(), monotonic=lambda: 0.0)
    monkeypatch.setattr(tidegate.airflow.operators.tasks, "time", stopped)
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


PIPELINE = Pipeline("p", Source(("t",)), "m:f", sink=Sink("lake.a.b"), spark=Spark("tests_spark"), wait_s=0)

ORDER: dict[str, Any] = {
    "load": Load(pipeline="p", seq=1, run_id="run", ranges=RANGES),
    "transform": "m:f",
    "table": "lake.a.b",
}
ScriptWriter = Callable[..., Path]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptWriter:
    """Writes a spark-submit that notes its arguments, then does what the test says; returns the notes."""

    def write(does: str, *, host: str = "local[2]", **extra: str) -> Path:
        notes = tmp_path / "arguments.json"
        file = tmp_path / "spark-submit"
        file.write_text(
            f"#!{sys.executable}\nimport json, pathlib, sys, time\n"
            f"pathlib.Path({str(notes)!r}).write_text(json.dumps(sys.argv[1:]))\n"
            f"result = pathlib.Path(sys.argv[sys.argv.index('--result') + 1])\n{does}\n"
        )
        file.chmod(0o700)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        connection = {"conn_type": "spark", "host": host, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_TESTS_SPARK", json.dumps(connection))
        return notes

    return write


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> FakeReader:
    reader = FakeReader()
    monkeypatch.setattr(spark, "reader_of", lambda _: reader)
    return reader


@pytest.fixture
def task() -> Iterator[LoadOperator]:
    operator = LoadOperator(task_id="load", pipeline=PIPELINE, spark_jobs=Path("/jobs"))
    yield operator
    if operator._hook is not None and operator._hook._submit_sp is not None:
        operator._hook._submit_sp.stdout.close()  # which the hook leaves to the garbage collector


def test_a_driver_here_reads_the_jobs_file_and_writes_its_answer(
    script: ScriptWriter, sink: FakeReader, task: LoadOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """spark-submit is told two paths; nothing is copied. It gets the executors that the plan has found.

    On YARN and Kubernetes by their number, on a standalone master by all cores together; else spark-submit decides.
    """
    monkeypatch.setattr(load, "kafka_settings", lambda *_: {})
    notes = script(f"result.write_text({json.dumps(LOADED.to_json())!r})")
    answer = task.run_job(task.order({}, resources=Resources(3, 2, None, reason="why"), **ORDER), {})
    assert (answer["receipt"]["snapshot"], answer["observed"]["records"]) == (7, 5)
    arguments = json.loads(notes.read_text())
    assert arguments[:2] == ["--master", "local[2]"]
    application = arguments.index(str(INSTALLED))
    assert arguments[application + 1 :: 2] == ["--job", "--result", "--spark-jobs"]
    assert arguments[-1] == "/jobs"
    assert "--files" not in arguments
    asked = {name: number for name, number in pairwise(arguments) if "executor" in name}
    assert asked == {"--num-executors": "3", "--total-executor-cores": "6", "--executor-cores": "2"}


def test_to_a_driver_in_the_cluster_spark_submit_copies_the_job(
    script: ScriptWriter, sink: FakeReader, task: LoadOperator
) -> None:
    """Its answer cannot come back by file: it is the receipt."""
    notes = script("", host="yarn", **{"deploy-mode": "cluster"})
    sink.found.append(LOADED.receipt)
    answer = task.run_job(JOB, {})
    assert (answer["receipt"]["snapshot"], answer["observed"]["records"], answer["landed_before"]) == (7, None, True)
    arguments = json.loads(notes.read_text())
    assert not [name for name in arguments if "executor" in name]
    copied = arguments[arguments.index("--files") + 1]
    assert Path(copied).name == JOB_FILE
    assert arguments[arguments.index("--job") + 1] == copied
    assert arguments[arguments.index("--deploy-mode") + 1] == "cluster"


def test_a_task_that_is_killed_kills_its_submission(script: ScriptWriter, sink: FakeReader, task: LoadOperator) -> None:
    """And its try ends at once, with the hook's error, whatever lies in the table: the next try judges it."""
    LoadOperator(task_id="idle", pipeline=PIPELINE, spark_jobs=Path()).on_kill()  # there is nothing to stop yet
    notes = script("time.sleep(300)")
    sink.found.append(LOADED.receipt)

    def kill() -> None:
        wait_until(notes.exists, 60)
        task.on_kill()

    killer = threading.Thread(target=kill)
    started = time.monotonic()
    killer.start()
    with pytest.raises(SparkJobFailed, match="Error code is: -9"):
        task.run_job(JOB, {})
    killer.join()
    assert time.monotonic() - started < 60


def test_a_connection_of_another_type_is_refused_with_those_that_work(
    monkeypatch: pytest.MonkeyPatch, task: LoadOperator
) -> None:
    """Before anything is submitted."""
    monkeypatch.setenv("AIRFLOW_CONN_TESTS_SPARK", json.dumps({"conn_type": "http", "host": "h"}))
    with pytest.raises(ConfigError, match=r"is of type http.*one of the types spark_connect, spark"):
        task.run_job(JOB, {})


def test_a_load_is_cut_as_its_plan_has_found_unless_the_file_cuts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no batch was measured yet, nothing cuts it."""
    monkeypatch.setattr(load, "kafka_settings", lambda *_: {})
    own = Split(max_records_per_partition=7)
    for stated, pieces, split in ((Split(), 10, Split(min_partitions=10)), (Split(), None, Split()), (own, 10, own)):
        task = loads(split=stated)
        assert task.order({}, resources=Resources(None, 2, pieces, reason="why"), **ORDER).reading.split == split


def test_batches_and_chunks_look_back_for_repeats_a_window_or_as_far_as_the_log_reaches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same range has the same look-back, whichever of them loads it; without `dedupe` the cursor is not even read."""
    store, tp = MemoryStore(), TopicPartition("t", 0)
    monkeypatch.setattr(load, "kafka_settings", lambda *_: {})
    monkeypatch.setattr(load, "VariableStore", lambda: store)
    ranges = (OffsetRange("t", 0, 50, 60),)
    cursor = cursor_of("p", 9, {tp: 100}, starts={tp: 20})
    batch = range_of("p", 4, "run", ranges, (Decision(tp, "cursor", "log end"),), {}, {}, 0, beside=Position(starts={tp: 20}))
    replay = replay_of("p", "run", "again", (ranges,), "lake.a.b", "m:f", {}, 0)
    order: dict[str, Any] = {"begun": batch.after.starts, "transform": "m:f", "table": "lake.a.b"}
    task = LoadOperator(task_id="load", pipeline=PIPELINE, spark_jobs=Path("/jobs"))
    plain = task.order({}, batch.load, **order)
    assert (plain.load.dedupe, plain.reading.look_back) == (None, {})
    Ledger(store, "p").save_cursor(cursor)
    asked: list[Sequence[str]] = []

    def brokers_holding(earliest: int) -> Any:
        def watermarks(topics: Sequence[str]) -> Watermarks:
            asked.append(topics)
            return Watermarks({tp: earliest}, {tp: 100})

        return SimpleNamespace(watermarks=watermarks)

    for window, earliest, since in ((10, 45, 40), (30, 45, 20), (1000, 0, 0), (1000, 15, 15), (1000, 45, 20)):
        monkeypatch.setattr(load, "brokers_of", lambda *_, at=earliest: brokers_holding(at))
        task.pipeline = replace(PIPELINE, dedupe=Dedupe(window))
        orders = (task.order({}, batch.load, **order), task.order({}, replay.chunk(0), transform="m:f", table="lake.a.b"))
        assert [(made.load.dedupe, made.reading.look_back) for made in orders] == [(Dedupe(window), {tp: since})] * 2
    assert asked == [["t"]] * 6

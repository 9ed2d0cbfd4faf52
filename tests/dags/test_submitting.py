"""Laws of loads over a connection of type `spark`: through Airflow's own hook, with a spark-submit that a test writes."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.records import cursor_of, load_job, range_of, replay_of, write_of
from tidegate.airflow.application import INSTALLED
from tidegate.airflow.operators import LoadOperator, load, spark
from tidegate.airflow.runners.connect import ConnectRunner
from tidegate.airflow.runners.submit import JOB_FILE, SubmitRunner
from tidegate.core.config.pipeline import Dedupe, Pipeline, Sink, Source, Spark, Split
from tidegate.core.model.errors import ConfigError, SparkJobFailed
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.model.watermarks import Watermarks
from tidegate.core.rates.resources import Resources
from tidegate.core.state.cursor import Position
from tidegate.core.state.jobs import LoadResult
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.receipt import Load, Observed, Receipt
from tidegate.core.state.saved_range import Decision
from tidegate.testing.fakes import FakeReader, MemoryStore

RANGES = (OffsetRange("t", 0, 0, 5),)
JOB = load_job("p", 1, "run", RANGES, "m:f", "lake.a.b", {})
LOADED = LoadResult(Receipt(write_of("p", 1, "run", RANGES, "m:f@1", "a"), 7, 1, rows=5), Observed(5, 5), {"write": 0.1})
PIPELINE = Pipeline("p", Source(("t",)), "m:f", Sink("lake.a.b"), spark=Spark("tests_spark"), wait_s=0)

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
    script: ScriptWriter, sink: FakeReader, task: LoadOperator
) -> None:
    """spark-submit is told two paths; nothing is copied."""
    notes = script(f"result.write_text({json.dumps(LOADED.to_json())!r})")
    answer = task.run_job(JOB, {})
    assert (answer["receipt"]["snapshot"], answer["observed"]["records"]) == (7, 5)
    arguments = json.loads(notes.read_text())
    assert arguments[:2] == ["--master", "local[2]"]
    application = arguments.index(str(INSTALLED))
    assert arguments[application + 1 :: 2] == ["--job", "--result", "--spark-jobs"]
    assert arguments[-1] == "/jobs"
    assert "--files" not in arguments
    assert "--num-executors" not in arguments


def test_to_a_driver_in_the_cluster_spark_submit_copies_the_job(
    script: ScriptWriter, sink: FakeReader, task: LoadOperator
) -> None:
    """Its answer cannot come back by file: it is the receipt."""
    notes = script("", host="yarn", **{"deploy-mode": "cluster"})
    sink.found.append(LOADED.receipt)
    answer = task.run_job(JOB, {})
    assert (answer["receipt"]["snapshot"], answer["observed"]["records"], answer["landed_before"]) == (7, None, True)
    arguments = json.loads(notes.read_text())
    copied = arguments[arguments.index("--files") + 1]
    assert Path(copied).name == JOB_FILE
    assert arguments[arguments.index("--job") + 1] == copied
    assert arguments[arguments.index("--deploy-mode") + 1] == "cluster"


def test_a_task_that_is_killed_kills_its_submission(script: ScriptWriter, sink: FakeReader, task: LoadOperator) -> None:
    """And its try ends at once, with the hook's error, whatever lies in the table: the next try judges it."""
    notes = script("time.sleep(300)")
    sink.found.append(LOADED.receipt)

    def kill() -> None:
        _wait_for(notes)
        task.on_kill()

    killer = threading.Thread(target=kill)
    started = time.monotonic()
    killer.start()
    with pytest.raises(SparkJobFailed, match="Error code is: -9"):
        task.run_job(JOB, {})
    killer.join()
    assert time.monotonic() - started < 60


def _wait_for(file: Path) -> None:
    until = time.monotonic() + 60
    while not file.exists() and time.monotonic() < until:
        time.sleep(0.05)


def test_a_task_that_is_killed_before_it_runs_a_job_only_ends(task: LoadOperator) -> None:
    """There is nothing to stop yet."""
    task.on_kill()


@pytest.mark.parametrize(("conn_type", "runner"), [("spark_connect", ConnectRunner), ("spark", SubmitRunner)])
def test_the_type_of_the_connection_picks_the_runner(conn_type: str, runner: type, task: LoadOperator) -> None:
    """Nothing else does."""
    connection: Any = SimpleNamespace(conn_type=conn_type, conn_id="c", extra_dejson={})
    assert type(task._runner_of(connection, {}, task.patience({}))) is runner


def test_a_connection_of_another_type_is_refused_with_those_that_work(
    monkeypatch: pytest.MonkeyPatch, task: LoadOperator
) -> None:
    """Before anything is submitted."""
    monkeypatch.setenv("AIRFLOW_CONN_TESTS_SPARK", json.dumps({"conn_type": "http", "host": "h"}))
    with pytest.raises(ConfigError, match=r"is of type http.*one of the types spark_connect, spark"):
        task.run_job(JOB, {})


def test_a_load_gets_the_executors_that_its_plan_has_found(
    script: ScriptWriter, sink: FakeReader, task: LoadOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On YARN and Kubernetes by their number, on a standalone master by all cores together; else spark-submit decides."""
    monkeypatch.setattr(load, "kafka_settings", lambda *_: {})
    notes = script(f"result.write_text({json.dumps(LOADED.to_json())!r})")
    order: dict[str, Any] = {
        "load": Load(pipeline="p", seq=1, run_id="run", ranges=RANGES),
        "transform": "m:f",
        "table": "lake.a.b",
    }
    task.run_job(task.order({}, resources=Resources(3, 2, None, reason="why"), **order), {})
    arguments = json.loads(notes.read_text())
    asked = {name: arguments[arguments.index(name) + 1] for name in arguments if "executor" in name}
    assert asked == {"--num-executors": "3", "--total-executor-cores": "6", "--executor-cores": "2"}


def test_a_load_is_cut_as_its_plan_has_found_unless_the_file_cuts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no batch was measured yet, nothing cuts it."""
    monkeypatch.setattr(load, "kafka_settings", lambda *_: {})
    order: dict[str, Any] = {
        "load": Load(pipeline="p", seq=1, run_id="run", ranges=RANGES),
        "transform": "m:f",
        "table": "lake.a.b",
    }
    task = LoadOperator(task_id="load", pipeline=PIPELINE, spark_jobs=Path("/jobs"))
    assert task.order({}, resources=Resources(None, 2, 10, reason="why"), **order).reading.split == Split(min_partitions=10)
    assert task.order({}, resources=Resources(None, 2, None, reason="why"), **order).reading.split == Split()
    task.pipeline = replace(PIPELINE, split=Split(max_records_per_partition=7))
    cut = task.order({}, resources=Resources(None, 2, 10, reason="why"), **order).reading.split
    assert cut == Split(max_records_per_partition=7)


def test_batches_and_chunks_look_back_for_repeats_a_window_or_as_far_as_the_log_reaches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same range has the same look-back, whichever of them loads it; without `dedupe` the cursor is not even read.

    What the schedule has loaded must be in the log: only where the window reaches before its beginning are the brokers asked.
    """
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

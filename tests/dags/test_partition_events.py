"""Laws of the hours that commits and replays announce: with their tasks, on ports in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset, DayWindow, RollupMapper, StartOfDayMapper
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.serialization.decoders import decode_partition_mapper
from airflow.serialization.encoders import encode_partition_mapper

from tests.dags.ports import use_ports
from tidegate.airflow import notes
from tidegate.airflow.operators import (
    FinishOperator,
    LoadOperator,
    PlanOperator,
    PlanReplayOperator,
    finish,
    plan,
    replay,
)
from tidegate.airflow.operators import announce as announcing
from tidegate.core.config.pipeline import Announce, Limits, Pipeline, Sink, Source
from tidegate.core.model.hours import DAY_MS, HOUR_MS, MOST_KEYS, Times, spans
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.jobs import LoadJob, LoadResult
from tidegate.core.state.ledger import Ledger
from tidegate.testing.fakes import FakeBrokers, FakeReader, FakeRunner, MemoryStore

NOON = 1_767_268_800_000
"""2026-01-01, 12:00 UTC."""
TABLE, HOURS = "lake.a.b", "tidegate/p/hours"
PIPELINE = Pipeline("p", Source(("t",)), "m:f", Sink(TABLE), limits=Limits(None), announce=Announce())
T0 = TopicPartition("t", 0)


class World:
    """A topic whose records have timestamps, a clock, and loads that see them, unless their account is `lost`."""

    def __init__(self) -> None:
        self.now_ms = NOON
        self.lost = False
        self.jobs: list[LoadJob] = []
        self.brokers = FakeBrokers(latest={T0: 0}, times={T0: []})
        self.store, self.sink = MemoryStore(), FakeReader()

    def write(self, *at_ms: int) -> None:
        self.brokers.times[T0] += at_ms
        self.brokers.latest[T0] += len(at_ms)

    def at(self, hours: float) -> World:
        """So many hours after noon."""
        self.now_ms = NOON + int(hours * HOUR_MS)
        return self

    def seen(self, result: LoadResult, job: LoadJob) -> LoadResult:
        self.jobs.append(job)
        times = None
        if job.reading.hours is not None and not self.lost:
            since, until = job.reading.hours
            read = [at for r in job.load.ranges for at in self.brokers.times[T0][r.from_offset : r.until_offset]]
            hours = spans(sorted({at // HOUR_MS for at in read if since <= at < until}), 1)
            times = Times(min(read), tuple(hours))
        return replace(result, observed=replace(result.observed, times=times))

    @property
    def cursor(self) -> Cursor:
        return Ledger(self.store, "p").cursor()


class Run:
    """A DAG run whose tasks are executed one after the other, with Airflow's own accessors of outlets."""

    def __init__(self, run_id: str, params: Mapping[str, Any] | None = None) -> None:
        self.run_id, self.params = run_id, dict(params or {})
        self.xcoms: dict[tuple[str, str], Any] = {}
        self.loads: list[Any] = []
        self.keys: list[str] | None = None
        self.events: dict[str, Any] = {}

    def execute(self, task: Any) -> Any:
        def pull(task_ids: str, key: str = "return_value") -> Any:
            if task_ids == "load":
                return self.loads[0] if len(self.loads) == 1 else self.loads
            return self.xcoms.get((task_ids, key))

        def push(key: str, value: Any) -> None:
            self.xcoms[task.task_id, key] = value

        outlets = OutletEventAccessors()
        run = SimpleNamespace(run_type="manual", clear_number=0)
        ti = SimpleNamespace(xcom_push=push, xcom_pull=pull, try_number=1, max_tries=0, map_index=0, start_date=None)
        context = {"ti": ti, "run_id": self.run_id, "params": self.params, "dag_run": run, "outlet_events": outlets}
        returned = task.execute(context)
        push("return_value", returned)
        if task.task_id == "load":
            self.loads.append(returned)
        # as Airflow does with the outlets of a task that has succeeded
        self.events = {o.name: outlets[o].extra for o in task.outlets if isinstance(o, Asset)}
        self.keys = sorted(outlets[Asset(name=HOURS)].partition_keys) if HOURS in self.events else None
        return returned

    @property
    def hours(self) -> list[str]:
        """The announced hours of 2026-01-01, short."""
        return [key.removeprefix("2026-01-01T").removesuffix(":00:00") for key in self.keys or ()]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Ports in memory."""
    made = World()
    runner = FakeRunner(made.sink)
    real = runner.run
    monkeypatch.setattr(runner, "run", lambda job: made.seen(real(job), job))
    use_ports(monkeypatch, store=made.store, sink=made.sink, brokers=made.brokers, runner=runner)
    for module in (plan, replay, finish, announcing):
        monkeypatch.setattr(module, "now_ms", lambda: made.now_ms)
    monkeypatch.setattr(announcing, "brokers_of", lambda *_: made.brokers)
    return made


def batch(run_id: str, pipeline: Pipeline = PIPELINE, **params: Any) -> Run:
    """A run of the pipeline."""
    run = Run(run_id, params)
    run.execute(PlanOperator(task_id="plan", pipeline=pipeline))
    run.execute(LoadOperator(task_id="load", pipeline=pipeline, spark_jobs=Path()))
    run.execute(FinishOperator(task_id="commit", pipeline=pipeline))
    return run


def replayed(run_id: str, **params: Any) -> Run:
    """A run of the pipeline's replay."""
    run = Run(run_id, params)
    for chunks in run.execute(PlanReplayOperator(task_id="plan", pipeline=PIPELINE)):
        run.execute(LoadOperator(task_id="load", pipeline=PIPELINE, spark_jobs=Path(), chunks=chunks))
    run.execute(FinishOperator(task_id="verify", pipeline=PIPELINE, replays=True))
    return run


def test_each_hour_is_announced_with_the_batch_that_completes_it(world: World) -> None:
    """By the clock and `grace` where the log is read to its end; empty hours too."""
    world.at(0.5).write(NOON - HOUR_MS, NOON + 5)
    assert batch("r1").hours == ["11"]
    world.at(2.9).write(NOON + 6)
    assert batch("r2").hours == ["12", "13"]
    world.at(3.2).write(NOON + 3 * HOUR_MS)
    assert batch("r3").keys is None


def test_the_hours_of_a_day_are_what_airflow_rolls_up(world: World) -> None:
    """With the mapper of the docs, as the scheduler has it."""
    world.at(12.5).write(NOON - 12 * HOUR_MS)
    keys = batch("r1").keys or []
    docs = RollupMapper(upstream_mapper=StartOfDayMapper(), window=DayWindow())
    mapper: Any = decode_partition_mapper(encode_partition_mapper(docs))
    assert {*map(mapper.to_downstream, keys)} == {"2026-01-01"}
    assert mapper.to_upstream("2026-01-01") == {*keys}


def test_without_an_hour_nobody_is_told(world: World) -> None:
    """Airflow gives every asset among the outlets an event; the outlet is there for its UI, and is taken out."""
    world.at(0.1).write(NOON)
    run = batch("r1")
    assert {*run.events} == {TABLE}
    task = FinishOperator(task_id="commit", pipeline=PIPELINE)
    assert task.outlets == [Asset(name=TABLE), Asset(name=HOURS)]
    plain = replace(PIPELINE, announce=None)
    assert FinishOperator(task_id="commit", pipeline=plain).outlets == [Asset(name=TABLE)]


def test_a_pipeline_that_announces_nothing_does_as_before(world: World) -> None:
    """No job looks at timestamps, no broker is asked, and nothing is saved."""
    world.at(3).write(NOON)
    run = batch("r1", replace(PIPELINE, announce=None))
    assert {*run.events} == {TABLE}
    assert world.jobs[0].reading.hours is None
    assert world.cursor.announced is None


def test_a_commit_that_is_tried_again_announces_the_same(world: World) -> None:
    """The events of a try that did not succeed are lost with it."""
    world.at(3).write(NOON)
    run = batch("r1")
    assert run.hours == ["12", "13"]
    world.at(9)
    run.execute(FinishOperator(task_id="commit", pipeline=PIPELINE))
    assert run.hours == ["12", "13"]
    assert run.events[HOURS] == run.events[TABLE]
    assert run.events[HOURS]["seq"] == 1


def test_late_records_announce_their_hour_again(world: World) -> None:
    """With the hours that are complete; a load looks at hours that were announced alone."""
    world.at(4.5).write(NOON)
    assert batch("r1").hours == ["12", "13", "14", "15"]
    world.at(5.5).write(NOON + HOUR_MS, NOON + 5 * HOUR_MS)
    assert batch("r2").hours == ["13", "16"]
    assert [job.reading.hours and job.reading.hours[1] for job in world.jobs] == [0, NOON + 4 * HOUR_MS]


def test_what_waits_in_the_log_is_not_complete(world: World) -> None:
    """A batch that left records behind announces until the next of them."""
    world.at(9).write(NOON, NOON + HOUR_MS, NOON + 2 * HOUR_MS, NOON + 3 * HOUR_MS)
    assert batch("r1", max_records=2).hours == ["12", "13"]
    assert batch("r2", max_records=1).hours == ["14"]


def test_brokers_that_are_away_delay_hours_and_no_commit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next commit announces them."""
    world.at(9).write(NOON, NOON + HOUR_MS)
    away = FakeBrokers(latest={}, away=True)
    with monkeypatch.context() as patch:
        patch.setattr(announcing, "brokers_of", lambda *_: away)
        assert batch("r1", max_records=1).keys is None
    assert world.cursor.seq == 1
    assert batch("r2").hours == ["12", "13", "14", "15", "16", "17", "18", "19"]


def test_a_load_that_lost_its_account_counts_all_hours_between_its_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of late records too many are announced then, and none too few. Without the brokers none, which the log says."""
    world.at(6.5).write(NOON)
    batch("r1")
    world.lost = True
    world.write(NOON + HOUR_MS, NOON + 3 * HOUR_MS)
    assert batch("r2").hours == ["13", "14", "15"]
    world.write(NOON + HOUR_MS)
    monkeypatch.setattr(announcing, "brokers_of", lambda *_: FakeBrokers(latest={}, away=True))
    impatient = replace(PIPELINE, wait_s=0)
    assert batch("r3", impatient).keys is None


def test_a_task_announces_48_hours_and_names_the_others(world: World) -> None:
    """In the run's note; the newest go."""
    world.at(0.5).write(NOON - 4 * DAY_MS)
    run = batch("r1")
    assert (run.keys or [])[:: MOST_KEYS - 1] == ["2025-12-30T12:00:00", "2026-01-01T11:00:00"]
    note = run.xcoms["commit", notes.XCOM_KEY]
    assert "48 in all. Not announced: 2025-12-28T12:00:00Z until 2025-12-30T12:00:00Z" in note


def test_a_replay_announces_the_hours_that_it_has_changed(world: World) -> None:
    """Those that the schedule has announced; of a trial none."""
    world.at(3.5).write(NOON, NOON + 2 * HOUR_MS, NOON + 3 * HOUR_MS)
    assert batch("r1").hours == ["12", "13", "14"]
    run = replayed("r2", batches="1")
    assert run.hours == ["12", "14"]
    assert run.events[HOURS]["replay"]
    assert run.events[HOURS]["run_id"] == "r2"
    run.execute(FinishOperator(task_id="verify", pipeline=PIPELINE, replays=True))
    assert run.hours == ["12", "14"]
    assert replayed("r3", batches="1", table=f"{TABLE}_trial").events == {}


def test_a_replay_in_chunks_unites_their_hours(world: World) -> None:
    """One whose account was lost counts as all hours between its ends."""
    world.at(6.5).write(*(NOON + hour * HOUR_MS for hour in (0, 1, 3, 5)))
    batch("r1")
    run = Run("r2", {"batches": "1", "chunk_size": 2})
    for chunks in run.execute(PlanReplayOperator(task_id="plan", pipeline=PIPELINE)):
        world.lost = chunks == [1]
        run.execute(LoadOperator(task_id="load", pipeline=PIPELINE, spark_jobs=Path(), chunks=chunks))
    run.execute(FinishOperator(task_id="verify", pipeline=PIPELINE, replays=True))
    assert run.hours == ["12", "13", "15", "16", "17"]


def test_a_replay_announces_what_the_one_that_it_goes_on_with_has_changed(world: World) -> None:
    """Which ended before it could: all hours between the ends of what it landed."""
    world.at(6.5).write(*(NOON + hour * HOUR_MS for hour in (0, 1, 3, 5)))
    batch("r1")
    asked = {"batches": "1", "chunk_size": 2}
    first = Run("r2", asked)
    chunks, _ = first.execute(PlanReplayOperator(task_id="plan", pipeline=PIPELINE))
    first.execute(LoadOperator(task_id="load", pipeline=PIPELINE, spark_jobs=Path(), chunks=chunks))
    assert replayed("r3", **asked).hours == ["12", "13", "15", "17"]


def test_a_replay_of_what_was_never_announced_announces_nothing(world: World) -> None:
    """The pipeline's file asks for hours since a moment ago: they begin with its next batch."""
    world.at(3.5).write(NOON)
    batch("r1", replace(PIPELINE, announce=None))
    assert replayed("r2", batches="1").keys is None


def test_an_older_batch_that_is_loaded_again_announces_what_it_changed(world: World) -> None:
    """Its hours were announced before; nothing is complete by it."""
    world.at(2.5).write(NOON)
    first = batch("r1")
    world.at(4.5).write(NOON + 3 * HOUR_MS)
    batch("r2")
    first.loads.clear()
    first.execute(LoadOperator(task_id="load", pipeline=PIPELINE, spark_jobs=Path()))
    first.execute(FinishOperator(task_id="commit", pipeline=PIPELINE))
    assert first.hours == ["12"]
    assert world.cursor.announced == (NOON + 2 * HOUR_MS, NOON + 4 * HOUR_MS)

"""Laws of asset events and of the hours that commits and replays announce: with their tasks, on ports in memory."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from airflow.sdk import Asset, DayWindow, RollupMapper, StartOfDayMapper
from airflow.serialization.decoders import decode_partition_mapper
from airflow.serialization.encoders import encode_partition_mapper

from tests.dags.ports import Run, batch_of, finish_of, replay_by, use_ports
from tidegate.airflow import notes
from tidegate.airflow.operators import events, finish, plan
from tidegate.airflow.operators.plan import PlanReplayOperator
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
PIPELINE = Pipeline("p", Source(("t",)), "m:f", sink=Sink(TABLE), limits=Limits(None), announce=Announce())
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


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Ports in memory."""
    made = World()
    runner = FakeRunner(made.sink)
    real = runner.run
    monkeypatch.setattr(runner, "run", lambda job: made.seen(real(job), job))
    use_ports(monkeypatch, store=made.store, sink=made.sink, brokers=made.brokers, runner=runner)
    for module in (plan, finish, events):
        monkeypatch.setattr(module, "now_ms", lambda: made.now_ms)
    monkeypatch.setattr(events, "brokers_of", lambda *_: made.brokers)
    return made


def batch(run_id: str, pipeline: Pipeline = PIPELINE, **params: Any) -> Run:
    return batch_of(Run(run_id, params), pipeline)


def replayed(run_id: str, **params: Any) -> Run:
    return replay_by(Run(run_id, params), PIPELINE)


def keys_of(run: Run) -> list[str]:
    """The announced hours."""
    return sorted(run.outlets[Asset(name=HOURS)].partition_keys) if HOURS in run.events else []


def hours_of(run: Run) -> list[str]:
    """Those of 2026-01-01, short."""
    return [key.removeprefix("2026-01-01T").removesuffix(":00:00") for key in keys_of(run)]


def test_each_hour_is_announced_with_the_batch_that_completes_it(world: World) -> None:
    """By the clock and `grace` where the log is read to its end; empty hours too."""
    world.at(0.5).write(NOON - HOUR_MS, NOON + 5)
    assert hours_of(batch("r1")) == ["11"]
    world.at(2.9).write(NOON + 6)
    assert hours_of(batch("r2")) == ["12", "13"]
    world.at(3.2).write(NOON + 3 * HOUR_MS)
    assert keys_of(batch("r3")) == []


def test_the_hours_of_a_day_are_what_airflow_rolls_up(world: World) -> None:
    """With the mapper of the docs, as the scheduler has it."""
    world.at(12.5).write(NOON - 12 * HOUR_MS)
    keys = keys_of(batch("r1"))
    docs = RollupMapper(upstream_mapper=StartOfDayMapper(), window=DayWindow())
    mapper: Any = decode_partition_mapper(encode_partition_mapper(docs))
    assert {*map(mapper.to_downstream, keys)} == {"2026-01-01"}
    assert mapper.to_upstream("2026-01-01") == {*keys}


def test_without_an_hour_nobody_is_told(world: World) -> None:
    """Airflow gives every asset among the outlets an event; the outlet is there for its UI, and is taken out."""
    world.at(0.1).write(NOON)
    assert {*batch("r1").events} == {TABLE}
    assert finish_of(PIPELINE).outlets == [Asset(name=TABLE), Asset(name=HOURS)]


def test_a_pipeline_that_announces_nothing_does_as_before(world: World) -> None:
    """No job looks at timestamps, no broker is asked, and nothing is saved; what was never announced no replay changes."""
    world.at(3.5).write(NOON)
    plain = replace(PIPELINE, announce=None)
    assert finish_of(plain).outlets == [Asset(name=TABLE)]
    assert {*batch("r1", plain).events} == {TABLE}
    assert world.jobs[0].reading.hours is None
    assert world.cursor.announced is None
    assert keys_of(replayed("r2", batches="1")) == []


def test_a_commit_that_is_tried_again_announces_the_same(world: World) -> None:
    """The events of a try that did not succeed are lost with it."""
    world.at(3).write(NOON)
    run = batch("r1")
    assert hours_of(run) == ["12", "13"]
    world.at(9)
    run.execute(finish_of(PIPELINE))
    assert hours_of(run) == ["12", "13"]
    assert run.events[HOURS] == run.events[TABLE]
    assert run.events[HOURS]["seq"] == 1


def test_late_records_announce_their_hour_again(world: World) -> None:
    """With the hours that are complete; a load looks at hours that were announced alone."""
    world.at(4.5).write(NOON)
    assert hours_of(batch("r1")) == ["12", "13", "14", "15"]
    world.at(5.5).write(NOON + HOUR_MS, NOON + 5 * HOUR_MS)
    assert hours_of(batch("r2")) == ["13", "16"]
    assert [job.reading.hours and job.reading.hours[1] for job in world.jobs] == [0, NOON + 4 * HOUR_MS]


def test_what_waits_in_the_log_is_not_complete(world: World) -> None:
    """A batch that left records behind announces until the next of them."""
    world.at(9).write(NOON, NOON + HOUR_MS, NOON + 2 * HOUR_MS, NOON + 3 * HOUR_MS)
    assert hours_of(batch("r1", max_records=2)) == ["12", "13"]
    assert hours_of(batch("r2", max_records=1)) == ["14"]


def test_brokers_that_are_away_delay_hours_and_no_commit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next commit announces them."""
    world.at(9).write(NOON, NOON + HOUR_MS)
    away = FakeBrokers(latest={}, away=True)
    with monkeypatch.context() as patch:
        patch.setattr(events, "brokers_of", lambda *_: away)
        assert keys_of(batch("r1", max_records=1)) == []
    assert world.cursor.seq == 1
    assert hours_of(batch("r2")) == ["12", "13", "14", "15", "16", "17", "18", "19"]


def test_a_load_that_lost_its_account_counts_all_hours_between_its_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of late records too many are announced then, and none too few. Without the brokers none, which the log says."""
    world.at(6.5).write(NOON)
    batch("r1")
    world.lost = True
    world.write(NOON + HOUR_MS, NOON + 3 * HOUR_MS)
    assert hours_of(batch("r2")) == ["13", "14", "15"]
    world.write(NOON + HOUR_MS)
    monkeypatch.setattr(events, "brokers_of", lambda *_: FakeBrokers(latest={}, away=True))
    impatient = replace(PIPELINE, wait_s=0)
    assert keys_of(batch("r3", impatient)) == []


def test_a_task_announces_48_hours_and_names_the_others(world: World) -> None:
    """In the run's note; the newest go."""
    world.at(0.5).write(NOON - 4 * DAY_MS)
    run = batch("r1")
    assert keys_of(run)[:: MOST_KEYS - 1] == ["2025-12-30T12:00:00", "2026-01-01T11:00:00"]
    note = json.loads(run.xcoms["commit", notes.XCOM_KEY])
    assert "48 in all. Not announced: 2025-12-28T12:00:00Z until 2025-12-30T12:00:00Z" in note


def test_a_replay_announces_the_hours_that_it_has_changed(world: World) -> None:
    """Those that the schedule has announced; of a trial none."""
    world.at(3.5).write(NOON, NOON + 2 * HOUR_MS, NOON + 3 * HOUR_MS)
    assert hours_of(batch("r1")) == ["12", "13", "14"]
    run = replayed("r2", batches="1")
    assert hours_of(run) == ["12", "14"]
    assert run.events[HOURS] == run.events[TABLE]
    assert run.events[HOURS]["run_id"] == "r2"
    run.execute(finish_of(PIPELINE, replays=True))
    assert hours_of(run) == ["12", "14"]
    assert replayed("r3", batches="1", table=f"{TABLE}_trial").events == {}


def test_a_replay_in_chunks_unites_their_hours(world: World) -> None:
    """One whose account was lost, and what the one that it goes on with has landed, count as all hours between their ends."""
    world.at(6.5).write(*(NOON + hour * HOUR_MS for hour in (0, 1, 3, 5)))
    batch("r1")
    asked = {"batches": "1", "chunk_size": 2}
    first = Run("r2", asked)
    chunks, _ = first.execute(PlanReplayOperator(task_id="plan", pipeline=PIPELINE))
    first.load(PIPELINE, chunks)
    assert hours_of(replayed("r3", **asked)) == ["12", "13", "15", "17"]
    run = Run("r4", asked)
    for chunks in run.execute(PlanReplayOperator(task_id="plan", pipeline=PIPELINE)):
        world.lost = chunks == [1]
        run.load(PIPELINE, chunks)
    run.execute(finish_of(PIPELINE, replays=True))
    assert hours_of(run) == ["12", "13", "15", "16", "17"]


def test_an_older_batch_that_is_loaded_again_announces_what_it_changed(world: World) -> None:
    """Its hours were announced before; nothing is complete by it."""
    world.at(2.5).write(NOON)
    first = batch("r1")
    world.at(4.5).write(NOON + 3 * HOUR_MS)
    batch("r2")
    first.load(PIPELINE)
    first.execute(finish_of(PIPELINE))
    assert hours_of(first) == ["12"]
    assert world.cursor.announced == (NOON + 2 * HOUR_MS, NOON + 4 * HOUR_MS)

"""Laws of what tasks hand on: XComs and asset events, rows of Airflow's database, do not grow with the partitions."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import AssetAlias
from airflow.sdk._shared.observability.metrics import stats as airflow_stats
from airflow.sdk.exceptions import AirflowException
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory
from jinja2 import Template

from tests.dags.ports import Run, batch_of, finish_of, load_of, replay_by, use_ports
from tidegate.airflow import notes
from tidegate.airflow.dags import replay_dag
from tidegate.airflow.declared import Declared
from tidegate.airflow.operators.load import LoadOperator
from tidegate.airflow.operators.plan import PlanOperator, PlanReplayOperator
from tidegate.airflow.operators.tasks import said_of
from tidegate.core.config.pipeline import Limits, Pipeline, Quarantine, Sink, Source
from tidegate.core.config.values import RejectedBy
from tidegate.core.model.errors import RequestError, SparkJobFailed, TopicRecreated
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.state.jobs import LoadJob, LoadResult
from tidegate.core.state.ledger import Ledger, run_key
from tidegate.testing.fakes import FakeBrokers, FakeReader, FakeRunner, MemoryStore
from tidegate.views.metrics import METRICS

FEW, THOUSANDS = 3, 5000
MOST_BYTES = 4096
TOPIC = "a_topic_with_a_long_name_as_they_are_in_companies"
TABLE = "lake.a.b"
PIPELINE = Pipeline("p", Source((TOPIC,)), "m:f", sink=Sink(TABLE), limits=Limits(None))


@pytest.fixture
def sink() -> FakeReader:
    return FakeReader()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def ends(partitions: int) -> dict[TopicPartition, int]:
    return {TopicPartition(TOPIC, n): 100 + n % 7 for n in range(partitions)}


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch, store: MemoryStore, sink: FakeReader) -> FakeBrokers:
    """Ports in memory."""
    brokers = FakeBrokers(latest=ends(FEW))
    use_ports(monkeypatch, store=store, sink=sink, brokers=brokers, runner=FakeRunner(sink))
    return brokers


def batch(run: Run, *, commit: bool = True, pipeline: Pipeline = PIPELINE) -> Run:
    return batch_of(run, pipeline, commit=commit)


def test_tasks_hand_on_little_however_many_partitions_there_are(store: MemoryStore, world: FakeBrokers) -> None:
    """The ranges are in the saved range, by its key; the commit judges them all the same. Of a replay, only chunks count."""
    world.latest = ends(THOUSANDS)
    run, again = batch(Run("r1")), replay_by(Run("r2", {"batches": "1"}), PIPELINE)
    dry = Run("r3", {"batches": "1", "dry_run": True})
    dry.skips(PlanReplayOperator(task_id="plan", pipeline=PIPELINE))
    for each in (run, again, dry):
        assert max(map(len, [*each.xcoms.values(), *map(json.dumps, each.events.values())])) < MOST_BYTES, each.xcoms
    cursor, event = Ledger(store, "p").cursor(), run.events[TABLE]
    assert (cursor.seq, cursor.at.offsets) == (1, world.latest)
    assert event["offsets"] == event["rows"] == sum(world.latest.values())
    assert (event["pipeline"], event["seq"], event["snapshot"], event["transform"]) == ("p", 1, 1, "m:f@1")
    assert event["key"] in store.values
    told = json.loads(dry.xcoms["plan", "dry_run"])
    assert (told["partitions"], told["replaces_count"], len(told["replaces"])) == (THOUSANDS, 1, 1)


def test_a_load_tells_its_times_once_its_job_has_ended(sink: FakeReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it waited for, and how long it took, is known only then."""
    monkeypatch.setattr(LoadOperator, "handed_on", lambda *_: {"disturbed": bool(sink.found)})
    assert json.loads(batch(Run("r1"), commit=False).xcoms["load", "return_value"])["disturbed"]


def test_a_load_reads_the_topics_that_were_planned_and_no_others_of_their_names(sink: FakeReader, world: FakeBrokers) -> None:
    """Made again between plan and load, a topic is not read; a load that landed before that is found, with no broker too."""
    run = Run("r1")
    run.execute(PlanOperator(task_id="plan", pipeline=PIPELINE))
    world.ids[TOPIC] = "another"
    load_it = load_of(replace(PIPELINE, wait_s=0))
    with pytest.raises(TopicRecreated, match="since this was planned: its id is another"):
        run.execute(load_it)
    assert sink.found == []
    del world.ids[TOPIC]
    batch(run, commit=False)
    world.ids[TOPIC] = "another"
    assert run.execute(load_it)["landed_before"]
    world.away = True
    assert run.execute(load_it)["landed_before"]
    run.execute(finish_of(PIPELINE))


def test_a_load_knows_the_kind_of_its_table_and_the_names_that_its_pipeline_had(
    sink: FakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names as its plan found them in the table: of a batch, and of a chunk of a replay. Pages know the kind, too."""
    sink.renamed = {"old": "p"}
    seen: list[tuple[str, tuple[str, ...]]] = []
    real = FakeRunner.run

    def run(self: FakeRunner, job: LoadJob) -> LoadResult:
        seen.append((job.sink, job.formerly))
        return real(self, job)

    monkeypatch.setattr(FakeRunner, "run", run)
    other = replace(PIPELINE, sink=Sink(TABLE, kind="memory"))
    assert Declared.of(other).sink == "memory"
    batch(Run("r1"), pipeline=other)
    replay_by(Run("again", {"batches": "1"}), PIPELINE)
    assert seen == [("memory", ("old",)), ("iceberg", ("old",))]


@pytest.mark.parametrize("edited", [json.dumps, lambda plan: plan, lambda _: {"key": 7}, lambda _: 7], ids=str)
def test_a_run_loads_and_commits_what_it_planned_itself(
    store: MemoryStore, sink: FakeReader, edited: Callable[[dict[str, Any]], Any]
) -> None:
    """Airflow lets people edit an XCom: to what another run handed on, to text, or to anything else."""
    first = batch(Run("r1"))
    run = Run("r2")
    run.xcoms["plan", "return_value"] = json.dumps(edited(json.loads(first.xcoms["plan", "return_value"])))
    for task in (load_of(PIPELINE), finish_of(PIPELINE)):
        with pytest.raises(RequestError, match="XCom of this run's plan task"):
            run.execute(task)
    assert (len(sink.found), Ledger(store, "p").cursor().seq) == (1, 1)


@pytest.mark.parametrize("lost", ["redo", "formerly", "create"])
def test_a_load_whose_plan_has_lost_a_key_says_what_to_do(sink: FakeReader, lost: str) -> None:
    """By hand, or since another version has planned."""
    run = Run("r1")
    run.execute(PlanOperator(task_id="plan", pipeline=PIPELINE))
    plan = json.loads(run.xcoms["plan", "return_value"])
    run.xcoms["plan", "return_value"] = json.dumps({key: value for key, value in plan.items() if key != lost})
    with pytest.raises(RequestError, match=r"XCom of this run's plan task.*Clear the run's plan task"):
        run.load(PIPELINE)
    assert sink.found == []


@pytest.mark.parametrize("edited", [0, 7, "01", [], ["0"], [True], [[0]], [-1], {"0": 0}, [0, 0.0]], ids=repr)
def test_a_load_of_a_replay_takes_the_numbers_of_chunks_and_nothing_else(edited: Any) -> None:
    """An XCom is edited, or of a version that handed on something else."""
    run = Run("r1")
    run.xcoms["plan", "replay"] = json.dumps({"key": f"tidegate.p.replay.0000000001.00000000.{run_key('r1')}"})
    with pytest.raises(RequestError, match=r"XCom of this run's plan task.*Clear the run's plan task"):
        run.load(PIPELINE, edited)


@pytest.mark.parametrize(("chunks", "label"), [([6, 7], "chunk 6, 7"), ([6], "chunk 6"), (6, "chunk 6"), (None, "chunk None")])
def test_a_task_of_a_replay_is_labelled_by_its_chunks(chunks: Any, label: str) -> None:
    """Where a label cannot be made, Airflow shows that error in the place of the task's own."""
    template = replay_dag(PIPELINE, spark_jobs=Path()).get_task("load").map_index_template
    assert Template(str(template)).render(task=load_of(PIPELINE, chunks)) == label


def test_a_replay_loads_and_verifies_what_it_planned_itself(sink: FakeReader) -> None:
    """Not what another one has planned."""
    batch(Run("r1"))
    first, run = replay_by(Run("r2", {"batches": "1"}), PIPELINE), Run("r3", {"batches": "1"})
    run.xcoms["plan", "replay"] = first.xcoms["plan", "replay"]
    for task in (load_of(PIPELINE, [0]), finish_of(PIPELINE, replays=True)):
        with pytest.raises(RequestError, match="XCom of this run's plan task"):
            run.execute(task)
    assert len(sink.found) == 2


def of_two_chunks(**params: str) -> Run:
    """A run that has planned to replay the first batch in two chunks."""
    run = Run("r2", {"batches": "1", "chunk_size": 60 * FEW, **params})
    run.execute(PlanReplayOperator(task_id="plan", pipeline=PIPELINE))
    return run


def test_a_cleared_task_loads_all_of_its_chunks_again_though_a_try_fails_between_them(
    sink: FakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then the table holds their rows as of before, with their receipts."""
    batch(Run("r1"))
    run = of_two_chunks()
    run.load(PIPELINE, [0, 1])
    before, real = len(sink.found), FakeRunner.run

    def second_fails(self: FakeRunner, job: LoadJob) -> LoadResult:
        if job.load.seq == 1:
            raise SparkJobFailed("out of memory")
        return real(self, job)

    run.cleared = 1
    with monkeypatch.context() as patched:
        patched.setattr(FakeRunner, "run", second_fails)
        with pytest.raises(SparkJobFailed):
            run.load(PIPELINE, [0, 1])
    run.load(PIPELINE, [0, 1])
    assert {receipt.load.seq for receipt in sink.found[before:]} == {0, 1}


def test_a_task_that_is_stopped_begins_no_other_chunk(sink: FakeReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow lets it run on for some seconds, in which a job would begin that goes on in Spark."""
    batch(Run("r1"))
    run, real, task = of_two_chunks(), FakeRunner.run, load_of(PIPELINE, [0, 1])
    before = len(sink.found)

    def stopped(self: FakeRunner, job: LoadJob) -> LoadResult:
        result = real(self, job)
        task.on_kill()
        return result

    monkeypatch.setattr(FakeRunner, "run", stopped)
    with pytest.raises(AirflowException, match="stopped"):
        run.execute(task)
    assert [receipt.load.seq for receipt in sink.found[before:]] == [0]


def test_a_backfill_takes_no_parameters(sink: FakeReader) -> None:
    """It would ignore them: a dry run would load."""
    batch(Run("r1"))
    run = Run("backfill__1", {"dry_run": True}, "backfill", conf={"dry_run": True})
    with pytest.raises(RequestError, match="a backfill takes no parameters: dry_run"):
        run.execute(PlanOperator(task_id="plan", pipeline=PIPELINE))
    assert len(sink.found) == 1


def test_metrics_arrive_where_airflow_sends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """In StatsD's own format: a batch, once though its commit is cleared and done again, and a run that finds nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as statsd:
        statsd.bind(("127.0.0.1", 0))
        statsd.settimeout(10)
        for key, value in {"on": "True", "host": "127.0.0.1", "port": str(statsd.getsockname()[1])}.items():
            monkeypatch.setenv(f"AIRFLOW__METRICS__STATSD_{key.upper()}", value)
        for name in ("_factory", "_backend"):  # which the next test gets back
            monkeypatch.setattr(airflow_stats, name, None)
        stats.initialize(factory=get_stats_factory(), export_legacy_names=False)
        batch(Run("r1")).execute(finish_of(PIPELINE))
        Run("r2").skips(PlanOperator(task_id="plan", pipeline=PIPELINE))
        lines: list[str] = []
        while not lines or "skipped" not in lines[-1]:
            lines += [line.removeprefix("airflow.tidegate.") for line in statsd.recv(65_536).decode().splitlines()]
        airflow_stats._get_backend().statsd.close()  # type: ignore[union-attr]
    records = sum(ends(FEW).values())
    assert {f"lag.records.p:{records}|g", f"batch.rows.p:{records}|g", "batch.seq.p:1|g"} <= {*lines}
    assert lines.count("batch.committed.p:1|c") == 1
    assert lines[-3:] == ["lag.records.p:0|g", "lag.seconds.p:0|g", "batch.skipped.p:1|c"]
    assert {line.rpartition(".p:")[0] for line in lines} <= METRICS.keys()


def test_a_chunk_is_not_loaded_by_the_number_of_a_batch_of_a_schedule_that_was_rebuilt_since(store: MemoryStore) -> None:
    """Its load alone is cleared, and the number may be that of other records."""
    pipeline = replace(PIPELINE, identity="batch")
    batch(Run("r1"), pipeline=pipeline)
    run = Run("r2", {"batches": "1"})
    [chunks] = run.execute(PlanReplayOperator(task_id="plan", pipeline=pipeline))
    ledger = Ledger(store, "p")
    ledger.save_cursor(replace(ledger.cursor(), generation=1))
    with pytest.raises(RequestError, match="planned before the schedule of p was rebuilt"):
        run.execute(LoadOperator(task_id="load", pipeline=pipeline, spark_jobs=Path(), chunks=chunks))


def test_a_replay_emits_an_event_of_the_pipelines_table_and_a_trial_none() -> None:
    """Whoever is scheduled on the asset sees that rows changed; nobody is scheduled on a trial."""
    batch(Run("r1"))
    event = replay_by(Run("r2", {"batches": "1"}), PIPELINE).events[TABLE]
    assert (event["pipeline"], event["run_id"], event["chunks"]) == ("p", "r2", 1)
    assert event["rows"] == event["offsets"] == sum(ends(FEW).values())
    assert replay_by(Run("r3", {"batches": "1", "table": f"{TABLE}_trial"}), PIPELINE).events == {}
    assert finish_of(PIPELINE, replays=True).outlets == [AssetAlias(name="p__replay")]


@pytest.mark.parametrize("errors", [None, 0, 3])
def test_a_load_leaves_for_the_note_how_many_rows_are_of_broken_records(
    monkeypatch: pytest.MonkeyPatch, errors: int | None
) -> None:
    """Nothing where there are none; its answer has the number, whatever it is. The last task of a replay leaves their sum."""
    real = FakeRunner.run

    def run(self: FakeRunner, job: LoadJob) -> LoadResult:
        result = real(self, job)
        return replace(result, observed=replace(result.observed, errors=errors), spark_age_s=7.5)

    monkeypatch.setattr(FakeRunner, "run", run)
    xcoms = batch(Run("r1")).xcoms
    answer = json.loads(xcoms["load", "return_value"])
    assert (answer["observed"]["errors"], answer["spark_age_s"]) == (errors, 7.5)
    assert json.loads(xcoms.get(("load", notes.XCOM_KEY), "null")) == (
        "rows of broken records: 3, each with the reason in its column _error" if errors else None
    )
    if errors:
        again = of_two_chunks(table=f"{TABLE}_trial")
        assert len(again.load(PIPELINE, [0, 1])) == 2
        again.execute(finish_of(PIPELINE, replays=True))
        assert json.loads(again.xcoms["verify", notes.XCOM_KEY]).startswith("rows of broken records: 6,")


@pytest.mark.parametrize(
    ("on", "told"),
    [
        (("decode",), "records in quarantine (`tidegate quarantine p` shows them): 3"),
        (
            ("contract", "transform"),
            "rows of broken records (column _error), and records in quarantine (`tidegate quarantine p` shows them): 3",
        ),
    ],
)
def test_a_note_says_where_broken_records_are(on: RejectedBy, told: str) -> None:
    """By what the pipeline's quarantine takes."""
    assert said_of((), 3, replace(PIPELINE, quarantine=Quarantine(on=on))) == [told]

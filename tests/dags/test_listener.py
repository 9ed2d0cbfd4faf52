"""Laws of the listener of DAG runs, on Airflow's own tables in SQLite. With a whole Airflow: `tests/e2e`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.dagrun import DagRun
from airflow.models.pool import Pool
from airflow.models.taskinstance import TaskInstance
from airflow.models.variable import Variable
from airflow.models.xcom import XComModel
from airflow.sdk import DAG, BaseOperator
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.state import DagRunState
from sqlalchemy import create_engine, select
from sqlalchemy.orm import Session

from tests.records import cursor_of
from tidegate.airflow import failures, notes, pools
from tidegate.airflow.dags.factory import maintain_dag, pipeline_dag, replay_dag
from tidegate.airflow.declared import Declared
from tidegate.core.config.pipeline import POOL_DESCRIPTION, Maintenance, Pipeline, Sink, Source
from tidegate.core.config.schedules import DAY_S
from tidegate.core.model.errors import BrokerUnavailable, StateUnavailable, TransformError
from tidegate.core.planning import run_notes
from tidegate.core.state.codec import encode

PIPELINE = Pipeline("orders", Source(("orders",)), "m:f", Sink("lake.shop.orders", slots=3))
PLAN = {"seq": 7, "redo": False, "key": "tidegate.orders.range.0000000007.r"}


@pytest.fixture
def session() -> Iterator[Session]:
    import_all_models()
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as made:
        yield made
    engine.dispose()


class Run:
    """A DAG run with the states of its tasks and what they left."""

    def __init__(self, session: Session, dag: DAG, state: str = "failed") -> None:
        self.session = session
        now = datetime(2026, 1, 1, tzinfo=UTC)
        self.row = DagRun(
            dag_id=dag.dag_id, run_id="r", run_type="manual", state=DagRunState(state), run_after=now, start_date=now
        )
        self.row.dag = DagSerialization.from_dict(DagSerialization.to_dict(dag))
        session.add(self.row)
        session.flush()

    def task(self, task_id: str, state: str, map_index: int = -1, **left: Any) -> None:
        """A task in a state, with its XComs."""
        values: dict[str, Any] = {"dag_id": self.row.dag_id, "run_id": "r", "task_id": task_id, "map_index": map_index}
        table = TaskInstance.__table__
        more = {"id": f"{task_id}{map_index}", "state": state, "pool": "p", "pool_slots": 1, "try_number": 1, "max_tries": 1}
        more |= {"custom_operator_name": "", "executor_config": {}}
        more["rendered_map_index"] = None if map_index < 0 else f"chunk {2 * map_index}, {2 * map_index + 1}"
        known = {c.name for c in table.columns}
        self.session.execute(table.insert().values(**{k: v for k, v in {**values, **more}.items() if k in known and k != "id"}))
        for key, value in left.items():
            XComModel.set(key=key, value=value, session=self.session, **values)

    def end(self, msg: str = "") -> str | None:
        """The note, once the listener was called."""
        (notes.on_dag_run_success if self.row.state == "success" else notes.on_dag_run_failed)(self.row, msg)
        note: str | None = self.row.note
        return note


def schedule(session: Session, state: str = "failed") -> Run:
    return Run(session, pipeline_dag(PIPELINE, spark_jobs=Path()), state)


def left(error: BaseException) -> dict[str, Any]:
    return {failures.XCOM_KEY: failures.described(error)}


def test_a_run_that_starts_makes_its_pool_and_leaves_one_that_is_there(session: Session) -> None:
    """With the slots of the file, once; operators may change them."""
    run = schedule(session, "running")
    notes.on_dag_run_running(run.row, "started")
    pool = session.scalars(select(Pool)).one()
    assert (pool.pool, pool.slots, pool.description) == ("tidegate_lake_shop_orders", 3, POOL_DESCRIPTION)
    pool.slots = 1
    session.flush()
    notes.on_dag_run_running(run.row, "started")
    session.refresh(pool)
    assert pool.slots == 1


@pytest.mark.parametrize("dialect", ["mysql", "postgresql", "sqlite"])
def test_a_pool_that_is_there_is_no_error_on_any_database(dialect: str) -> None:
    """Two schedulers may start two runs at the same time."""
    text = str(pools._insert(dialect, Declared(pipeline="orders", pool="p", slots=1)))
    assert ("IGNORE" in text) if dialect == "mysql" else ("ON CONFLICT DO NOTHING" in text)


def test_the_runs_of_other_dags_are_left_alone(session: Session) -> None:
    """Also where a task is called plan and leaves the same XComs."""
    with DAG("other", schedule=None) as dag:
        BaseOperator(task_id="plan", pool="theirs")
    run = Run(session, dag, "success")
    run.task("plan", "success", note="secret", tidegate_note="secret")
    notes.on_dag_run_running(run.row, "started")
    assert run.end() is None
    assert session.scalars(select(Pool)).all() == []


def test_a_run_that_succeeded_has_its_plan_as_its_note(session: Session) -> None:
    """And a replay its own."""
    run = schedule(session, "success")
    run.task("plan", "success", tidegate_note="batch 7 of orders", note="not ours")
    assert run.end() == "batch 7 of orders"


def test_broken_records_are_told_after_the_plan_and_before_a_failure(session: Session) -> None:
    """Whole, however long the plan is; the load leaves nothing where there are none."""
    run = schedule(session)
    run.task("plan", "success", tidegate_note="x" * run_notes.LONGEST, return_value=PLAN)
    run.task("load", "success", tidegate_note="rows of broken records: 3")
    run.task("commit", "failed")
    lines = (run.end() or "").splitlines()
    assert lines[1] == "rows of broken records: 3"
    assert lines[2].startswith("Failed in commit: ")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The metrics that the scheduler has sent."""
    found: dict[str, float] = {}
    monkeypatch.setattr("airflow.observability.stats.gauge", lambda name, value, **_: found.update({name: value}))
    monkeypatch.setattr("airflow.observability.stats.incr", lambda name, *, count, **_: found.update({name: count}))
    monkeypatch.setattr(notes, "time", SimpleNamespace(time=lambda: 12.5))
    return found


def test_the_end_of_a_run_says_whether_the_pipeline_goes_on(session: Session, sent: dict[str, float]) -> None:
    """A failed one says nothing of when it last went on."""
    run = schedule(session)
    run.end()
    assert sent == {"tidegate.pipeline.stopped.orders": 1}
    run.row.state = "success"
    run.end()
    assert sent == {"tidegate.pipeline.stopped.orders": 0, "tidegate.pipeline.succeeded.orders": 12.5}


@pytest.mark.parametrize(("state", "counted"), [("failed", {"tidegate.replay.failed.orders": 1}), ("success", {})])
def test_replays_that_fail_are_counted(session: Session, sent: dict[str, float], state: str, counted: dict[str, float]) -> None:
    """They do not stop the pipeline. Those that succeed may be dry runs: their verdict counts the others."""
    Run(session, replay_dag(PIPELINE, spark_jobs=Path()), state).end()
    assert sent == counted


def test_a_run_that_the_schedule_does_not_wait_for_says_nothing_of_it(session: Session, sent: dict[str, float]) -> None:
    """A backfill's, one of maintenance, and one of a DAG that is not ours."""
    backfill = schedule(session)
    backfill.row.run_type = "backfill"
    backfill.end()
    Run(session, maintain_dag(PIPELINE, Maintenance(keep_orphans=DAY_S), spark_jobs=Path())).end()
    with DAG("other", schedule=None) as dag:
        BaseOperator(task_id="plan", pool="theirs")
    Run(session, dag).end()
    assert sent == {}


def test_metrics_that_cannot_be_sent_fail_no_run(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither does a DAG that cannot be read."""
    run = schedule(session)

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("away")

    monkeypatch.setattr("airflow.observability.stats.gauge", fail)
    assert run.end() is not None
    monkeypatch.setattr(pools, "declared_by", fail)
    run.end()


def test_maintenance_has_what_each_step_did_as_its_note(session: Session) -> None:
    """In the order of the steps; one that failed is named, and no cursor."""
    dag = maintain_dag(PIPELINE, Maintenance(keep_orphans=DAY_S), spark_jobs=Path())
    run = Run(session, dag)
    run.task("plan", "success", tidegate_note="10 data files")
    run.task("remove_orphans", "success", tidegate_note="remove_orphans: 0 files removed")
    run.task("expire", "failed", **left(TransformError("taken", fix="Rename it")))
    run.task("compact", "success", tidegate_note="compact: done")
    assert run.end() == (
        "10 data files\ncompact: done\nremove_orphans: 0 files removed\n"
        "Failed in expire: TransformError: taken. Rename it. The table holds the same rows. The next run does what is left."
    )


def test_the_first_task_that_failed_is_told_with_its_fix(session: Session) -> None:
    """After the plan's lines; what failed in its wake is not."""
    run = schedule(session)
    run.task("plan", "success", tidegate_note="batch 7 of orders", return_value=PLAN)
    run.task("load", "failed", **left(TransformError("no function f", fix="Define it")))
    run.task("commit", "upstream_failed")
    assert run.end() == (
        "batch 7 of orders\nFailed in load: TransformError: no function f. Define it. "
        "The cursor did not move. The next run retries batch 7 (same offsets)."
    )


@pytest.mark.parametrize(
    ("seq", "words"), [(6, "retries batch 7"), (7, "The cursor is past batch 7 already"), (None, "retries")]
)
def test_a_run_whose_batch_is_committed_is_not_said_to_be_tried_again(session: Session, seq: int | None, words: str) -> None:
    """Its load was cleared, and fails now. A cursor that cannot be read tells nothing."""
    value = "not ours" if seq is None else encode("cursor", cursor_of("orders", seq).to_json())
    session.add(Variable(key="tidegate.orders.cursor", val=value))
    session.flush()
    run = schedule(session)
    run.task("plan", "success", return_value=PLAN)
    run.task("load", "failed", **left(TransformError("no function f", fix="Define it")))
    assert words in (run.end() or "")


def test_an_error_of_others_is_told_by_its_kind_alone(session: Session) -> None:
    """Its text may hold a secret."""
    run = schedule(session)
    run.task("plan", "failed", **left(RuntimeError("password=hunter2")))
    assert run.end() == (
        "Failed in plan: RuntimeError. See the task's log. "
        "The cursor did not move. The next run adopts the saved range, or plans again."
    )


def test_a_task_that_was_killed_is_told_from_its_state(session: Session) -> None:
    """Its callback was not called."""
    run = schedule(session)
    run.task("plan", "success", return_value=PLAN)
    run.task("load", "failed")
    told = run.end()
    assert told is not None
    assert told.startswith("Failed in load: its process ended without an error of its own (killed, or lost by Airflow).")


def test_a_run_that_timed_out_says_so_and_what_the_last_try_met(session: Session) -> None:
    """Airflow skips the tasks of such a run."""
    run = schedule(session)
    run.task("plan", "success", return_value=PLAN)
    run.task("load", "skipped", **left(BrokerUnavailable("no broker answers", fix="Start one")))
    run.task("commit", "skipped")
    told = run.end("timed_out")
    assert told is not None
    assert told.startswith("Failed in load: the run took longer than its timeout_s. BrokerUnavailable: no broker answers. ")


def test_a_failed_load_is_named_by_its_chunks_and_the_verdict_after_it_is_not(session: Session) -> None:
    """The verdict fails because the chunk did."""
    run = Run(session, replay_dag(PIPELINE, spark_jobs=Path()))
    run.task("plan", "success", replay={"replay": "abc"})
    run.task("load", "success", 0)
    run.task("load", "failed", 1, **left(StateUnavailable("away", fix="Wait")))
    run.task("verify", "failed", **left(StateUnavailable("chunk 1 is missing", fix="Load it")))
    told = run.end()
    assert told is not None
    assert told.startswith("Failed in load[chunk 2, 3]: StateUnavailable: away. Wait. Clear the failed tasks to go on")


@pytest.mark.parametrize(
    ("plan", "verify", "verdict", "verified"),
    [
        ("success", "success", {"chunks": 2}, True),
        ("success", "skipped", None, False),
        ("success", "success", None, False),
        ("skipped", "skipped", None, True),
    ],
    ids=["as it should", "marked as failed, and one load cleared", "marked as a success", "a dry run"],
)
def test_a_replay_that_airflow_calls_a_success_without_a_verdict_is_told(
    session: Session, monkeypatch: pytest.MonkeyPatch, plan: str, verify: str, verdict: Any, *, verified: bool
) -> None:
    """In a run that was marked, Airflow skips what has not run, and looks at the last task alone once others are cleared."""
    sent: list[str] = []
    monkeypatch.setattr("tidegate.airflow.metrics.replay_failed", sent.append)
    run = Run(session, replay_dag(PIPELINE, spark_jobs=Path()), "success")
    run.task("plan", plan, tidegate_note="replay abc")
    run.task("load", "success", 0)
    run.task("load", "skipped", 1)
    run.task("verify", verify, return_value=verdict)
    assert run.end() == ("replay abc" if verified else f"replay abc\n{run_notes.UNVERIFIED}")
    assert sent == ([] if verified else ["orders"])


def test_a_note_of_the_listener_is_replaced_and_one_of_a_person_stays(session: Session) -> None:
    """A run that was cleared ends again."""
    run = schedule(session)
    run.task("plan", "failed", **left(BrokerUnavailable("away", fix="Wait")))
    first = run.end()
    assert first is not None
    assert "Failed in plan" in first
    run.row.state = "success"
    XComModel.set(key="tidegate_note", value="batch 1", dag_id="orders", run_id="r", task_id="plan", session=session)
    assert run.end() == "batch 1"
    run.row.dag_run_note.content, run.row.dag_run_note.user_id = "mine", "admin"
    assert run.end() == "mine"


def test_a_note_that_cannot_be_written_fails_no_run(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a convenience."""
    run = schedule(session)

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the database is away")

    monkeypatch.setattr(notes, "_Tasks", fail)
    assert run.end() is None


class FailedTask:
    """A task of the pipeline in its own process."""

    dag_id = PIPELINE.replay_dag
    task = SimpleNamespace(pipeline=PIPELINE)

    def __init__(self) -> None:
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


def test_a_failed_task_leaves_its_error_and_hides_nothing_when_it_cannot() -> None:
    """In the task's process, by Airflow's listener."""
    ti = FailedTask()
    notes.on_task_instance_failed(None, ti, BrokerUnavailable("away", fix="Wait"))
    left = {"error": "BrokerUnavailable", "message": "BrokerUnavailable: away", "fix": "Wait"}
    assert ti.pushed == {failures.XCOM_KEY: left}
    notes.on_task_instance_failed(None, SimpleNamespace(task=ti.task, dag_id=ti.dag_id), BrokerUnavailable("away", fix="Wait"))


def test_nothing_is_written_for_a_task_whose_process_is_gone_or_that_is_not_ours() -> None:
    """Airflow's servers know no error, only a text."""
    ti = FailedTask()
    notes.on_task_instance_failed(None, ti, "killed")
    ti.task = SimpleNamespace()
    notes.on_task_instance_failed(None, ti, BrokerUnavailable("away", fix="Wait"))
    notes.on_task_instance_failed(None, SimpleNamespace(), BrokerUnavailable("away", fix="Wait"))
    assert ti.pushed == {}

"""Laws of the listener of DAG runs, on Airflow's own tables in SQLite. With a whole Airflow: `tests/e2e`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from airflow.models.dagrun import DagRun
from airflow.models.pool import Pool
from airflow.models.taskinstance import TaskInstance
from airflow.models.variable import Variable
from airflow.models.xcom import XComModel
from airflow.sdk import DAG, BaseOperator
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.state import DagRunState
from sqlalchemy import select
from sqlalchemy.orm import Session

from tests.records import cursor_of
from tidegate.airflow import declared, notes
from tidegate.airflow.dags import maintain_dag, pipeline_dag, replay_dag
from tidegate.airflow.declared import Declared
from tidegate.core.config.pipeline import POOL_DESCRIPTION, Maintenance, Pipeline, Sink, Source
from tidegate.core.config.schedules import DAY_S
from tidegate.core.model.errors import BrokerUnavailable, StateUnavailable, TransformError
from tidegate.core.planning import run_notes
from tidegate.core.state.codec import encode

PIPELINE = Pipeline("orders", Source(("orders",)), "m:f", sink=Sink("lake.shop.orders", slots=3))
SCHEDULED, REPLAY = pipeline_dag(PIPELINE, spark_jobs=Path()), replay_dag(PIPELINE, spark_jobs=Path())
MAINTAINED = maintain_dag(PIPELINE, Maintenance(keep_orphans=DAY_S), spark_jobs=Path())
PLAN = {"seq": 7, "redo": False, "key": "tidegate.orders.range.0000000007.r"}


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
    return Run(session, SCHEDULED, state)


def left(error: BaseException) -> dict[str, Any]:
    return {notes.FAILURE_KEY: notes.described(error)}


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
    text = str(declared._insert(dialect, Declared(pipeline="orders", pool="p", slots=1)))
    assert ("IGNORE" in text) if dialect == "mysql" else ("ON CONFLICT DO NOTHING" in text)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The metrics that the scheduler has sent."""
    found: dict[str, float] = {}
    monkeypatch.setattr("airflow.observability.stats.gauge", lambda name, value, **_: found.update({name: value}))
    monkeypatch.setattr("airflow.observability.stats.incr", lambda name, *, count, **_: found.update({name: count}))
    monkeypatch.setattr(notes, "time", SimpleNamespace(time=lambda: 12.5))
    return found


STOPPED = "tidegate.pipeline.stopped.orders"


@pytest.mark.parametrize(
    ("dag", "state", "run_type", "said"),
    [
        (SCHEDULED, "failed", "manual", {STOPPED: 1}),
        (SCHEDULED, "success", "manual", {STOPPED: 0, "tidegate.pipeline.succeeded.orders": 12.5}),
        (SCHEDULED, "failed", "backfill", {}),
        (REPLAY, "failed", "manual", {"tidegate.replay.failed.orders": 1}),
        (REPLAY, "success", "manual", {}),  # it may be a dry run: its verdict counts the others
        (MAINTAINED, "failed", "manual", {}),
    ],
)
def test_the_end_of_a_run_says_whether_the_pipeline_goes_on(
    session: Session, sent: dict[str, float], dag: DAG, state: str, run_type: str, said: dict[str, float]
) -> None:
    """A failed one says nothing of when it last went on, and one that the schedule does not wait for nothing of it."""
    run = Run(session, dag, state)
    run.row.run_type = run_type
    run.end()
    assert sent == said


def test_the_runs_of_other_dags_are_left_alone(session: Session, sent: dict[str, float]) -> None:
    """Also where a task is called plan and leaves the same XComs."""
    with DAG("other", schedule=None) as dag:
        BaseOperator(task_id="plan", pool="theirs")
    run = Run(session, dag, "success")
    run.task("plan", "success", note="secret", tidegate_note="secret")
    notes.on_dag_run_running(run.row, "started")
    assert (run.end(), sent) == (None, {})
    assert session.scalars(select(Pool)).all() == []


def test_a_run_outside_a_session_is_left_alone(session: Session, caplog: pytest.LogCaptureFixture) -> None:
    """Airflow's `dag.test` ends each run so."""
    run = schedule(session)
    session.expunge(run.row)
    notes.on_dag_run_failed(run.row, "")
    assert caplog.records == []


@pytest.mark.parametrize(
    ("broken", "noted"),
    [
        ("airflow.observability.stats.gauge", True),
        ("tidegate.airflow.declared.declared_by", False),
        ("tidegate.airflow.notes._Tasks", False),
    ],
)
def test_a_note_or_metrics_that_cannot_be_written_fail_no_run(
    session: Session, monkeypatch: pytest.MonkeyPatch, broken: str, *, noted: bool
) -> None:
    """They are a convenience. Neither does a DAG that cannot be read."""
    run = schedule(session)
    monkeypatch.setattr(broken, mock.Mock(side_effect=RuntimeError("away")))
    assert bool(run.end()) is noted


def done(**said: Any) -> tuple[str, dict[str, Any]]:
    return "success", said


def failed(error: Exception | None = None, state: str = "failed") -> tuple[str, dict[str, Any]]:
    return state, {} if error is None else left(error)


NO_FUNCTION, NO_BROKER = TransformError("no function f", fix="Define it"), BrokerUnavailable("no broker", fix="Start one")
AWAY, FIRST = StateUnavailable("away", fix="Wait"), "The cursor did not move. The next run "
STEPS = {"remove_orphans": done(tidegate_note="remove_orphans: none"), "expire": failed(NO_FUNCTION)}


@pytest.mark.parametrize(
    ("dag", "tasks", "said"),
    [
        (
            SCHEDULED,
            {"plan": done(tidegate_note="batch 7", return_value=PLAN), "load": failed(NO_FUNCTION), "commit": failed(AWAY)},
            f"batch 7\nFailed in load: TransformError: no function f. Define it. {FIRST}retries batch 7 (same offsets).",
        ),
        (
            SCHEDULED,
            {"plan": done(tidegate_note="x" * 999), "load": done(tidegate_note="broken records: 3"), "commit": failed()},
            "…\nbroken records: 3\nFailed in commit: ",
        ),
        (
            SCHEDULED,
            {"plan": failed(RuntimeError("password=hunter2"))},
            f"Failed in plan: RuntimeError. See the task's log. {FIRST}adopts the saved range, or plans again.",
        ),
        (SCHEDULED, {"plan": done(), "load": failed()}, "Failed in load: its process ended without an error of its own"),
        (
            SCHEDULED,
            {"plan": done(), "load": failed(NO_BROKER, "skipped"), "commit": failed(None, "skipped")},
            "Failed in load: the run took longer than its timeout_s. BrokerUnavailable: no broker. ",
        ),
        (
            REPLAY,
            {"plan": done(replay={"replay": "a"}), "load[0]": done(), "load[1]": failed(AWAY), "verify": failed(AWAY)},
            "Failed in load[chunk 2, 3]: StateUnavailable: away. Wait. Clear the failed tasks to go on",
        ),
        (
            MAINTAINED,
            {"plan": done(tidegate_note="10 data files"), **STEPS, "compact": done(tidegate_note="compact: done")},
            "10 data files\ncompact: done\nremove_orphans: none\nFailed in expire: TransformError: no function f. Define it. ",
        ),
    ],
    ids=["with its fix", "after broken records", "by its kind alone", "killed", "timed out", "by its chunks", "of maintenance"],
)
def test_the_first_task_that_failed_is_told_after_what_the_others_did(
    session: Session, dag: DAG, tasks: dict[str, tuple[str, dict[str, Any]]], said: str
) -> None:
    """In the order of the tasks; what failed in its wake is not told, and an error of others may hold a secret."""
    run = Run(session, dag)
    for name, (state, values) in tasks.items():
        task_id, _, index = name.rstrip("]").partition("[")
        run.task(task_id, state, int(index or -1), **values)
    assert said in (run.end("timed_out" if failed(None, "skipped") in tasks.values() else "") or "")


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
    run = Run(session, REPLAY, "success")
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
    assert "Failed in plan" in (run.end() or "")
    run.row.state = "success"
    for key, value in {"tidegate_note": "batch 1", "note": "not ours"}.items():
        XComModel.set(key=key, value=value, dag_id="orders", run_id="r", task_id="plan", session=session)
    assert run.end() == "batch 1"
    run.row.dag_run_note.content, run.row.dag_run_note.user_id = "mine", "admin"
    assert run.end() == "mine"


@pytest.mark.parametrize(
    ("error", "more", "pushed"),
    [
        (BrokerUnavailable("away", fix="Wait"), {"task": SimpleNamespace(pipeline=PIPELINE)}, True),
        ("killed", {"task": SimpleNamespace(pipeline=PIPELINE)}, False),
        (BrokerUnavailable("away", fix="Wait"), {"task": SimpleNamespace()}, False),
        (BrokerUnavailable("away", fix="Wait"), {}, False),
    ],
    ids=["in its own process", "by a server, which knows a text only", "not ours", "without a task"],
)
def test_a_failed_task_leaves_its_error_and_hides_nothing_when_it_cannot(error: Any, more: Any, *, pushed: bool) -> None:
    """In the task's process, by Airflow's listener."""
    push = mock.Mock()
    notes.on_task_instance_failed(None, SimpleNamespace(dag_id=PIPELINE.replay_dag, xcom_push=push, **more), error)
    left = {"error": "BrokerUnavailable", "message": "BrokerUnavailable: away", "fix": "Wait"}
    assert push.mock_calls == ([mock.call(key=notes.FAILURE_KEY, value=left)] if pushed else [])
    notes.on_task_instance_failed(None, SimpleNamespace(dag_id=PIPELINE.replay_dag, **more), error)

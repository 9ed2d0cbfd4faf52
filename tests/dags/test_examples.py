"""Laws of the DAGs in `docs/examples`, which others copy: Airflow parses each as it is, and runs it on a real database."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
import yaml
from airflow import settings
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.api_fastapi.core_api.datamodels.hitl import UpdateHITLDetailPayload
from airflow.api_fastapi.core_api.routes.public.hitl import update_hitl_detail
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
from airflow.jobs.job import Job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models import dagrun, import_all_models
from airflow.models.asset import AssetEvent, AssetModel
from airflow.models.base import Base
from airflow.models.dagrun import DagRun
from airflow.models.deadline import Deadline
from airflow.models.hitl import HITLDetail
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance, clear_task_instances
from airflow.models.xcom import XComModel
from airflow.sdk.definitions import dag as dag_test
from airflow.triggers.callback import CallbackTrigger
from airflow.utils.db import add_default_pool_if_not_exists, synchronize_log_template
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from sqlalchemy import select

from tests.mails import serving, text_of
from tests.records import cursor_of, range_of
from tidegate.core.model.events import Committed, Replayed
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.state.ledger import Ledger
from tidegate.ui.database import DatabaseStore

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:The `airflow.utils.operator_helpers"),  # by Airflow's own sensors
]
REPO = Path(__file__).parents[2]
TABLE = "lake.shop.payments"
PAYMENTS = {"source": {"topics": ["payments"]}, "transform": "m:f", "sink": {"table": TABLE}, "announce": {}}
SAID: dict[str, Any] = {"pipeline": "payments", "offsets": 1, "rows": 1, "transform": "m:f@1", "table": TABLE, "topics": ()}
P0, P1 = TopicPartition("payments", 0), TopicPartition("payments", 1)


@pytest.fixture(scope="module")
def dags(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The examples and what they go with, in one folder of DAGs; Airflow's tables, in the SQLite file of this Airflow."""
    folder = tmp_path_factory.mktemp("dags")
    shutil.copytree(REPO / "docs" / "examples", folder, dirs_exist_ok=True)
    shutil.copyfile(REPO / "dags" / "tidegate_dags.py", folder / "tidegate_dags.py")
    (folder / "pipelines").mkdir()
    (folder / "pipelines" / "payments.yaml").write_text(yaml.safe_dump(PAYMENTS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "DAGS_FOLDER", str(folder))
        settings.configure_orm()
        import_all_models()  # tables refer to others
        Base.metadata.create_all(settings.engine)
        synchronize_log_template()
        add_default_pool_if_not_exists()
        bag = BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="dags-folder")
        assert bag.import_errors == {}
        with create_session() as session:
            DagBundlesManager().sync_bundles_to_db(session=session)
        sync_bag_to_db(bag, "dags-folder", None)
        yield bag.dags
        Base.metadata.drop_all(settings.engine)


def states(run: Any) -> dict[str, str]:
    return {task.task_id: str(task.state) for task in run.get_task_instances()}


def handed_on(run: Any, task_id: str) -> Any:
    with create_session() as session:
        found = session.scalars(XComModel.get_many(run_id=run.run_id, dag_ids=run.dag_id, task_ids=task_id, key="return_value"))
        return XComModel.deserialize_value(found.one())


@pytest.fixture
def consumed(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the events of the table carry that the next run is for."""
    extras: list[dict[str, Any]] = []
    create = dagrun.get_or_create_dagrun

    def with_events(*, session: Any, **how: Any) -> DagRun:
        run = create(session=session, **how)
        asset_id = session.scalar(select(AssetModel.id).where(AssetModel.name == TABLE))
        run.consumed_asset_events.extend(AssetEvent(asset_id=asset_id, extra=extra) for extra in extras)
        session.commit()
        return run

    monkeypatch.setattr(dagrun, "get_or_create_dagrun", with_events)
    return extras


def committed(seq: int, *ranges: OffsetRange) -> dict[str, Any]:
    """The event of a batch, whose range is saved."""
    key = Ledger(DatabaseStore(), "payments").save_range(range_of("payments", seq, f"r{seq}", ranges))
    return Committed(seq=seq, key=key, snapshot=1, **SAID).to_json()


def replayed() -> dict[str, Any]:
    return Replayed(run_id="r", replay="x", chunks=1, **SAID).to_json()


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[duckdb.DuckDBPyConnection]:
    """A table with the offsets 0 to 9 of two partitions, ten minutes apart, in the place of the one behind Spark Connect."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CONNECT_DEFAULT", "spark-connect://localhost:15002")
    with duckdb.connect() as connection:
        connection.execute("ATTACH ':memory:' AS lake; CREATE SCHEMA lake.shop")
        connection.execute(
            "CREATE TABLE lake.shop.payments AS SELECT 'payments' AS _kafka_topic, p AS _kafka_partition, o AS _kafka_offset,"
            " TIMESTAMP '2026-01-01 12:00:00' + o * INTERVAL 10 MINUTE AS _timestamp FROM range(2) AS p(p), range(10) AS o(o)"
        )
        session = SimpleNamespace(
            sql=lambda text: SimpleNamespace(collect=connection.execute(text).fetchall), stop=lambda: None
        )
        builder = SimpleNamespace(config=lambda **_: SimpleNamespace(getOrCreate=lambda: session))
        monkeypatch.setattr("pyspark.sql.SparkSession", SimpleNamespace(builder=builder))
        yield connection


@pytest.fixture
def dbt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """An executable in the place of dbt, which keeps what it is called with."""
    called, bin_ = tmp_path / "called", tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "dbt").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {called}\n')
    (bin_ / "dbt").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:/usr/bin:/bin")
    return lambda: called.read_text().splitlines()


def test_each_example_parses_beside_the_dags_of_its_pipeline(dags: dict[str, Any]) -> None:
    own = {"payments", "payments__replay", "tidegate__doctor__payments"}
    examples = {"payments_after_batch", "payments_hourly", "payments__gated_replay", "payments_watch_lag"}
    assert dags.keys() == {*own, *examples}


def test_after_batches_exactly_their_rows_are_read_by_sql_and_by_dbt(
    dags: dict[str, Any], consumed: list[dict[str, Any]], spark: Any, dbt: Callable[[], list[str]]
) -> None:
    """By several events in one run, as Airflow has it where batches come faster than runs."""
    consumed += [
        committed(1, OffsetRange("payments", 0, 0, 4), OffsetRange("payments", 1, 0, 0)),
        committed(2, OffsetRange("payments", 0, 4, 7), OffsetRange("payments", 1, 0, 1)),
    ]
    run = dags["payments_after_batch"].test()
    assert states(run) == dict.fromkeys(("changed", "count", "dbt"), "success")
    assert handed_on(run, "count") == {"2026-01-01 12:00:00": 7, "2026-01-01 13:00:00": 1}
    *words, variables = dbt()
    assert words == ["build", "--select", "payments_by_hour", "--vars"]
    assert json.loads(variables) == {"changed": handed_on(run, "changed")}


@pytest.mark.parametrize("cause", ["a replay", "somebody"])
def test_after_a_replay_and_by_hand_all_rows_are_read(
    dags: dict[str, Any], consumed: list[dict[str, Any]], spark: Any, dbt: Callable[[], list[str]], cause: str
) -> None:
    """A replay may have removed rows of any hour, and an event of one beside those of batches counts."""
    consumed += [committed(3, OffsetRange("payments", 0, 7, 8)), replayed()] if cause == "a replay" else []
    run = dags["payments_after_batch"].test()
    assert handed_on(run, "count") == {"2026-01-01 12:00:00": 12, "2026-01-01 13:00:00": 8}
    assert json.loads(dbt()[-1]) == {"changed": "true"}


class Replays:
    """What stands for the scheduler while the gate runs: the replay's runs end at once, and somebody answers, or nobody."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.total, self.answer, self.ends = 0, "", DagRunState.SUCCESS
        self.asked: list[tuple[str, str]] = []
        self.runs: list[dict[str, Any]] = []
        self._trigger, self._task = dag_test._run_inline_trigger, dag_test._run_task
        monkeypatch.setattr(dag_test, "_run_inline_trigger", self._wait)
        monkeypatch.setattr(dag_test, "_run_task", self._run)

    def _wait(self, trigger: Any, ti: Any) -> Any:
        with create_session() as session:
            run = session.scalars(select(DagRun).where(DagRun.run_id.in_(trigger.run_ids))).one()
            assert run.dag_id == "payments__replay"
            self.runs.append(asked := run.conf or {})
            if dry := "dry_run" in asked:
                of: dict[str, Any] = {"dag_id": run.dag_id, "task_id": "plan", "run_id": run.run_id, "session": session}
                XComModel.set(key="dry_run", value={"total": self.total, "chunks": 3}, serialize=False, **of)
            run.set_state(DagRunState.SUCCESS if dry else self.ends)
        return self._trigger(trigger, ti)

    def _run(self, *, ti: TaskInstance, **how: Any) -> Any:
        result = self._task(ti=ti, **how)
        with create_session() as session:
            parked = session.get(TaskInstance, ti.id)
            if parked and parked.state == TaskInstanceState.AWAITING_INPUT:
                self._answer(parked, session)
        return result

    def _answer(self, ti: TaskInstance, session: Any) -> None:
        asked = session.get(HITLDetail, ti.id)
        self.asked.append((asked.subject, asked.body))
        if self.answer:
            user = SimpleAuthManagerUser(username="admin", role="admin")
            update_hitl_detail(
                ti.dag_id, ti.run_id, ti.task_id, UpdateHITLDetailPayload(chosen_options=[self.answer]), user, session
            )
        else:
            ti.trigger_timeout = datetime.now(UTC) - timedelta(seconds=1)
            session.commit()
            SchedulerJobRunner(Job()).check_awaiting_input_timeouts(session=session)


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> Replays:
    return Replays(monkeypatch)


ASKED = {"versions": "<2", "parallel": 1}


def gated(dags: dict[str, Any]) -> dict[str, str]:
    return states(dags["payments__gated_replay"].test(run_conf={"replay": ASKED}))


def test_a_small_replay_goes_on_without_asking(dags: dict[str, Any], replays: Replays) -> None:
    """As it was asked for, after a dry run of the same."""
    replays.total = 100_000
    assert gated(dags) == {"measure": "success", "gate": "success", "ask": "skipped", "replay": "success"}
    assert (replays.runs, replays.asked) == ([{**ASKED, "dry_run": True}, ASKED], [])


@pytest.mark.parametrize(("answer", "state"), [("Approve", "success"), ("Reject", "skipped"), ("", "skipped")])
def test_a_large_replay_is_loaded_once_somebody_approves(
    dags: dict[str, Any], replays: Replays, answer: str, state: str
) -> None:
    """Nobody's answer is a no."""
    replays.total, replays.answer = 1_234_567, answer
    assert gated(dags) == {"measure": "success", "gate": "success", "ask": "success", "replay": state}
    assert replays.asked[0][0] == "Replay 1,234,567 offsets of payments?"
    assert replays.asked[0][1].endswith(", in 3 loads")
    assert replays.runs[1:] == ([ASKED] if state == "success" else [])


def test_a_gate_fails_with_its_replay(dags: dict[str, Any], replays: Replays) -> None:
    replays.ends = DagRunState.FAILED
    assert gated(dags)["replay"] == "failed"


def test_what_was_in_the_topic_is_watched_until_the_cursor_has_passed_it(
    dags: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions that the cursor does not know count from their beginning. What was read beyond the end is never passed."""
    latest, given = {0: 8, 1: 5, 2: 0}, {}
    topics = {"payments": SimpleNamespace(partitions=latest)}

    def consumer(config: dict[str, str]) -> SimpleNamespace:
        given.update(config)
        return SimpleNamespace(
            list_topics=lambda *_, **__: SimpleNamespace(topics=topics),
            get_watermark_offsets=lambda tp, **_: (0, latest[tp.partition]),
        )

    monkeypatch.setattr("confluent_kafka.Consumer", consumer)
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": "b:1"}}))
    Ledger(DatabaseStore(), "payments").save_cursor(cursor_of("payments", 2, {P0: 8, P1: 5}))
    with monkeypatch.context() as patch:
        patch.setattr("tidegate.airflow.store.VariableStore", DatabaseStore)
        passed = dags["payments_watch_lag"].get_task("committed").python_callable
        assert [passed(until) for until in ({"0": 8, "2": 0}, {"0": 9, "1": 5}, {"2": 1})] == [True, False, False]
        latest[0] = 2  # the topic was created again
        assert dags["payments_watch_lag"].get_task("ends").python_callable() == {"0": 9, "1": 5, "2": 0}
        latest[0] = 8
    monkeypatch.setattr(dags["payments_watch_lag"], "deadline", None)  # with one, `test` fails when a run ends
    run = dags["payments_watch_lag"].test()
    assert states(run) == {"ends": "success", "committed": "success"}
    assert handed_on(run, "ends") == {"0": 8, "1": 5, "2": 0}
    assert given["bootstrap.servers"] == "b:1"


def mails_of(trigger: Any) -> list[str]:
    """What a callback sends, run as in the triggerer."""

    async def states() -> list[str]:
        return [str(event.payload["state"]) async for event in CallbackTrigger(**trigger.kwargs).run()]

    with serving() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(server.connection))
        assert asyncio.run(states()) == ["running", "success"]
        return [f"{mail['To']}: {mail['Subject']}. {text_of(mail)}" for mail in server.mails]


def watching(session: Any, at: datetime) -> DagRun:
    """A run of the watch, as its schedule makes it."""
    dag = SerializedDagModel.get_dag("payments_watch_lag", session=session)
    assert dag is not None
    how: dict[str, Any] = {"run_type": DagRunType.SCHEDULED, "triggered_by": DagRunTriggeredByType.TIMETABLE}
    how |= {"data_interval": (at, at), "logical_date": at, "run_after": at, "state": DagRunState.RUNNING}
    run = dag.create_dagrun(run_id=f"at_{at.timestamp()}", session=session, **how)
    run.dag = dag
    session.flush()
    return run


def deadlines(run: DagRun, session: Any) -> list[Deadline]:
    return list(session.scalars(select(Deadline).where(Deadline.dagrun_id == run.id)))


@pytest.mark.parametrize("state", ["running", "failed"])
def test_who_is_on_call_gets_a_mail_where_that_takes_a_quarter_of_an_hour(dags: dict[str, Any], state: str) -> None:
    """Also where the watch itself has failed; that can be cleared before (not so with other references: airflow#70368)."""
    with create_session() as session:
        run = watching(session, at := datetime.now(UTC))
        (deadline,) = deadlines(run, session)
        assert deadline.deadline_time - at == timedelta(minutes=15)
        run.state = DagRunState(state)
        deadline.handle_miss(session)
        (said,) = mails_of(deadline.callback.trigger)
        when = at.isoformat().replace("+00:00", "Z")
        assert said == f"data-on-call@example.com: payments is late. What was in the topic at {when} is not in the table."
        clear_task_instances(run.get_task_instances(session=session), session)


def test_nobody_gets_a_mail_where_it_was_read_in_time(dags: dict[str, Any]) -> None:
    with create_session() as session:
        run = watching(session, datetime.now(UTC))
        for task in run.get_task_instances(session=session):
            task.state = TaskInstanceState.SUCCESS
        run.update_state(session=session)
        assert (run.state, deadlines(run, session)) == (DagRunState.SUCCESS, [])

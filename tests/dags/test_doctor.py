"""Laws of the DAG that examines an installation: what it asks, and that what is broken fails it and is handed on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from airflow.sdk.exceptions import AirflowFailException

import tidegate.kafka.brokers
import tidegate.kafka.rights
import tidegate.sinks.iceberg.catalog
import tidegate.spark.examination
import tidegate.spark.session
from tests.dags.ports import Run, use_ports
from tidegate.airflow.dags import doctor_dag
from tidegate.airflow.operators import doctor, spark
from tidegate.airflow.operators.doctor import DoctorLoadOperator, DoctorOperator, longest_gap_s, packages_found
from tidegate.core.audit.findings import CHECKS, DEPLOYED, FINDINGS, Finding, sound
from tidegate.core.config.pipeline import LagSchedule, Pipeline, Quarantine, Sink, Source, Spark
from tidegate.core.model.errors import BrokerUnavailable, ConfigError, SparkAuthFailed
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.state.jobs import LoadJob, LoadResult
from tidegate.testing.fakes import FakeBrokers, FakeReader, FakeRunner, MemoryStore

PIPELINE = Pipeline("p", Source(("t",)), "m:f", sink=Sink("lake.a.b"), schedule="@hourly")
BROKEN = Finding(check="read", of="p", state="broken", says="no right", fix="Grant it")
HOUR_MS = 3_600_000


class Examined(Run):
    """A run of the DAG, of which each task leaves what it found."""

    def finds(self, task: Any) -> dict[str, str]:
        """The state of each check. The task fails where one is broken, and only there."""
        failed = False
        try:
            self.execute(task)
        except AirflowFailException:
            failed = True
        told = json.loads(self.xcoms[task.task_id, FINDINGS])
        self.left_out = told["left_out"]
        states = dict.fromkeys((check for check, _ in told["sound"]), "sound")
        self.found = [Finding(**each) for each in told["findings"]]
        states |= {each.check: each.state for each in self.found}
        assert states.keys() <= CHECKS.keys()
        assert failed == ("broken" in states.values())
        return states


@pytest.fixture
def run() -> Examined:
    return Examined("r1")


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the brokers say: of addresses, of rights, and of topics."""
    said = SimpleNamespace(
        brokers=[sound("brokers", "c")], rights=[sound("describe-configs", "p")], topics=["t1"], retention={"t": HOUR_MS}
    )
    client = SimpleNamespace(match_topics=lambda *_: said.topics, retention_ms=lambda _: said.retention, close=lambda: None)
    monkeypatch.setattr(doctor, "kafka_settings", lambda *_: {})
    monkeypatch.setattr(tidegate.kafka.rights, "brokers_found", lambda *_: said.brokers)
    monkeypatch.setattr(tidegate.kafka.rights, "rights_found", mock.Mock(side_effect=lambda *_: said.rights))
    monkeypatch.setattr(tidegate.kafka.brokers, "AdminBrokers", lambda *_, **__: client)
    said.asked = tidegate.kafka.rights.rights_found
    return said


def look_at(*pipelines: Pipeline) -> DoctorOperator:
    return DoctorOperator(task_id="look", pipelines=pipelines or [PIPELINE], files="12345678")


def test_one_load_is_tried_for_each_way_that_loads_go() -> None:
    """By the connections and the catalog; a hundred pipelines of one way need one."""
    same = replace(PIPELINE, name="same", sink=Sink("lake.other.table"))
    others = [
        replace(PIPELINE, name="elsewhere", sink=Sink("other.a.b")),
        replace(PIPELINE, name="submitted", spark=Spark("spark_default")),
        replace(PIPELINE, name="far", source=Source(("t",), connection="far")),
    ]
    dag = doctor_dag([PIPELINE, same, *others], spark_jobs=Path(), files="12345678")
    assert set(dag.task_dict) == {"look", "load_p", "load_elsewhere", "load_submitted", "load_far"}
    assert (dag.description or "").endswith("(files 12345678)")


def test_a_look_asks_for_what_each_pipeline_needs(run: Examined, kafka: SimpleNamespace) -> None:
    """Retention is compared with a schedule where there is one; topics of a pattern are those that are there."""
    pattern = Pipeline("q", Source(pattern="t.*"), "m:f", sink=Sink("lake.a.c"))
    asked = ("packages", "variables", "kafka-connection", "brokers", "describe-configs", "retention")
    kafka.retention = {"t": 2 * HOUR_MS}
    assert run.finds(look_at(PIPELINE, pattern)) == dict.fromkeys(asked, "sound")
    assert [call.args[1:] for call in kafka.asked.call_args_list] == [
        ("p", ("t",), "tidegate-p", {}),
        ("q", ("t1",), "tidegate-q", {}),
    ]
    assert json.loads(run.xcoms["look", DEPLOYED])["files"] == "12345678"
    kafka.retention, kafka.topics = {"t": HOUR_MS}, []
    assert {check for check, state in run.finds(look_at(PIPELINE, pattern)).items() if state == "doubtful"} == {
        "retention",
        "topics",
    }


def test_what_is_broken_fails_the_task_and_hides_nothing_else(
    run: Examined, kafka: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.rights = [BROKEN]
    assert run.finds(look_at(PIPELINE, replace(PIPELINE, name="q")))["read"] == "broken"
    assert run.found == [BROKEN, BROKEN]
    kafka.asked.side_effect = BrokerUnavailable("gone")
    assert run.finds(look_at())["topics"] == "broken"
    kafka.asked.side_effect = ModuleNotFoundError("confluent_kafka")
    assert run.finds(look_at())["topics"] == "broken"
    assert run.found[0].says == "it cannot be looked at (ModuleNotFoundError: confluent_kafka)"
    kafka.brokers = [replace(BROKEN, check="brokers")]
    assert "topics" not in run.finds(look_at())
    monkeypatch.setattr(doctor, "kafka_settings", mock.Mock(side_effect=ConfigError("no such connection", fix="Add it")))
    assert run.finds(look_at())["kafka-connection"] == "broken"


def test_what_is_broken_is_handed_on_before_what_is_doubtful(
    run: Examined, kafka: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An XCom has a bound. Secrets are masked in it as in a log."""
    monkeypatch.setattr(doctor, "MOST", 3)
    kafka.rights = [*[replace(BROKEN, state="doubtful")] * 5, sound("group", "p"), replace(BROKEN, check="topics")]
    with mock.patch("airflow.sdk._shared.secrets_masker.redact", wraps=lambda value: value) as redact:
        run.finds(look_at())
    assert [each.state for each in run.found] == ["broken", "doubtful", "doubtful"]
    assert run.left_out == 3 + 2
    assert "Grant it" in [call.args[0] for call in redact.call_args_list]


@pytest.mark.parametrize(
    ("schedule", "gap_s"),
    [
        ("@weekly", 7 * 86400),
        ("0 9 * * 1-5", 3 * 86400),
        ("0 8,9 * * *", 23 * 3600),
        ("* 9-17 * * 1-5", 63 * 3600 + 60),
        ("0 0 1 1-3 *", 306 * 86400),
        ("@monthly", 31 * 86400),
        ("*/5 * * * *", 300),
        (LagSchedule(lag=5), None),
        (LagSchedule(max_delay=60), 60),
        ("@continuous", None),
        (None, None),
    ],
    ids=str,
)
def test_the_longest_time_between_two_runs_counts_for_retention(schedule: Any, gap_s: float | None) -> None:
    assert longest_gap_s(schedule) == gap_s


def test_packages_have_the_versions_that_the_wheel_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the extra that Airflow needs. pyspark has all of its client."""
    assert [each.state for each in packages_found("airflow")] == ["sound"]
    held = {"pyiceberg": "0.4.0", "pyspark-client": ""}

    def of(name: str) -> str:
        if held.get(name) == "":
            raise PackageNotFoundError
        return held.get(name) or version(name)

    monkeypatch.setattr(doctor, "version", of)
    assert {each.of: each.state for each in packages_found("airflow")} == {"pyiceberg": "doubtful"}
    held |= {"pyspark": "", "msgspec": ""}
    assert {each.of for each in packages_found("airflow") if each.state == "broken"} == {"pyspark-client", "msgspec"}


# ---- the load of one record


class World:
    """Ports in memory: Spark, brokers, and the catalog from which the table is dropped."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reader = FakeReader()
        self.brokers = FakeBrokers(latest={TopicPartition("t", 0): 0, TopicPartition("t", 1): 7})
        self.brokers.close = lambda: None  # type: ignore[attr-defined]
        self.dropped: list[str] = []
        self.sessions = 0
        self.session = SimpleNamespace(sql=self.dropped.append)
        self.server: Any = [sound("spark", "c")]
        self.connection = SimpleNamespace(conn_type="spark_connect", conn_id="c", extra_dejson={})
        runner = FakeRunner(self.reader)
        use_ports(monkeypatch, store=MemoryStore(), sink=self.reader, brokers=self.brokers, runner=runner)
        monkeypatch.setattr(spark, "get_connection", lambda *_, **__: self.connection)
        monkeypatch.setattr(spark, "SubmitRunner", lambda *_, **__: runner)
        monkeypatch.setattr(doctor, "reader_of", lambda _: self.reader)
        monkeypatch.setattr(doctor, "brokers_of", lambda *_, **__: self.brokers)
        monkeypatch.setattr(tidegate.spark.session, "connect", self._connect)
        monkeypatch.setattr(tidegate.spark.examination, "spark_found", lambda *_: self.server)
        monkeypatch.setattr(tidegate.sinks.iceberg.catalog, "purge", self._purge)
        monkeypatch.setattr(DoctorLoadOperator, "_connect_url", lambda _: "sc://nowhere")

    def _purge(self, table: str) -> bool:
        self.dropped.append(table)
        return True

    @contextmanager
    def _connect(self, *_: object, **__: object) -> Iterator[Any]:
        self.sessions += 1
        if isinstance(self.server, Exception):
            raise self.server
        yield self.session


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def load_of(pipeline: Pipeline = PIPELINE) -> DoctorLoadOperator:
    return DoctorLoadOperator(task_id=f"load_{pipeline.name}", pipeline=pipeline, spark_jobs=Path())


def test_one_record_is_loaded_into_a_table_of_its_own_that_is_dropped(run: Examined, world: World) -> None:
    """It may be rejected, whatever the budget."""
    budgeted = load_of(replace(PIPELINE, quarantine=Quarantine(budget=0.001)))
    assert budgeted.pipeline.quarantine == Quarantine(budget=1.0)
    assert run.finds(budgeted) == {"spark-connection": "sound", "spark": "sound", "load": "sound"}
    (receipt,) = world.reader.found
    assert receipt.load.ranges == (OffsetRange("t", 1, 0, 7),)
    assert [re.sub("[0-9a-f]{8}", "N", each) for each in world.dropped] == [
        "DROP TABLE IF EXISTS `lake`.`a`.`b_trial_doctor_N_quarantine` PURGE",
        "DROP TABLE IF EXISTS `lake`.`a`.`b_trial_doctor_N` PURGE",
    ]


def test_a_load_of_no_row_says_nothing(run: Examined, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the last offsets are marks of transactions, or records that were taken back."""
    real = FakeRunner.run

    def run_empty(runner: FakeRunner, job: LoadJob) -> LoadResult:
        result = real(runner, job)
        return replace(result, receipt=replace(result.receipt, rows=0))

    monkeypatch.setattr(FakeRunner, "run", run_empty)
    assert run.finds(load_of())["load"] == "unknown"
    assert run.found[-1].says == "the last 7 offsets of t-1 made no row"
    world.brokers.latest[TopicPartition("t", 1)] = 0  # nor do topics without a record
    assert run.finds(load_of())["load"] == "unknown"


def test_tables_that_cannot_be_dropped_are_named(run: Examined, world: World) -> None:
    """The first one was dropped."""
    world.session.sql = mock.Mock(side_effect=[None, RuntimeError("no right to drop")])
    assert run.finds(load_of())["load"] == "doubtful"
    assert re.search(r"run in Spark DROP TABLE IF EXISTS lake\.a\.b_trial_doctor_\w{8} PURGE$", run.found[-1].fix)
    assert world.sessions == 2  # of what the server is asked, and of all tables


def test_no_load_is_tried_where_spark_is_broken(run: Examined, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.server = [replace(BROKEN, check="catalog")]
    assert run.finds(load_of()) == {"spark-connection": "sound", "catalog": "broken"}
    world.server = SparkAuthFailed("no token")
    assert run.finds(load_of()) == {"spark-connection": "sound", "spark": "broken"}
    world.connection.conn_type = "http"
    assert run.finds(load_of()) == {"spark-connection": "broken"}
    monkeypatch.setattr(spark, "get_connection", mock.Mock(side_effect=ConfigError("no connection c", fix="Add it")))
    assert run.finds(load_of()) == {"spark-connection": "broken"}
    assert world.reader.found == []


def test_of_spark_submit_the_load_alone_says_how_it_is(run: Examined, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.connection.conn_type = "spark"
    assert run.finds(load_of()) == {"spark-connection": "sound", "spark": "unknown", "load": "sound"}
    assert world.dropped[0] == f"{world.dropped[1]}_quarantine"
    monkeypatch.setattr(tidegate.sinks.iceberg.catalog, "purge", lambda _: False)  # PyIceberg does not find it
    assert run.finds(load_of())["load"] == "doubtful"

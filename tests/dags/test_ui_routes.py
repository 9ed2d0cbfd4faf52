"""Who is answered what by the routes of the pages, and where links of tasks lead, in Airflow's own app, on SQLite."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path
from threading import Event
from typing import Any
from unittest import mock
from urllib.parse import quote

import pytest
from airflow import plugins_manager, settings
from airflow.api_fastapi.app import create_app, get_auth_manager, purge_cached_app
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.dag import DagModel, DagTag
from airflow.models.dag_version import DagVersion
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.models.errors import ParseImportError
from airflow.models.pool import Pool
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.sdk import DAG, BaseOperator
from airflow.serialization.serialized_objects import LazyDeserializedDAG
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from sqlalchemy import delete, event, update
from starlette.routing import Mount

from tests.records import cursor_of, range_of, replay_of, write_of
from tidegate.airflow import dags
from tidegate.airflow.dags import pipeline_dag, replay_dag
from tidegate.airflow.declared import MARK, PageLink
from tidegate.airflow.operators.tasks import WAITING
from tidegate.core.config.pipeline import Pipeline, Quarantine, Sink, Source
from tidegate.core.model.errors import BrokerUnavailable, KafkaAuthFailed, KafkaError, SinkUnavailable, TopicNotFound
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.state.cursor import Accepted
from tidegate.core.state.history import TableCommit, TableHistory
from tidegate.core.state.ledger import Ledger, cursor_from
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.rejection import Rejection
from tidegate.core.state.saved_range import Decision, SavedRange
from tidegate.plugin import TidegatePlugin
from tidegate.sinks.iceberg.history import IcebergReader
from tidegate.testing.fakes import FakeBrokers, FakeReader
from tidegate.ui import PREFIX, caches, reading, routes
from tidegate.ui.database import Dags, DatabaseStore, _plan_doc
from tidegate.views.pages import encode
from tidegate_receivers.airflow.dag import receiver_dag
from tidegate_receivers.config.receiver import Listen, Receiver

A = TopicPartition("t", 0)
PIPELINES = {
    "orders": Pipeline("orders", Source(("t",)), "m:f", sink=Sink("lake.shop.orders"), quarantine=Quarantine("lake.shop.bad")),
    "visits": Pipeline("visits", Source(("t",), connection="kafka_other"), "m:f", sink=Sink("lake.shop.visits")),
}
ODD = "odd+run~1:2.3"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class AuthManager(SimpleAuthManager):
    """`other` sees only the DAG visits, `tasks` no runs, `no_plugins` no plugin, `blind` no errors, `no_replays` no replays.

    And `no_xcoms` nothing that tasks hand on.
    """

    def is_authorized_dag(self, *, user: Any, access_entity: Any = None, details: Any = None, **more: Any) -> bool:
        dag_id = None if details is None else details.id
        refused = {
            "other": dag_id != "visits",
            "no_replays": str(dag_id).endswith("__replay"),
            "tasks": access_entity is DagAccessEntity.RUN,
            "no_xcoms": access_entity is DagAccessEntity.XCOM,
        }.get(user.username, False)
        return not refused and super().is_authorized_dag(user=user, access_entity=access_entity, details=details, **more)

    def is_authorized_view(self, *, access_view: AccessView, user: Any) -> bool:
        hidden = {"no_plugins": AccessView.PLUGINS, "blind": AccessView.IMPORT_ERRORS}.get(user.username)
        return access_view is not hidden and super().is_authorized_view(access_view=access_view, user=user)


def saved(seq: int, run_id: str, pipeline: str = "orders") -> SavedRange:
    ranges = (OffsetRange("t", 0, 10 * (seq - 1), 10 * seq),)
    return range_of(pipeline, seq, run_id, ranges, (Decision(A, "cursor", "log end"),), {}, {"max_records": 10}, 1000 * seq)


def receipt(seq: int, run_id: str, transform: str = "v1") -> Receipt:
    write = write_of("orders", seq, run_id, saved(seq, run_id).load.ranges, transform, f"a{seq}")
    return Receipt(write, 2**60 + seq, 1000 * seq + 5, rows=10)


Ask = Callable[..., Any]
"""Asks for a path; the answer is of the client that Starlette takes, httpx or httpx2."""


def token_of(user: str, role: str | None) -> dict[str, str]:
    """The headers of a request of a user with a role; without a role, of nobody."""
    known = SimpleAuthManagerUser(username=user, role=role)
    return {} if role is None else {"Authorization": f"Bearer {get_auth_manager().generate_jwt(known)}"}


class World:
    """The log, the table, and its quarantine."""

    def __init__(self) -> None:
        aside = {Rejection("t", 0, n, "decode", "not JSON", f"a{n // 10 + 1}"): b"<%d>" % n for n in (3, 17, 18, 33)}
        self.brokers = FakeBrokers(latest={A: 45})
        self.table = FakeReader(found=[receipt(1, "r1"), receipt(2, ODD, "v2")])
        self.tables = {"lake.shop.visits": FakeReader(exists=False), "lake.shop.bad": FakeReader(rejected=dict(aside))}


@pytest.fixture(scope="module")
def database() -> Iterator[None]:
    """Airflow's tables, with two pipelines."""
    import_all_models()
    Base.metadata.create_all(settings.engine)
    with create_session() as session:
        session.add(DagBundleModel(name="dags"))
    for pipeline in PIPELINES.values():
        for dag in (pipeline_dag(pipeline, spark_jobs=Path()), replay_dag(pipeline, spark_jobs=Path())):
            add_dag(dag)
    with DAG("somebodys", schedule=None, tags=["tidegate"]) as other:
        add_dag(other)
    ledger = Ledger(DatabaseStore(), "orders")
    ledger.save_cursor(cursor_of("orders", 2, {A: 20}))
    for seq, run_id in enumerate(("r1", ODD, "r3"), 1):
        ledger.save_range(saved(seq, run_id))
    yield
    Base.metadata.drop_all(settings.engine)


def add_dag(dag: DAG) -> None:
    with create_session() as session:
        model = DagModel(dag_id=dag.dag_id, bundle_name="dags", is_stale=False, is_paused=False, relative_fileloc="d.py")
        model.tags = []
        session.add(model)
        session.flush()
        for tag in dag.tags:
            session.execute(DagModel.tags.property.mapper.class_.__table__.insert().values(name=tag, dag_id=dag.dag_id))
        SerializedDagModel.write_dag(LazyDeserializedDAG.from_dag(dag), bundle_name="dags", session=session)


def add_run(dag_id: str, run_id: str, state: str, note: str | None = None, run_type: str = "manual") -> None:
    with create_session() as session:
        run = DagRun(dag_id=dag_id, run_id=run_id, run_type=run_type, state=DagRunState(state), run_after=NOW, queued_at=NOW)
        session.add(run)
        session.flush()
        run.note = note


def end_run(dag_id: str, run_id: str) -> None:
    """Later tests have no run that waits."""
    with create_session() as session:
        session.execute(update(DagRun).filter_by(dag_id=dag_id, run_id=run_id).values(state=DagRunState.SUCCESS))


def add_task(
    dag_id: str, run_id: str, task_id: str, state: str, *, pool: str = "default_pool", map_index: int = -1, **said: Any
) -> None:
    """A task of a run, and what it handed on by key."""
    with create_session() as session:
        dag = SerializedDagModel.get_dag(dag_id, session=session)
        assert dag is not None
        version = DagVersion.get_latest_version(dag_id, session=session)
        assert version is not None
        task = TaskInstance(dag.get_task(task_id), dag_version_id=version.id, run_id=run_id, state=state, map_index=map_index)
        task.pool, task.end_date, task.retry_reason = pool, NOW, "SparkUnavailable"
        session.add(task)
        session.flush()
        for key, value in said.items():
            XComModel.set(key=key, value=value, dag_id=dag_id, task_id=task_id, run_id=run_id, session=session)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(caches.Kafka, "ask", lambda _self, _connection, question: question(made.brokers))
    for name in ("history", "rejections", "rejected_values", "broken"):
        asked = attrgetter(name)
        monkeypatch.setattr(
            IcebergReader,
            name,
            lambda _, of, *args, _asked=asked, **more: _asked(made.tables.get(of, made.table))(of, *args, **more),
        )
    return made


@pytest.fixture(scope="module")
def app() -> Iterator[TestClient]:
    """Airflow's own app, whose auth manager is ours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__CORE__AUTH_MANAGER", f"{__name__}.AuthManager")
        patch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "for the tests of this module alone, 64 bytes or more: 0123456789abcdef")
        purge_cached_app()
        with TestClient(create_app(apps="core"), raise_server_exceptions=False) as client:
            yield client
        purge_cached_app()


@pytest.fixture
def mounted(app: TestClient) -> Any:
    """Our app in it, which knows nothing from earlier tests."""
    routed: Any = app.app
    (ours,) = [route.app for route in routed.routes if isinstance(route, Mount) and route.path == PREFIX]
    ours.state.source = reading.PageSource(wait_s=20)  # type: ignore[attr-defined]
    return ours


@pytest.fixture
def ask(database: None, world: World, app: TestClient, mounted: Any) -> Ask:
    """Ask for a path as a user of some name and role."""

    def asked(path: str, user: str = "admin", role: str | None = "ADMIN") -> Any:
        return app.get(f"/tidegate/{path}", headers=token_of(user, role))

    return asked


def blocks(ask: Ask, name: str = "kind") -> list[Any]:
    """What the map shows of each block of the one partition."""
    return [block[name] for block in ask("api/dags/orders/map").json()["rows"][0]["blocks"]]


KNOWN = ["committed", "committed", "planned"]
"""What is known of it without the log, whose end is pending."""
Overviews = Callable[..., dict[str, dict[str, Any]]]


@pytest.fixture
def overviews(ask: Ask) -> Overviews:
    """What the list has for a user, by pipeline."""
    return lambda *user: {each["pipeline"]: each for each in ask("api/pipelines", *user).json()["pipelines"]}


@pytest.fixture
def bundle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tidegate.js").write_text("1")
    monkeypatch.setattr(routes, "BUNDLE", tmp_path / "tidegate.js")


VALUES = "`…/quarantine`, `…/broken`"
EXAMPLES = {
    # a path for each route; the table of the docs has a column for each title
    "api/pipelines": ("api/pipelines", "`api/pipelines`"),
    "api/dags/{dag_id}/lag": ("api/dags/orders/lag", "`api/dags/<dag>/…`"),
    "api/dags/{dag_id}/map": ("api/dags/orders/map", "`api/dags/<dag>/…`"),
    "api/dags/{dag_id}/batches/{seq}": ("api/dags/orders/batches/1", "`api/dags/<dag>/…`"),
    "api/dags/{dag_id}/runs/{run_id:path}": ("api/dags/orders/runs/r1", "`api/dags/<dag>/…`"),
    "api/dags/{dag_id}/history": ("api/dags/orders/history", "`api/dags/<dag>/…`"),
    "api/dags/{dag_id}/quarantine": ("api/dags/orders/quarantine", VALUES),
    "api/dags/{dag_id}/batches/{seq}/broken": ("api/dags/orders/batches/1/broken", VALUES),
    "bundle/tidegate.js": ("bundle/tidegate.js", "the script"),
    "{_path:path}": ("docs", "anything else"),
}
USERS = {
    # user and role, by what the table says of them
    "anonymous": ("anonymous", None),
    "without the right to see plugins": ("no_plugins", "ADMIN"),
    "may see another DAG only": ("other", "ADMIN"),
    "may see DAGs, but not their runs": ("tasks", "ADMIN"),
    "may see runs, but not their XComs": ("no_xcoms", "ADMIN"),
    "Viewer": ("viewer", "VIEWER"),
    "Op": ("op", "OP"),
    "Admin": ("admin", "ADMIN"),
}
LISTED = {"other": ["visits"], "tasks": []}
"""What lists have for who may not see all of it."""
DOCS = Path(__file__).parents[2] / "docs" / "pages.md"


def test_every_route_asks_the_auth_manager(ask: Ask, bundle: None) -> None:
    """By the DAG of the path; a list has what the user may see. `TIDEGATE_WRITE_DOCS=1` writes the docs' table."""
    paths = {route.path.removeprefix("/") for route in routes.router.routes if isinstance(route, APIRoute)}
    assert paths == {*EXAMPLES}, "each route has a row"
    titles = [*dict.fromkeys(title for _, title in EXAMPLES.values())]
    lines = [f"| who | {' | '.join(titles)} |", "|---" * (len(titles) + 1) + "|"]
    for who, (user, role) in USERS.items():
        answers: dict[str, set[int]] = {title: set() for title in titles}
        for path, title in EXAMPLES.values():
            answer = ask(path, user, role)
            answers[title].add(answer.status_code)
            is_script = title == "the script" and answer.status_code == 200
            assert answer.headers["Cache-Control"] == ("no-cache" if is_script else "no-store")
            if path == "api/pipelines" and answers[title] == {200}:
                seen = ask(path, user, role).json()
                assert [each["pipeline"] for each in seen["pipelines"]] == LISTED.get(user, ["orders", "visits"])
                assert [said.split(":")[0] for said in seen["airflow"]] == ["Airflow's scheduler does not run"]  # it never did
        (of_dag,) = answers["`api/dags/<dag>/…`"]
        # whether a pipeline exists is nothing for who may not see its runs
        assert ask("api/dags/unknown/lag", user, role).status_code == (404 if of_dag == 200 else of_dag)
        lines.append(f"| {who} | {' | '.join(str(code) for title in titles for code in answers[title])} |")
    table, docs = "\n".join(lines), DOCS.read_text(encoding="utf-8")
    if os.environ.get("TIDEGATE_WRITE_DOCS"):
        old = docs[docs.index("| who |") : docs.index("\n\n", docs.index("| who |"))]
        DOCS.write_text(docs.replace(old, table), encoding="utf-8")
    assert table in DOCS.read_text(encoding="utf-8")


def test_what_keeps_airflow_from_running_tasks_is_named_above_the_list_and_each_map(ask: Ask, overviews: Overviews) -> None:
    """A server that does not run, and receivers that hold slots; a run says of its tasks that they wait for one."""
    with create_session() as session:
        session.add(Pool(pool="default_pool", slots=4, include_deferred=False))
    add_dag(receiver_dag(Receiver("posts", "http", "t", listen=Listen(8080), instances=2)))
    for run_id in ("lease1", "lease2"):
        add_run("posts__receive", run_id, "running")
        for index in range(2):
            add_task("posts__receive", run_id, "receive", "running", map_index=index)
    add_run("orders", "crowded", "running")
    add_task("orders", "crowded", "plan", "scheduled")
    said = ask("api/pipelines").json()["airflow"]
    assert [each.split(",")[0] for each in said[1:]] == ["receivers take 4 of the 4 slots of default_pool"]
    assert ask("api/dags/orders/map").json()["airflow"] == said  # as beside a map, where nobody sees the list
    assert overviews()["orders"]["waiting"] == "plan waits for a slot of the pool default_pool (4 of 4 taken)"
    end_run("orders", "crowded")


@pytest.mark.parametrize(
    "path", ["", "/", "docs", "redoc", "openapi.json", "api", "api/dags/~/map", "/api/pipelines", "api/dags/"]
)
def test_no_path_tells_anything_to_who_is_not_known(ask: Ask, path: str) -> None:
    """Nor one that a proxy or a client would write in another way. All DAGs at once are no DAG."""
    assert {ask(each, role=None).status_code for each in (path, path.replace("/", "%2F"), f"x/%2e%2e/{path}")} == {401}
    assert ask(path).status_code == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
def test_other_methods_are_refused_whoever_asks(app: TestClient, ask: Ask, method: str) -> None:
    """In the same way for paths that there are and paths that there are not."""
    for headers in ({}, token_of("admin", "ADMIN")):
        for path, _ in EXAMPLES.values():
            assert app.request(method, f"/tidegate/{path}", headers=headers).status_code == 405


@pytest.mark.parametrize("dag_id", ["orders__replay", "somebodys", "x'; drop table dag; --", "%3Cscript%3E"])
def test_only_dags_of_pipelines_have_maps(ask: Ask, dag_id: str) -> None:
    """Neither a replay's own DAG nor one that somebody tagged like ours."""
    answer = ask(f"api/dags/{dag_id}/map")
    assert (answer.status_code, answer.json()["fix"]) == (404, "Open the page of a pipeline's own DAG")


def test_the_map_shows_batches_and_the_log(ask: Ask, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Committed by two versions, planned, and pending; older batches come by pages. Or each from its plan to its load.

    Brokers are asked once for all who look, within a few seconds.
    """
    view = ask("api/dags/orders/map").json()
    (row,) = view["rows"]
    assert [(b["from"], b["until"], b["kind"], b["transform"]) for b in row["blocks"]] == [
        (0, 10, "committed", "v1"),
        (10, 20, "committed", "v2"),
        (20, 30, "planned", None),
        (30, 45, "pending", None),
    ]
    assert (view["first_seq"], view["last_seq"], view["transforms"], view["error"]) == (1, 3, ["v1", "v2"], None)
    older = ask("api/dags/orders/map?before=2").json()
    assert (older["first_seq"], older["last_seq"]) == (1, 1)
    for _ in range(2):
        assert ask("api/dags/orders/lag").json()["lag"]["total"]["records_behind"] == 25
    monkeypatch.setattr(reading, "now_ms", lambda: 3100)
    view = ask("api/dags/orders/map?axis=time").json()
    assert (view["axis"], view["span_ms"]) == ("time", [1000, 3100])
    spans = [(b["from"], b["until"], b["seqs"][0]) for b in view["rows"][0]["blocks"]]
    assert spans == [(1000, 1005, 1), (2000, 2005, 2), (3000, 3100, 3)]
    assert {ask(f"api/dags/orders/map?{wrong}").status_code for wrong in ("columns=0", "axis=depth")} == {422}
    assert world.brokers.asked == 2  # for the maps, and for the lag


def test_what_is_away_is_named_and_the_rest_is_shown(
    ask: Ask, overviews: Overviews, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker and the catalog, both where both are needed, without the login of an address."""
    no_broker = BrokerUnavailable("no broker answers at http://ann:hidden@here/", fix="Start it, with password='hidden'")
    monkeypatch.setattr(world.brokers, "watermarks", mock.Mock(side_effect=no_broker))
    monkeypatch.setattr(world.table, "history", mock.Mock(side_effect=SinkUnavailable("no catalog answers", fix="Start that")))
    view = ask("api/dags/orders/map").json()
    assert [b["kind"] for b in view["rows"][0]["blocks"]] == KNOWN
    error = "no broker answers at http://***@here/. Start it, with password='***'"
    assert (view["error"], view["error_at_ms"]) == (f"{error}. no catalog answers. Start that", None)
    lag, orders = ask("api/dags/orders/lag").json(), overviews()["orders"]
    assert (lag["lag"], lag["error"]) == (orders["lag"], orders["lag_error"]) == (None, error)
    assert (orders["trouble"], orders["refusal"]) == (None, None)
    one, rejected = ask("api/dags/orders/batches/2").json(), ask("api/dags/orders/quarantine").json()
    assert (one["batch"]["state"], one["batch"]["loads"], one["error"]) == ("committed", [], "no catalog answers. Start that")
    assert (rejected["quarantine"], rejected["error"]) == (None, error)


def test_what_brokers_will_refuse_stops_a_pipeline_before_its_next_run(
    overviews: Overviews, mounted: Any, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that is gone, for example; not a broker that may be back by then, nor a file that this server alone lacks."""
    gone, away = TopicNotFound("there is no topic t", fix="Create it"), KafkaError("cannot read ca.pem")
    monkeypatch.setattr(world.brokers, "watermarks", mock.Mock(side_effect=away))
    assert overviews()["orders"]["refusal"] is None
    monkeypatch.setattr(world.brokers, "watermarks", mock.Mock(side_effect=gone))
    mounted.state.source = reading.PageSource()
    orders = overviews()["orders"]
    assert (orders["trouble"], orders["refusal"]) == ("stopped", str(gone))
    # a pipeline goes on without what is gone where its file says so, and not without its login
    known = mounted.state.source.dags._known
    dag_hash, declared = known["orders"]
    known["orders"] = dag_hash, replace(declared, retires=True)
    assert overviews()["orders"]["refusal"] is None
    refused = KafkaAuthFailed("the broker refuses the credentials", fix="Correct them")
    monkeypatch.setattr(world.brokers, "watermarks", mock.Mock(side_effect=refused))
    mounted.state.source._lags.keep_s = 0
    assert overviews()["orders"]["refusal"] == str(refused)


def test_what_pages_have_read_of_a_table_stops_its_pipeline_in_the_list(
    ask: Ask, overviews: Overviews, mounted: Any, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A foreign or dropped table, until somebody accepts it, or a later plan believes it. The list itself asks no catalog."""
    monkeypatch.setattr(world.table, "history", history := mock.Mock(side_effect=world.table.history))
    mounted.state.source._loads.keep_s = 0
    ledger = Ledger(DatabaseStore(), "orders")
    before = ledger.cursor()

    def refusal() -> str:
        asked = history.call_count
        orders = overviews()["orders"]
        assert (history.call_count, orders["trouble"]) == (asked, "stopped" if orders["refusal"] else None)
        return str(orders["refusal"])

    world.table.owners = frozenset({"returns"})
    assert refusal() == "None"
    assert ask("api/dags/orders/map").json()["row"]["refusal"] == refusal()
    assert "lake.shop.orders belongs to pipeline returns, not to orders" in refusal()
    world.table.exists = False
    try:
        ledger.save_cursor(replace(before, receipt=receipt(2, ODD).summary))
        ask("api/dags/orders/runs/unknown")  # which reads no cursor to judge the table by
        assert "returns" in refusal()
        ask("api/dags/orders/batches/1")
        assert "lake.shop.orders does not hold earlier batches of orders" in refusal()
        # what is accepted of something else does not bring the table back
        ledger.save_accepted(Accepted(seq=3, loss=saved(3, "r3").load.ranges, after=ledger.cursor().last))
        assert refusal() != "None"
        key = ledger.save_accepted(Accepted(seq=3, gone=True, after=ledger.cursor().last))
        assert refusal() == "None"
        ledger.delete(key)
        assert refusal() != "None"
        add_run("orders", "since", "success")
        with create_session() as session:
            session.execute(update(DagRun).filter_by(run_id="since").values(start_date=datetime.now(UTC) + timedelta(hours=1)))
        assert refusal() == "None"
    finally:
        ledger.save_cursor(before)


def test_nobody_waits_for_a_broker_or_a_catalog_that_hangs(
    ask: Ask, overviews: Overviews, mounted: Any, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many look: each sees what is known. What came meanwhile is shown to the next who looks."""
    mounted.state.source = reading.PageSource(wait_s=0.01)
    answers = Event()

    def hang(_self: object, connection: str, question: Callable[[object], object]) -> object:
        assert connection == "kafka_other" or answers.wait(30)
        return question(world.brokers)

    monkeypatch.setattr(caches.Kafka, "ask", hang)
    monkeypatch.setattr(IcebergReader, "history", lambda *_: answers.wait(30) and world.table.history(""))
    try:
        with ThreadPoolExecutor(60) as pool:
            waiting = [pool.submit(ask, "api/dags/orders/lag") for _ in range(60)]
            assert {each.result(30).json()["lag"] for each in waiting} == {None}
        view = ask("api/dags/orders/map").json()
        assert [b["kind"] for b in view["rows"][0]["blocks"]] == KNOWN
        assert (view["waiting_for"], view["soon"], view["error"]) == (["log", "table"], True, None)
        assert {name: each["lag_soon"] for name, each in overviews().items()} == {"orders": True, "visits": False}
        assert {ask(f"api/dags/orders/{path}").json()["soon"] for path in ("batches/1", "runs/r1", "history")} == {True}
    finally:
        answers.set()
    while (view := ask("api/dags/orders/map").json())["soon"]:
        continue
    assert ([b["kind"] for b in view["rows"][0]["blocks"]][-1], view["transforms"]) == ("pending", ["v1", "v2"])


def test_a_quarantine_is_shown_with_reasons_samples_and_the_replay(
    ask: Ask, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is typed where the platform is. The map says whether there is one. What no commit holds does not count."""
    assert [ask(f"api/dags/{of}/map").json()["quarantine"] for of in PIPELINES] == ["lake.shop.bad", None]
    found = ask("api/dags/orders/quarantine").json()["quarantine"]
    assert (found["table"], found["records"], found["left"], found["gone"]) == ("lake.shop.bad", 3, 1, 0)
    assert found["replay"] == "tidegate replay orders --from t:0:3 --until t:0:19"
    monkeypatch.setenv(reading.TYPED, "docker compose exec x")
    assert ask("api/dags/orders/quarantine").json()["quarantine"]["replay"] == f"docker compose exec x {found['replay']}"
    (reason,) = found["reasons"]
    assert (reason["reason"], reason["first"], reason["last"], reason["sample"]) == ("not JSON", "t-0 at 3", "t-0 at 18", "<3>")
    assert ask("api/dags/visits/quarantine").json()["quarantine"] is None


def test_values_of_records_are_shown_as_they_are_beside_commands_as_they_are_typed(
    ask: Ask, overviews: Overviews, mounted: Any, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value may look like a command."""
    monkeypatch.setenv(reading.TYPED, 'ssh "x" docker\\exec')
    value = "`tidegate remove orders`"
    world.tables["lake.shop.bad"] = FakeReader(rejected={Rejection("t", 0, 3, "decode", value, "a1"): value.encode()})
    (reason,) = ask("api/dags/orders/quarantine").json()["quarantine"]["reasons"]
    assert (reason["reason"], reason["sample"]) == (value, value)
    assert ask("api/dags/orders/batches/1/broken").json()["broken"]["records"][0]["reason"] == value
    away = SinkUnavailable("no catalog", fix="Run `tidegate up`, or `airflow pools set`")
    monkeypatch.setattr(IcebergReader, "rejections", mock.Mock(side_effect=away))
    monkeypatch.setattr(world.brokers, "watermarks", mock.Mock(side_effect=KafkaError(away.message, fix=away.fix)))
    mounted.state.source = reading.PageSource(wait_s=20)
    typed = 'no catalog. Run `ssh "x" docker\\exec tidegate up`, or `ssh "x" docker\\exec airflow pools set`'
    assert ask("api/dags/orders/quarantine").json()["error"] == typed
    orders = overviews()["orders"]
    assert orders["lag_error"] == ask("api/dags/orders/map").json()["error"] == typed
    assert orders["command"] == 'ssh "x" docker\\exec tidegate up'


def test_a_command_of_airflow_is_typed_as_the_embedded_platform_takes_it(
    ask: Ask, overviews: Overviews, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which `airflow` alone would not find: in a sentence, and to be copied."""
    add_run("orders", "no_pool", "running")
    add_task("orders", "no_pool", "load", "scheduled", pool="tidegate_lake_shop_orders")
    make = "airflow pools set tidegate_lake_shop_orders 1 'Loads into one Tidegate sink at the same time'"
    for where in ("embedded", "elsewhere"):
        if where == "embedded":
            monkeypatch.setenv(reading.EMBEDDED, "/x")
        else:
            monkeypatch.delenv(reading.EMBEDDED)
        orders, command = overviews()["orders"], f"tidegate {make}" if where == "embedded" else make
        assert (orders["command"], f"Run `{command}`" in orders["says"]) == (command, True)
    end_run("orders", "no_pool")


def test_the_first_broken_records_of_a_batch_are_shown_to_who_asks(ask: Ask, world: World) -> None:
    """Of its table and of the quarantine, now; with the SQL as it is typed."""
    world.table.rejected = {Rejection("t", 0, 12, "decode", "<b>", ""): None}
    found = ask("api/dags/orders/batches/2/broken").json()["broken"]
    assert [(each["place"], each["reason"]) for each in found["records"]] == [
        ("t-0 at 12", "<b>"),
        ("t-0 at 17", "not JSON"),
        ("t-0 at 18", "not JSON"),
    ]
    assert [each[:21] for each in found["commands"]] == ['tidegate sql "SELECT '] * 2
    assert ask("api/dags/orders/batches/99/broken").json()["broken"] is None


def test_a_run_with_an_odd_id_has_its_batch(ask: Ask) -> None:
    """Its reasons, its loads, and numbers that JavaScript can hold; a run without a batch has none."""
    add_run("orders", ODD, "success")
    found = ask("api/dags/orders/runs/odd%2Brun~1%3A2.3").json()["batch"]
    assert (found["seq"], found["run_id"], found["who"]) == (2, ODD, "manual")
    reasons = {"from_reason": "cursor", "until_reason": "log end"}
    assert found["partitions"] == [{"topic": "t", "partition": 0, "from_offset": 10, "until_offset": 20, **reasons}]
    assert found["loads"][0]["snapshot"] == str(2**60 + 2)
    assert ask("api/dags/orders/batches/2").json()["batch"] == found
    assert ask("api/dags/orders/runs/unknown").json()["batch"] is None
    assert ask("api/dags/orders/batches/99").json()["batch"] is None


def test_a_run_that_found_nothing_is_told_from_one_that_failed(ask: Ask) -> None:
    """And from one that has not planned yet; each says why it has no batch."""
    add_run("orders", "empty", "success", "Nothing to read: no new records.")
    add_task("orders", "empty", "plan", "skipped")
    add_run("orders", "early", "failed", "Failed in plan: no broker.")
    add_run("orders", "soon", "queued")
    for run_id, kind, reason in (
        ("empty", "nothing", "Nothing to read: no new records."),
        ("early", "failed", "Failed in plan: no broker."),
        ("soon", "planning", "It has not saved a range yet."),
        ("unknown", "other", "Airflow does not know this run."),
    ):
        found = ask(f"api/dags/orders/runs/{run_id}").json()
        assert (found["kind"], found["reason"]) == (kind, reason)
    kinds = {mark["run_id"]: mark["kind"] for mark in ask("api/dags/orders/map").json()["runs"]}
    assert (kinds["empty"], kinds["early"]) == ("nothing", "failed")


def test_the_run_of_a_replay_shows_its_chunks_and_what_it_replaced(ask: Ask, world: World) -> None:
    """A dry run what it would replace. Who may see runs of the replays' DAG alone sees them, and nothing else."""
    chunk = (OffsetRange("t", 0, 0, 10),)
    ledger = Ledger(DatabaseStore(), "orders")
    saved_replay = replay_of("orders", "again", "x", (chunk,), "lake.shop.orders", "v2", {}, 1000, request={"versions": "=v1"})
    ledger.save_replay(saved_replay, "0" * 8, ledger.listing(), keep=9)
    add_run("orders__replay", "again", "success")
    report = {"replaces": [{"load": "batch 1", "offsets": 10, "rows": 10, "transform": "v1"}], "lost": []}
    add_task("orders__replay", "again", "plan", "success", report=report)
    add_task("orders__replay", "again", "verify", "success", return_value={"chunks": 1, "rows": 9})
    world.table.found = [receipt(1, "r1")]
    assert ask("api/dags/orders__replay/runs/again").json()["replay"]["chunks"][0]["rows"] is None
    # the table has been asked just now, before the run ended
    world.table.found.append(Receipt(write_of("orders", 0, "again", chunk, "v2", "b", replay="x"), 5, 2000, rows=9))
    with create_session() as session:
        session.execute(update(DagRun).filter_by(run_id="again").values(end_date=datetime.now(UTC)))
    found = ask("api/dags/orders__replay/runs/again").json()
    assert (found["kind"], found["replay"]["chunks"][0]["rows"], found["replay"]["dry_run"]) == ("replay", 9, False)
    assert (found["replay"]["replaces"], found["replay"]["verdict"]) == (report["replaces"], {"chunks": 1, "rows": 9})
    (replay,) = ask("api/dags/orders/batches/1").json()["batch"]["replays"]
    assert (replay["run_id"], replay["dag_id"], replay["transform"]) == ("again", "orders__replay", "v2")
    assert {mark["run_id"]: mark["kind"] for mark in ask("api/dags/orders/map").json()["runs"]}["again"] == "replay"
    for path in ("batches/1", "runs/r1"):
        hidden = ask(f"api/dags/orders/{path}", "no_replays").json()["batch"]
        assert (hidden["replays"], hidden["explained"]) == ([], [])
    assert "again" not in {mark["run_id"] for mark in ask("api/dags/orders/map", "no_replays").json()["runs"]}
    add_run("orders__replay", "dry", "success", "Dry run: nothing was changed.")
    add_task("orders__replay", "dry", "plan", "skipped", dry_run={"total": 10, "replaces": report["replaces"]})
    dry = ask("api/dags/orders__replay/runs/dry").json()["replay"]
    assert (dry["dry_run"], dry["offsets"], dry["chunks"], dry["replaces"]) == (True, 10, [], report["replaces"])
    assert ask("api/dags/orders__replay/map").status_code == 404
    assert ask("api/dags/orders__replay/runs/again", "other").status_code == 403


def test_what_loads_handed_on_is_shown_with_their_batch(ask: Ask) -> None:
    """Seconds by phase; broken records and a cold Spark are marked in the map."""
    add_run("orders", "r1", "success")
    seen = {"records": 10, "rows": 10, "errors": 2}
    add_task("orders", "r1", "load", "success", return_value={"observed": seen, "seconds": {"write": 0.5}, "spark_age_s": 3.0})
    assert ask("api/dags/orders/batches/1").json()["batch"]["load"]["seconds"] == {"write": 0.5}
    assert blocks(ask, "marks") == [["cold", "errors"], [], [], []]


def test_the_history_has_the_batches_of_its_hours(ask: Ask, mounted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the lag of each, the lag now, and what is to be expected."""
    monkeypatch.setattr(reading, "now_ms", lambda: 10_000)
    view = ask("api/dags/orders/history?hours=1&buckets=10").json()
    assert [(p["seq"], p["lag"], p["records"], p["rows"]) for p in view["points"]] == [(3, 10, 30, None)]
    each = ask("api/dags/orders/history?hours=1&buckets=300").json()
    assert (each["complete"], each["lag"], each["error"], each["faults"]) == (True, 25, None, [])
    assert set(each["forecast"]) == {"next_bound", "bound_by", "interval_s", "arrival_per_s", "drain_s", "verdict"}
    # nothing drains a pipeline that is paused
    known, intervals = mounted.state.source.dags._known, []
    known["orders"] = known["orders"][0], replace(known["orders"][1], interval_s=7.0, mean_interval_s=60.0)
    for is_paused in (True, False):
        with create_session() as session:
            session.get_one(DagModel, "orders").is_paused = is_paused
        intervals.append(ask("api/dags/orders/history").json()["forecast"]["interval_s"])
    assert intervals == [None, 60.0]
    monkeypatch.setattr(reading, "now_ms", lambda: 3_600_000 + 2500)
    assert [p["seq"] for p in ask("api/dags/orders/history?hours=1&buckets=300").json()["points"]] == [3]
    assert ask("api/dags/orders/history?hours=0").status_code == 422


def test_the_overview_has_the_lag_and_what_the_active_run_waits_for(ask: Ask, overviews: Overviews) -> None:
    """A slot, a retry, or a server that is away; and a pipeline's map says the same."""
    pool = "tidegate_lake_shop_visits"
    add_run("visits", "v1", "running")
    add_task("visits", "v1", "load", "scheduled", pool=pool)
    of_load: dict[str, Any] = {"dag_id": "visits", "task_id": "load", "run_id": "v1"}

    def waiting(**changes: Any) -> Any:
        with create_session() as session:
            session.execute(update(TaskInstance).filter_by(**of_load).values(**changes or {"state": TaskInstance.state}))
        return overviews()["visits"]["waiting"]

    make = f"Run `airflow pools set {pool} 1 'Loads into one Tidegate sink at the same time'`"
    assert waiting() == f"load waits for the pool {pool}, which does not exist. {make}"
    assert overviews()["visits"]["command"] == make[5:-1]
    with create_session() as session:
        session.add(Pool(pool=pool, slots=0, include_deferred=False))
    assert waiting() == f"load waits for a slot of the pool {pool}, which has none. {make}"
    assert waiting(state="up_for_retry", retry_delay_override=5.0) == "load is tried again in 0 s (SparkUnavailable)"
    assert waiting(state="running") is None
    with create_session() as session:
        XComModel.set(key=WAITING, value="SparkUnavailable: away", **of_load, session=session)
    assert waiting() == "load waits for a server: SparkUnavailable: away"
    orders, visits = overviews()["orders"], overviews()["visits"]
    assert (orders["lag"]["records_behind"], orders["lag_points"], orders["lag_error"]) == (25, [10, 10, 10], None)
    assert visits["lag"] is None
    maps = {name: ask(f"api/dags/{name}/map").json()["row"] for name in PIPELINES}
    assert maps == {"orders": orders | {"lag": maps["orders"]["lag"]}, "visits": visits}
    assert visits["trouble"] == "waiting"
    end_run("visits", "v1")


def test_a_pipeline_whose_file_cannot_be_read_stays_in_the_list(overviews: Overviews) -> None:
    """Who may not see import errors learns that there is one. A deleted file is none, nor is one of another bundle."""
    why = "Traceback\n  File x\ntidegate.core.errors.ConfigError: pipelines/visits.yaml: line 3: <script>alert(1)</script>"
    why += "\n\nThe above exception was the direct cause of the following exception:\n\nTraceback\nSerializationError: x"
    with create_session() as session:
        session.get_one(DagModel, "visits").is_stale = True
        session.add(DagBundleModel(name="others"))
    assert "visits" not in overviews()
    with create_session() as session:
        for name, bundle in (("pipelines/orders", "others"), *((f"pipelines/{n}", "dags") for n in ("visits", "never_read"))):
            session.add(ParseImportError(filename=f"{name}.yaml", bundle_name=bundle, stacktrace=why, timestamp=NOW))
        session.add(ParseImportError(filename="receivers/web.yaml", bundle_name="dags", stacktrace=why, timestamp=NOW))
    try:
        found = overviews()
        troubles = {name: each["trouble"] for name, each in found.items()}
        assert troubles == {"visits": "file", "never_read": "file", "orders": None}
        assert found["visits"]["file_error"] == "pipelines/visits.yaml: line 3: <script>alert(1)</script>"
        assert found["visits"]["table"] == "lake.shop.visits"
        assert set(overviews("tasks")) == {"never_read"}
        blind = overviews("blind")
        assert set(blind) == {"orders", "visits"}
        assert blind["visits"]["file_error"] == "Its file cannot be read. Who may see import errors sees why."
    finally:
        with create_session() as session:
            session.get_one(DagModel, "visits").is_stale = False
            session.execute(delete(ParseImportError))


def set_dag(dag_id: str, **columns: Any) -> None:
    with create_session() as session:
        for column, value in columns.items():
            setattr(session.get_one(DagModel, dag_id), column, value)


@pytest.mark.parametrize("seen", [{"is_stale": True}, {"last_parsed_time": NOW - timedelta(seconds=11)}])
def test_a_pipeline_that_has_saved_something_stays_in_the_list_without_its_file(
    ask: Ask, overviews: Overviews, monkeypatch: pytest.MonkeyPatch, seen: dict[str, Any]
) -> None:
    """Airflow deletes an import error of a YAML file within seconds; and a file may be gone. Its map says the same.

    It counts as gone once other DAGs of the Python file were parsed without it. The command is as it is typed where the
    platform is.
    """
    monkeypatch.setenv(reading.TYPED, "docker compose exec x")
    set_dag("visits", last_parsed_time=NOW)
    set_dag("orders", last_parsed_time=NOW - timedelta(seconds=9))
    assert overviews()["orders"]["trouble"] is None
    set_dag("orders", **seen)
    try:
        orders = overviews()["orders"]
        assert (orders["trouble"], orders["command"]) == ("file", "docker compose exec x tidegate check")
        assert "`docker compose exec x tidegate remove orders`" in orders["says"]
        row = ask("api/dags/orders/map").json()["row"]
        assert (row["file_error"], row["command"]) == (orders["file_error"], orders["command"])
        # a first range is something, too
        ledger, cursor = Ledger(DatabaseStore(), "orders"), DatabaseStore().get("tidegate.orders.cursor")
        ledger.delete("tidegate.orders.cursor")
        try:
            assert overviews()["orders"]["trouble"] == "file"
        finally:
            DatabaseStore().put("tidegate.orders.cursor", cursor, "")
    finally:
        set_dag("orders", is_stale=False, last_parsed_time=None)
        set_dag("visits", last_parsed_time=None)


def test_what_is_odd_in_one_place_hides_nothing_else(ask: Ask, overviews: Overviews) -> None:
    """XComs of somebody, a backfill, and a run of a replay's name."""
    odd: list[dict[str, Any]] = [{"report": [1]}, {"dry_run": 5}, {"report": "x"}]
    for n, said in enumerate(odd):
        add_run("orders__replay", f"odd{n}", "success")
        add_task("orders__replay", f"odd{n}", "plan", "success", **said)
        add_task("orders__replay", f"odd{n}", "verify", "success", return_value="done")
        assert ask(f"api/dags/orders__replay/runs/odd{n}").json()["replay"]["verdict"] is None
    add_run("visits", "backfill__1", "failed", "Failed in load: x.", run_type="backfill")
    assert overviews()["visits"]["failure"] is None
    add_run("orders", "again", "success", "Nothing to read: no new records.")
    assert ask("api/dags/orders/runs/again").json()["kind"] != "replay"


def test_the_list_asks_as_often_however_many_runs_there_are(ask: Ask) -> None:
    """At most ten questions to the database for a pipeline, and five for all of them."""
    asked: list[object] = []
    event.listen(settings.engine, "before_cursor_execute", count := lambda *statement: asked.append(statement))

    def questions() -> int:
        asked.clear()
        found = ask("api/pipelines").json()["pipelines"]
        assert len(asked) <= 5 + 10 * len(found)
        return len(asked)

    try:
        ask("api/pipelines")
        before = questions()
        for n in range(20):
            add_run("orders", f"many_{n}", "success", "a note")
        assert questions() == before
    finally:
        event.remove(settings.engine, "before_cursor_execute", count)


def test_json_is_made_outside_the_event_loop(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """On which Airflow's own routes wait."""
    on_loop: list[object] = []

    def watched(answer: object) -> bytes:
        on_loop.append(asyncio._get_running_loop())
        return encode(answer)

    monkeypatch.setattr(routes, "encode", watched)
    paths = ("pipelines", *(f"dags/orders/{path}" for path in ("lag", "map", "batches/1", "runs/r1", "history")))
    assert {ask(f"api/{path}").status_code for path in paths} == {200}
    assert on_loop == [None] * len(paths)


def test_a_dag_that_is_gone_is_forgotten(ask: Ask, mounted: Any) -> None:
    """Servers run for months, and DAGs come and go."""
    dags, ours = mounted.state.source.dags, {"dag_id": "visits", "name": MARK}
    assert {*PIPELINES} <= {*dags.pipelines()}
    with create_session() as session:
        assert session.execute(delete(DagTag).filter_by(**ours)).rowcount == 1  # type: ignore[attr-defined]
    try:
        assert "visits" not in dags.pipelines()
        assert "visits" not in dags._known
    finally:
        with create_session() as session:
            session.add(DagTag(**ours))
    assert "visits" in dags.pipelines()


def test_a_dag_that_has_changed_is_read_again(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """And only then: each page asks for it every few seconds."""
    dags, decode = Dags(), mock.Mock(wraps=_plan_doc)
    monkeypatch.setattr("tidegate.ui.database._plan_doc", decode)
    assert {*dags.pipelines()} == {"orders", "visits"}
    read = decode.call_count
    assert {*dags.pipelines()} == {"orders", "visits"}
    assert decode.call_count == read
    with create_session() as session:
        dag = pipeline_dag(replace(PIPELINES["visits"], sink=Sink("lake.shop.moved")), spark_jobs=Path())
        SerializedDagModel.write_dag(LazyDeserializedDAG.from_dag(dag), bundle_name="dags", session=session)
    found = dags.find("visits")
    assert found is not None
    assert (found.declared.table, decode.call_count) == ("lake.shop.moved", read + 1)


def test_the_overview_says_what_stopped_a_pipeline(ask: Ask, overviews: Overviews) -> None:
    """First, with the words of the run's note; and the range that the next run adopts."""
    add_run("orders", "r3", "failed", why := "Failed in load: Spark is away. Start it.")
    (name, orders), (_, visits) = overviews().items()
    assert (name, orders["trouble"]) == ("orders", "stopped")
    assert orders["failure"] == {"run_id": "r3", "since_ms": int(NOW.timestamp() * 1000), "why": why}
    shown = ask("api/dags/orders/runs/r3")
    assert shown.json()["reason"] == why
    assert orders["pending"] == {"seq": 3, "run_id": "r3", "offsets": 10}
    assert (visits["pipeline"], visits["seq"], visits["trouble"]) == ("visits", 0, None)


def test_what_cannot_be_read_is_named_and_the_rest_is_shown(ask: Ask, mounted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A receipt of the table, a saved range, and a cursor that a secrets backend shadows, which tasks then read instead."""
    properties = {**receipt(1, "r1").write.to_properties(), "tidegate.ranges": "{"}
    with monkeypatch.context() as patch:
        patch.setattr(IcebergReader, "history", lambda *_: TableHistory(commits=(TableCommit(1, 1, properties, rows=1),)))
        assert blocks(ask) == [*KNOWN, "pending"]
        assert "cannot be read" in ask("api/dags/orders/map").json()["faults"][0]
    key = Ledger(DatabaseStore(), "orders").save_range(saved(4, "r4"))
    DatabaseStore().put(key, '{"broken', "")
    try:
        assert blocks(ask) == [*KNOWN, "pending"]
        assert key in ask("api/dags/orders/map").json()["faults"][0]
        assert ask("api/dags/orders/batches/4").status_code == 500
    finally:
        DatabaseStore().delete(key)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "cursor", lambda _: cursor_from("{", "orders"))
        answer = ask("api/dags/orders/batches/2").json()
        assert (answer["batch"]["seq"], "tidegate.orders.cursor" in answer["error"]) == (2, True)
    monkeypatch.setenv("AIRFLOW_VAR_TIDEGATE.ORDERS.CURSOR", "mine")
    mounted.state.source = reading.PageSource(wait_s=20)
    orders, visits = ask("api/pipelines").json()["pipelines"]
    assert (orders["pipeline"], orders["trouble"]) == ("orders", "unreadable")
    assert "EnvironmentVariablesBackend has a value of that name" in orders["faults"][-1]
    of_map = ask("api/dags/orders/map").json()
    assert of_map["row"]["says"] == orders["says"] == of_map["faults"][-1]
    assert not any("Backend" in fault for fault in visits["faults"])


def test_a_connection_has_one_client_which_is_closed_once_nobody_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or when the connection has changed, or when the server ends."""
    opened: list[Any] = []

    def client(settings: str, **_: float) -> Any:
        opened.append(mock.Mock(settings=settings))
        return opened[-1]

    def closed() -> list[bool]:
        return [each.close.called for each in opened]

    now, held = 0.0, {"a": "a", "b": "b"}
    monkeypatch.setattr(caches, "AdminBrokers", client)
    monkeypatch.setattr(caches, "_settings", held.__getitem__)
    kafka: Any = caches.Kafka(clock=lambda: now)
    asked = [kafka.ask(name, lambda brokers: brokers.settings) for name in "aab"]
    assert (asked, len(opened)) == (["a", "a", "b"], 2)
    now += caches.IDLE_S
    kafka.ask("a", id)
    assert closed() == [False, False]
    now += 1
    held["a"] = "moved"
    assert kafka.ask("a", lambda brokers: brokers.settings) == "moved"
    assert closed() == [True, True, False]
    kafka.close()
    assert all(closed())


def test_the_connections_to_brokers_end_with_the_server(monkeypatch: pytest.MonkeyPatch, database: None) -> None:
    """Airflow's own app enters and leaves ours."""
    monkeypatch.setattr(caches.Kafka, "close", close := mock.Mock())
    with TestClient(routes.make_app()):
        assert close.call_count == 0
    assert close.call_count == 1


@pytest.fixture
def links(app: TestClient, database: None, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What Airflow answers a Viewer for the links of a task, also where the bundle is not built."""
    monkeypatch.setattr(plugins_manager, "get_operator_extra_links", lambda: [PageLink()])

    def asked(dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> Any:
        path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/taskInstances/{task_id}/links?map_index={map_index}"
        return app.get(path, headers=token_of("v", "VIEWER")).json()["extra_links"]

    return asked


def test_each_operator_with_the_link_exists() -> None:
    """Airflow finds them by name and module, and these alone stand in the link; without pages there are no links."""
    for operator in PageLink.operators:
        found = getattr(importlib.import_module(operator.__module__), operator.__name__)
        assert (found.__name__, found.__module__) == (operator.__name__, operator.__module__)
    without = {"MaintainOperator", "PlanMaintenanceOperator", "DoctorOperator", "DoctorLoadOperator"}
    assert {operator.__name__ for operator in PageLink.operators} == {n for n in vars(dags) if n.endswith("Operator")} - without
    assert bool(TidegatePlugin.operator_extra_links) == bool(TidegatePlugin.react_apps)


@pytest.mark.parametrize(
    ("dag_id", "run_id", "task_id", "chunk"), [("orders", "odd+run~2:7", "plan", -1), ("orders__replay", "chunks", "load", 3)]
)
def test_a_task_leads_to_the_page_of_its_run(
    links: Callable[..., Any], dag_id: str, run_id: str, task_id: str, chunk: int
) -> None:
    """While the run is still going, whatever its id is; every chunk to the same one. A relative address keeps a base path."""
    add_run(dag_id, run_id, "running")
    add_task(dag_id, run_id, task_id, "running", map_index=chunk)
    found = links(dag_id, run_id, task_id, chunk)
    assert found == {"Tidegate": f"dags/{dag_id}/runs/{quote(run_id, safe='')}/plugin/range"}


def test_the_task_of_a_stranger_has_no_link(links: Callable[..., Any]) -> None:
    """Airflow matches mapped tasks by the name of their class alone."""

    class LoadOperator(BaseOperator):
        def __init__(self, *, chunks: list[int], **more: Any) -> None:
            super().__init__(**more)
            self.chunks = chunks

    with DAG("strange", schedule=None) as dag:
        LoadOperator.partial(task_id="load").expand(chunks=[[0, 1], [2]])
    add_dag(dag)
    add_run("strange", "r", "running")
    add_task("strange", "r", "load", "running", map_index=0)
    assert links("strange", "r", "load", 0) == {"Tidegate": None}

"""Who is answered what by the routes of the pages, in Airflow's own app in this process, on SQLite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from airflow import settings
from airflow.api_fastapi.app import create_app, get_auth_manager, purge_cached_app
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity, DagDetails
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.models.serialized_dag import SerializedDagModel
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import LazyDeserializedDAG
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from fastapi.testclient import TestClient
from httpx import Response
from starlette.routing import Mount

from tidegate.airflow.dag_factory import pipeline_dag, replay_dag
from tidegate.airflow.database_store import DatabaseStore
from tidegate.core.audit.table import TableCommit, TableHistory
from tidegate.core.config.pipeline import Pipeline, Sink, Source
from tidegate.core.errors import BrokerUnavailable, SinkUnavailable
from tidegate.core.load.receipt import LoadId, Receipt
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition
from tidegate.core.offsets.watermarks import Watermarks
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.saved_range import Decision, SavedRange
from tidegate.iceberg.history import IcebergReader
from tidegate.ui import PREFIX, reading, routes, server

A = TopicPartition("t", 0)
PIPELINES = {name: Pipeline(name, Source(("t",)), "m:f", Sink(f"lake.shop.{name}")) for name in ("orders", "visits")}
ODD = "odd+run~1:2.3"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class AuthManager(SimpleAuthManager):
    """`other` may see the DAG visits alone, `tasks` no runs, and `no_plugins` no plugin."""

    def is_authorized_dag(
        self,
        *,
        user: SimpleAuthManagerUser,
        access_entity: DagAccessEntity | None = None,
        details: DagDetails | None = None,
        **more: Any,
    ) -> bool:
        """As Airflow's own, and more strictly."""
        if user.username == "other" and (details is None or details.id != "visits"):
            return False
        if user.username == "tasks" and access_entity is DagAccessEntity.RUN:
            return False
        return super().is_authorized_dag(user=user, access_entity=access_entity, details=details, **more)

    def is_authorized_view(self, *, access_view: AccessView, user: SimpleAuthManagerUser) -> bool:
        """As Airflow's own, and more strictly."""
        if user.username == "no_plugins" and access_view is AccessView.PLUGINS:
            return False
        return super().is_authorized_view(access_view=access_view, user=user)


def saved(seq: int, run_id: str, pipeline: str = "orders") -> SavedRange:
    ranges = (OffsetRange("t", 0, 10 * (seq - 1), 10 * seq),)
    return SavedRange(pipeline, seq, run_id, ranges, (Decision(A, "cursor", "log end"),), {}, {"max_records": 10}, 1000 * seq)


def receipt(seq: int, run_id: str, transform: str = "v1") -> Receipt:
    return Receipt(
        LoadId("orders", seq, run_id, saved(seq, run_id).ranges, transform, f"a{seq}"), 2**60 + seq, 1000 * seq + 5, 10
    )


class World:
    """What brokers and table answer; an error is raised."""

    def __init__(self) -> None:
        self.log: Watermarks | Exception = Watermarks({A: 0}, {A: 45})
        self.receipts: list[Receipt] | Exception = [receipt(1, "r1"), receipt(2, ODD, "v2")]
        self.asked = 0

    def watermarks(self, _topics: Any, **_more: Any) -> Watermarks:
        self.asked += 1
        if isinstance(self.log, Exception):
            raise self.log
        return self.log

    def next_timestamps(self, positions: Any, **_more: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(positions, 0)

    def retention_ms(self, _topics: Any) -> dict[str, int]:
        return {}

    def history(self, _table: str) -> TableHistory:
        if isinstance(self.receipts, Exception):
            raise self.receipts
        loads = (TableCommit(r.snapshot, r.committed_at_ms, r.load.to_properties(), r.rows) for r in self.receipts[::-1])
        return TableHistory(tuple(loads))


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
    ledger.save_cursor(Cursor("orders", 2, {A: 20}))
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


def add_run(dag_id: str, run_id: str, state: str, note: str | None = None) -> None:
    with create_session() as session:
        run = DagRun(dag_id=dag_id, run_id=run_id, run_type="manual", state=DagRunState(state), run_after=NOW, queued_at=NOW)
        session.add(run)
        session.flush()
        run.note = note


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(server.Kafka, "ask", lambda _self, _connection, question: question(made))
    monkeypatch.setattr(IcebergReader, "history", made.history)
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
def ask(database: None, world: World, app: TestClient) -> Callable[..., Response]:
    """Ask for a path as a user of some name and role; nothing is known from earlier tests."""
    routed: Any = app.app
    (mounted,) = [route.app for route in routed.routes if isinstance(route, Mount) and route.path == PREFIX]
    mounted.state.source = reading.Source()  # type: ignore[attr-defined]

    def asked(path: str, user: str = "admin", role: str | None = "ADMIN") -> Response:
        headers = {}
        if role is not None:
            token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=user, role=role))
            headers["Authorization"] = f"Bearer {token}"
        answer: Response = app.get(f"/tidegate/{path}", headers=headers)
        return answer

    return asked


@pytest.fixture
def bundle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tidegate.js").write_text("1")
    monkeypatch.setattr(routes, "BUNDLE", tmp_path / "tidegate.js")


OF_ORDERS = ("lag", "map", "batches/1", "runs/r1", "trend")
USERS = (
    # user, role, and the answers of: a DAG's routes, the list and the bundle, what does not exist
    ("anonymous", None, 401, 401, 401),
    ("no_plugins", "ADMIN", 403, 403, 403),
    ("other", "ADMIN", 403, 200, 404),
    ("tasks", "ADMIN", 403, 200, 404),
    ("viewer", "VIEWER", 200, 200, 404),
    ("op", "OP", 200, 200, 404),
    ("admin", "ADMIN", 200, 200, 404),
)


@pytest.mark.parametrize(("user", "role", "of_dag", "of_list", "of_nothing"), USERS, ids=[u[0] for u in USERS])
def test_every_route_asks_the_auth_manager(
    ask: Callable[..., Response],
    bundle: None,
    user: str,
    role: str | None,
    of_dag: int,
    of_list: int,
    of_nothing: int,
) -> None:
    """By the DAG of the path; a list has what the user may see, and nothing is answered to who is not known."""
    answers = {path: ask(f"api/dags/orders/{path}", user, role) for path in OF_ORDERS}
    assert {path: answer.status_code for path, answer in answers.items()} == dict.fromkeys(OF_ORDERS, of_dag)
    seen = ask("api/pipelines", user, role)
    assert seen.status_code == of_list
    if of_list == 200:
        names = [each["pipeline"] for each in seen.json()["pipelines"]]
        assert names == {"other": ["visits"], "tasks": []}.get(user, ["orders", "visits"])
    assert ask("bundle/tidegate.js", user, role).status_code == of_list
    for path in ("", "docs", "redoc", "openapi.json", "api"):
        assert ask(path, user, role).status_code == of_nothing, path
    # whether a pipeline exists is nothing for who may not see its runs
    assert ask("api/dags/unknown/lag", user, role).status_code == (404 if of_dag == 200 else of_dag)


def test_no_route_writes(ask: Callable[..., Response]) -> None:
    """What pages change goes through Airflow's own API."""
    assert {method for route in routes.router.routes for method in route.methods} == {"GET"}  # type: ignore[attr-defined]


def test_only_dags_of_pipelines_have_pages(ask: Callable[..., Response]) -> None:
    """Neither a replay's own DAG nor one that somebody tagged like ours."""
    for dag_id in ("orders__replay", "somebodys", "x'; drop table dag; --", "%3Cscript%3E"):
        answer = ask(f"api/dags/{dag_id}/map")
        assert answer.status_code == 404
        assert answer.json()["fix"] == "Open the page of a pipeline's own DAG"


def test_the_map_shows_batches_and_the_log(ask: Callable[..., Response], world: World) -> None:
    """Committed by two versions, planned, and pending; older batches come by pages."""
    view = ask("api/dags/orders/map").json()
    (row,) = view["rows"]
    kinds = [(b["from"], b["until"], b["kind"], b["transform"]) for b in row["blocks"]]
    assert kinds == [
        (0, 10, "committed", "v1"),
        (10, 20, "committed", "v2"),
        (20, 30, "planned", None),
        (30, 45, "pending", None),
    ]
    assert (view["first_seq"], view["last_seq"], view["transforms"], view["error"]) == (1, 3, ["v1", "v2"], None)
    older = ask("api/dags/orders/map?before=2").json()
    assert (older["first_seq"], older["last_seq"]) == (1, 1)
    assert ask("api/dags/orders/map?columns=0").status_code == 422


def test_what_is_away_is_named_and_the_rest_is_shown(ask: Callable[..., Response], world: World) -> None:
    """The broker, then the catalog as well."""
    world.log = BrokerUnavailable("no broker answers", fix="Start it")
    world.receipts = SinkUnavailable("no catalog answers", fix="Start that")
    view = ask("api/dags/orders/map").json()
    assert [b["kind"] for b in view["rows"][0]["blocks"]] == ["committed", "committed", "planned"]
    assert view["error"] == {"message": "no broker answers", "fix": "Start it"}
    lag = ask("api/dags/orders/lag").json()
    assert (lag["lag"], lag["error"]["fix"]) == (None, "Start it")
    one = ask("api/dags/orders/batches/2").json()
    assert (one["batch"]["state"], one["batch"]["loads"], one["error"]["message"]) == ("committed", [], "no catalog answers")


def test_brokers_are_asked_once_for_all_who_look(ask: Callable[..., Response], world: World) -> None:
    """Within a few seconds."""
    for _ in range(3):
        assert ask("api/dags/orders/lag").json()["lag"]["total"]["records_behind"] == 25
    assert world.asked == 1


def test_a_broker_that_hangs_keeps_no_other_route_waiting(
    ask: Callable[..., Response], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many ask for it."""
    answers = Event()

    def hang(*_asked: object) -> None:
        answers.wait(30)
        raise BrokerUnavailable("no broker answers")

    monkeypatch.setattr(server.Kafka, "ask", hang)
    with ThreadPoolExecutor(60) as pool:
        waiting = [pool.submit(ask, "api/dags/orders/lag") for _ in range(60)]
        try:
            assert ask("api/dags/orders/trend").status_code == 200
            assert not any(each.done() for each in waiting)
        finally:
            answers.set()
        assert {each.result().json()["error"]["message"] for each in waiting} == {"no broker answers"}


def test_a_run_with_an_odd_id_has_its_batch(ask: Callable[..., Response]) -> None:
    """Its reasons, its loads, and numbers that JavaScript can hold; a run without a batch has none."""
    add_run("orders", ODD, "success")
    found = ask("api/dags/orders/runs/odd%2Brun~1%3A2.3").json()["batch"]
    assert (found["seq"], found["run_id"], found["who"]) == (2, ODD, "manual")
    assert found["partitions"] == [
        {"topic": "t", "partition": 0, "from": 10, "until": 20, "from_reason": "cursor", "until_reason": "log end"}
    ]
    assert found["loads"][0]["snapshot"] == str(2**60 + 2)
    assert ask("api/dags/orders/batches/2").json()["batch"] == found
    assert ask("api/dags/orders/runs/unknown").json()["batch"] is None
    assert ask("api/dags/orders/batches/99").json()["batch"] is None


def test_the_overview_says_what_stopped_a_pipeline(ask: Callable[..., Response]) -> None:
    """First, with the words of the run's note; and the range that the next run adopts."""
    add_run("orders", "r3", "failed", "Failed in load: Spark is away. Start it.")
    orders, visits = ask("api/pipelines").json()["pipelines"]
    assert (orders["pipeline"], orders["trouble"]) == ("orders", "stopped")
    assert orders["failure"] == {"run_id": "r3", "why": "Failed in load: Spark is away. Start it."}
    assert orders["pending"] == {"seq": 3, "run_id": "r3", "offsets": 10}
    assert (visits["pipeline"], visits["seq"], visits["trouble"]) == ("visits", 0, None)


def test_saved_state_that_is_corrupt_is_named(ask: Callable[..., Response]) -> None:
    """The rest of the map is shown."""
    ledger = Ledger(DatabaseStore(), "orders")
    key = ledger.save_range(saved(4, "r4"))
    DatabaseStore().put(key, '{"broken', "")
    try:
        view = ask("api/dags/orders/map").json()
        assert [b["kind"] for b in view["rows"][0]["blocks"]] == ["committed", "committed", "planned", "pending"]
        assert key in view["faults"][0]
        assert ask("api/dags/orders/batches/4").status_code == 500
    finally:
        DatabaseStore().delete(key)

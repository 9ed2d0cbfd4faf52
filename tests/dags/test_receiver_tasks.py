"""Laws of the tasks of a receiver's DAG, with Airflow's answers, the workers and what receives in memory."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from airflow.sdk import RetryAction
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowRescheduleException, AirflowSkipException

from tests.records import cursor_of
from tidegate.core.config.pipeline import Limits, Pipeline, Sink, Source
from tidegate.core.model.errors import BrokerUnavailable, ConfigError, TidegateError
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.state.ledger import Ledger
from tidegate.testing.fakes import FakeBrokers, MemoryStore
from tidegate_receivers.airflow import operators
from tidegate_receivers.airflow.serving import Order, PipelineBehind, Watch, serve, source_of
from tidegate_receivers.airflow.workers import ANSWER_S, celery_workers, live_workers
from tidegate_receivers.config.receiver import Connect, File, Http, Listen, Receiver, ReceiverBackpressure, Tls, Workers
from tidegate_receivers.rules.lifecycle import State
from tidegate_receivers.rules.placement import NOWHERE, Assigned, Worker
from tidegate_receivers.runtime import supervisor
from tidegate_receivers.runtime.backpressure import Heard
from tidegate_receivers.runtime.intake import LeaseReport
from tidegate_receivers.runtime.sources import FileSource, HttpSource, SocketSource, TcpServerSource

POSTS = Receiver("posts", "http", "orders", listen=Listen(8080), workers=Workers(expected=2, wait=60), lease=600)
SECRET = "hunter-2"  # noqa: S105 - what must not be seen
A, B = Worker("celery@a", "a"), Worker("celery@b", "b")


class Ti(SimpleNamespace):
    """A task instance as Airflow's runtime has it."""

    dag_id = "posts__receive"

    def __init__(self, **answers: Any) -> None:
        super().__init__(**{"get_dag": lambda _: SimpleNamespace(is_paused=False), **answers})
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = json.loads(json.dumps(value))


@pytest.mark.parametrize(
    ("up", "waited_s", "goes_on"),
    [(2, 0, True), (1, 0, False), (1, 59, False), (1, 61, True), (0, 61, True), (0, None, False)],
)
def test_a_run_waits_for_its_workers_without_a_slot_and_not_for_ever(up: int, waited_s: float | None, *, goes_on: bool) -> None:
    """After the waiting time it goes on with those that are up. Workers of other queues do not count."""
    live = [(Worker(f"w{n}", "h"), ["default"]) for n in range(up)]
    task = operators.WaitForWorkers(task_id="wait", receiver=POSTS, live=lambda: [*live, (B, ["other"])])
    began = None if waited_s is None else datetime.now(UTC) - timedelta(seconds=waited_s)
    context: Any = {"dag_run": SimpleNamespace(start_date=began), "ti": Ti()}
    assert task.poke(context) is goes_on
    assert (task.reschedule, task.timeout > 3600) == (True, True)


def place(ti: Ti, receiver: Receiver, *live: tuple[Worker, list[str]]) -> list[dict[str, Any]]:
    context: Any = {"ti": ti}
    return operators.PlaceOperator(task_id="place", receiver=receiver, live=lambda: live).execute(context)


def test_instances_are_placed_on_live_workers_until_the_lease_and_the_overlap_are_over() -> None:
    """What is handed on is JSON."""
    receiver = replace(POSTS, instances=2, workers=Workers(queues=("p", "q")), overlap=20)
    before = time.time()
    placed = place(Ti(get_previous_dagrun=lambda: None), receiver, (A, ["p"]), (B, ["q"]), (Worker("x", "x"), ["other"]))
    assert json.loads(json.dumps(placed)) == placed
    assert [(item["instance"], item["host"], item["queue"]) for item in placed] == [(0, "a", "p"), (1, "b", "q")]
    assert all(before + 620 <= item["until_s"] <= time.time() + 620 for item in placed)
    context: Any = {"ti": SimpleNamespace(xcom_pull=lambda task_ids: placed if task_ids == "place" else None)}
    assert operators.OnQueueOperator(task_id="on_q", on="q").execute(context) == placed[1:]
    assert operators.OnQueueOperator(task_id="on_r", on="r").execute(context) == []


@pytest.mark.parametrize("state", ["failed", "up_for_retry"])
@pytest.mark.parametrize(("ran", "hosts"), [(None, "abb"), ({"instance": 2, "host": "b"}, "aba")])
def test_an_instance_that_failed_in_the_last_run_is_placed_on_another_host(state: str, ran: Any, hosts: str) -> None:
    """By where it ran, or, if it never did, by where it was placed. Those that run stay."""
    receiver = replace(POSTS, instances=3, workers=Workers(queues=("p", "q")))
    last = [Assigned(n, host, queue, 1.0).to_json() for n, host, queue in ((0, "a", "p"), (1, "b", "q"), (2, "a", "p"))]
    states = mock.Mock(return_value={"last": {"receive_p_0": "running", "receive_q_0": "success", "receive_p_1": state}})
    left = {"place return_value": last, "receive_p,receive_q host": [{"instance": 0, "host": "a"}, None, ran]}

    def pull(task_ids: Any, key: str = "return_value", run_id: str = "") -> Any:
        assert run_id == "last"
        return left[f"{task_ids if isinstance(task_ids, str) else ','.join(task_ids)} {key}"]

    ti = Ti(get_previous_dagrun=lambda: SimpleNamespace(run_id="last"), xcom_pull=pull, get_task_states=states)
    assert [item["host"] for item in place(ti, receiver, (A, ["p"]), (B, ["q"]))] == [*hosts]
    states.assert_called_with(dag_id="posts__receive", task_ids=["receive_p", "receive_q"], run_ids=["last"])


@pytest.mark.parametrize("placed", [None, []])
def test_a_last_run_that_placed_nothing_tells_nothing(placed: Any) -> None:
    """It failed before, or its XComs are gone."""
    ti = Ti(get_previous_dagrun=lambda: SimpleNamespace(run_id="last"), xcom_pull=lambda **_: placed)
    assert [item["host"] for item in place(ti, POSTS, (A, ["default"]))] == ["a"]


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"bootstrap.servers": "k:9092", "sasl.password": SECRET, "group.id": "mine"}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": extra}))
    monkeypatch.setenv("AIRFLOW_CONN_POSTS_TOKEN", json.dumps({"conn_type": "generic", "password": SECRET}))
    monkeypatch.setenv("AIRFLOW_CONN_NO_TOKEN", json.dumps({"conn_type": "generic"}))
    monkeypatch.setenv("AIRFLOW_CONN_LISTED", json.dumps({"conn_type": "kafka", "extra": "[1]"}))


class Serving:
    """A `Serve` that does what a test says, and remembers what it was told."""

    def __init__(self, does: Callable[[asyncio.Event], Any] | None = None) -> None:
        self.orders: list[Order] = []
        self.stopped = False
        self.does = does

    async def __call__(self, order: Order, *, stop: asyncio.Event, tell: Callable[[str], None], watch: Watch) -> dict[str, Any]:
        self.orders.append(order)
        tell("it serves")
        watch({"state": "started", "records": 7})
        if self.does is not None:
            await self.does(stop)
        self.stopped = stop.is_set()
        return {"records": 7, "last_error": None}


async def until_stopped(stop: asyncio.Event) -> None:
    await asyncio.wait_for(stop.wait(), 30)


def receive(serving: Serving, receiver: Receiver = POSTS, *, left_s: float = 60) -> operators.ReceiveOperator:
    placed = Assigned(3, "planned", "default", time.time() + left_s).to_json()
    return operators.ReceiveOperator(task_id="receive", placed=placed, receiver=receiver, serving=serving)


def execute(task: operators.ReceiveOperator, ti: Ti | None = None, **context: Any) -> Any:
    whole: Any = {"ti": ti or Ti(), **context}
    return task.execute(whole)


def test_an_instance_serves_with_the_settings_of_its_connection_and_reports(capfd: pytest.CaptureFixture[str]) -> None:
    """As those of pipelines; where it really runs is left for the next run, and no secret is in what is left or shown."""
    serving, ti = Serving(), Ti()
    task = receive(serving, replace(POSTS, token="posts_token"))  # noqa: S106 - the id of a connection
    assert task.label == "3 on planned"
    assert execute(task, ti) == {"records": 7, "last_error": None}
    (order,) = serving.orders
    assert (order.instance, order.host, order.until_s) == (3, socket.gethostname(), task.placed["until_s"])
    named = {"client.id": "tidegate-posts-receive", "bootstrap.servers": "k:9092", "sasl.password": SECRET}
    assert (order.producer, order.token) == (named, SECRET)
    assert "it serves" in (told := "".join(capfd.readouterr()))
    assert SECRET not in repr(order) + told
    assert ti.pushed == {"host": {"instance": 3, "host": socket.gethostname()}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"token": "no_token"}, "connection no_token has no password"),
        ({"token": "missing"}, "Airflow has no connection missing"),
        ({"connection": "missing"}, "Airflow has no connection missing"),
        ({"connection": "listed"}, "the extra of connection listed is not a JSON object"),
    ],
)
def test_a_connection_that_is_missing_or_empty_is_refused_by_name(changes: dict[str, Any], words: str) -> None:
    """Before anything is received."""
    with pytest.raises(ConfigError, match=words):
        execute(receive(serving := Serving(), replace(POSTS, **changes)))
    assert serving.orders == []


def test_a_lease_that_is_over_is_not_served_and_none_is_longer_than_the_file_says() -> None:
    """The run fails, as nobody received; not where the DAG was paused meanwhile. A clock that was set back adds nothing."""
    execute(receive(serving := Serving(), left_s=86_400))
    assert serving.orders[0].until_s <= time.time() + POSTS.lease + POSTS.overlap_s
    paused: dict[str, Any] = {"task_reschedule_count": 2}
    for error, tries in ((AirflowFailException, {}), (AirflowSkipException, paused)):
        with pytest.raises(error, match="the lease is over"):
            execute(receive(serving := Serving(), left_s=-1), **tries)
        assert serving.orders == []


@pytest.fixture
def handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


ENDED = pytest.raises(AirflowException, match="ended before its lease was over")


@pytest.mark.parametrize("after_s", [0.3, 0])
def test_an_instance_that_is_ended_by_a_signal_stops_accepting_and_is_tried_again(handler: None, after_s: float) -> None:
    """Airflow's task runner calls on_kill in the handler of SIGTERM, as here, also before it serves; later it does nothing."""
    serving = Serving(until_stopped)
    task = receive(serving)
    signal.signal(signal.SIGTERM, lambda *_: task.on_kill())
    if after_s:
        threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGTERM)).start()
    else:
        task.on_kill()
    with ENDED:
        execute(task)
    assert serving.stopped
    task.on_kill()


def test_an_instance_of_a_paused_dag_stops_and_goes_on_when_it_is_unpaused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow does not start a rescheduled task of a paused DAG. An API that is away for a moment ends no instance."""
    monkeypatch.setattr(operators, "LOOK_S", 0.01)
    monkeypatch.setattr("airflow.sdk.observability.stats.gauge", gauge := mock.Mock())
    looks = [BrokerUnavailable("away"), *(SimpleNamespace(is_paused=paused) for paused in (False, False, True))]
    serving, ti = Serving(until_stopped), Ti(get_dag=mock.Mock(side_effect=looks))
    with pytest.raises(AirflowRescheduleException) as asked:
        execute(receive(serving), ti)
    ti.get_dag.assert_called_with("posts__receive")
    assert (ti.get_dag.call_count, serving.stopped) == (4, True)
    tags = {"receiver": "posts", "instance": "3"}
    assert gauge.mock_calls == [mock.call("tidegate.receiver.records.posts.3", 7, tags=tags)] * 4
    at = ti.pushed["status"].pop("at")
    assert ti.pushed["status"] == {"instance": 3, "state": "started", "records": 7}
    assert datetime.fromisoformat(at).tzinfo is not None
    assert asked.value.reschedule_date <= datetime.now(UTC) + timedelta(seconds=10)


@pytest.mark.parametrize(("overlap", "goes_on"), [(0.0, False), (30.0, True)])
def test_an_instance_whose_supervisor_was_killed_goes_on_only_where_two_may_run(
    monkeypatch: pytest.MonkeyPatch, overlap: float, *, goes_on: bool
) -> None:
    """Airflow starts its next try without ending it. What listens may share the port; two readers land records twice."""
    monkeypatch.setattr(operators, "LOOK_S", 0.01)
    looks: list[int] = []

    class Alone(Ti):
        def xcom_push(self, key: str, value: Any) -> None:
            if key == "status":
                monkeypatch.setattr("os.getppid", lambda: 0)
                looks.append(1)
                raise BrokenPipeError

    async def some_looks(stop: asyncio.Event) -> None:
        async with asyncio.timeout(30):
            while len(looks) < 3 if goes_on else not stop.is_set():  # noqa: ASYNC110 - a look has no event
                await asyncio.sleep(0.005)

    serving = Serving(some_looks)
    with nullcontext() if goes_on else ENDED:
        execute(receive(serving, replace(POSTS, overlap=overlap)), Alone())
    assert serving.stopped is not goes_on


def test_a_log_that_nobody_reads_any_more_ends_no_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's log is a pipe to the supervising process, and raises when that was killed. The report is told there, too."""

    async def loses_its_log(_: asyncio.Event) -> None:
        monkeypatch.setattr(operators.ReceiveOperator, "log", mock.Mock(info=mock.Mock(side_effect=BrokenPipeError)))

    assert execute(receive(Serving(loses_its_log)))["records"] == 7


@pytest.mark.parametrize("serves", [True, False])
def test_an_instance_that_cannot_run_shows_why_where_instances_are_looked_at(*, serves: bool) -> None:
    """It is tried again for the whole lease, so its task never ends failed: `tidegate receivers` prints what it leaves."""
    fails = mock.AsyncMock(side_effect=BrokerUnavailable("no broker answers"))
    ti, receiver = Ti(), POSTS if serves else replace(POSTS, connection="missing")
    with pytest.raises(TidegateError) as caught:
        execute(receive(Serving(fails), receiver), ti)
    said = ti.pushed["status"]
    assert (said["state"], said["instance"], said["last_error"]) == ("failed", 3, str(caught.value))
    assert said["records"] == (7 if serves else 0)
    assert said.keys() >= {"at", "buffer", "restarts", "refused", "throttled_s"}


def test_every_failure_is_tried_again_ever_later() -> None:
    """Senders wait; a connection that is missing may be added."""
    decisions = [operators.RetryUntilTheLeaseEnds().evaluate(ConfigError("?"), n, 700) for n in (1, 2, 4, 5, 700)]
    assert [each.retry_delay for each in decisions] == [timedelta(seconds=s) for s in (5, 10, 40, 60, 60)]
    assert {each.action for each in decisions} == {RetryAction.RETRY}


def order(receiver: Receiver, **changes: Any) -> Order:
    return Order(receiver, 1, "edge1", until_s=99.0, producer={"bootstrap.servers": "k"}, **changes)


OWN = replace(
    POSTS, listen=Listen(8080, max_connections=7, idle=5), http=Http("/orders", 5, "Id"), key="Key", tls=Tls("/c", "/k")
)
LISTENING = {"host": "127.0.0.1", "port": 8080, "tls": None, "idle_s": 60}
FEED = Receiver("r", "socket", "t", connect=Connect("feed", 9), tls=Tls())


@pytest.mark.parametrize(
    ("receiver", "kind", "arguments"),
    [
        (POSTS, HttpSource, {**LISTENING, "http": Http(), "token": "t", "max_connections": 1000, "key_header": "Tidegate-Key"}),
        (OWN, HttpSource, {"http": OWN.http, "key_header": "Key", "tls": OWN.tls, "max_connections": 7, "idle_s": 5}),
        (replace(POSTS, kind="tcp_server"), TcpServerSource, {**LISTENING, "max_connections": 200}),
        (FEED, SocketSource, {"host": "feed", "port": 9, "tls": Tls()}),
        (Receiver("r", "file", "t", file=File("/a")), FileSource, {"path": Path("/a"), "state_path": Path("/.a.tidegate-r")}),
        (Receiver("r", "types:SimpleNamespace", "t", arguments={"x": 1}), SimpleNamespace, {"x": 1}),
        (Receiver("r", "types:SimpleNamespace", "t"), SimpleNamespace, {}),
    ],
)
def test_each_kind_is_its_source_with_the_arguments_of_the_file(
    receiver: Receiver, kind: type, arguments: dict[str, Any]
) -> None:
    """A class of one's own gets what the file says, as it says it."""
    source = source_of(order(receiver, token="t"))  # noqa: S106 - no secret
    assert type(source) is kind
    assert {name: getattr(source, name) for name in arguments} == arguments


def test_an_order_is_a_lease_of_the_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what it tells of itself is one mapping."""
    called: dict[str, Any] = {}

    async def supervise(source: Any, lease: Any, *, watch: Any, **more: Any) -> LeaseReport:
        called.update(source=source, lease=lease, **more)
        watch(supervisor.Status(state=State.STARTED, buffer=0.5, report=LeaseReport(records=4), rate=9.0))
        return LeaseReport(records=5)

    monkeypatch.setattr(supervisor, "serve", supervise)
    own = Receiver("own", "types:SimpleNamespace", "orders", arguments={"x": 1})
    shown: list[Mapping[str, Any]] = []
    report = asyncio.run(serve(order(own, downstream=str), stop=asyncio.Event(), tell=print, watch=shown.append))
    assert report == asdict(LeaseReport(records=5))
    (said,) = shown
    assert type(said["state"]) is str  # as XComs take it
    assert (said["state"], said["buffer"], said["rate"], said["records"]) == ("started", 0.5, 9.0, 4)
    assert called["source"] == SimpleNamespace(x=1)
    assert called["lease"] == supervisor.Lease(own, 1, "edge1", until_s=99.0)
    assert (called["producer"], called["downstream"]) == ({"bootstrap.servers": "k"}, str)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("no_such_module:C", "ModuleNotFoundError"),
        ("types:NoSuchClass", "AttributeError"),
        ("datetime:date", "TypeError"),
        ("http", r"ModuleNotFoundError.*Install Tidegate on the workers"),
    ],
)
def test_a_class_that_cannot_be_made_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, kind: str, why: str) -> None:
    """With what was wrong; nothing in the file is where the client of a kind is not installed."""
    monkeypatch.setitem(sys.modules, "tidegate_receivers.runtime.sources", None)
    monkeypatch.delattr("tidegate_receivers.runtime.sources")
    receiver = POSTS if kind == "http" else Receiver("posts", kind, "orders", arguments={"x": 1})
    with pytest.raises(ConfigError, match=f"receiver posts: {kind} cannot be made: {why}"):
        source_of(order(receiver))


# Back-pressure


LOADS = Pipeline("loads", Source(("orders",)), "m:f", sink=Sink("lake.demo.orders"), limits=Limits(600, interval_s=60))


@pytest.mark.parametrize("stated", [ReceiverBackpressure(), ReceiverBackpressure("rate", "loads")])
def test_an_instance_without_back_pressure_asks_nobody(stated: ReceiverBackpressure) -> None:
    """Nor does one whose pipeline's file is not valid: its safe rate holds, and the log says why."""
    execute(receive(serving := Serving(), replace(POSTS, backpressure=stated)))
    assert serving.orders[0].downstream is None


def test_an_instance_hears_of_the_pipeline_by_its_cursor_and_by_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """And of the buffers of all instances of this run and the one before, where they count and their time can be."""
    brokers = FakeBrokers(latest={TopicPartition("orders", 0): 100})
    store = MemoryStore()
    monkeypatch.setattr("tidegate.kafka.brokers.AdminBrokers", lambda settings, timeout_s: brokers)
    monkeypatch.setattr(operators, "VariableStore", lambda: store)
    asked: list[tuple[Any, str, str]] = []
    at = (datetime.now(UTC) - timedelta(seconds=5)).isoformat()
    ahead = (datetime.now(UTC) + timedelta(days=1)).isoformat()  # a clock was set back since

    def pulled(task_ids: Any, key: str, run_id: str) -> Any:
        asked.append((task_ids, key, run_id))
        told = [{"instance": 3, "buffer": 0.5, "at": at}, {"instance": 4, "buffer": 1.0, "at": ahead}, None]
        return told if run_id == "now" else None

    def heard(policy: Any, **more: Any) -> Heard:
        stated = ReceiverBackpressure(policy, "loads", **more)
        task = receive(serving := Serving(), replace(POSTS, instances=4, backpressure=stated), left_s=20)
        task.behind = LOADS
        ti = Ti(xcom_pull=pulled, get_previous_dagrun=lambda: SimpleNamespace(run_id="before"))
        execute(task, ti, run_id="now")
        downstream = serving.orders[0].downstream
        assert downstream is not None
        return downstream()

    assert heard("credit", max_backlog=9) == Heard(lag=100, rate=10, instances=8)  # the last moments of the lease
    assert asked == []
    Ledger(store, "loads").save_cursor(cursor_of("loads", offsets={TopicPartition("orders", 0): 70}, remaining=300))
    last = heard("watermark", max_backlog=9)
    assert (last.lag, last.rate) == (30, 5)
    ((name, (share, age_s)),) = last.buffers.items()
    assert (name, share) == ("now 3", 0.5)
    assert 5 <= age_s < 65
    assert asked == [(["receive"], "status", "now"), (["receive"], "status", "before")]


def behind(store: MemoryStore, brokers: FakeBrokers, pipeline: Pipeline = LOADS) -> PipelineBehind:
    return PipelineBehind(pipeline=pipeline, topic="orders", store=store, brokers=brokers, instances=lambda _: 1, buffers=dict)


def test_airflow_is_asked_less_often_than_the_brokers() -> None:
    """What cannot be read is an error, and never an old or an empty answer. Partitions that are never read are no backlog."""
    brokers = FakeBrokers(latest={TopicPartition("orders", 0): 100, TopicPartition("orders", 1): 50})
    store, lags = MemoryStore(), []
    asked = behind(store, brokers, replace(LOADS, source=Source(assign={"orders": (0,)})))
    for brokers.latest[TopicPartition("orders", 0)] in (100, 120):
        lags.append(asked().lag)
    assert (lags, [verb for verb, _ in store.calls]) == ([100, 120], ["keys"])
    for fails in (behind(MemoryStore(failing=True), brokers), behind(store, FakeBrokers(latest=brokers.latest, away=True))):
        for _ in range(2):
            with pytest.raises(TidegateError):
                fails()


def app(answer: Mapping[str, list[dict[str, Any]]] | None) -> Any:
    """Celery's, whose workers answer so."""

    def inspect(timeout: float) -> Any:
        assert timeout == ANSWER_S
        return SimpleNamespace(active_queues=lambda: answer)

    return SimpleNamespace(control=SimpleNamespace(inspect=inspect))


def test_celerys_workers_are_those_that_answer_with_their_queues() -> None:
    """Their hosts are in their names. None is the answer of nobody."""
    queues = {"celery@edge2": [{"name": "default"}, {"name": "edge2"}], "celery@edge1": [{"name": "edge1"}], "odd": []}
    one, two, odd = (Worker(name, name.removeprefix("celery@")) for name in ("celery@edge1", "celery@edge2", "odd"))
    assert celery_workers(app(queues)) == [(one, {"edge1"}), (two, {"default", "edge2"}), (odd, frozenset())]
    assert celery_workers(app(None)) == []


@pytest.mark.parametrize(
    ("executor", "host"),
    [
        ("LocalExecutor", socket.gethostname()),
        ("CeleryExecutor", "edge1"),
        ("airflow.providers.celery.executors.celery_executor.CeleryExecutor", "edge1"),
        ("fast:LocalExecutor,CeleryExecutor", socket.gethostname()),
        ("CeleryExecutor;team=LocalExecutor", "edge1"),
        ("team=CeleryExecutor", "edge1"),
        ("KubernetesExecutor", NOWHERE),
    ],
)
def test_the_executor_that_airflow_is_configured_with_has_the_workers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, executor: str, host: str
) -> None:
    """The first of several. One that does not tell has a worker without a name, with every queue, as has LocalExecutor."""
    package: Any = ModuleType("airflow.providers.celery.executors")
    package.celery_executor = SimpleNamespace(app=app({"celery@edge1": [{"name": "any queue"}]}))
    monkeypatch.setitem(sys.modules, "airflow.providers.celery", ModuleType("airflow.providers.celery"))
    monkeypatch.setitem(sys.modules, package.__name__, package)
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", executor)
    ((worker, queues),) = live_workers()
    assert (worker.host, "any queue" in queues) == (host, True)
    assert ("the workers of KubernetesExecutor are not known" in caplog.text) is (host == NOWHERE)

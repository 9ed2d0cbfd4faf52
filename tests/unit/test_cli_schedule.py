"""Laws of the commands on one pipeline, on in-memory ports: exit codes, JSON and refusals; on the real parts: the e2e tests."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from typer.testing import CliRunner, Result

from tests.records import changed, cursor_of, range_of
from tests.unit.loads import P0, receipt
from tests.unit.world import in_turn
from tidegate.cli import check, commands, ledger, schedule, shared, verify
from tidegate.cli.replay import Ended
from tidegate.core.config.pipeline import Backpressure, Limits, Pipeline, Sink, Source
from tidegate.core.config.values import StartGroup
from tidegate.core.model.errors import KafkaError, RequestError, SinkUnavailable, StateError
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.rates import BatchTiming
from tidegate.core.state.cursor import Cursor, Position
from tidegate.core.state.history import DataFiles, Origins
from tidegate.core.state.ledger import Ledger, cursor_key, range_key
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.saved_range import Decision
from tidegate.testing.fakes import FakeBrokers, FakeReader, MemoryStore
from tidegate.views.overview import dead_servers
from tidegate_receivers import cli as receivers

PIPELINE = Pipeline("p", Source(("t",)), "m:f", sink=Sink("lake.a.b"))
P1 = TopicPartition("t", 1)
COMMIT = {"snapshot": 7, "operation": "delete", "at": "2013-01-01 00:00:00"}
RAN = [
    {"dag_run_id": "run1", "state": "success", "run_type": "manual", "triggering_user_name": "ann"},
    {"dag_run_id": "run2", "state": "failed", "run_type": "scheduled", "note": "Failed in load: no [space] left."},
]


@dataclass
class FakeApi:
    """An Airflow whose pools all have so many slots; None: it has none of them. All servers but the `dead` one run."""

    slots: int | None = 4
    dead: str = ""
    most: int | None = None
    no_page: bool = False
    runs: list[dict[str, Any]] = field(default_factory=list)
    triggered: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    unpaused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pool_slots, self.parallelism, self.has_plugin = lambda _: self.slots, lambda: self.most, lambda _: True
        self.page = lambda path: None if self.no_page else f"https://airflow/base/{path}"
        self.newest_runs = lambda _, count: self.runs[-count:]
        self.unpause = self.unpaused.append

    def dag(self, _: str) -> dict[str, Any] | None:
        return {} if self.runs else None

    def health(self) -> dict[str, dict[str, str]]:
        status = {name: "unhealthy" if name == self.dead else "healthy" for name in ("scheduler", "dag_processor", "triggerer")}
        return {name: {"status": of, f"latest_{name}_heartbeat": "2026-11-25T13:00:00+00:00"} for name, of in status.items()}

    def trigger(self, dag_id: str, params: dict[str, Any] | None = None) -> str:
        self.triggered.append((dag_id, params or {}))
        return "manual__1"


@dataclass
class FakeRemote:
    """One committed batch of ten records, of thirty in the log."""

    store: MemoryStore = field(default_factory=MemoryStore)
    sink: FakeReader = field(default_factory=lambda: FakeReader(found=[receipt(1, 0, 10)]))
    api: Any = field(default_factory=FakeApi)
    log: FakeBrokers = field(default_factory=lambda: FakeBrokers(latest={P0: 30}, retention={"t": 60_000}))
    pipeline: Pipeline = PIPELINE
    active: list[str] = field(default_factory=list)
    rows: dict[int | None, int] = field(default_factory=lambda: {1: 10})
    ran: list[dict[str, str]] = field(default_factory=lambda: RAN)

    def __post_init__(self) -> None:
        self.reader: Any = lambda _: self.sink
        self.brokers: Any = lambda _: self.log
        self.runs = lambda _: self.ran
        self.active_runs: Callable[[str], list[str]] = lambda _: self.active
        self.ledger.save_cursor(cursor_of("p", 1, {P0: 10}, {"t": "id"}, starts={P0: 0}, receipt=self.sink.found[0].summary))
        self.save(1, 0, 10, "earliest")

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.store, "p")

    def save(self, seq: int, first: int, last: int, reason: Any = "cursor") -> None:
        why = (Decision(P0, reason, "log end"),)
        self.ledger.save_range(range_of("p", seq, f"run{seq}", (OffsetRange("t", 0, first, last),), why, {"t": "id"}, {}, 0))

    def cursor(self, pipeline: Pipeline) -> Cursor:
        return Ledger(self.store, pipeline.name).cursor()

    def kafka(self, _: Pipeline) -> dict[str, str]:
        """The brokers do not take a group."""
        raise KafkaError("no group", fix="none")


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> FakeRemote:
    made = FakeRemote()
    for module in (schedule, ledger, verify, receivers):
        monkeypatch.setattr(module, "open_remote", lambda _: contextlib.nullcontext(made))
        monkeypatch.setattr(module, "the_pipeline", lambda *_: made.pipeline, raising=False)
    monkeypatch.setattr(schedule, "now_ms", lambda: 20_010)
    monkeypatch.setattr("tidegate.sinks.iceberg.history.strangers", lambda _: [COMMIT])
    monkeypatch.setattr("tidegate.sinks.iceberg.history.changed_columns", lambda _: ["a was dropped"])
    monkeypatch.setattr("tidegate.sinks.iceberg.history.read_batches", lambda _: made.rows)
    return made


def run(*words: str) -> Result:
    return CliRunner().invoke(commands(), list(words))


World = Callable[[FakeRemote], object]


def policy(**settings: Any) -> World:
    return lambda remote: setattr(remote, "pipeline", replace(PIPELINE, **settings))


def table(*found: Receipt, kept: tuple[Receipt, ...] = (), expired: bool = False) -> World:
    """What the table holds where no Variable is left."""

    def happens(remote: FakeRemote) -> None:
        remote.store.values.clear()
        remote.sink.found, remote.sink.kept, remote.sink.expired = [*found], [*kept], expired

    return happens


def has_many_files(remote: FakeRemote) -> None:
    many = replace(remote.sink.history("lake.a.b"), files=DataFiles(count=2000, size=2000))
    remote.sink.history = lambda *_, **__: many  # type: ignore[method-assign]


def is_slow(remote: FakeRemote) -> None:
    timings = tuple(BatchTiming(10 + n, None, 2000 + 100 * n, 0, 0, 1) for n in range(8))
    remote.ledger.save_cursor(changed(remote.ledger.cursor(), timings=timings, fired_at_ms=10_010))
    remote.pipeline = replace(PIPELINE, limits=Limits(interval_s=10))


def is_gone(remote: FakeRemote) -> None:
    """The cursor names none of the offsets that it held: those topics were retired since."""
    remote.ledger.save_cursor(cursor_of("p", 2, {}, {}, receipt=receipt(2, 10, 20).summary))
    remote.sink.found, remote.sink.exists = [], False


SAVED: World = lambda remote: remote.save(2, 10, 20)  # noqa: E731 - as the next ones
PENDING = range_key("p", 2, "run2")
COMMITTED = range_key("p", 1, "run1")
ACTIVE: World = lambda remote: remote.active.append("scheduled__1")  # noqa: E731
AT_END: World = lambda remote: remote.log.latest.update({P0: 10})  # noqa: E731 - rows of the tables
HELD_BACK: World = lambda remote: remote.log.stable.update({P0: 27})  # noqa: E731
LOST: World = lambda remote: remote.sink.found.clear()  # noqa: E731
DELETED = in_turn(LOST, lambda remote: remote.log.earliest.update({P0: 2}))
FOREIGN: World = lambda remote: setattr(remote.sink, "origins", Origins(unproved=True))  # noqa: E731
NEW_TOPIC: World = lambda remote: remote.log.ids.update({"t": "new"})  # noqa: E731
BY_BATCH = in_turn(policy(identity="batch"), lambda remote: setattr(remote.sink, "found", [receipt(1, 0, 10, batch=1)]))
BEGAN_AT_10 = cursor_of("p", 2, {P0: 30}, {"t": "id"}, starts={P0: 10})
ACCEPTED = in_turn(BY_BATCH, lambda remote: remote.ledger.save_cursor(BEGAN_AT_10))
LATE = table(receipt(2, 10, 20, beside=Position(offsets={}, topic_ids={}, starts={P0: 10})))
EXPIRED = receipt(2, 10, 20, beside=Position(offsets={}, topic_ids={}, starts={P0: 3}))
ENDS = Position(offsets={}, topic_ids={})
LATEST = policy(source=Source(("t", "q"), start="latest"))
GROUP = policy(source=Source(("t", "q"), start=StartGroup("g")))
LACKS = in_turn(table(receipt(1, 0, 10), receipt(3, 25, 30, beside=ENDS)), lambda remote: remote.save(2, 10, 25))
JUMPS = table(receipt(1, 0, 10), receipt(2, 10, 20), receipt(4, 25, 30, beside=ENDS))
AS_IT_IS: World = in_turn()
BOUNDED = policy(backpressure=Backpressure("target", initial_records=5))
TOO_SLOW = in_turn(is_slow, lambda remote: remote.log.latest.update({P0: 500}))
MISCOUNTED = in_turn(BY_BATCH, lambda remote: remote.rows.update({1: 8, 3: 4, None: 2}))
OPEN = "3 records wait behind an open transaction, open for 20 s"
GONE = (
    "table lake.a.b does not hold batch 1 of p, which its cursor has committed: there is no such table; "
    "10 offsets are missing (t-0 [0, 10))"
)
MANY = "lake.a.b needs maintenance: it has 2,000 data files"


@pytest.mark.parametrize(
    ("words", "world", "code", "told"),
    [
        ("plan p", AS_IT_IS, 0, {"seq": 2, "ranges.t.0": [10, 30], "origin": "planned", "held_back": None}),
        ("plan p", SAVED, 0, {"ranges.t.0": [10, 20], "adopted_from": "run2"}),
        ("plan p", AT_END, 0, {"skip": "caught up: the cursor is at the end of the log"}),
        ("plan p", HELD_BACK, 0, {"held_back": OPEN, "ranges.t.0": [10, 27]}),
        ("plan p", has_many_files, 0, {"maintenance": MANY}),
        ("plan p", BOUNDED, 0, {"rate.records": 5, "rate.limiting": True, "rate.applied": True, "remaining": 15}),
        ("plan p", is_slow, 0, {"advice.holds": True}),
        ("plan p", TOO_SLOW, 0, {"advice.holds": False}),
        ("start p", AS_IT_IS, 0, {"run_id": "manual__1", "started": True}),
        ("start p", ACTIVE, 0, {"run_id": "scheduled__1", "started": False}),
        ("lag p", AS_IT_IS, 0, {"total.records_behind": 20, "total.retention_left_s": 40.0, "maintenance": None}),
        ("lag p", AT_END, 0, {"total.records_behind": 0, "total.retention_left_s": None}),
        ("lag p", HELD_BACK, 0, {"total.open_transaction": OPEN}),
        ("lag p", has_many_files, 0, {"maintenance": MANY, "lost": None}),
        ("lag p", in_turn(LOST, lambda remote: setattr(remote.sink, "exists", False)), 0, {"maintenance": None, "lost": GONE}),
        ("ledger show p", AS_IT_IS, 0, {"batches.0.who": "ann", "failures.run2": "Failed in load: no [space] left."}),
        ("ledger show p", lambda remote: remote.store.values.update({"tidegate.p.cursor": "{"}), 1, {}),
        ("ledger verify p", BY_BATCH, 0, {"holds": True, "other_commits": [COMMIT], "changed_columns": ["a was dropped"]}),
        ("ledger verify p", ACCEPTED, 0, {"holds": True, "began_anew": {"t": {"0": [0, 10]}}}),
        ("ledger verify p", MISCOUNTED, 1, {"holds": False, "miscounts.0.rows_now": 8}),
        ("ledger rebuild p", table(receipt(1, 0, 10), receipt(2, 10, 20)), 0, {"written": True, "cursor.seq": 2}),
        ("ledger rebuild p --dry-run", LATE, 1, {"written": False}),
        ("ledger rebuild p", table(EXPIRED, kept=(receipt(1, 3, 10),), expired=True), 0, {"cursor.starts.t.0": 3}),
        ("ledger rebuild p --accept-gaps", LACKS, 0, {"cursor.starts.t.0": 30}),
        ("ledger rebuild p --accept-gaps", in_turn(table(receipt(1, 0, 10)), LATEST), 0, {"cursor.seq": 1}),
        (f"ledger drop p {PENDING}", SAVED, 0, {"dropped": PENDING}),
        ("ledger reload p", AS_IT_IS, 0, {"missing": None}),
        ("ledger reload p --dry-run", LOST, 1, {"missing.ranges": {"t": {"0": [[0, 10]]}}}),
        ("accept loss p", lambda remote: remote.log.earliest.update({P0: 15}), 0, {"seq": 2, "loss.t.0": [10, 15]}),
        ("accept table p", LOST, 0, {"seq": 2, "absent.t.0": [[0, 10]]}),
        ("accept table p --foreign", FOREIGN, 0, {"seq": 2, "foreign": "lake.a.b"}),
        ("accept recreated p t", NEW_TOPIC, 0, {"seq": 2, "recreated.t": "new"}),
    ],
)
@pytest.mark.usefixtures("remote")
def test_a_command_tells_what_it_found(remote: FakeRemote, words: str, world: World, code: int, told: dict[str, Any]) -> None:
    """As JSON and as text, with one exit code. What only looks writes nothing."""
    world(remote)
    before = dict(remote.store.values)
    found = run(*words.split(), "--json")
    assert (found.exit_code, found.exception) == (code, found.exception if code else None)
    answer = json.loads(found.stdout)
    for path, value in told.items():
        at = answer
        for name in path.split("."):
            at = at[int(name) if isinstance(at, list) else name]
        assert str(at).startswith(value) if path == "maintenance" and value else at == value, path
    assert remote.store.values == before or words.startswith(("accept", "ledger rebuild", "ledger drop"))
    remote.store.values = before
    shown = run(*words.split())
    assert (shown.exit_code, bool(shown.stdout)) == (code, True)


@pytest.mark.parametrize(
    ("words", "world", "error", "told"),
    [
        ("ledger rebuild p", LATE, StateError, "nothing is left of batch 1 of p"),
        ("ledger rebuild p", table(EXPIRED, expired=True), StateError, "before the rebuilt cursor of p: t-0 [3, 10)"),
        ("ledger rebuild p", LACKS, StateError, "before the rebuilt cursor of p: t-0 [10, 25)"),
        ("ledger rebuild p", JUMPS, StateError, "before the rebuilt cursor of p: t-0 [20, 25)"),
        ("ledger rebuild p", in_turn(table(receipt(1, 0, 10)), LATEST), StateError, "names q, and by `source.start` of p it"),
        ("ledger rebuild p", in_turn(table(receipt(1, 0, 10)), GROUP), StateError, "names q, and by `source.start` of p it"),
        ("ledger rebuild p", ACTIVE, RequestError, "is running (scheduled__1)"),
        (f"ledger drop p {PENDING}", in_turn(SAVED, ACTIVE), RequestError, "is running (scheduled__1)"),
        ("ledger drop p tidegate.p.cursor", AS_IT_IS, RequestError, "has no saved range tidegate.p.cursor"),
        (f"ledger drop p {COMMITTED}", AS_IT_IS, RequestError, "is the range of a batch that is committed"),
        ("ledger reload p", DELETED, RequestError, "cannot be loaded again (t-0 [0, 2))"),
        ("ledger reload p --accept-loss", in_turn(DELETED, NEW_TOPIC), RequestError, "`tidegate accept table p`"),
        ("ledger reload p", is_gone, RequestError, "names none of the offsets that it held"),
    ],
)
def test_a_command_refuses(remote: FakeRemote, words: str, world: World, error: type[Exception], told: str) -> None:
    """By the error of what it asks; nothing is written."""
    world(remote)
    before = dict(remote.store.values)
    found = run(*words.split())
    assert (found.exit_code, type(found.exception)) == (1, error)
    assert told in str(found.exception)
    assert remote.store.values == before


def test_a_pipeline_that_starts_is_unpaused_and_has_one_run_under_way(remote: FakeRemote) -> None:
    """What is queued already is not started twice; a range that is dropped is gone, and no other."""
    SAVED(remote)
    before = {*remote.store.values}
    assert [run(*words.split()).exit_code for words in ("start p", f"ledger drop p {PENDING}")] == [0, 0]
    ACTIVE(remote)
    assert run("start", "p").exit_code == 0
    assert (remote.api.unpaused, remote.api.triggered) == (["p", "p"], [("p", {})])
    assert before - {*remote.store.values} == {PENDING}


def test_a_rebuilt_cursor_is_where_the_newest_batch_led(remote: FakeRemote) -> None:
    """Also where partitions begin, what a former topic left, and that rows without origin are accepted."""
    before = cursor_of("p", 2, {P0: 20, P1: 9}, {"t": "id"}, starts={P0: 10, P1: 9}, former={P0: 90}, foreign="lake.a.b")
    table(receipt(2, 10, 20, beside=before.at.beside((OffsetRange("t", 0, 10, 20),), {})), expired=True)(remote)
    assert run("ledger", "rebuild", "p").exit_code == 0
    assert remote.ledger.cursor().at == before.at


@pytest.mark.parametrize(("state", "code"), [("success", 0), ("failed", 1)])
def test_a_reload_loads_what_is_missing(remote: FakeRemote, monkeypatch: pytest.MonkeyPatch, state: str, code: int) -> None:
    """By a replay of exactly that; one that failed may have left a receipt: of a load that has found a gap."""
    missing = remote.sink.found.pop()
    ended = Ended(run_id="manual__1", state=state, chunks=1, landed=1, verdict={"chunks": 1, "offsets": 10, "rows": 10})

    def follow(*_: object) -> Ended:
        remote.sink.found.append(replace(missing.of(replay="again"), snapshot=900))
        return ended

    monkeypatch.setattr(ledger, "follow", follow)
    lost = json.loads(run("ledger", "reload", "p", "--dry-run", "--json").stdout)["missing"]
    told = run("ledger", "reload", "p", "--json")
    assert told.exit_code == code
    assert json.loads(told.stdout) == {"pipeline": "p", "missing": lost, "left": None, "replay": asdict(ended)}
    assert lost["ranges"] == {"t": {"0": [[0, 10]]}}
    assert remote.api.triggered == [("p__replay", {"offsets": lost["ranges"]})]


def test_the_history_names_who_ran_it_what_failed_and_what_cannot_be_read(remote: FakeRemote) -> None:
    """A broken part of the saved state hides nothing else; a run without a user is named by its kind."""
    remote.sink.found += [receipt(2, 10, 20), receipt(3, 20, 30, run_id="catch_up__3")]
    remote.ledger.save_cursor(changed(remote.ledger.cursor(), seq=3, offsets={P0: 30}))
    remote.save(2, 10, 20)
    broken = range_key(remote.ledger.pipeline, 1, "run1")
    remote.store.values[broken] = "{"
    remote.ran = [
        {**RAN[0], "state": "failed"},
        {"dag_run_id": "run2", "state": "success", "run_type": "scheduled"},
        {"dag_run_id": "catch_up__3", "state": "success", "run_type": "operator_triggered"},
        {"dag_run_id": "run3", "state": "failed", "run_type": "scheduled", "note": "Failed in load: out of memory."},
    ]
    found = run("ledger", "show", "p", "--json")
    shown = json.loads(found.stdout)
    assert (found.exit_code, list(shown)) == (1, ["pipeline", "batches", "transforms", "failures", "faults"])
    batches = [(b["seq"], b["state"], b["who"]) for b in shown["batches"]]
    assert batches == [(1, "committed", "ann"), (2, "committed", "scheduled"), (3, "committed", "catch_up")]
    assert (shown["batches"][0]["ranges"], shown["transforms"]) == ({"t": {"0": [0, 10]}}, {"v1": {"t": {"0": [[0, 30]]}}})
    assert shown["failures"] == {"run3": "Failed in load: out of memory."}
    assert [broken in fault for fault in shown["faults"]] == [True]
    remote.store.values[cursor_key(remote.ledger.pipeline)] = "{"
    shown = json.loads(run("ledger", "show", "p", "--json").stdout)
    assert [b["state"] for b in shown["batches"]] == ["loaded"] * 3
    assert [sum(key in fault for fault in shown["faults"]) for key in (broken, cursor_key(remote.ledger.pipeline))] == [1, 1]


def test_rejected_records_are_counted_and_the_quarantine_that_a_file_lacks_is_named(remote: FakeRemote) -> None:
    """Without it, what its loads have rejected is looked for nowhere."""
    MISCOUNTED(remote)
    (first,) = remote.sink.found
    remote.sink.found[:] = [replace(first, write=replace(first.write, quarantined=1234))]
    assert "1,234 rejected" in run("ledger", "show", "p").stdout
    said = run("ledger", "verify", "p").stdout.replace("\n", " ")
    assert "run `tidegate replay p --batch 1`" in said
    assert "has no quarantine for them" in said


def test_the_lag_does_not_wait_for_a_catalog_that_is_silent(remote: FakeRemote, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shown without a word on the table."""
    silent = threading.Event()

    def history(_: str) -> None:
        silent.wait(60)
        raise SinkUnavailable("the catalog does not answer", fix="Start it")

    monkeypatch.setattr(shared, "TABLE_S", 0.01)
    monkeypatch.setattr(remote.sink, "history", history)
    try:
        shown = json.loads(run("lag", "p", "--json").stdout)
    finally:
        silent.set()
    assert (shown["maintenance"], shown["total"]["records_behind"]) == (None, 20)


WHY = "Failed in plan: the Variable tidegate.p.cursor cannot be read, since the task's EnvironmentVariablesBackend has it"
FAILED = {"dag_run_id": "run1", "state": "failed", "note": WHY}
DEAD = "Airflow's scheduler does not run (last heartbeat 2026-11-25T13:00:00+00:00): no run and no task starts"


@pytest.mark.parametrize("command", ["plan p", "lag p"])
@pytest.mark.parametrize(
    ("airflow", "told"),
    [
        ({"slots": 0}, "pool tidegate_lake_a_b: has no slots"),
        ({"slots": None}, "made when the next run starts"),
        ({"slots": -1}, ""),
        ({"runs": [FAILED]}, f"run run1: {WHY}"),
        ({"runs": [FAILED, {"dag_run_id": "run2", "state": "success", "note": ""}]}, ""),
        ({"dead": "scheduler"}, DEAD),
        ({"dead": "dag_processor"}, "Airflow's dag processor does not run"),
        ({"dead": "triggerer"}, "scheduled by lag start no run"),
        ({"most": 3}, ""),
        ({"most": 2}, "receivers take 2 of the 2 tasks that Airflow runs at the same time"),
    ],
)
def test_what_keeps_runs_from_going_on_is_named_beside_the_data(
    remote: FakeRemote, tmp_path: Path, command: str, airflow: dict[str, Any], told: str
) -> None:
    """On stderr, where somebody looks who wonders why nothing goes on; what is printed as JSON stays JSON."""
    (tmp_path / "dags" / "receivers").mkdir(parents=True)
    (tmp_path / "dags" / "receivers" / "posts.yaml").write_text("{kind: http, topic: t, listen: {port: 8080}}")
    remote.api = FakeApi(**airflow)
    remote.api.no_page = not told
    found = run(*command.split(), "--json", "--project", str(tmp_path))
    assert (found.exit_code, json.loads(found.stdout)["pipeline"]) == (0, "p")
    lines = " ".join(found.stderr.split())
    assert told in lines
    assert bool(lines) == bool(told)
    assert ("page: https://airflow/base/dags/p/plugin/ranges" in lines) == bool(told)


@pytest.mark.parametrize(("dead", "status", "code"), [("", "healthy", 0), ("scheduler", "unhealthy", 1)])
def test_the_status_of_an_airflow_of_ones_own_names_a_server_that_does_not_run(
    remote: FakeRemote, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dead: str, status: str, code: int
) -> None:
    """With exit code 1; one that never ran is not missed."""
    remote.api.dead = dead
    monkeypatch.setattr("tidegate.airflow.remote.schedule.named_api", lambda: contextlib.nullcontext(remote.api))
    found = run("status", "--project", str(tmp_path), "--json")
    assert (found.exit_code, json.loads(found.stdout)["scheduler"]["status"]) == (code, status)
    said = "Airflow's scheduler does not run: no run and no task starts. Start it, or see its log"
    assert dead_servers({"scheduler": {"status": status}, "triggerer": {"status": None}}) == ([said] if code else [])


@pytest.mark.parametrize(
    ("held", "plugin", "said"),
    [
        ({}, True, ["pool p: not there yet"]),
        ({}, False, ["pool p: missing, and its loads wait for ever. Run `airflow pools set p 2 "]),
        ({"p": 0}, None, ["pool p: has no slots, and its loads wait for ever"]),
        ({"q": 0}, True, ["pool p: not there yet", "pool q: has no slots, and its loads wait for ever"]),
        ({"p": -1}, None, []),
        ({"p": 1}, None, []),
    ],
)
def test_loads_wait_for_ever_for_a_pool_that_no_run_makes(
    capsys: pytest.CaptureFixture[str], held: dict[str, int], said: list[str], *, plugin: bool | None
) -> None:
    """One without slots among them: operators set it to 0 to stop loads, and forget it. The plugin makes what is missing."""
    api: Any = SimpleNamespace(pool_slots=held.get, has_plugin=mock.Mock(return_value=plugin))
    assert check.loads_can_run(api, {"p": 2} | dict.fromkeys(held, 2)) == ("for ever" not in "".join(said))
    told = " ".join(capsys.readouterr().err.split())
    assert [each for each in said if each not in told] == []
    assert (bool(told), api.has_plugin.called) == (bool(said), plugin is not None)

"""Laws of what the CLI prints of a schedule, on in-memory ports; on the real parts: the e2e tests."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.records import changed, cursor_of, range_of
from tests.unit.loads import P0, receipt
from tidegate.cli import app, ledger, receivers, schedule, shared, verify
from tidegate.core.audit.table import DataFiles
from tidegate.core.audit.views.waiting import dead_servers
from tidegate.core.config.pipeline import Backpressure, Limits, Pipeline, Sink, Source
from tidegate.core.errors import SinkUnavailable
from tidegate.core.offsets.ranges import OffsetRange
from tidegate.core.rates import BatchTiming
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.saved_range import Decision
from tidegate.testing.fakes import FakeBrokers, FakeReader, MemoryStore

PIPELINE = Pipeline("p", Source(("t",)), "m:f", Sink("lake.a.b"))


@dataclass
class FakeApi:
    """An Airflow whose pools all have so many slots; None: it has none of them. All servers but the `dead` one run."""

    slots: int | None = 4
    dead: str = ""
    most: int | None = None
    runs: list[dict[str, Any]] = field(default_factory=list)

    def health(self) -> dict[str, dict[str, str]]:
        status = {name: "unhealthy" if name == self.dead else "healthy" for name in ("scheduler", "dag_processor", "triggerer")}
        return {name: {"status": of, f"latest_{name}_heartbeat": "2026-11-25T13:00:00+00:00"} for name, of in status.items()}

    def pool_slots(self, _name: str) -> int | None:
        return self.slots

    def dag(self, _name: str) -> dict[str, Any] | None:
        return {} if self.runs else None

    def parallelism(self) -> int | None:
        return self.most

    def newest_runs(self, _name: str, count: int) -> list[dict[str, Any]]:
        return self.runs[-count:]

    def has_plugin(self, _name: str) -> bool:
        return True


@dataclass
class FakeRemote:
    """One committed batch of ten records, of thirty in the log."""

    store: MemoryStore = field(default_factory=MemoryStore)
    sink: FakeReader = field(default_factory=lambda: FakeReader([receipt(1, 0, 10)]))
    api: FakeApi = field(default_factory=FakeApi)
    log: FakeBrokers = field(default_factory=lambda: FakeBrokers({P0: 30}, retention={"t": 60_000}))

    def __post_init__(self) -> None:
        book = Ledger(self.store, "p")
        book.save_cursor(cursor_of("p", 1, {P0: 10}, {"t": "id"}, starts={P0: 0}, receipt=self.sink.found[0].summary))
        why = (Decision(P0, "earliest", "log end"),)
        book.save_range(range_of("p", 1, "run1", (OffsetRange("t", 0, 0, 10),), why, {"t": "id"}, {}, 0))

    def page(self, path: str) -> str:
        return f"https://airflow/base/{path}"

    def brokers(self, _pipeline: Pipeline) -> FakeBrokers:
        return self.log

    def active_runs(self, _pipeline: str) -> list[str]:
        return []

    def runs(self, _pipeline: str) -> list[dict[str, str]]:
        return [
            {"dag_run_id": "run1", "state": "success", "run_type": "manual", "triggering_user_name": "ann"},
            {"dag_run_id": "run2", "state": "failed", "run_type": "scheduled", "note": "Failed in load: no [space] left."},
        ]

    def cursor(self, pipeline: Pipeline) -> Cursor:
        return Ledger(self.store, pipeline.name).cursor()


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> FakeRemote:
    made = FakeRemote()
    for commands in (schedule, ledger, verify):
        monkeypatch.setattr(commands, "open_remote", lambda _: contextlib.nullcontext(made))
        monkeypatch.setattr(commands, "the_pipeline", lambda *_: PIPELINE)
    monkeypatch.setattr(schedule, "now_ms", lambda: 20_010)
    return made


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def rows(text: str) -> list[list[str]]:
    """The words of each line."""
    return [line.split() for line in text.splitlines()]


def test_a_plan_is_one_row_for_each_partition(remote: FakeRemote) -> None:
    """With its reasons; `--json` has the saved range as it would be written."""
    shown = rows(run("plan", "p").stdout)
    assert shown[0] == ["batch", "2", "of", "p", "would", "be", "planned:", "20", "offsets"]
    assert shown[2] == ["t-0", "10", "30", "20", "cursor", "log", "end"]
    assert json.loads(run("plan", "p", "--json").stdout)["ranges"] == {"t": {"0": [10, 30]}}
    Ledger(remote.store, "p").save_range(
        range_of("p", 2, "run2", (OffsetRange("t", 0, 10, 20),), (Decision(P0, "cursor", "max_records"),), {"t": "id"}, {}, 0)
    )
    assert "batch 2 of p is saved by run run2, and would be adopted: 10 offsets" in run("plan", "p").stdout
    remote.log.latest[P0] = 10
    remote.store.values = {key: value for key, value in remote.store.values.items() if "run2" not in key}
    assert run("plan", "p").stdout.startswith("nothing to read: ")


def test_a_plan_and_the_lag_say_that_records_wait_behind_an_open_transaction(remote: FakeRemote) -> None:
    """Nothing else tells somebody who waits for them: no run reads them."""
    told = "3 records wait behind an open transaction"
    assert told not in run("plan", "p").stdout + run("lag", "p").stdout
    remote.log.stable = {P0: remote.log.latest[P0] - 3}
    for command in ("plan", "lag"):
        assert told in run(command, "p").stdout
    remote.log.stable = {P0: 10}
    assert "20 records wait behind an open transaction" in run("plan", "p").stdout


def test_a_plan_and_the_lag_say_that_the_table_needs_maintenance(remote: FakeRemote, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing otherwise; `--json` of the lag has it too."""
    assert "maintenance" not in run("plan", "p").stdout + run("lag", "p").stdout
    many = replace(remote.sink.history("lake.a.b"), files=DataFiles(2000, 2000))
    monkeypatch.setattr(remote.sink, "history", lambda _: many)
    advice = "lake.a.b needs maintenance: it has 2,000 data files"
    for command in ("plan", "lag"):
        assert advice in " ".join(run(command, "p").stdout.split())
    assert json.loads(run("lag", "p", "--json").stdout)["maintenance"].startswith(advice)


@pytest.mark.parametrize("command", [("plan", "p"), ("lag", "p"), ("receivers",)])
def test_receivers_that_take_the_slots_of_pipelines_are_named(
    remote: FakeRemote, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Where somebody looks who wonders why nothing goes on."""
    monkeypatch.setattr(receivers, "open_remote", lambda _: contextlib.nullcontext(remote))
    (tmp_path / "dags" / "receivers").mkdir(parents=True)
    (tmp_path / "dags" / "receivers" / "posts.yaml").write_text("{kind: http, topic: t, listen: {port: 8080}}")
    words = "receivers take 2 of the 2 tasks that Airflow runs at the same time"
    for remote.api.most in (3, 2):
        found = " ".join(run(*command, "--project", str(tmp_path)).stderr.split())
        assert (words in found) == (remote.api.most == 2)


@pytest.mark.parametrize("command", ["plan", "lag"])
def test_why_the_last_run_failed_is_told_beside_a_cursor_that_looks_healthy(remote: FakeRemote, command: str) -> None:
    """Such as a Variable that a secrets backend shadows, which no command sees."""
    why = "Failed in plan: the Variable tidegate.p.cursor cannot be read, since the task's EnvironmentVariablesBackend has it"
    remote.api.runs = [{"dag_run_id": "run1", "state": "failed", "note": why}]
    assert f"run run1: {why}" in " ".join(run(command, "p").stderr.split())
    remote.api.runs = [*remote.api.runs, {"dag_run_id": "run2", "state": "success", "note": ""}]
    assert "run1" not in run(command, "p").stderr


@pytest.mark.parametrize(
    ("dead", "words"),
    [
        ("scheduler", "Airflow's scheduler does not run (last heartbeat 2026-11-25T13:00:00+00:00): no run and no task starts"),
        ("dag_processor", "Airflow's dag processor does not run"),
        ("triggerer", "scheduled by lag start no run"),
    ],
)
def test_a_server_of_airflow_that_does_not_run_is_named(
    remote: FakeRemote, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dead: str, words: str
) -> None:
    """By the plan, the lag, and the status of an Airflow of one's own; one that never ran is not missed."""
    monkeypatch.setattr("tidegate.airflow.remote.schedule.named_api", lambda: contextlib.nullcontext(remote.api))
    asked = (("plan", "p"), ("lag", "p"), ("status", "--project", str(tmp_path)))
    assert not any(words in " ".join(run(*command).stderr.split()) for command in asked)
    remote.api.dead = dead
    for command in asked:
        found = CliRunner().invoke(app, command)
        assert words in " ".join(found.stderr.split())
        assert found.exit_code == (command[0] == "status")
    assert json.loads(CliRunner().invoke(app, [*asked[2], "--json"]).stdout)[dead]["status"] == "unhealthy"
    assert dead_servers({"scheduler": {"status": "healthy"}, "triggerer": {"status": None}}) == []
    assert dead_servers({"scheduler": {"status": "unhealthy"}}) == [
        "Airflow's scheduler does not run: no run and no task starts. Start it, or see its log"
    ]


def test_the_lag_does_not_wait_for_a_catalog_that_is_silent(remote: FakeRemote, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shown without a word on the table."""
    silent = threading.Event()

    def history(_: str) -> None:
        silent.wait(60)
        raise SinkUnavailable("the catalog does not answer", fix="Start it")

    monkeypatch.setattr(shared, "TABLE_S", 0.01)
    monkeypatch.setattr(remote.sink, "history", history)
    try:
        shown = run("lag", "p")
    finally:
        silent.set()
    assert shown.exit_code == 0
    assert "maintenance" not in shown.stdout
    assert rows(shown.stdout)[-1][:2] == ["total", "20"]


def test_a_plan_names_the_bound_of_its_rate_policy_and_what_waits_beyond(
    remote: FakeRemote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its terms; a plan without a policy, or that leaves nothing behind, says nothing of them."""
    assert "backpressure" not in run("plan", "p").stdout
    assert "beyond" not in run("plan", "p").stdout
    bounded = replace(PIPELINE, backpressure=Backpressure("target", initial_records=5))
    monkeypatch.setattr(schedule, "the_pipeline", lambda *_: bounded)
    shown = run("plan", "p").stdout
    assert "backpressure: target allows 5 records; it limits this batch" in shown
    assert "15 records wait beyond this batch" in shown
    saved = json.loads(run("plan", "p", "--json").stdout)
    assert saved["rate"] == {"policy": "target", "records": 5, "terms": {}, "reset": None, "limiting": True, "applied": True}
    assert saved["remaining"] == 15
    remote.log.latest[P0] = 10
    assert run("plan", "p").stdout.startswith("nothing to read: ")


def test_a_plan_warns_where_the_interval_cannot_hold(remote: FakeRemote, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says nothing of it otherwise; `--json` has the figures in either case."""
    timings = tuple(BatchTiming(10 + n, None, 2000 + 100 * n, 0, 0, 1) for n in range(8))
    book = Ledger(remote.store, "p")
    book.save_cursor(changed(book.cursor(), timings=timings, fired_at_ms=10_010))
    monkeypatch.setattr(schedule, "the_pipeline", lambda *_: replace(PIPELINE, limits=Limits(interval_s=10)))
    assert "interval" not in run("plan", "p").stdout
    assert json.loads(run("plan", "p", "--json").stdout)["advice"]["holds"]
    remote.log.latest[P0] = 500
    assert "the pipeline falls behind at any interval: 49 records/s arrive" in run("plan", "p").stdout.replace("\n", " ")


@pytest.mark.parametrize("words", [["plan", "p"], ["lag", "p"], ["ledger", "show", "p"]])
def test_the_page_that_shows_the_same_is_named_beside_the_data(remote: FakeRemote, words: list[str]) -> None:
    """On stderr, with --json too; nothing where Airflow has no such page."""
    for more in ([], ["--json"]):
        found = run(*words, *more)
        assert found.stderr == "page: https://airflow/base/dags/p/plugin/ranges\n"
        assert "page:" not in found.stdout
    remote.page = lambda _path: None  # type: ignore[assignment, method-assign, return-value]
    assert run(*words).stderr == ""


def test_a_lag_is_one_row_for_each_partition_and_one_for_all(remote: FakeRemote) -> None:
    """What is not known stays empty."""
    assert rows(run("lag", "p").stdout)[1:] == [["t-0", "10", "30", "20", "20", "40"], ["total", "20", "20", "40"]]
    assert json.loads(run("lag", "p", "--json").stdout)["total"]["records_behind"] == 20
    remote.log.latest[P0] = 10
    assert rows(run("lag", "p").stdout)[1:] == [["t-0", "10", "10", "0"], ["total", "0"]]


def test_the_history_is_one_row_for_each_batch_with_the_failures_after_it(remote: FakeRemote) -> None:
    """Square brackets are text; what cannot be read ends with exit code 1."""
    remote.sink.found.append(receipt(1, 0, 10))
    shown = run("ledger", "show", "p")
    assert shown.exit_code == 0
    assert rows(shown.stdout)[1] == ["1", "committed", "10", "1.0", "t-0", "[0,", "10)"]
    for words in ("ann", "loaded 2 times", "transform v1: 10 offsets", "run run2: Failed in load: no [space] left."):
        assert words in shown.stdout
    remote.store.values[Ledger(remote.store, "p").cursor_key] = "{"
    broken = run("ledger", "show", "p")
    assert broken.exit_code == 1
    assert "tidegate.p.cursor" in broken.stderr


@pytest.mark.parametrize(
    ("before", "words", "told"),
    [
        (lambda remote: remote.log.earliest.update({P0: 15}), ["loss", "p"], "  t-0 [10, 15) = 5 offsets"),
        (lambda remote: remote.sink.found.clear(), ["table", "p"], "  t-0 [0, 10) = 10 offsets"),
        (lambda remote: setattr(remote.sink, "foreign", True), ["table", "p", "--foreign"], "rows without origin stay in "),
        (lambda remote: remote.log.ids.update({"t": "new"}), ["recreated", "p", "t"], "topic t starts anew, with id new"),
    ],
)
def test_what_is_accepted_is_shown(
    remote: FakeRemote, before: Callable[[FakeRemote], object], words: list[str], told: str
) -> None:
    """And recorded for the next batch; `--json` has the record."""
    before(remote)
    shown = run("accept", *words)
    assert shown.exit_code == 0, shown.exception
    assert "accepted for batch 2 of p" in shown.stdout
    assert told in shown.stdout
    assert json.loads(run("accept", *words, "--json").stdout)["seq"] == 2


def test_a_verdict_names_what_does_not_hold(remote: FakeRemote, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was done to the table by others; exit code 1 where it does not hold."""
    by_batch = replace(PIPELINE, identity="batch")
    monkeypatch.setattr(verify, "the_pipeline", lambda *_: by_batch)
    commit = {"snapshot": 7, "operation": "delete", "at": "2013-01-01 00:00:00"}
    monkeypatch.setattr("tidegate.iceberg.history.strangers", lambda _: [commit])
    monkeypatch.setattr("tidegate.iceberg.history.changed_columns", lambda _: ["a was dropped"])
    remote.sink.found = [receipt(1, 0, 10, batch=1)]
    table: dict[int | None, int] = {1: 10}
    monkeypatch.setattr("tidegate.iceberg.origins.read_batches", lambda _: table)
    shown = run("ledger", "verify", "p")
    assert shown.exit_code == 0
    assert "commit 7 (delete, 2013-01-01 00:00:00) is not Tidegate's" in shown.stdout
    assert "since the last load, column a was dropped" in shown.stdout
    assert "the table holds what was committed, exactly once" in shown.stdout
    table.update({1: 8, 3: 4, None: 2})
    broken = run("ledger", "verify", "p")
    assert broken.exit_code == 1
    for words in (
        "batch 1: snapshot 101 wrote 10 rows",
        "batch 3: 4 rows are beyond the cursor",
        "2 rows belong to no batch",
        "`tidegate ledger reload p`",
    ):
        assert words in broken.stdout
    assert json.loads(run("ledger", "verify", "p", "--json").stdout)["other_commits"] == [commit]


@pytest.mark.parametrize("command", ["plan", "lag"])
@pytest.mark.parametrize(
    ("slots", "said"), [(0, "pool tidegate_lake_a_b: has no slots"), (None, "made when the next run starts"), (-1, ""), (1, "")]
)
def test_a_pool_for_which_loads_wait_is_named(remote: FakeRemote, command: str, slots: int | None, said: str) -> None:
    """Otherwise runs stay queued, and nothing says why. What is printed as JSON stays JSON."""
    remote.api.slots = slots
    told = CliRunner().invoke(app, [command, "p", "--json"])
    assert told.exit_code == 0
    assert json.loads(told.stdout)["pipeline"] == "p"
    assert said in told.stderr
    assert ("pool" in told.stderr) == bool(said)

"""Laws of what single commands make of what they read: the ledger's history, a reload, a verdict, and pools."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.records import cursor_of
from tests.unit.loads import P0, receipt, saved
from tidegate.cli import app, check, ledger, repair, schedule, verify
from tidegate.cli.replay import Ended
from tidegate.core.config.pipeline import Pipeline, Sink, Source
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.testing.fakes import FakeBrokers, FakeReader, MemoryStore

PIPELINE = Pipeline("p", Source(("t",)), "m:f", Sink("lake.a.b"))


@dataclass
class FakeRemote:
    """Three committed batches of thirty records, and ten more in the log."""

    store: MemoryStore = field(default_factory=MemoryStore)
    sink: FakeReader = field(default_factory=lambda: FakeReader(found=[receipt(n, 10 * n - 10, 10 * n) for n in (1, 2, 3)]))
    api: Any = None
    ran: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        cursor = cursor_of("p", 3, {P0: 30}, {"t": "id"}, starts={P0: 0}, receipt=self.sink.found[-1].summary)
        Ledger(self.store, "p").save_cursor(cursor)

    def runs(self, _pipeline: str) -> list[dict[str, Any]]:
        return self.ran

    def page(self, _path: str) -> None:
        return None

    def brokers(self, _pipeline: Pipeline) -> FakeBrokers:
        return FakeBrokers(latest={P0: 40})

    def cursor(self, _pipeline: Pipeline) -> Cursor:
        return Ledger(self.store, "p").cursor()


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> FakeRemote:
    made = FakeRemote()
    for commands in (ledger, repair, schedule, verify):
        monkeypatch.setattr(commands, "open_remote", lambda _: contextlib.nullcontext(made))
        monkeypatch.setattr(commands, "the_pipeline", lambda *_: PIPELINE)
    monkeypatch.setattr(schedule, "tell_airflow", lambda *_: None)
    return made


def told(words: str, code: int = 0) -> dict[str, Any]:
    """The JSON of a command that ends so."""
    found = CliRunner().invoke(app, [*words.split(), "--json"])
    assert found.exit_code == code, found.output
    answer: dict[str, Any] = json.loads(found.stdout)
    return answer


def test_the_history_names_who_ran_it_what_failed_and_what_cannot_be_read(remote: FakeRemote) -> None:
    """A broken part of the saved state hides nothing else; a run without a user is named by its kind."""
    remote.sink.found[-1] = receipt(3, 20, 30, run_id="catch_up__3")
    book = Ledger(remote.store, "p")
    broken = book.save_range(saved(1, 0, 10))
    book.save_range(saved(2, 10, 20))
    remote.store.values[broken] = "{"
    remote.ran = [
        {"dag_run_id": "run1", "state": "failed", "run_type": "manual", "triggering_user_name": "ann", "note": None},
        {"dag_run_id": "run2", "state": "success", "run_type": "scheduled"},
        {"dag_run_id": "catch_up__3", "state": "success", "run_type": "operator_triggered"},
        {"dag_run_id": "run3", "state": "failed", "run_type": "scheduled", "note": "Failed in load: out of memory."},
    ]
    shown = told("ledger show p", 1)
    assert list(shown) == ["pipeline", "batches", "transforms", "failures", "faults"]
    assert [(b["seq"], b["state"], b["who"]) for b in shown["batches"]] == [
        (1, "committed", "ann"),
        (2, "committed", "scheduled"),
        (3, "committed", "catch_up"),
    ]
    assert (shown["batches"][0]["ranges"], shown["transforms"]) == ({"t": {"0": [0, 10]}}, {"v1": {"t": {"0": [[0, 30]]}}})
    assert shown["failures"] == {"run3": "Failed in load: out of memory."}
    assert [broken in fault for fault in shown["faults"]] == [True]
    remote.store.values[book.cursor_key] = "{"
    shown = told("ledger show p", 1)
    assert [b["state"] for b in shown["batches"]] == ["loaded"] * 3
    assert [sum(key in fault for fault in shown["faults"]) for key in (broken, book.cursor_key)] == [1, 1]


def test_a_reload_shows_what_was_missing_what_is_left_and_the_replay(
    remote: FakeRemote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None where there is none."""
    lost = remote.sink.found.pop()
    missing = told("ledger reload p --dry-run", 1)["missing"]
    assert missing["ranges"] == {"t": {"0": [[20, 30]]}}
    ended = Ended(run_id="manual__1", state="success", chunks=1, landed=1, verdict={"chunks": 1, "offsets": 10, "rows": 10})

    def follow(*_: object) -> Ended:
        remote.sink.found.append(replace(lost.of(replay="again"), snapshot=900))
        return ended

    remote.api = type("Api", (), {"trigger": lambda *_: "manual__1"})()
    monkeypatch.setattr(repair, "follow", follow)
    assert told("ledger reload p") == {"pipeline": "p", "missing": missing, "left": None, "replay": asdict(ended)}


def test_a_plan_saves_nothing(remote: FakeRemote) -> None:
    """It has the saved range as a run would write it."""
    before = dict(remote.store.values)
    planned = told("plan p")
    assert (planned["origin"], planned["seq"], planned["ranges"]) == ("planned", 4, {"t": {"0": [30, 40]}})
    assert remote.store.values == before


def test_a_verdict_has_what_else_was_done_to_the_table(monkeypatch: pytest.MonkeyPatch, remote: FakeRemote) -> None:
    """Other commits and changed columns do not change it."""
    commit = {"snapshot": 7, "operation": "delete", "at": "2013-01-01 00:00:00"}
    remote.sink.found = [receipt(n, 10 * n - 10, 10 * n, batch=n) for n in (1, 2, 3)]
    monkeypatch.setattr(verify, "the_pipeline", lambda *_: replace(PIPELINE, identity="batch"))
    monkeypatch.setattr("tidegate.iceberg.history.strangers", lambda _: [commit])
    monkeypatch.setattr("tidegate.iceberg.history.changed_columns", lambda _: ["a was dropped"])
    monkeypatch.setattr("tidegate.iceberg.origins.read_batches", lambda _: {1: 10, 2: 10, 3: 10})
    found = told("ledger verify p")
    assert (found["pipeline"], found["holds"]) == ("p", True)
    assert (found["other_commits"], found["changed_columns"]) == ([commit], ["a was dropped"])


@pytest.mark.parametrize(
    ("held", "plugin", "said"),
    [
        ({}, True, ["pool p: not there yet, made when the next run starts"]),
        ({}, False, ["pool p: missing, and its loads wait for ever. Run `airflow pools set p 2 "]),
        ({"p": 0}, None, ["pool p: has no slots, and its loads wait for ever. Run `airflow pools set p 2 "]),
        ({"q": 0}, True, ["pool p: not there yet", "pool q: has no slots, and its loads wait for ever"]),
        ({"p": -1}, None, []),
        ({"p": 1}, None, []),
    ],
)
def test_loads_wait_for_ever_for_a_pool_that_no_run_makes(
    capsys: pytest.CaptureFixture[str], held: dict[str, int], said: list[str], *, plugin: bool | None
) -> None:
    """One without slots among them: operators set it to 0 to stop loads, and forget it. The plugin makes what is missing."""

    class Api:
        pool_slots = staticmethod(held.get)

        @staticmethod
        def has_plugin(_name: str) -> bool:
            assert plugin is not None, "asked for nothing"
            return plugin

    api: Any = Api()
    assert check.loads_can_run(api, {"p": 2} | dict.fromkeys(held, 2)) == ("for ever" not in "".join(said))
    told = " ".join(capsys.readouterr().err.split())
    assert [each for each in said if each not in f"{told} "] == []
    assert bool(told) == bool(said)

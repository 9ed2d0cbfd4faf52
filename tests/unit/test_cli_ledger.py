"""Laws of the ledger's commands, on in-memory ports; on the real parts: `tests/e2e/test_ledger.py`, `test_lost_tables.py`."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.records import cursor_of, range_of
from tests.unit.loads import P0, receipt, saved
from tidegate.cli import ledger, repair, shared
from tidegate.cli.replay import Ended
from tidegate.core.config.pipeline import Pipeline, Sink, Source
from tidegate.core.errors import RequestError, StateError
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition
from tidegate.core.state.cursor import Cursor, Position
from tidegate.core.state.ledger import Ledger, run_key
from tidegate.core.state.saved_range import Decision
from tidegate.testing.fakes import FakeBrokers, FakeReader, MemoryStore

PIPELINE = Pipeline("p", Source(("t",)), "m:f", Sink("lake.a.b"))
P1 = TopicPartition("t", 1)


@dataclass
class FakeRemote:
    """Two batches of one partition of two in the table; no Variable is left."""

    store: MemoryStore = field(default_factory=MemoryStore)
    sink: FakeReader = field(default_factory=lambda: FakeReader([receipt(1, 0, 10), receipt(2, 10, 20)]))
    active: list[str] = field(default_factory=list)
    api: Any = None
    earliest: dict[TopicPartition, int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)

    def runs(self, _pipeline: str) -> list[dict[str, str]]:
        return []

    def page(self, path: str) -> str:
        return f"https://airflow/base/{path}"

    def brokers(self, _pipeline: Pipeline) -> FakeBrokers:
        return FakeBrokers({P0: 30, P1: 40}, self.earliest, self.ids)

    def active_runs(self, _pipeline: str) -> list[str]:
        return self.active

    def cursor(self, pipeline: Pipeline) -> Cursor:
        return Ledger(self.store, pipeline.name).cursor()

    @property
    def saved(self) -> Cursor:
        return Ledger(self.store, "p").cursor()


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> FakeRemote:
    made = FakeRemote()
    for commands in (ledger, repair):
        monkeypatch.setattr(commands, "open_remote", lambda _: contextlib.nullcontext(made))
        monkeypatch.setattr(commands, "the_pipeline", lambda *_: PIPELINE)
    return made


def run(*words: str) -> Result:
    return CliRunner().invoke(ledger.app, ["ledger", *words])


@pytest.mark.parametrize("columns", [80, 120])
def test_the_history_fits_into_the_terminal(remote: FakeRemote, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """With its replays, of which a run that loaded a chunk again names the first one; what is long is folded, not cut."""
    monkeypatch.setattr(shared.out, "_width", columns)
    run_id, other = "manual__2026-05-01T10:15:42.123456+00:00_ab12cd34", "manual__2026-05-02T00:00:00+00:00_ef56ab78"
    chunk = receipt(0, 0, 10, run_id=run_id, replay=run_key(run_id))
    parts = tuple(OffsetRange("t", partition, 0, 10) for partition in range(6))
    again = receipt(1, 0, 10, ranges=parts, run_id=other, replay=run_key(run_id))
    Ledger(remote.store, "p").save_range(saved(3, 20, 30, adopted_from=run_id))
    remote.sink.found += [chunk, again, again]
    lines = run("show", "p").stdout.splitlines()
    assert max(map(len, lines)) <= columns
    told = "".join("".join(line.split()) for line in lines)
    for words in (run_id, other, f"ofreplay{run_key(run_id)}", "and2more", f"adoptedfrom{run_id}", "loaded2times"):
        assert words in told


def test_a_rebuild_stops_where_the_table_begins_after_the_first_batch(remote: FakeRemote) -> None:
    """Nothing is known of what came before; where its receipts have expired, the offsets are named that no receipt covers."""
    remote.sink.found = [receipt(2, 10, 20, beside=Position({}, {}, {P0: 10}))]
    assert "nothing is known of batch 1 of p" in str(run("rebuild", "p").exception)
    dry = run("rebuild", "p", "--dry-run", "--json")
    assert dry.exit_code == 1
    assert remote.store.values == {}
    remote.sink.found, remote.sink.expired = [receipt(2, 10, 20, beside=Position({}, {}, {P0: 3}))], True
    assert "no receipt in lake.a.b covers offsets before the rebuilt cursor of p: t-0 [3, 10)" in str(
        run("rebuild", "p").exception
    )
    remote.sink.kept = [receipt(1, 3, 10)]
    assert run("rebuild", "p").exit_code == 0
    assert remote.saved.at.starts == {P0: 3}


def test_a_rebuild_begins_anew_where_it_is_accepted_that_no_receipt_covers_offsets(remote: FakeRemote) -> None:
    """By a saved range that no commit vouches for."""
    remote.sink.found = [receipt(1, 0, 10), receipt(3, 25, 30, beside=Position({}, {}))]
    why = (Decision(P0, "cursor", "log end"),)
    Ledger(remote.store, "p").save_range(range_of("p", 2, "run2", (OffsetRange("t", 0, 10, 25),), why, {"t": "id"}, {}, 1))
    assert "covers offsets before the rebuilt cursor of p: t-0 [10, 25)" in str(run("rebuild", "p").exception)
    assert run("rebuild", "p", "--accept-gaps").exit_code == 0
    assert remote.saved.at.starts == {P0: 30}


def test_a_rebuild_stops_at_offsets_that_its_receipts_jump_over(remote: FakeRemote) -> None:
    """A batch that is lost, or a loss that was accepted: nothing tells."""
    remote.sink.found = [receipt(1, 0, 10), receipt(2, 10, 20), receipt(4, 25, 30, beside=Position({}, {}))]
    refused = run("rebuild", "p")
    assert isinstance(refused.exception, StateError)
    assert "covers offsets before the rebuilt cursor of p: t-0 [20, 25)" in str(refused.exception)


def test_a_rebuilt_cursor_is_where_the_newest_batch_led(remote: FakeRemote) -> None:
    """Also where partitions begin, what a former topic left, and that rows without origin are accepted."""
    before = cursor_of("p", 2, {P0: 20, P1: 9}, {"t": "id"}, starts={P0: 10, P1: 9}, former={P0: 90}, foreign="lake.a.b")
    beside = before.at.beside((OffsetRange("t", 0, 10, 20),), {})
    remote.sink.found, remote.sink.expired = [receipt(2, 10, 20, beside=beside)], True
    assert run("rebuild", "p").exit_code == 0
    assert remote.saved.at == before.at


def test_a_schedule_is_rebuilt_while_nothing_runs(remote: FakeRemote) -> None:
    """A run would write over it."""
    remote.active.append("scheduled__1")
    assert "is running (scheduled__1)" in str(run("rebuild", "p").exception)


def test_a_reload_says_what_is_missing_and_loads_it(remote: FakeRemote, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a replay of exactly that; a whole table needs none."""
    whole = receipt(2, 10, 20).summary
    Ledger(remote.store, "p").save_cursor(cursor_of("p", 2, {P0: 20}, {"t": "id"}, receipt=whole, starts={P0: 0}))
    assert run("reload", "p", "--json").exit_code == 0
    lost = remote.sink.found.pop()
    dry = run("reload", "p", "--dry-run", "--json")
    assert dry.exit_code == 1
    assert json.loads(dry.stdout)["missing"]["ranges"] == {"t": {"0": [[10, 20]]}}

    class Api:
        triggered: tuple[str, dict[str, Any]] | None = None

        def trigger(self, dag_id: str, params: dict[str, Any]) -> str:
            self.triggered = dag_id, params
            remote.sink.found.append(replace(lost.of(replay="again"), snapshot=900))
            return "manual__1"

    remote.api = Api()
    monkeypatch.setattr(repair, "follow", lambda *_: Ended("manual__1", "success", 1, 1))
    assert run("reload", "p").exit_code == 0
    assert remote.api.triggered == ("p__replay", {"offsets": {"t": {"0": [[10, 20]]}}})


def test_a_reload_of_a_table_that_is_gone_leads_on_where_no_offset_can_be_named(remote: FakeRemote) -> None:
    """Its rows were of topics that were retired since."""
    Ledger(remote.store, "p").save_cursor(cursor_of("p", 2, {}, {}, receipt=receipt(2, 10, 20).summary))
    remote.sink.found.clear()
    remote.sink.exists = False
    refused = run("reload", "p")
    assert isinstance(refused.exception, RequestError)
    assert "is gone, and the cursor names none of the offsets that it held" in str(refused.exception)
    assert "`tidegate accept table p`" in str(refused.exception)


def test_a_reload_loads_what_is_retained_and_names_what_is_not(remote: FakeRemote) -> None:
    """Only where that is accepted; a topic that was created again holds other records."""
    summary = receipt(2, 10, 20).summary
    cursor = cursor_of("p", 2, {P0: 20}, {"t": "id"}, receipt=summary, starts={P0: 0})
    Ledger(remote.store, "p").save_cursor(cursor)
    remote.sink.found.clear()
    remote.earliest = {P0: 12}
    refused = run("reload", "p")
    assert isinstance(refused.exception, RequestError)
    assert "lacks offsets that cannot be loaded again (t-0 [0, 12))" in str(refused.exception)
    assert "--accept-loss" in str(refused.exception)
    remote.ids = {"t": "new"}
    gone = run("reload", "p", "--accept-loss")
    assert "tidegate accept table p" in str(gone.exception)
    assert "--accept-loss" not in str(gone.exception)

"""Laws of the view of pipelines at a glance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.records import changed, cursor_of, range_of
from tidegate.core.audit.lag import TotalLag
from tidegate.core.audit.readable import Readable
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.rates import BatchTiming
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.saved_range import Decision
from tidegate.testing.fakes import MemoryStore
from tidegate.views.overview import Overview, by_trouble

A = TopicPartition("t", 0)
TIMING = BatchTiming(1000, 500, run_ms=4000, load_ms=1000, scheduling_delay_ms=10, ended_at_ms=7)
SAVED = range_of(
    "p", 3, "r3", (OffsetRange("t", 0, 20, 30), OffsetRange("t", 1, 0, 5)), (Decision(A, "cursor", "log end"),), {}, {}, 9
)


@pytest.fixture
def ledger() -> Ledger:
    made = Ledger(MemoryStore(), "p")
    made.save_cursor(cursor_of("p", 2, {A: 20}, timing=TIMING, timings=(TIMING, TIMING)))
    return made


def run(run_id: str, state: str, note: str | None = None) -> dict[str, Any]:
    return {"dag_run_id": run_id, "state": state, "note": note, "since_ms": 5}


def seen(ledger: Ledger, *runs: dict[str, Any], paused: bool = False, interval_s: float | None = 60.0) -> Overview:
    state = Readable(ledger)
    view = Overview(state.cursor, "lake.a.b", interval_s, paused, runs, state.pending)
    return replace(view, faults=tuple(state.faults))


def test_a_healthy_pipeline_shows_what_its_batches_took(ledger: Ledger) -> None:
    """Records per second are those of all batches that are known, over their runs."""
    view = seen(ledger, run("r2", "success"), run("r3", "running"))
    assert view.to_json() == {
        "pipeline": "p",
        "table": "lake.a.b",
        "paused": False,
        "seq": 2,
        "last": {"records": 1000, "bound": 500, "run_s": 4.0, "load_s": 1.0, "delay_s": 0.01, "ended_at_ms": 7},
        "records_per_s": 250.0,
        "interval_s": 60.0,
        "pending": None,
        "failure": None,
        "run": {"run_id": "r3", "state": "running", "since_ms": 5},
        "trouble": None,
        "faults": [],
        "lag": None,
        "waiting": None,
        "file_error": None,
    }


def test_a_pipeline_that_never_ran_is_no_trouble() -> None:
    """It has neither cursor nor batches."""
    view = seen(Ledger(MemoryStore(), "p"))
    shown = view.to_json()
    assert (shown["seq"], shown["last"], shown["records_per_s"], shown["trouble"]) == (0, None, None, None)


def test_what_stopped_it_is_the_newest_failure_since_the_last_success(ledger: Ledger) -> None:
    """With the saved range that the next run adopts."""
    ledger.save_range(SAVED)
    runs = [run("r1", "failed", "Failed in plan: old."), run("r2", "success"), run("r3", "failed", "Failed in load: new.")]
    view = seen(ledger, *runs)
    assert view.trouble == "stopped"
    assert view.to_json()["failure"] == {"run_id": "r3", "why": "Failed in load: new.", "command": "airflow dags trigger p"}
    assert view.to_json()["pending"] == {"seq": 3, "run_id": "r3", "offsets": 15}
    assert seen(ledger, *runs, run("r4", "success")).trouble is None


@pytest.mark.parametrize(
    ("paused", "interval_s", "trouble"), [(True, 1.0, "paused"), (False, 3.9, "late"), (False, None, None)]
)
def test_a_run_that_is_longer_than_its_interval_is_late(
    ledger: Ledger,
    paused: bool,  # noqa: FBT001 - a case
    interval_s: float | None,
    trouble: str | None,
) -> None:
    """Where runs start at fixed times, and the DAG is not paused."""
    assert seen(ledger, paused=paused, interval_s=interval_s).trouble == trouble


def test_the_command_that_goes_on_is_the_one_that_the_fix_names(ledger: Ledger) -> None:
    """Not what else stands in backticks; where it names none, another run is triggered."""
    note = "Failed in plan: `t` lost records. Run `tidegate ledger accept p --lost`."
    assert seen(ledger, run("r3", "failed", note)).command == "tidegate ledger accept p --lost"
    assert seen(ledger).command is None


@pytest.mark.parametrize(
    ("left_s", "interval_s", "trouble"),
    [(None, 60.0, None), (7300.0, 3600.0, None), (7100.0, 3600.0, "losing"), (3599.0, None, "losing"), (3600.0, None, None)],
)
def test_a_pipeline_loses_records_soon_within_two_intervals_or_an_hour(
    ledger: Ledger, left_s: float | None, interval_s: float | None, trouble: str | None
) -> None:
    """Whichever is longer, and also while it is paused."""
    lag = TotalLag(partitions=1, records_behind=25, seconds_behind=9.0, retention_left_s=left_s), 5
    view = replace(seen(ledger, interval_s=interval_s), lag=lag)
    assert view.trouble == trouble
    assert replace(view, paused=True).trouble == (trouble or "paused")
    assert view.to_json()["lag"] == {
        "partitions": 1,
        "records_behind": 25,
        "seconds_behind": 9.0,
        "retention_left_s": left_s,
        "held_back": 0,
        "open_s": None,
        "open_transaction": None,
        "at_ms": 5,
    }


def test_a_file_that_cannot_be_read_comes_before_what_failed(ledger: Ledger) -> None:
    """Nothing runs before it is corrected."""
    view = replace(seen(ledger, run("r3", "failed")), file_error="not valid YAML")
    assert (view.trouble, Overview(Cursor(pipeline="q", seq=0), file_error="no").to_json()["trouble"]) == ("file", "file")


@pytest.mark.parametrize("broken", ["cursor", "range.0000000003.r3-x"])
def test_saved_state_that_cannot_be_read_is_named(broken: str) -> None:
    """The rest is shown, before all others."""
    store = MemoryStore()
    Ledger(store, "p").save_cursor(cursor_of("p", 2, {A: 20}))
    Ledger(store, "p").save_range(changed(SAVED, seq=1))
    store.put(f"tidegate.p.{broken}", "{", "")
    view = seen(Ledger(store, "p"), run("r", "failed"))
    assert (view.trouble, view.pending) == ("unreadable", None)
    assert broken in view.faults[0]
    others = [replace(view, cursor=Cursor(pipeline=name, seq=0), faults=(), paused=name == "b") for name in "cab"]
    assert [each.pipeline for each in by_trouble([*others, view])] == ["p", "a", "b", "c"]

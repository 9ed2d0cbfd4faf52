"""Laws of the views of one run, and of the last runs side by side."""

from __future__ import annotations

from typing import Any

import pytest

from tests.records import cursor_of, range_of, replay_of, write_of
from tidegate.core.audit.views.batch import batch_view
from tidegate.core.audit.views.runs import ReplayView, RunView, run_marks, without_a_batch
from tidegate.core.load.receipt import Receipt
from tidegate.core.offsets.ranges import OffsetRange

CHUNKS = ((OffsetRange("t", 0, 0, 10),), (OffsetRange("t", 0, 10, 15),))
REPLAY = replay_of("p", "again", "x", CHUNKS, "lake.a.b", "v2", {}, 1, request={"versions": "=1"})


def run(state: str, note: str | None = None, run_id: str = "again", since_ms: int = 1, kind: str = "manual") -> dict[str, Any]:
    return {"dag_run_id": run_id, "state": state, "note": note, "run_type": kind, "since_ms": since_ms}


def landed(rows: int) -> Receipt:
    return Receipt(write_of("p", 0, "again", CHUNKS[0], "v2", "a", replay="x"), 7, 100, rows)


def test_a_replay_shows_what_landed_and_what_it_replaced() -> None:
    """The newest load of each chunk."""
    report = {"replaces": [{"load": "batch 1"}], "lost": "?", "total": 15}
    view = ReplayView(run("running"), "p", REPLAY, (landed(9), landed(10)), report)
    found = RunView("replay", replay=view).to_json()["replay"]
    assert found["chunks"] == [
        {"chunk": 0, "offsets": 10, "landed": True, "rows": 10, "committed_at_ms": 100},
        {"chunk": 1, "offsets": 5, "landed": False, "rows": None, "committed_at_ms": None},
    ]
    assert (found["offsets"], found["table"], found["transform"], found["request"]) == (
        15,
        "lake.a.b",
        "v2",
        {"versions": "=1"},
    )
    assert (found["replaces"], found["lost"], found["verdict"]) == ([{"load": "batch 1"}], [], None)


def test_a_dry_run_shows_what_it_would_replace() -> None:
    """Nothing is saved of it; without its report, nothing is known but its note."""
    report = {"total": 15, "table": "lake.a.b", "transform": "v2", "seconds": 3.5}
    view = ReplayView(run("success", "Dry run"), "p", None, (), report, {"rows": 1}, dry_run=True).to_json()
    assert (view["dry_run"], view["offsets"], view["table"], view["seconds"]) == (True, 15, "lake.a.b", 3.5)
    assert (view["chunks"], view["request"], view["verdict"], view["note"]) == ([], {}, {"rows": 1}, "Dry run")
    bare = ReplayView(run("failed"), "p").to_json()
    assert (bare["offsets"], bare["table"], bare["replaces"]) == (None, None, [])


@pytest.mark.parametrize(
    ("state", "note", "plan", "kind", "reason"),
    [
        ("success", "Nothing to read: no new records.", "skipped", "nothing", "Nothing to read: no new records."),
        ("success", None, "skipped", "nothing", "There was nothing to read."),
        ("failed", "Failed in plan: no broker.", "failed", "failed", "Failed in plan: no broker."),
        ("failed", None, None, "failed", "It failed before it had saved a range; see the log of its plan task."),
        ("queued", None, None, "planning", "It has not saved a range yet."),
        ("running", None, "running", "planning", "It has not saved a range yet."),
        ("success", None, "success", "other", "It has saved no range, or the range has been removed since."),
        (None, None, None, "other", "Airflow does not know this run."),
    ],
)
def test_a_run_without_a_batch_says_why(state: str | None, note: str | None, plan: str | None, kind: str, reason: str) -> None:
    """One that found nothing is no failure, and no plan that is still to come."""
    view = without_a_batch(None if state is None else run(state, note), plan).to_json()
    assert view == {"kind": kind, "batch": None, "replay": None, "reason": reason}


def test_a_run_with_a_batch_shows_it() -> None:
    """As the batch's own view does."""
    batch = batch_view(range_of("p", 1, "r", CHUNKS[0], (), {}, {}, 1), cursor_of("p"), ())
    assert RunView("batch", batch=batch).to_json()["batch"] == batch.to_json()


def test_the_last_runs_are_told_apart() -> None:
    """In the order of their times; a run that found nothing to read is no load."""
    runs = [
        run("success", run_id="old", since_ms=0),
        run("success", run_id="loaded", since_ms=1),
        run("success", "Nothing to read.", run_id="nothing", since_ms=2),
        run("failed", run_id="failed", since_ms=4),
        run("success", run_id="backfill__1", since_ms=5, kind="backfill"),
        run("running", run_id="running", since_ms=6),
        run("queued", run_id="queued", since_ms=7),
    ]
    replays = [run("success", run_id="replay", since_ms=3)]
    batches = {"old": (1, 5), "loaded": (2, 10), "failed": (3, None), "running": (3, 7)}
    marks = run_marks({"p": runs, "p__replay": replays}, batches, pipeline="p", most=7)
    assert [(mark.run_id, mark.kind, mark.seq, mark.records) for mark in marks] == [
        ("loaded", "loaded", 2, 10),
        ("nothing", "nothing", None, None),
        ("replay", "replay", None, None),
        ("failed", "failed", 3, None),
        ("backfill__1", "replay", None, None),
        ("running", "running", 3, 7),
        ("queued", "queued", None, None),
    ]
    assert marks[2].to_json()["dag_id"] == "p__replay"

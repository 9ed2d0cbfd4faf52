"""Laws of the views of one run, of its batch, and of the last runs side by side."""

from __future__ import annotations

from typing import Any

import pytest

from tests.records import changed, cursor_of, range_of, replay_of, write_of
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.rates import BatchTiming
from tidegate.core.rates.control import RateBound
from tidegate.core.state.jobs import COLD_S
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.saved_range import Decision
from tidegate.views.batch import LoadAnswer, batch_view
from tidegate.views.runs import ReplayView, RunView, run_marks, without_a_batch

A = TopicPartition("t", 0)
TIMING = BatchTiming(1000, 500, run_ms=4000, load_ms=1000, scheduling_delay_ms=10, ended_at_ms=7)
SAVED = range_of(
    "p", 3, "r3", (OffsetRange("t", 0, 20, 30), OffsetRange("t", 1, 0, 5)), (Decision(A, "cursor", "log end"),), {}, {}, 9
)
CHUNKS = ((OffsetRange("t", 0, 0, 10),), (OffsetRange("t", 0, 10, 15),))
REPLAY = replay_of("p", "again", "x", CHUNKS, "lake.a.b", "v2", {}, 1, request={"versions": "=1"})


def run(state: str, note: str | None = None, run_id: str = "again", since_ms: int = 1, kind: str = "manual") -> dict[str, Any]:
    return {"dag_run_id": run_id, "state": state, "note": note, "run_type": kind, "since_ms": since_ms}


def landed(rows: int) -> Receipt:
    return Receipt(write_of("p", 0, "again", CHUNKS[0], "v2", "a", replay="x"), 7, 100, rows=rows)


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


def test_a_batch_shows_its_reasons_and_its_loads() -> None:
    """The newest load counts; replays, and loads of other batches, are none of its."""
    rate = RateBound("fixed_point", 500, terms={"a": 0.5})
    loads = [
        Receipt(write_of("p", seq, "r3", SAVED.load.ranges, transform, "x", replay=replay), 2**60, 5, rows=15)
        for seq, transform, replay in ((3, "v1", None), (3, "v2", "again"), (2, "v1", None), (3, "v3", None))
    ]
    view = batch_view(
        changed(SAVED, rate=rate), cursor_of("p", 3, {A: 30}, timing=TIMING), loads, {"r3": "scheduled"}
    ).to_json()
    assert [load["transform"] for load in view["loads"]] == ["v1", "v3"]
    assert (view["state"], view["transform"], view["rows"], view["who"]) == ("committed", "v3", 15, "scheduled")
    assert view["loads"][0]["snapshot"] == "1152921504606846976"
    assert [p["until_reason"] for p in view["partitions"]] == ["log end", None]
    assert view["timing"] == TIMING.to_json()
    assert view["rate"] == rate.to_json()
    assert view["load"] is None
    (again,) = view["replays"]
    assert (again["dag_id"], again["seq"], again["partitions"][1]["until"]) == ("p__replay", 3, 5)
    assert view["explained"] == [
        "It was loaded 2 times. Each load replaced the rows of the one before.",
        "15 of its offsets were loaded again by run r3, by v2.",
    ]


def test_a_batch_says_what_was_adopted_kept_lost_and_read_anew() -> None:
    """And that a try found what an earlier one had written. A replay of a former topic of that name is none of its."""
    saved = changed(
        SAVED,
        adopted_from="r2",
        jumped={A: 15},
        topic_ids={"t": "new"},
        decisions=(Decision(A, "accepted loss", "log end"), Decision(TopicPartition("t", 1), "recreated", "log end")),
    )
    load = write_of("p", 3, "r3", SAVED.load.ranges, "v1", "x")
    former = changed(load, replay="before", topic_ids={"t": "old"})
    backfill = changed(load, replay="since", run_id="backfill__x", ranges=(OffsetRange("t", 0, 25, 40),))
    loads = [Receipt(each, 1, 5, rows=15, kept=7) for each in (load, former, backfill)]
    answer = LoadAnswer(seconds={"write": 1.0}, landed_before=True)
    view = batch_view(saved, cursor_of("p", 3), loads, answer=answer).to_json()
    assert view["explained"] == [
        "Run r2 saved the range and did not commit it. Run r3 adopted it.",
        "7 older rows of the same data files were written again, unchanged, by the newest load.",
        "An earlier try of the load had written the rows. The last try found its receipt, and wrote nothing.",
        "5 offsets before it were deleted by retention, and skipped, as somebody accepted.",
        "Topic t had been deleted and created again. It is read from its beginning.",
        "5 of its offsets were loaded again by run backfill__x, by v1.",
    ]
    assert [each["dag_id"] for each in view["replays"]] == ["p"]
    assert view["load"]["seconds"] == {"write": 1.0}


def test_a_batch_that_is_only_planned_has_no_loads() -> None:
    """Nor a time: that of the cursor is another batch's."""
    view = batch_view(SAVED, cursor_of("p", 2, {A: 20}, timing=TIMING), ()).to_json()
    assert (view["state"], view["rows"], view["transform"], view["timing"], view["rate"]) == ("planned", None, None, None, None)


def answer(**changes: Any) -> dict[str, Any]:
    seen = {"records": 10, "rows": 9, "bytes": 100, "repeats": 1}
    return {"receipt": {}, "observed": seen, "seconds": {"write": 0.5}, "landed_before": False, **changes}


def test_seconds_and_counts_are_read() -> None:
    """What an older version did not count is not known."""
    found = LoadAnswer.of(answer())
    assert found == LoadAnswer(seconds={"write": 0.5}, records=10, rows=9, repeats=1)
    assert found.marks == frozenset()
    assert found.to_json()["seconds"] == {"write": 0.5}


@pytest.mark.parametrize(
    ("errors", "age_s", "marks"),
    [(0, COLD_S, set()), (3, None, {"errors"}), (None, COLD_S - 1, {"cold"}), (1, 0.0, {"cold", "errors"})],
)
def test_broken_records_and_a_spark_that_had_just_started_are_marked(
    errors: int | None, age_s: float | None, marks: set[str]
) -> None:
    """Nothing is marked that is not known."""
    found = LoadAnswer.of(answer(observed={"errors": errors}, spark_age_s=age_s))
    assert found is not None
    assert found.marks == marks


@pytest.mark.parametrize("value", [None, [], "x", {}, {"observed": None}])
def test_what_is_no_answer_is_left_out(value: object) -> None:
    """Somebody may have written it."""
    assert LoadAnswer.of(value) is None


def test_what_is_no_number_is_not_known() -> None:
    """No batch depends on it."""
    odd = answer(observed={"records": -1, "rows": "9", "errors": True}, seconds={"write": "long", "read": 1}, spark_age_s="x")
    assert LoadAnswer.of(odd) == LoadAnswer(seconds={"read": 1.0})
    assert LoadAnswer.of(answer(seconds=3)) == LoadAnswer(seconds={}, records=10, rows=9, repeats=1)

"""Laws of the notes of runs. The listener: `tests/dags/test_listener.py`; with a whole Airflow: `tests/e2e`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.planning.run_notes import FAILED, LONGEST, Kind, failed_runs, failure, next_run, note, since_success

PLAN = {"seq": 7, "redo": False}


@pytest.mark.parametrize(
    ("task", "plan", "kind", "words"),
    [
        ("plan", None, "schedule", "plans again"),
        ("load", PLAN, "schedule", "retries batch 7 (same offsets)"),
        ("commit", PLAN, "schedule", "finds what is loaded of batch 7, and commits it"),
        ("load", {**PLAN, "redo": True}, "schedule", "goes on after it. Clear the failed task"),
        ("catch_up", PLAN, "schedule", "The cursor is past batch 7 already, and the next run goes on after it."),
        ("load", {"replay": "abc"}, "schedule", "a backfill does not move the cursor"),
        ("plan", None, "replay", "Nothing was loaded"),
        ("load", {"replay": "abc"}, "replay", "which leaves out the chunks that landed"),
        ("compact", None, "maintenance", "holds the same rows"),
    ],
)
def test_what_comes_next_follows_from_the_task_that_failed(
    task: str, plan: dict[str, object] | None, kind: Kind, words: str
) -> None:
    """The saved range, the cursor, or the chunks."""
    assert words in next_run(task, plan, kind)


@pytest.mark.parametrize("task", ["load", "commit"])
def test_nobody_is_told_that_a_committed_batch_is_tried_again(task: str) -> None:
    """A task may fail after the cursor has moved, or be cleared."""
    told = next_run(task, PLAN, "schedule", committed=True)
    assert told.startswith("The cursor is past batch 7 already, and the next run goes on after it.")
    assert ("Clear the failed task and the tasks after it" in told) == (task == "load")


def test_a_failure_is_one_line_of_task_message_fix_and_what_comes_next() -> None:
    """Sentences end with one full stop; what the task left may hold several lines."""
    told = failure("load", {"message": "no\n  function f", "fix": "Define it."}, "The next run retries.")
    assert told == "Failed in load: no function f. Define it. The next run retries."
    assert failure("load", {"message": "away"}, "Next.") == "Failed in load: away. Next."
    assert "killed" in failure("load", None, "Next.")
    assert failure("load", None, "Next.", timed_out=True).startswith(
        "Failed in load: the run took longer than its timeout_s. See "
    )


@given(st.text(), st.text(), st.text(), st.text())
def test_a_note_is_never_too_long_and_its_failure_is_whole(plan: str, message: str, fix: str, where: str) -> None:
    """The plan's lines give way; lines of any length."""
    told = failure(where[:50], {"message": message * 50, "fix": fix * 50}, "The next run retries batch 7 (same offsets).")
    text = note(plan * 500, told)
    assert text is not None
    assert len(text) <= LONGEST
    assert text.endswith(told)


def test_a_note_without_a_failure_is_the_plan() -> None:
    """There is no note where there is neither a plan nor a failure."""
    assert note("plan", None) == "plan"
    assert note("x" * 2000, None) == "x" * LONGEST
    assert note(None, "failed") == "failed"
    assert note(None, None) is None
    assert note("plan", "failed") == "plan\nfailed"


def test_failed_runs_are_told_from_their_notes() -> None:
    """A person's note, or none, leaves the logs to look at."""
    runs: list[dict[str, Any]] = [
        {"dag_run_id": "a", "state": "failed", "note": f"batch 1\n{FAILED}load: away."},
        {"dag_run_id": "b", "state": "failed", "note": "mine"},
        {"dag_run_id": "c", "state": "failed", "note": None},
        {"dag_run_id": "d", "state": "success", "note": "batch 1"},
    ]
    logs = "Failed; see the logs of its tasks."
    assert failed_runs(runs) == {"a": "Failed in load: away.", "b": logs, "c": logs}


def test_failures_count_since_the_last_success() -> None:
    """What failed before is over."""
    runs = [
        {"state": "failed", "n": 1},
        {"state": "success", "n": 2},
        {"state": "failed", "n": 3},
        {"state": "running", "n": 4},
    ]
    assert [run["n"] for run in since_success(runs)] == [3, 4]
    assert since_success(runs[:1]) == runs[:1]

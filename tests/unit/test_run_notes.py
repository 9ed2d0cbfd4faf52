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
def test_what_is_next_follows_from_the_failed_task(task: str, plan: dict[str, object] | None, kind: Kind, words: str) -> None:
    assert words in next_run(task, plan, kind)


@pytest.mark.parametrize("task", ["load", "commit"])
def test_nobody_is_told_that_a_committed_batch_is_tried_again(task: str) -> None:
    """A task may fail after the cursor has moved, or be cleared."""
    told = next_run(task, PLAN, "schedule", committed=True)
    assert told.startswith("The cursor is past batch 7 already, and the next run goes on after it.")
    assert ("Clear the failed task and the tasks after it" in told) == (task == "load")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ({"message": "no\n  function f", "fix": "Define it."}, "Failed in load: no function f. Define it. Next."),
        ({"message": "away"}, "Failed in load: away. Next."),
        ({"fix": f"Drop {'it' * 500}, then clear it"}, f"Failed in load: Drop {'it' * 84}i…{'it' * 80}, then clear it. Next."),
    ],
)
def test_a_failure_is_one_line_of_task_message_fix_and_what_comes_next(error: dict[str, str], told: str) -> None:
    """Sentences end with one full stop. Of a task that left nothing it says what is known."""
    assert failure("load", error, "Next.") == told
    assert "killed" in failure("load", None, "Next.")
    assert failure("load", None, "Next.", timed_out=True).startswith("Failed in load: the run took longer than its timeout_s.")


@given(st.text(), st.text(), st.text(), st.text())
def test_a_note_is_never_too_long_and_its_failure_is_whole(plan: str, message: str, fix: str, where: str) -> None:
    """The plan's lines give way; lines of any length."""
    told = failure(where[:50], {"message": message * 50, "fix": fix * 50}, "The next run retries batch 7 (same offsets).")
    text = note(plan * 500, told) or ""
    assert len(text) <= LONGEST
    assert text.endswith(told)


def test_a_note_is_what_there_is_of_plan_and_failure() -> None:
    notes = [("plan", None), ("x" * 2000, None), (None, "failed"), (None, None), ("plan", "failed")]
    assert [note(*each) for each in notes] == ["plan", "x" * LONGEST, "failed", None, "plan\nfailed"]


def test_failed_runs_are_told_from_their_notes() -> None:
    """A person's note, or none, leaves the logs to look at. Failures count since the last success."""
    notes = {"a": f"batch 1\n{FAILED}load: away.", "b": "mine", "c": None}
    runs: list[dict[str, Any]] = [{"dag_run_id": run_id, "state": "failed", "note": text} for run_id, text in notes.items()]
    done = {"dag_run_id": "d", "state": "success", "note": "batch 1"}
    logs = "Failed; see the logs of its tasks."
    assert failed_runs([*runs, done]) == {"a": "Failed in load: away.", "b": logs, "c": logs}
    running = {"dag_run_id": "e", "state": "running"}
    assert since_success([runs[0], done, runs[1], running]) == [runs[1], running]
    assert since_success(runs[:1]) == runs[:1]

"""The note of a DAG run, which Airflow's UI shows first: what it read and, where it failed, why, the fix, and what comes next.

`tidegate.airflow.notes` writes it, `tidegate ledger show` reads it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

LONGEST = 1000  # characters of Airflow's own column
FAILED = "Failed in "
UNVERIFIED = (
    "Not verified: somebody has marked this run or tasks of it, so that its last task did not run, and chunks may be missing. "
    "Clear its task verify, which finds out."
)
"""Of a replay that Airflow calls a success, since its last task was skipped."""
_LONGEST_MESSAGE = 350
Kind = Literal["schedule", "replay", "maintenance"]
"""What a DAG of a pipeline does."""


def failure(where: str, error: Mapping[str, Any] | None, then: str, *, timed_out: bool = False) -> str:
    """One paragraph on a run that failed.

    `where` is the task, such as `load` or `load[chunk 6, 7]`. `error` has `message` and `fix`, as the task left them; it is
    None where the task's process ended without leaving any. `timed_out`: the run was stopped by its `timeout_s`.
    """
    if error is not None:
        what = " ".join(_sentence(str(error.get(part) or "")) for part in ("message", "fix")).strip()
    elif timed_out:
        what = "See the task's log for what it waited for."
    else:
        what = "its process ended without an error of its own (killed, or lost by Airflow). See the task's log."
    stopped = "the run took longer than its timeout_s. " if timed_out else ""
    return f"{FAILED}{where}: {stopped}{what} {then}"


def next_run(task: str, plan: Mapping[str, Any] | None, kind: Kind, *, committed: bool = False) -> str:
    """What the next run does after one that failed in a task.

    `plan` is what the plan handed on, `committed` whether the cursor is past its batch.
    """
    if kind == "maintenance":
        return "The table holds the same rows. The next run does what is left."
    if kind == "replay":
        return (
            "Nothing was loaded. Correct the parameters, or clear the task."
            if plan is None
            else "Clear the failed tasks to go on, or replay the same again, which leaves out the chunks that landed."
        )
    if plan is None:
        return "The cursor did not move. The next run adopts the saved range, or plans again."
    if "replay" in plan:
        return "Clear the failed task to go on. The schedule does not wait for it: a backfill does not move the cursor."
    batch = f"batch {plan.get('seq')}"
    if committed or plan.get("redo") or task == "catch_up":
        again = " Clear the failed task and the tasks after it to load it again." if task == "load" else ""
        return f"The cursor is past {batch} already, and the next run goes on after it.{again}"
    what = f"finds what is loaded of {batch}, and commits it" if task == "commit" else f"retries {batch} (same offsets)"
    return f"The cursor did not move. The next run {what}."


def note(plan: str | None, then: str | None) -> str | None:
    """The plan's lines, and what became of it, in the length that a note may have: the latter is whole, the plan is cut."""
    if not plan or not then:
        text = then or plan
        return text[:LONGEST] if text else None
    then = then[:LONGEST]
    room = LONGEST - len(then) - 1
    kept = plan if len(plan) <= room else f"{plan[: max(room - 1, 0)]}…"
    return f"{kept}\n{then}"[-LONGEST:]


def since_success(runs: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The runs after the newest one that succeeded; the oldest first, as they are given."""
    succeeded = [n for n, run in enumerate(runs) if run["state"] == "success"]
    return runs[succeeded[-1] + 1 :] if succeeded else runs


def failed_runs(runs: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Why each failed run failed, by run id, from runs as Airflow's REST API lists them."""
    return {str(run["dag_run_id"]): _why(run.get("note")) for run in runs if run["state"] == "failed"}


def _why(text: str | None) -> str:
    failures = [line for line in (text or "").splitlines() if line.startswith(FAILED)]
    return failures[-1] if failures else "Failed; see the logs of its tasks."


def _sentence(text: str) -> str:
    """One line of bounded length with a full stop at its end, or nothing. A fix ends with its last step, which is not cut."""
    line, half = " ".join(text.split()), _LONGEST_MESSAGE // 2
    if len(line) > _LONGEST_MESSAGE:
        line = f"{line[: half - 1]}…{line[-half:]}"
    return line if not line or line.endswith((".", "…", "!", "?")) else f"{line}."

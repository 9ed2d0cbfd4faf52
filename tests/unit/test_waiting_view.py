"""Laws of what a run is shown to wait for."""

from __future__ import annotations

import pytest

from tidegate.core.audit.views.waiting import Slots, Task, waits_for

FULL, FREE, GONE = Slots("p", 4, 4), Slots("p", 4, 3), Slots("p", None)


@pytest.mark.parametrize(
    ("task", "slots", "line"),
    [
        (Task("load", "scheduled", "p"), FULL, "load waits for a slot of the pool p (4 of 4 taken)"),
        (Task("load", "queued", "p"), FREE, None),
        (Task("load", "scheduled", "p"), Slots("p", -1, 9), None),
        (Task("load", "scheduled", "p"), GONE, "load waits for the pool p, which does not exist"),
        (Task("load", "scheduled", "p"), Slots("p", 0), "load waits for a slot of the pool p, which has none"),
        (Task("plan", "scheduled", "default_pool"), FULL, None),
        (Task("load", "up_for_retry", "p", 12_400, "SparkUnavailable"), FREE, "load is tried again in 12 s (SparkUnavailable)"),
        (Task("load", "up_for_retry", "p", -5), FREE, "load is tried again in 0 s"),
        (Task("load[3]", "up_for_retry", "p"), FREE, "load[3] is tried again"),
        (Task("plan", "running", "p", away="no broker answers"), FREE, "plan waits for a server: no broker answers"),
        (Task("plan", "failed", "p", away="no broker answers"), FREE, None),
        (Task("load", "running", "p"), FULL, None),
    ],
)
def test_a_run_says_what_it_waits_for(task: Task, slots: Slots, line: str | None) -> None:
    """Nothing where a task runs, or where Airflow is about to start it."""
    assert waits_for([Task("before", "success", "p"), task], slots, now_ms=0) == line

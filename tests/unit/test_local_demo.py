"""What the demo tells of a run while it waits; the run itself is shown by the e2e tests."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate_local.demo import doing


def tasks(**states: str | None) -> list[dict[str, Any]]:
    """Task instances as Airflow lists them, in its own order."""
    return [{"task_id": task, "state": state} for task, state in reversed(states.items())]


@pytest.mark.parametrize(
    ("states", "told"),
    [
        ({}, "run r: running"),
        ({"plan": None, "load": None, "commit": None}, "run r: running"),
        ({"plan": "running", "load": None, "commit": None}, "run r, plan: asks Kafka for the end of the log"),
        ({"plan": "success", "load": "queued", "commit": None}, "run r, load: queued"),
        (
            {"plan": "success", "load": "running", "commit": None},
            "run r, load: Spark reads the range and writes the table, slowly",
        ),
        ({"plan": "success", "load": "up_for_retry", "commit": None}, "run r, load: up_for_retry"),
        ({"plan": "success", "load": "success", "commit": "running"}, "run r, commit: checks the receipt"),
        ({"plan": "success", "load": "success", "commit": "success"}, "run r: running"),
    ],
)
def test_a_run_tells_which_task_is_at_work(states: dict[str, str | None], told: str) -> None:
    """And what it waits for, where none is."""
    assert doing({"dag_run_id": "r", "state": "running"}, tasks(**states), ", slowly").startswith(told)

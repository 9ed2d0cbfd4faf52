"""Laws of the task that starts the next run while more than one batch waits. In Airflow: tests/e2e/test_backpressure.py."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException, DagRunTriggerException

from tidegate.airflow.operators import CatchUpOperator
from tidegate.core.config.pipeline import Pipeline, Sink, Source

PIPELINE = Pipeline("p", Source(("t",)), "m:f", Sink("lake.a.b"), catch_up=True)
STARTED = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


def ended_with(plan: dict[str, Any] | None, *, cleared: int = 0, paused: bool = False) -> DagRunTriggerException:
    """What the task asks of Airflow, which is an exception of Airflow's own."""
    ti = SimpleNamespace(
        xcom_pull=lambda task_ids: plan if task_ids == "plan" else None, get_dag=lambda _: SimpleNamespace(is_paused=paused)
    )
    context: Any = {"ti": ti, "dag_run": SimpleNamespace(clear_number=cleared, start_date=STARTED)}
    with pytest.raises(DagRunTriggerException) as asked:
        CatchUpOperator(task_id="catch_up", pipeline=PIPELINE).execute(context)
    return asked.value


def test_a_run_that_leaves_records_behind_starts_the_next_one_once() -> None:
    """The new run's id is the same when the task is tried again, and one that exists is left as it is."""
    asked = ended_with({"seq": 7, "remaining": 5})
    assert asked.trigger_dag_id == "p"
    assert asked.dag_run_id == "catch_up__8__20260102T030405.000678"
    assert asked.skip_when_already_exists
    assert asked.logical_date is None
    assert not asked.wait_for_completion


@pytest.mark.parametrize(
    ("plan", "more", "reason"),
    [
        ({"seq": 7, "remaining": 0}, {}, "no records waited"),
        ({"seq": 7}, {}, "no records waited"),
        ({"replay": "x"}, {}, "no records waited"),
        (None, {}, "no records waited"),
        ({"seq": 7, "remaining": 5}, {"cleared": 1}, "cleared"),
        ({"seq": 7, "remaining": 5}, {"paused": True}, "5 records wait, but the DAG is paused"),
    ],
)
def test_it_stops_by_itself(plan: dict[str, Any] | None, more: dict[str, Any], reason: str) -> None:
    """When nothing waits beyond the batch; a backfill, a cleared run and a paused DAG start none."""
    with pytest.raises(AirflowSkipException, match=reason):
        ended_with(plan, **more)

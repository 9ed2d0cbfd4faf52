"""Laws of what a run says that its batch took, and of the task that starts the next one while more than one waits."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException, DagRunTriggerException

from tests.records import range_of, write_of
from tidegate.airflow.operators import finish
from tidegate.airflow.operators.finish import CatchUpOperator, FinishOperator, idle_ms, timing_of
from tidegate.core.config.pipeline import Pipeline, Sink, Source
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.rates import BatchTiming
from tidegate.core.state.jobs import LoadResult
from tidegate.core.state.receipt import Observed, Receipt

DUE = datetime(2026, 1, 1, tzinfo=UTC)
STARTED = DUE + timedelta(seconds=2)
STARTED_MS = int(STARTED.timestamp() * 1000)
RANGES = (OffsetRange("t", 0, 0, 7),)
SAVED = range_of("p", 1, "r", RANGES, (), {"t": "id"}, {"max_records": 10}, STARTED_MS)
LOADED = LoadResult(
    Receipt(write_of("p", 1, "r", RANGES, "v", "r", {"t": "id"}), 1, STARTED_MS + 3000, rows=7),
    Observed(7, 7, 70, first_last={}),
    {"read": 1.5, "write": 1.0},
)

PIPELINE = Pipeline("p", Source(("t",)), "m:f", sink=Sink("lake.a.b"))


@pytest.fixture(autouse=True)
def _ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finish, "now_ms", lambda: STARTED_MS + 4000)


def timing(result: LoadResult = LOADED, *, started_ms: int | None = STARTED_MS, cleared: int = 0, idle_ms: int = 0) -> Any:
    """Of a run that was due, and whose plan started two seconds later."""
    run: Any = SimpleNamespace(run_after=DUE, clear_number=cleared)
    return timing_of(SAVED, result, {"dag_run": run}, started_ms, idle_ms)


def test_a_batch_took_the_time_since_its_plan_started() -> None:
    """Without the two seconds before, which are the delay; the bound is the limit in force."""
    assert timing() == BatchTiming(7, 10, run_ms=4000, load_ms=2500, scheduling_delay_ms=2000, ended_at_ms=STARTED_MS + 4000)


def test_a_pause_between_the_tasks_of_a_run_does_not_count() -> None:
    """What a run waits for a slot does, since all of it has to fit into the interval."""
    plan, load = {"started_ms": 0, "ended_ms": 1_000, "paused": True}, {"started_ms": 601_000, "ended_ms": 604_000}
    assert idle_ms(plan, load, {"started_ms": 900_000}) == 600_000
    assert idle_ms({**plan, "paused": False}, load, {"started_ms": 900_000}) == 0
    assert idle_ms(plan, {"started_ms": None}) == idle_ms({}, {"started_ms": 1}) == idle_ms(plan, {"started_ms": 1}) == 0
    assert timing(started_ms=STARTED_MS - 600_000, idle_ms=600_000).run_ms == 4000


@pytest.mark.parametrize(("said", "paused"), [(True, True), (False, False), (None, False)])
def test_a_task_says_whether_its_dag_was_paused_when_it_ended(*, said: bool | None, paused: bool) -> None:
    """An API that is away keeps no task from ending."""
    dag = {} if said is None else {"get_dag": lambda _: SimpleNamespace(is_paused=said)}
    context: Any = {"ti": SimpleNamespace(start_date=STARTED, try_number=1, dag_id="p", **dag)}
    told = FinishOperator(task_id="commit", pipeline=PIPELINE).handed_on(context)
    assert told == {"started_ms": STARTED_MS, "ended_ms": told["ended_ms"], "disturbed": False, "paused": paused}


@pytest.mark.parametrize(
    "how",
    [
        {"cleared": 1},  # it waited for a person
        {"result": replace(LOADED, landed_before=True)},
        {"started_ms": STARTED_MS + 3_600_000},
        {"started_ms": None},
    ],
)
def test_nothing_is_said_of_a_load_that_is_not_the_work_of_this_run(how: dict[str, Any]) -> None:
    """It landed in an earlier try, or long before the run was started again to commit it; or its start is unknown."""
    assert timing(**how) is None


CATCHES_UP = Pipeline("p", Source(("t",)), "m:f", sink=Sink("lake.a.b"), catch_up=True)
BEGAN = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


def ended_with(plan: dict[str, Any] | None, *, cleared: int = 0, paused: bool = False) -> DagRunTriggerException:
    """What the task asks of Airflow, which is an exception of Airflow's own."""
    ti = SimpleNamespace(
        xcom_pull=lambda task_ids: plan if task_ids == "plan" else None, get_dag=lambda _: SimpleNamespace(is_paused=paused)
    )
    context: Any = {"ti": ti, "dag_run": SimpleNamespace(clear_number=cleared, start_date=BEGAN)}
    with pytest.raises(DagRunTriggerException) as asked:
        CatchUpOperator(task_id="catch_up", pipeline=CATCHES_UP).execute(context)
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

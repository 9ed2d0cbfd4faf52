"""Laws of what a run says that its batch took."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from tests.records import range_of, write_of
from tidegate.airflow.operators import finish
from tidegate.airflow.operators.finish import FinishOperator, idle_ms, timing_of
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
    Observed(7, 7, 70, {}),
    {"read": 1.5, "write": 1.0},
)

PIPELINE = Pipeline("p", Source(("t",)), "m:f", Sink("lake.a.b"))


@pytest.fixture(autouse=True)
def _ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finish, "now_ms", lambda: STARTED_MS + 4000)


def timing(result: LoadResult = LOADED, *, started_ms: int | None = STARTED_MS, clear_number: int = 0) -> BatchTiming | None:
    """Of a run that was due, and whose plan started two seconds later."""
    run: Any = SimpleNamespace(run_after=DUE, clear_number=clear_number)
    return timing_of(SAVED, result, {"dag_run": run}, started_ms)


def test_a_batch_took_the_time_since_its_plan_started() -> None:
    """Without the two seconds before, which are the delay; the bound is the limit in force."""
    assert timing() == BatchTiming(7, 10, run_ms=4000, load_ms=2500, scheduling_delay_ms=2000, ended_at_ms=STARTED_MS + 4000)


def test_a_pause_between_the_tasks_of_a_run_does_not_count() -> None:
    """What a run waits for a slot does, since all of it has to fit into the interval."""
    plan, load = {"started_ms": 0, "ended_ms": 1_000, "paused": True}, {"started_ms": 601_000, "ended_ms": 604_000}
    assert idle_ms(plan, load, {"started_ms": 900_000}) == 600_000
    assert idle_ms({**plan, "paused": False}, load, {"started_ms": 900_000}) == 0
    assert idle_ms(plan, {"started_ms": None}) == idle_ms({}, {"started_ms": 1}) == idle_ms(plan, {"started_ms": 1}) == 0
    run: Any = SimpleNamespace(run_after=DUE, clear_number=0)
    paused = timing_of(SAVED, LOADED, {"dag_run": run}, STARTED_MS - 600_000, 600_000)
    assert paused is not None
    assert paused.run_ms == 4000


@pytest.mark.parametrize(("said", "paused"), [(True, True), (False, False), (None, False)])
def test_a_task_says_whether_its_dag_was_paused_when_it_ended(*, said: bool | None, paused: bool) -> None:
    """An API that is away keeps no task from ending."""
    dag = {} if said is None else {"get_dag": lambda _: SimpleNamespace(is_paused=said)}
    context: Any = {"ti": SimpleNamespace(start_date=STARTED, try_number=1, dag_id="p", **dag)}
    told = FinishOperator(task_id="commit", pipeline=PIPELINE).handed_on(context)
    assert told == {"started_ms": STARTED_MS, "ended_ms": told["ended_ms"], "disturbed": False, "paused": paused}


def test_nothing_is_said_of_a_load_that_is_not_the_work_of_this_run() -> None:
    """It landed in an earlier try, or long before the run was started again to commit it; or the start is not known.

    A run that was cleared waited for a person.
    """
    assert timing(clear_number=1) is None
    assert timing(replace(LOADED, landed_before=True)) is None
    assert timing(started_ms=STARTED_MS + 3_600_000) is None
    assert timing(started_ms=None) is None

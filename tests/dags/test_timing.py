"""Laws of what a run says that its batch took."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.airflow.operators import commit
from tidegate.airflow.operators.commit import timing_of
from tidegate.core.load.job import LoadResult
from tidegate.core.load.receipt import LoadId, Observed, Receipt
from tidegate.core.offsets.ranges import OffsetRange
from tidegate.core.rates import BatchTiming
from tidegate.core.state.saved_range import SavedRange

DUE = datetime(2026, 1, 1, tzinfo=UTC)
STARTED = DUE + timedelta(seconds=2)
STARTED_MS = int(STARTED.timestamp() * 1000)
RANGES = (OffsetRange("t", 0, 0, 7),)
SAVED = SavedRange("p", 1, "r", RANGES, (), {"t": "id"}, {"max_records": 10}, STARTED_MS)
LOADED = LoadResult(
    Receipt(LoadId("p", 1, "r", RANGES, "v", "r", {"t": "id"}), 1, STARTED_MS + 3000, 7),
    Observed(7, 7, 70, {}),
    {"read": 1.5, "write": 1.0},
)


@pytest.fixture(autouse=True)
def _ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "now_ms", lambda: STARTED_MS + 4000)


def timing(result: LoadResult = LOADED, *, started_ms: int | None = STARTED_MS, clear_number: int = 0) -> BatchTiming | None:
    """Of a run that was due, and whose plan started two seconds later."""
    run: Any = SimpleNamespace(run_after=DUE, clear_number=clear_number)
    return timing_of(SAVED, result, {"dag_run": run}, started_ms)


def test_a_batch_took_the_time_since_its_plan_started() -> None:
    """Without the two seconds before, which are the delay; the bound is the limit in force."""
    assert timing() == BatchTiming(7, 10, run_ms=4000, load_ms=2500, scheduling_delay_ms=2000, ended_at_ms=STARTED_MS + 4000)


def test_nothing_is_said_of_a_load_that_is_not_the_work_of_this_run() -> None:
    """It landed in an earlier try, or long before the run was started again to commit it; or the start is not known.

    A run that was cleared waited for a person.
    """
    assert timing(clear_number=1) is None
    assert timing(replace(LOADED, landed_before=True)) is None
    assert timing(started_ms=STARTED_MS + 3_600_000) is None
    assert timing(started_ms=None) is None

"""Which hours a load has seen, against a model in Python; in a classic session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

import tidegate.spark.load
from tests.records import changed
from tidegate.core.model.hours import DAY_MS, HOUR_MS, Span, Times, spans
from tidegate.core.state.jobs import LoadJob, LoadResult

Load = Callable[[LoadJob], LoadResult]
Job = Callable[..., LoadJob]
NOON = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp() * 1000)
WINDOW = (NOON - 90 * DAY_MS, NOON)
STAMPED = (
    *(NOON - 1, NOON - HOUR_MS, NOON - HOUR_MS - 1, NOON - 50 * HOUR_MS, NOON - 50 * HOUR_MS + 7),
    *(NOON, NOON + 30_000 * DAY_MS, WINDOW[0], WINDOW[0] - 1, -1),
)
"""At the bounds of hours and of the window; of the far future; and of a record without a timestamp."""


def model(at_ms: Sequence[int], window: Span) -> Times:
    since, until = window
    hours = {at // HOUR_MS for at in at_ms if since <= at < until}
    return Times(min((at for at in at_ms if at >= 0), default=None), tuple(spans(sorted(hours), 1)))


@pytest.fixture
def stamped(spark: SparkSession, load: Load, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Loads of a topic with these timestamps."""
    read = tidegate.spark.load.read_ranges  # type: ignore[attr-defined]
    at = F.element_at(F.array(*(F.timestamp_millis(F.lit(t)) for t in STAMPED)), (F.col("_kafka_offset") + 1).cast("int"))

    def stamp(*given: Any, **more: Any) -> DataFrame:
        records: DataFrame = read(*given, **more)
        return records.withColumn("timestamp", at)

    monkeypatch.setattr(tidegate.spark.load, "read_ranges", stamp)
    return load


@pytest.mark.parametrize("window", [WINDOW, (0, 0), (WINDOW[0], WINDOW[0] + HOUR_MS)], ids=["all", "none", "one"])
def test_a_load_sees_the_hours_of_its_records(stamped: Load, job: Job, window: Span) -> None:
    """In the window; the earliest timestamp also before it."""
    seen = stamped(changed(job(0, len(STAMPED)), hours=window))
    assert seen.observed.times == model(STAMPED, window)
    assert LoadResult.from_json(seen.to_json()) == seen


def test_a_batch_without_records_has_seen_none(stamped: Load, job: Job) -> None:
    """Of offsets that hold no record."""
    assert stamped(changed(job(40, 50), hours=WINDOW)).observed.times == Times(None)


def test_a_load_that_is_not_asked_looks_at_no_timestamp(stamped: Load, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs nothing where the pipeline announces nothing."""
    monkeypatch.setattr(tidegate.spark.load, "_timestamps", None)
    observed = stamped(job(0, 5)).observed
    assert observed.times is None
    assert "times" not in observed.to_json()


def test_a_lost_account_is_made_again(stamped: Load, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy Spark Connect answers without what it observed; a load that had landed before has seen nothing."""
    wanted = changed(job(0, 5), hours=WINDOW)
    with monkeypatch.context() as patch:
        patch.setattr(Observation, "get", {})
        assert stamped(wanted).observed.times == model(STAMPED[:5], WINDOW)
    assert stamped(wanted).observed.times is None

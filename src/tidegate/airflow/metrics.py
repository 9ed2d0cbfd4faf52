"""What batches took, as metrics of Airflow's own (StatsD or OpenTelemetry, whichever is on).

    tidegate.batch.<what>.<pipeline>      with the tag `pipeline`

A metric is a convenience: what fails here is logged, and never fails a task.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tidegate.core.audit.views.overview import timing_to_json
from tidegate.core.load.job import LoadResult
from tidegate.core.rates import BatchTiming
from tidegate.core.state.saved_range import SavedRange

log = logging.getLogger(__name__)


def committed(
    saved: SavedRange,
    *,
    result: LoadResult | None,
    timing: BatchTiming | None,
    interval_s: float | None,
) -> None:
    """A batch was committed for the first time.

    Args:
        saved: its range.
        result: of its load; None where it had nothing to load.
        timing: what it took; None where that is not known.
        interval_s: seconds between two runs, where that is fixed.
    """
    values: dict[str, float | None] = {"seq": saved.seq, "remaining": saved.remaining, "interval_s": interval_s}
    if result is not None:
        values |= {"rows": result.receipt.rows, "errors": result.observed.errors}
        values |= {f"{phase}_s": value for phase, value in result.seconds.items()}
    if timing is not None:
        values |= {name: value for name, value in timing_to_json(timing).items() if name != "ended_at_ms"}
    _say(saved.pipeline, "committed", values)
    if result is not None and result.cold:
        _say(saved.pipeline, "cold", {})


def skipped(pipeline: str) -> None:
    """A run found nothing to read."""
    _say(pipeline, "skipped", {})


def failed(pipeline: str) -> None:
    """A try of a task of a run failed."""
    _say(pipeline, "failed", {})


def _say(pipeline: str, what: str, values: Mapping[str, float | None]) -> None:
    try:
        from airflow.sdk.observability import stats  # noqa: PLC0415 - parsing the DAG needs no metrics

        tags = {"pipeline": pipeline}
        for name, value in values.items():
            if value is not None:
                stats.gauge(f"tidegate.batch.{name}.{pipeline}", value, tags=tags)
        stats.incr(f"tidegate.batch.{what}.{pipeline}", tags=tags)
    except Exception:
        log.exception("metrics of %s are not sent", pipeline)

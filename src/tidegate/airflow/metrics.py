"""What batches took, as metrics of Airflow's own (StatsD or OpenTelemetry, whichever is on).

    tidegate.batch.<what>.<pipeline>      with the tag `pipeline`

A metric is a convenience: what fails here is logged, and never fails a task.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tidegate.core.rates import BatchTiming
from tidegate.core.state.saved_range import SavedRange

log = logging.getLogger(__name__)


def committed(
    saved: SavedRange,
    *,
    rows: int | None,
    seconds: Mapping[str, float] | None,
    timing: BatchTiming | None,
    interval_s: float | None,
) -> None:
    """A batch was committed for the first time.

    Args:
        saved: its range.
        rows: that its load wrote; None where it had nothing to load.
        seconds: of its load, by phase.
        timing: what it took; None where that is not known.
        interval_s: seconds between two runs, where that is fixed.
    """
    values: dict[str, float | None] = {"seq": saved.seq, "rows": rows, "remaining": saved.remaining, "interval_s": interval_s}
    values |= {f"{phase}_s": value for phase, value in (seconds or {}).items()}
    if timing is not None:
        values |= {
            "records": timing.records,
            "bound": timing.bound,
            "run_s": timing.run_ms / 1000,
            "load_s": timing.load_ms / 1000,
            "delay_s": timing.scheduling_delay_ms / 1000,
        }
    _say(saved.pipeline, "committed", values)


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

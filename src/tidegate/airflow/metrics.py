"""Tidegate's metrics (`tidegate.views.metrics`), sent as metrics of Airflow's own: StatsD or OpenTelemetry, whichever is on.

A metric is a convenience: what fails here is logged, and never fails a task or a run.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from tidegate.core.audit.lag import TotalLag
from tidegate.core.rates import BatchTiming
from tidegate.core.state.jobs import LoadResult
from tidegate.core.state.saved_range import SavedRange
from tidegate.views.metrics import METRICS, PREFIX

SWITCHES = ("statsd_on", "statsd_datadog_enabled", "otel_on")
"""Airflow's settings, in the section `metrics`, that turn them on."""
OF_SERVERS = "airflow.observability.stats"
"""Airflow's module of metrics that only servers have."""
log = logging.getLogger(__name__)


def send(stats: Any, values: Mapping[str, float | None], **whose: str) -> None:
    """Send metrics by their names in `METRICS`: the value of a gauge, the increase of a counter; None is not sent.

    `stats` is Airflow's module of metrics, which servers and tasks have each; `whose` are the tags, whose values end the name.
    """
    for name, value in values.items():
        kind = METRICS[name].kind
        said = ".".join((PREFIX, name, *whose.values()))
        if value is not None and kind == "counter":
            stats.incr(said, count=value, tags=whose)
        elif value is not None:
            stats.gauge(said, value, tags=whose)


def are_on() -> bool:
    """Whether Airflow sends metrics anywhere, so that it is worth while to ask for what only they show."""
    from airflow.sdk.configuration import conf  # noqa: PLC0415 - parsing the DAG needs no metrics

    return any(conf.getboolean("metrics", key, fallback=False) for key in SWITCHES)


def committed(saved: SavedRange, *, result: LoadResult | None, timing: BatchTiming | None, interval_s: float | None) -> None:
    """A batch was committed for the first time."""
    known: dict[str, float | None] = {"seq": saved.load.seq, "remaining": saved.remaining, "interval_s": interval_s}
    if result is not None:
        known |= {"rows": result.receipt.rows, "errors": result.observed.errors, "cold": 1 if result.cold else None}
        known |= {f"{phase}_s": value for phase, value in result.seconds.items()}
    if timing is not None:
        known |= {"records": timing.records, "bound": timing.bound, "delay_s": timing.scheduling_delay_ms / 1000}
        known |= {"run_s": timing.run_ms / 1000, "load_s": timing.load_ms / 1000}
    _say(saved.load.pipeline, {f"batch.{name}": value for name, value in known.items()} | {"batch.committed": 1})


def skipped(pipeline: str) -> None:
    """A run found nothing to read."""
    _say(pipeline, {"batch.skipped": 1})


def failed(pipeline: str) -> None:
    """A try of a task of a run failed."""
    _say(pipeline, {"batch.failed": 1})


def waiting(pipeline: str, records: int) -> None:
    """A run's plan found so many records waiting, before it takes any of them. No record that waits has no age."""
    _say(pipeline, {"lag.records": records, "lag.seconds": None if records else 0})


def lagging(pipeline: str, lag: TotalLag) -> None:
    """The brokers were asked how far behind a pipeline is."""
    known = {"records": lag.records_behind, "seconds": lag.seconds_behind, "retention_left_s": lag.retention_left_s}
    _say(pipeline, {f"lag.{name}": value for name, value in known.items()})


def replayed(pipeline: str, *, offsets: int, rows: int) -> None:
    """A replay, or a run of a backfill, is in the table as a whole."""
    _say(pipeline, {"replay.committed": 1, "replay.offsets": offsets, "replay.rows": rows})


def run_ended(pipeline: str, *, at_s: float | None) -> None:
    """A run of the schedule ended, as the scheduler sees it: it succeeded at `at_s` (epoch s), or (None) it failed."""
    _say(pipeline, {"pipeline.stopped": 1 if at_s is None else 0, "pipeline.succeeded": at_s}, OF_SERVERS)


def replay_failed(pipeline: str) -> None:
    """A run of a replay failed, as the scheduler sees it."""
    _say(pipeline, {"replay.failed": 1}, OF_SERVERS)


def _say(pipeline: str, values: Mapping[str, float | None], stats: str = "airflow.sdk.observability.stats") -> None:
    try:
        send(import_module(stats), values, pipeline=pipeline)  # parsing the DAG needs no metrics
    except Exception:
        log.exception("metrics of %s are not sent", pipeline)

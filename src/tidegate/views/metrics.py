"""All metrics that Tidegate sends, of which `make docs` makes a page and a dashboard.

A metric is sent as `tidegate.<name>.<pipeline>`, that of a receiver as `tidegate.<name>.<receiver>.<instance>`, with the same
as tags, since StatsD has no tags of its own. Pure: the standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidegate.core.state.jobs import COLD_S

PREFIX = "tidegate"
ASK_MS = 60_000
"""How often a plan asks the brokers how old the next record is, at most: that takes longer than all else it asks."""
Kind = Literal["counter", "gauge"]
Unit = Literal["", "records", "rows", "s", "epoch s", "records/s", "share"]


@dataclass(frozen=True)
class Metric:
    """One metric: its name behind `tidegate.`, what is counted or measured, and the panel of the dashboard that shows it."""

    name: str
    kind: Kind
    unit: Unit
    what: str
    panel: str

    @property
    def group(self) -> str:
        """The first part of its name: what sends it."""
        return self.name.partition(".")[0]


PHASES = {
    "lookup": "asking whether the batch has landed",
    "prepare": "preparing the transform and the table",
    "aside": "looking for records that the load rejects",
    "look": "looking for data files that the range cuts",
    "write": "reading Kafka and writing the table",
    "receipt": "reading the receipt",
    "submit": "all of spark-submit, if the driver's answer was lost",
}
"""The phases of a load, which `LoadResult.seconds` has."""
_BATCHES, _SIZE, _RUN, _LOAD = "Runs", "Size of a batch", "Time of a run", "Time of a load, by phase"
_BEHIND, _REPLAYS, _TRIGGER = "Records behind", "Replays", "Triggers of lag"
METRICS = {
    metric.name: metric
    for metric in (
        Metric("batch.committed", "counter", "", "committed batches", _BATCHES),
        Metric("batch.skipped", "counter", "", "runs that found nothing to read", _BATCHES),
        Metric("batch.failed", "counter", "", "failed tries of tasks", _BATCHES),
        Metric("batch.cold", "counter", "", f"batches whose load began within {COLD_S} s of its Spark's start", _BATCHES),
        Metric("batch.seq", "gauge", "", "number of the last batch", "Last batch"),
        Metric("batch.records", "gauge", "records", "offsets that it read", _SIZE),
        Metric("batch.rows", "gauge", "rows", "rows that it wrote", _SIZE),
        Metric("batch.bound", "gauge", "records", "most records that limits or the rate policy allowed", _SIZE),
        Metric(
            "batch.errors",
            "gauge",
            "rows",
            "rows with `_error`, or records in quarantine",
            "Rows of broken records",
        ),
        Metric("batch.remaining", "gauge", "records", "records left to later batches by the plan", _BEHIND),
        Metric("batch.run_s", "gauge", "s", "from the start of its run to the commit", _RUN),
        Metric("batch.delay_s", "gauge", "s", "from when the run was due until it started", _RUN),
        Metric("batch.interval_s", "gauge", "s", "between two runs, if that is fixed: a longer run is late", _RUN),
        Metric("batch.load_s", "gauge", "s", "of the load", _RUN),
        *(Metric(f"batch.{phase}_s", "gauge", "s", f"load: {what}", _LOAD) for phase, what in PHASES.items()),
        Metric("lag.records", "gauge", "records", "unread records, including this run's batch", _BEHIND),
        Metric(
            "lag.seconds",
            "gauge",
            "s",
            "age of the oldest unread record; 0 if there is none",
            "Age of the oldest unread record",
        ),
        Metric(
            "lag.retention_left_s",
            "gauge",
            "s",
            "until retention by time may delete an unread record; keeps its last value while `lag.records` is 0",
            "Time left until retention",
        ),
        Metric("pipeline.stopped", "gauge", "", "1 after a failed run, else 0", "Stopped"),
        Metric(
            "pipeline.succeeded",
            "gauge",
            "epoch s",
            "when a run last succeeded or found nothing",
            "Time since the last run that succeeded",
        ),
        Metric("replay.committed", "counter", "", "replays and backfills that are completely in the table", _REPLAYS),
        Metric("replay.failed", "counter", "", "replays that failed, or ended without a verdict", _REPLAYS),
        Metric("replay.offsets", "gauge", "records", "offsets of the last one", "Size of a replay"),
        Metric("replay.rows", "gauge", "rows", "rows that it wrote", "Size of a replay"),
        Metric("trigger.lag", "gauge", "records", "unread records", _BEHIND),
        Metric("trigger.polled", "gauge", "epoch s", "time of the last answer", "Time since the brokers answered a trigger"),
        Metric("trigger.events", "counter", "", "requested runs", _TRIGGER),
        Metric("trigger.errors", "counter", "", "unanswered questions", _TRIGGER),
        Metric("receiver.records", "gauge", "records", "acknowledged records", "Records received"),
        Metric("receiver.refused", "gauge", "records", "refused records", "Records received"),
        Metric("receiver.rate", "gauge", "records/s", "most that it takes in", "Limits of receivers"),
        Metric("receiver.room", "gauge", "records", "what it may still take in", "Room and backlog of receivers"),
        Metric("receiver.lag", "gauge", "records", "the backlog that it knows", "Room and backlog of receivers"),
        Metric("receiver.buffer", "gauge", "share", "used share of its buffer", "Buffers of receivers"),
        Metric(
            "receiver.throttled_s", "gauge", "s", "for which senders were held back", "Time in which senders were held back"
        ),
        Metric("receiver.restarts", "gauge", "", "its restarts", "Restarts of receivers"),
    )
}
"""Each metric by its name, in the order of the page."""
RECEIVER = tuple(metric.name.partition(".")[2] for metric in METRICS.values() if metric.group == "receiver")
"""What of a receiver's status is a metric."""


def asks_again(before_ms: int | None, now_ms: int) -> bool:
    """Whether a minute has begun since `before_ms`, when a run of the same pipeline last planned (None: none has)."""
    return before_ms is None or now_ms // ASK_MS != before_ms // ASK_MS

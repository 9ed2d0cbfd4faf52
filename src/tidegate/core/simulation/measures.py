"""Figures of a simulated policy: what a table of policies compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from tidegate.core.simulation.plant import PlantBatch, Trace

BAND = 0.25
"""How much longer than the interval a run may take."""


def overlong(batches: Sequence[PlantBatch], interval_s: float) -> int:
    """Batches that took longer than 1.25 intervals."""
    return sum(batch.run_s > (1 + BAND) * interval_s for batch in batches)


@dataclass(frozen=True)
class Summary:
    """A trace in a few figures.

    Args:
        batches: committed.
        records: of all of them.
        overlong: how many took longer than 1.25 intervals.
        longest_run_s: of one batch, without the wait before.
        worst_delay_s: from when a run was due until it started.
        most_lag, last_lag: records that waited when a run was planned or due, at most and at last.
        skipped_s: interval times the runs that were skipped while records waited: the run before had not ended, or an outage.
        idle: runs that were skipped because there was nothing to read.
        backlog_s: the longest time during which each run left records behind, to the commit of the one that took all;
            None: the last one left some.
    """

    batches: int
    records: int
    overlong: int
    longest_run_s: float
    worst_delay_s: float
    most_lag: int
    last_lag: int
    skipped_s: float
    idle: int
    backlog_s: float | None

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def summarize(trace: Trace, interval_s: float) -> Summary:
    """The figures of a trace of runs that are due every interval."""
    batches, skipped = trace.batches, trace.skipped
    lags = trace.lags
    idle = sum(skip.reason == "nothing to read" for skip in skipped)
    return Summary(
        batches=len(batches),
        records=sum(batch.records for batch in batches),
        overlong=overlong(batches, interval_s),
        longest_run_s=max((batch.run_s for batch in batches), default=0.0),
        worst_delay_s=max((batch.started_s - batch.due_s for batch in batches), default=0.0),
        most_lag=max((lag for _, lag in lags), default=0),
        last_lag=lags[-1][1] if lags else 0,
        skipped_s=(len(skipped) - idle) * interval_s,
        idle=idle,
        backlog_s=_backlog_s(batches),
    )


def _backlog_s(batches: Sequence[PlantBatch]) -> float | None:
    if batches and batches[-1].records < batches[-1].lag:
        return None
    longest, since = 0.0, None
    for batch, following in pairwise(batches):
        if batch.records < batch.lag:
            since = batch.started_s if since is None else since
            if following.records == following.lag:
                longest, since = max(longest, following.ended_s - since), None
    return longest

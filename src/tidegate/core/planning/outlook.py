"""Whether a pipeline keeps up at its interval, by what its last batches took and by what has arrived since the last one.

Pure: the standard library only.
"""

from __future__ import annotations

from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.counts import is_whole
from tidegate.core.model.errors import RequestError
from tidegate.core.model.watermarks import Watermarks
from tidegate.core.rates.advice import Advice
from tidegate.core.rates.checks import MOST_RATE
from tidegate.core.rates.fit import RECENT_BATCHES, fit_cost
from tidegate.core.state.cursor import Cursor

LEAST_BATCHES = 8
"""With fewer, nothing is said."""


def outlook(pipeline: Pipeline, cursor: Cursor, watermarks: Watermarks, *, now_ms: int) -> Advice | None:
    """What follows for the pipeline's interval; None where too little is known, or where its runs have no interval.

    Args:
        pipeline: with its interval and its policy's utilization.
        cursor: with the timings of the last batches, and what the last of them left behind.
        watermarks: the log now. Partitions that the cursor does not know are left out: what they hold has not arrived just now.
        now_ms: the time, epoch ms.
    """
    interval_s, timings = pipeline.fixed_interval_s, cursor.pace.timings[-RECENT_BATCHES:]
    if interval_s is None or len(timings) < LEAST_BATCHES or not is_whole(cursor.fired_at_ms, 0, now_ms - 1):
        return None
    waiting = sum(max(0, watermarks.latest.get(tp, 0) - offset) for tp, offset in cursor.at.offsets.items())
    arrived = 1000 * max(0, waiting - cursor.remaining) / (now_ms - (cursor.fired_at_ms or 0))
    try:
        fit = fit_cost(timings)
    except RequestError:  # none of them had records
        return None
    return Advice(
        fit.a,
        fit.b,
        interval_s=interval_s,
        arrival_rate=min(arrived, MOST_RATE),
        utilization=pipeline.utilization,
        backlog=waiting,
    )

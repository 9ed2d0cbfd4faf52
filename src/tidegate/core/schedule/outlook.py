"""Whether a pipeline keeps up at its interval, by what its last batches took and by what has arrived since the last one.

Pure: the standard library only.
"""

from __future__ import annotations

from tidegate.core.config.pipeline import Pipeline
from tidegate.core.errors import RequestError
from tidegate.core.rates.advice import Advice, advise
from tidegate.core.rates.aiming import AimingPolicy
from tidegate.core.rates.checks import MOST_RATE
from tidegate.core.rates.fit import fit_cost
from tidegate.core.state.cursor import Cursor

LEAST_BATCHES, MOST_BATCHES = 8, 20
"""Of the last batches: with fewer, nothing is said; older ones show what was true once."""


def outlook(pipeline: Pipeline, cursor: Cursor, *, waiting: int, now_ms: int) -> Advice | None:
    """What follows for the pipeline's interval; None where too little is known, or where its runs have no interval.

    Args:
        pipeline: with its interval and its policy's utilization.
        cursor: with the timings of the last batches, and what the last of them left behind.
        waiting: records that wait now.
        now_ms: the time, epoch ms.
    """
    interval_s, timings = pipeline.fixed_interval_s, cursor.timings[-MOST_BATCHES:]
    passed_ms = now_ms - (cursor.fired_at_ms or now_ms)
    if interval_s is None or len(timings) < LEAST_BATCHES or passed_ms <= 0:
        return None
    arrived = 1000 * max(0, waiting - cursor.remaining) / passed_ms
    try:
        fit = fit_cost(timings)
    except RequestError:  # none of them had records
        return None
    return advise(
        fit.a,
        fit.b,
        interval_s=interval_s,
        arrival_rate=min(arrived, MOST_RATE),
        utilization=pipeline.backpressure.utilization or AimingPolicy.utilization,
        backlog=waiting,
    )

"""What follows from the cost of the last batches: what a load gets of Spark, and whether a pipeline keeps up at its interval.

    t = a + core_s * n / cores

`core_s`, the seconds of one core for each record, is fitted to the last batches together with the cores that each of them had:
from the cost of a record, never of a run.
"""

from __future__ import annotations

from dataclasses import replace

from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.counts import is_whole
from tidegate.core.model.errors import RequestError
from tidegate.core.model.watermarks import Watermarks
from tidegate.core.rates.advice import Advice, Resources, executors_for, pieces_for
from tidegate.core.rates.cost import RECENT_BATCHES, fit_cost
from tidegate.core.rates.policy import MOST_RATE
from tidegate.core.state.cursor import Cursor

LEAST_BATCHES = 8
"""With fewer, nothing is said of a pipeline's interval."""
GRAIN = 1000
"""A fit counts whole records: thousandths of a record for each core keep the digits of a small batch."""
NOTHING_MEASURED = "no batch with these cores was measured yet"


def outlook(pipeline: Pipeline, cursor: Cursor, watermarks: Watermarks, *, now_ms: int) -> Advice | None:
    """What follows for the pipeline's interval; None where too little is known, or where its runs have no interval.

    Partitions that the cursor does not know are left out: what they hold has not arrived just now.
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


def size_load(pipeline: Pipeline, cursor: Cursor, records: int) -> Resources | None:
    """What the load of a planned batch gets; None where the pipeline's file leaves it to Spark.

    `records` are those of the batch; where executors are chosen, those that wait within the pipeline's own limits, since what
    its rate policy allows follows from the executors.
    """
    spark = pipeline.spark
    if records == 0 or (spark.max_executors is None and spark.cores is None):
        return None
    cores, cost, least = spark.cores or 1, _cost(cursor), spark.min_executors or 1
    if cost is None:
        return Resources(None if spark.max_executors is None else least, cores, None, reason=NOTHING_MEASURED)
    overhead_s, core_s = cost
    if spark.max_executors is None:
        return pieces_for(records, core_s, cores=cores)
    records_s = pipeline.utilization * pipeline.interval_s - overhead_s
    last = cursor.pace.cores[-1] // cores or None
    return executors_for(records, core_s, records_s=records_s, last=last, least=least, most=spark.max_executors, cores=cores)


def times_least(pipeline: Pipeline, resources: Resources | None) -> float:
    """How many times the least executors a load has; 1 where their number is not the plan's to say."""
    if resources is None or resources.executors is None:
        return 1.0
    return resources.executors / (pipeline.spark.min_executors or 1)


def _cost(cursor: Cursor) -> tuple[float, float] | None:
    """Seconds of a run that do not depend on its records, and of one core for each; None where no batch shows them."""
    if len(cursor.pace.cores) != len(cursor.pace.timings):  # a list of them could not be read
        return None
    known = [(t, cores) for t, cores in zip(cursor.pace.timings, cursor.pace.cores, strict=True) if cores]
    try:
        fit = fit_cost([replace(t, records=t.records * GRAIN // cores) for t, cores in known[-RECENT_BATCHES:]])
    except RequestError:  # no batch was measured
        return None
    return fit.a, fit.b * GRAIN

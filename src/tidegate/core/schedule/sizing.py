"""What a load gets of Spark: executors and cores, or into how many pieces it is cut. From the cost of a record, never of a run.

    t = a + core_s * n / cores

`core_s`, the seconds of one core for each record, is fitted to the last batches together with the cores that each of them had.

Pure: the standard library only.
"""

from __future__ import annotations

from dataclasses import replace

from tidegate.core.config.pipeline import Pipeline
from tidegate.core.errors import RequestError
from tidegate.core.rates.fit import Fit, fit_cost, shown
from tidegate.core.rates.resources import ExecutorLimits, Resources, executors_for, pieces_for
from tidegate.core.state.cursor import Cursor

MOST_BATCHES = 20
"""Of the last batches: older ones show what was true once."""
GRAIN = 1000
"""A fit counts whole records: thousandths of a record for each core keep the digits of a small batch."""
NOTHING_MEASURED = "no batch with these cores was measured yet"


def size_load(pipeline: Pipeline, cursor: Cursor, records: int) -> Resources | None:
    """What the load of a planned batch gets; None where the pipeline's file leaves it to Spark.

    Args:
        pipeline: with its settings of Spark, its interval and its utilization.
        cursor: with the last timings, and the cores that these loads had.
        records: that wait and that the pipeline's own limits allow. What its rate policy allows follows from the executors.
    """
    spark = pipeline.spark
    if records == 0 or (spark.max_executors is None and spark.cores is None):
        return None
    cost = _cost(cursor)
    if spark.max_executors is None:
        return _pieces(spark.cores or 1, cost, records)
    limits = ExecutorLimits(spark.min_executors or 1, spark.max_executors, spark.cores or 1)
    if cost is None:
        return Resources(limits.least, limits.cores, None, NOTHING_MEASURED)
    last = cursor.cores[-1] // limits.cores or None
    records_s = pipeline.utilization * pipeline.interval_s - cost.a
    chosen = executors_for(records, cost.b * GRAIN, records_s=records_s, last=last, limits=limits)
    return Resources(chosen.count, chosen.cores, None, chosen.reason)


def times_least(pipeline: Pipeline, resources: Resources | None) -> float:
    """How many times the least executors a load has; 1 where their number is not the plan's to say."""
    if resources is None or resources.executors is None:
        return 1.0
    return resources.executors / (pipeline.spark.min_executors or 1)


def _pieces(cores: int, cost: Fit | None, records: int) -> Resources:
    if cost is None:
        return Resources(None, cores, None, NOTHING_MEASURED)
    pieces = pieces_for(records, cost.b * GRAIN, cores=cores)
    return Resources(None, cores, pieces, f"{records:,} records of {shown(1e6 * cost.b * GRAIN)} core seconds a million")


def _cost(cursor: Cursor) -> Fit | None:
    """The cost of a thousandth of a record for each core; None where no batch shows it."""
    if len(cursor.cores) != len(cursor.timings):  # of an older version
        return None
    known = [(t, cores) for t, cores in zip(cursor.timings, cursor.cores, strict=True) if cores]
    try:
        return fit_cost([replace(t, records=t.records * GRAIN // cores) for t, cores in known[-MOST_BATCHES:]])
    except RequestError:  # no batch was measured
        return None

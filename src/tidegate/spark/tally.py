"""Counts the rows of a part of a plan while Spark executes it, and says whether the counts can be believed.

Spark may execute a part of a plan more than once: it samples it for a sort or a range distribution, and repeats tasks and
stages. What is observed counts every execution. So the first row of each of Spark's partitions is listed as well: the counts
are believed only where no partition is listed twice.

An observation also ends with the first job that executes it, which may be one that the transform has run by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

_PLACE, _PARTS = "_tidegate_place", "parts"
_ROW = (1 << 33) - 1
"""The bits of `monotonically_increasing_id` that number the rows of a partition."""


class Tally:
    """Aggregates, each with an alias, over the rows of one place in a plan.

    `name` is the observation's: one of that name a plan.
    """

    def __init__(self, name: str, *aggregates: Column) -> None:
        self._observation, self._aggregates, self._spent = Observation(name), aggregates, False

    def of(self, rows: DataFrame) -> DataFrame:
        """The same rows, counted. Once."""
        self._spark = rows.sparkSession
        first = F.when(F.col(_PLACE).bitwiseAND(_ROW) == 0, F.col(_PLACE))
        placed = rows.withColumn(_PLACE, F.monotonically_increasing_id())
        return placed.observe(self._observation, *self._aggregates, F.collect_list(first).alias(_PARTS)).drop(_PLACE)

    def begin(self) -> None:
        """Count from here on: what a transform has executed before is not the write."""
        jvm = getattr(self._observation, "_jo", None)
        if jvm is None:
            self._observation.get.clear()  # Spark Connect fills it anew with each execution
            return
        self._spent = True
        with suppress(Exception):  # listeners that are still busy
            self._spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # noqa: SLF001
            self._spent = jvm.future().isCompleted()

    def counts(self) -> Mapping[str, Any] | None:
        """The aggregates, once the plan is executed; None where they are lost, or something was executed more than once.

        Spark drops a part of a plan, together with its observation, where it finds during execution that it has no rows (such
        as a grouping of none). Spark Connect waits 100 ms for its listener, which a busy machine calls later.
        """
        seen: dict[str, Any] = {}
        with suppress(Exception):  # without metrics a classic session raises, and Connect returns an empty dict
            seen = dict(self._observation.get) if not self._spent else {}
        parts = seen.pop(_PARTS, None)
        return seen if parts is not None and len(parts) == len(set(parts)) else None

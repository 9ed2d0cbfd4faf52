"""Leaves out repeats (`tidegate.core.load.repeats`) before a load's transform sees them.

The ranges and their look-backs are read once more, for the keys alone: what is shuffled and sorted is the origin of each record
that has a key, and its key. The records themselves stay in their tasks and in their order, and are held against the repeats,
which go to each task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.core.config.pipeline import Dedupe
from tidegate.core.load.repeats import expired
from tidegate.core.model.columns import OFFSET, PARTITION, TOPIC
from tidegate.core.model.errors import OffsetsOutOfRange
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.jobs import LoadJob
from tidegate.sinks.identity import ORIGIN, reaching
from tidegate.spark.kafka_source import KEY, read_keys

_GONE = re.compile(
    r"FetchPosition\{offset=(?P<at>\d+),.* is out of range for partition (?P<of>[\w.-]+-\d+)"
    r"|Could not read records in offset \[(?P<first>\d+), \d+\) for topic partition (?P<partition>[\w.-]+-\d+)"
)
"""What Kafka's client, and Spark's source, say of a record that the log does not hold any more."""


def without_repeats(spark: SparkSession, records: DataFrame, job: LoadJob, dedupe: Dedupe) -> DataFrame:
    """The records of a job's ranges without the repeats among them; the same columns, in the same order."""
    keys = read_keys(
        spark,
        job.looked_through,
        job.reading.kafka_options,
        dedupe.key,
        split=job.reading.split,
        isolation_level=job.reading.isolation_level,
    )
    same = reduce(Column.__and__, (F.col(name) == F.col(f"_of{name}") for name in ORIGIN))
    return records.join(F.broadcast(repeats_among(keys, job.load.ranges, dedupe.window)), same, "left_anti")


def repeats_among(keys: DataFrame, ranges: Sequence[OffsetRange], window: int) -> DataFrame:
    """The origins of the repeats in the ranges (one a partition), each column's name with `_of` before it.

    `keys` are origin and key of the records that have one, in the ranges and their look-backs; `window` is a number of offsets.
    """
    before = F.lag(OFFSET).over(Window.partitionBy(TOPIC, PARTITION, KEY).orderBy(OFFSET))
    near = keys.select(*ORIGIN, before.alias("_before")).where(F.col(OFFSET) - F.col("_before") <= window)
    offset = F.col(OFFSET)
    asked = near.where(reaching(ranges, F.col(TOPIC), F.col(PARTITION), offset, offset))
    return asked.select(*(F.col(name).alias(f"_of{name}") for name in ORIGIN))


@contextmanager
def look_back_named(job: LoadJob) -> Iterator[None]:
    """An offset that is not in the log any more leaves as a LookBackExpired where it is in a look-back, else as it is."""
    try:
        yield
    except OffsetsOutOfRange as error:
        gone = _GONE.search(f"{error} {error.__cause__}")
        named = gone and expired(
            job.load.ranges, job.reading.look_back, gone["of"] or gone["partition"], int(gone["at"] or gone["first"])
        )
        if named:
            raise named from error
        raise

"""The quarantine of an Iceberg table: a table beside it, of records that its loads have rejected.

Records are only added by the load that rejects them, before its rows are committed, and only removed after a commit, where they
cannot count any more (docs/adr/0036-quarantine.md). Its property `QUARANTINE_OF` names the table.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.core.config.layout import sql_text
from tidegate.core.model.columns import OFFSET, PARTITION, TOPIC
from tidegate.core.model.ranges import OffsetRange, TopicPartition, by_partition
from tidegate.core.state.rejection import check_quarantine
from tidegate.sinks.failures import is_missing, text_of
from tidegate.sinks.iceberg.errors import REFUSED
from tidegate.sinks.iceberg.receipts import property_keys, quoted
from tidegate.sinks.iceberg.summary import quarantine_of
from tidegate.sinks.identity import reaching

TRIES = 10
DEAD_AFTER = "1 DAY"
"""No load takes longer."""


def check_own(spark: SparkSession, quarantine: str, table: str) -> None:
    """Refuse a table that is not the quarantine of this one, as `check_quarantine` does."""
    check_quarantine(quarantine, quarantine_of(property_keys(spark, quarantine)), spark.table(quarantine).columns, table)


class SetAside(NamedTuple):
    """What one attempt has set aside: how many records of where, for which load, when, and whether it has ended by now."""

    records: int
    partitions: frozenset[TopicPartition]
    load: str
    added_at: datetime
    is_old: bool


def attempts_in(spark: SparkSession, quarantine: str, ranges: tuple[OffsetRange, ...]) -> dict[str, SetAside]:
    """What each attempt has set aside between the bounds of these ranges; nothing without a quarantine. One round trip."""
    bounds = hull(ranges)
    offset, places = F.col(OFFSET), F.collect_set(F.struct(TOPIC, PARTITION))
    # the bounds of all leave out files, and those of each partition rows; to compile a condition for each takes seconds
    near = F.col(TOPIC).isin(*{r.topic for r in bounds}) & offset.between(
        min(r.from_offset for r in bounds), max(r.until_offset for r in bounds) - 1
    )
    added_at = F.max("added_at")
    is_old = added_at < F.current_timestamp() - F.expr(f"INTERVAL {DEAD_AFTER}")
    try:
        rows = (
            spark.table(quarantine)
            .where(near & reaching(bounds, F.col(TOPIC), F.col(PARTITION), offset, offset))
            .groupBy("attempt")
            .agg(F.count(F.lit(1)), places, F.first("load"), added_at, is_old)
            .collect()
        )
        return {attempt: SetAside(n, frozenset(TopicPartition(*of) for of in at), *rest) for attempt, n, at, *rest in rows}
    except AnalysisException as error:
        if is_missing(error):
            return {}
        raise


def hull(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """The least range of each partition that holds those of it."""
    return tuple(
        OffsetRange(*tp, min(r.from_offset for r in of), max(r.until_offset for r in of))
        for tp, of in by_partition(ranges).items()
    )


def remove(spark: SparkSession, quarantine: str, ranges: tuple[OffsetRange, ...], attempts: Collection[str]) -> None:
    """Remove the records of these ranges that these attempts have set aside; again where other loads get in the way."""
    if not (ranges and attempts):
        return
    of_attempts = f"{_sql(ranges)} AND attempt IN ({', '.join(map(sql_text, sorted(attempts)))})"
    for tries_left in reversed(range(TRIES)):
        try:
            spark.sql(f"DELETE FROM {quoted(quarantine)} WHERE {of_attempts}")  # noqa: S608 - names and texts are quoted
        except Exception as error:
            if not tries_left or not any(re.search(rule.pattern, text_of(error)) for rule in REFUSED):
                raise
        else:
            return


def _sql(ranges: tuple[OffsetRange, ...]) -> str:
    """True for rows whose origin lies in one of the ranges, as SQL."""
    each = (
        f"(_kafka_topic = {sql_text(r.topic)} AND _kafka_partition = {r.partition}"
        f" AND _kafka_offset >= {r.from_offset} AND _kafka_offset < {r.until_offset})"
        for r in ranges
        if r.count
    )
    return f"({' OR '.join(each)})"

"""The quarantine of an Iceberg table: a table beside it, of records that its loads have rejected.

Records are only added by the load that rejects them, before its rows are committed, and only removed after a commit, where they
cannot count any more (docs/adr/0036-quarantine.md). Its property `QUARANTINE_OF` names the table.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.core.config.layout import sql_text
from tidegate.core.model.errors import SinkMisfit
from tidegate.core.model.ranges import OffsetRange
from tidegate.sinks.failures import is_missing, text_of
from tidegate.sinks.iceberg.errors import REFUSED
from tidegate.sinks.iceberg.receipts import quoted
from tidegate.sinks.iceberg.summary import QUARANTINE_OF
from tidegate.sinks.identity import inside

TRIES = 10
DEAD_AFTER = "1 DAY"
"""No load takes longer."""


def check_quarantine(spark: SparkSession, quarantine: str, table: str) -> None:
    """Refuse a table that is not the quarantine of this one.

    Raises:
        SinkMisfit: it is somebody else's.
    """
    keys = (row["key"] for row in spark.sql(f"SHOW TBLPROPERTIES {quoted(quarantine)}").collect())
    of = [key.removeprefix(QUARANTINE_OF) for key in keys if key.startswith(QUARANTINE_OF)]
    if of != [table]:
        held = f"the quarantine of {', '.join(of)}" if of else "no quarantine"
        raise SinkMisfit(
            f"table {quarantine} is {held}, and cannot be that of {table}",
            fix="Name another one in quarantine.table; then clear the load task and the tasks after it",
            table=quarantine,
        )


class SetAside(NamedTuple):
    """What one attempt has set aside: how many records, for which load, and whether it cannot be under way any more."""

    records: int
    load: str
    is_old: bool


def attempts_in(spark: SparkSession, quarantine: str, ranges: tuple[OffsetRange, ...]) -> dict[str, SetAside]:
    """What each attempt has set aside of these ranges; nothing where there is no quarantine. One round trip."""
    is_old = F.max("added_at") < F.current_timestamp() - F.expr(f"INTERVAL {DEAD_AFTER}")
    try:
        of_attempts = spark.table(quarantine).where(inside(ranges)).groupBy("attempt")
        rows = of_attempts.agg(F.count(F.lit(1)).alias("n"), F.first("load").alias("load"), is_old.alias("is_old")).collect()
        return {row["attempt"]: SetAside(row["n"], row["load"], row["is_old"]) for row in rows}
    except AnalysisException as error:
        if is_missing(error):
            return {}
        raise


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

"""What every format makes of records beside their fields: the columns that stay, and what is said of a broken record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.core.model.columns import ERROR, RAW, REJECT

Parser = Literal["jvm", "python"]
"""What parses the records that fit: Spark's own parser for all, or its Python workers. Both make the same rows."""

NO_REASON = "rejected for no reason that is known"
TOMBSTONE, NOT_TEXT = "no value (a tombstone)", f"not UTF-8; {RAW} is base64"

FROM_KAFKA = ("key", "timestamp", "timestampType", "headers")
"""Columns of a record that are in no table unless the transform renames them."""


def header(records: DataFrame, name: str) -> Column:
    """The value of a record's header, as bytes: null where there is none of that name, or its value is null.

    Of several headers of that name the last one counts, as in Kafka's `Headers.lastHeader`. One that goes into the table:

        parse_json(records.withColumn("trace_id", header(records, "trace-id").cast("string")), "id BIGINT")
    """
    named = F.filter(records["headers"], lambda each: each["key"] == name)
    return F.try_element_at(named, F.lit(-1))["value"]


def reject(rows: DataFrame, condition: Column, reason: str | Column) -> DataFrame:
    """The rows, of which those that fulfil a condition are rejected: their records go to the pipeline's quarantine.

    What was rejected before stays so, with its first reason. Of a reason the first 1,000 characters are kept.

        rows = reject(parse_json(records, "id BIGINT, price DOUBLE"), F.col("price") < 0, "the price is negative")
    """
    given = reason.cast("string") if isinstance(reason, Column) else F.lit(reason)
    said = F.when(condition, F.coalesce(given, F.lit(NO_REASON)))
    return rows.withColumn(REJECT, F.coalesce(REJECT, said) if REJECT in rows.columns else said)


def quoted(of: str) -> str:
    """A name as SQL takes it, whatever is in it."""
    return f"`{of.replace('`', '``')}`"


def staying(names: Iterable[str], *made: str) -> list[Column]:
    """Those of the records' columns that are also in the table: all but Kafka's own, and those that the format has `made`."""
    left_out = {name.casefold() for name in (*made, *FROM_KAFKA, RAW, ERROR)}
    return [F.col(quoted(name)) for name in names if name.casefold() not in left_out]


def raw(value: Column, text: Column) -> Column:
    """The whole record; base64 where its text is null, since it is not UTF-8."""
    return F.coalesce(text, F.base64(value.cast("binary")))

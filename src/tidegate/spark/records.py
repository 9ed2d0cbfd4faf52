"""JSON records as typed columns, without losing one that is broken."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention


def parse_json(df: DataFrame, schema: str, *, column: str = "value") -> DataFrame:
    """The columns of `schema`, then those of `df` without `column`, then `_raw` and `_error`.

    Args:
        df: records; `column` is binary or string.
        schema: the fields of a record as DDL, such as `"id BIGINT, name STRING"`. A field that is not in the record is null;
            a field of the record that is not in the schema is ignored.
        column: what to parse.

    A record that fits has null in `_raw` and `_error`. One that is not a JSON object, is not UTF-8, has no value (a
    tombstone), or holds a value that does not fit its field keeps its row: `_error` says why, `_raw` holds the whole text
    (base64 where it is not UTF-8), and the fields that do fit are filled.
    """
    value, parsed = F.col(column), F.col("_parsed")
    text = value.cast("string")
    readable = F.is_valid_utf8(text)
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_misfit"}
    # from_json makes null of what it cannot read at all, and fills _misfit where a value does not fit its field.
    broken = parsed.isNull() | parsed["_misfit"].isNotNull()
    # Only broken records are looked at twice: the branches of a CASE are evaluated when they are reached.
    reason = (
        F.when(value.isNull(), F.lit("no value (a tombstone)"))
        .when(~readable, F.lit("not UTF-8; _raw is base64"))
        .when(F.try_parse_json(text).isNull(), F.lit("not valid JSON"))
        .when(F.json_object_keys(text).isNull(), F.lit("not a JSON object"))
        .otherwise(F.concat(F.lit("does not fit: "), F.array_join(_misfits(text, parsed), ", ")))
    )
    raw = F.when(readable, text).otherwise(F.base64(value.cast("binary")))
    return (
        df.withColumn("_parsed", F.from_json(F.when(readable, text), f"{schema}, _misfit STRING", options))
        .withColumns({"_raw": F.when(broken, raw), "_error": F.when(broken, reason)})
        .select("_parsed.*", "*")
        .drop("_parsed", "_misfit", column)
    )


def _misfits(text: Column, parsed: Column) -> Column:
    """Names of the fields that have a value in the JSON and none after parsing."""
    given = F.map_keys(F.map_filter(F.from_json(text, "map<string,string>"), lambda _, value: value.isNotNull()))
    known = F.json_object_keys(F.to_json(parsed, {"ignoreNullFields": "false"}))
    filled = F.json_object_keys(F.to_json(parsed))
    return F.array_except(F.array_intersect(given, known), filled)

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
    value, outer = F.col(column), F.col("_parsed")
    text = value.cast("string")
    readable = F.is_valid_utf8(text)
    # from_json stops after the first object and drops what follows it. Inside a list and before a mark, whatever follows a
    # record breaks the list or hides the mark, so a single parse sees it.
    wrapped = F.concat(F.lit('{"record":['), text, F.lit('],"end":1}'))
    wrapped_schema = f"record ARRAY<STRUCT<{schema}>>, end INT, _misfit STRING"
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_misfit", "allowSingleQuotes": "false"}
    record = F.get(outer["record"], F.lit(0))
    fits = outer["_misfit"].isNull() & (outer["end"] == 1) & (F.size(outer["record"]) == 1) & record.isNotNull()
    broken = ~F.coalesce(fits, F.lit(False))
    # Only broken records are looked at twice: the branches of a CASE are evaluated when they are reached.
    is_one_value = F.json_array_length(F.concat(F.lit("["), text, F.lit(",0]"))) == 2
    reason = (
        F.when(value.isNull(), F.lit("no value (a tombstone)"))
        .when(~readable, F.lit("not UTF-8; _raw is base64"))
        .when(F.try_parse_json(text).isNull() | ~F.coalesce(is_one_value, F.lit(False)), F.lit("not valid JSON"))
        .when(F.json_object_keys(text).isNull(), F.lit("not a JSON object"))
        .otherwise(F.concat(F.lit("does not fit: "), _misfits(text, record)))
    )
    raw = F.when(readable, text).otherwise(F.base64(value.cast("binary")))
    return (
        df.withColumn("_parsed", F.from_json(F.when(readable, wrapped), wrapped_schema, options))
        .withColumns({"_raw": F.when(broken, raw), "_error": F.when(broken, reason), "_parsed": record})
        .select("_parsed.*", "*")
        .drop("_parsed", column)
    )


def _misfits(text: Column, record: Column) -> Column:
    """Names of the fields that have a value in the JSON and none after parsing."""
    given = F.map_keys(F.map_filter(F.from_json(text, "map<string,string>"), lambda _, value: value.isNotNull()))
    known = F.json_object_keys(F.to_json(record, {"ignoreNullFields": "false"}))
    filled = F.json_object_keys(F.to_json(record))
    names = F.array_join(F.array_except(F.array_intersect(given, known), filled), ", ")
    return F.coalesce(F.nullif(names, F.lit("")), F.lit("a nested field"))

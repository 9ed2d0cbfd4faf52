"""JSON records as typed columns; a broken record keeps its row."""

from __future__ import annotations

import secrets
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import StructType

from tidegate.spark.python_workers import pay_off

Parser = Literal["jvm", "python"]
"""What parses the records that fit: Spark's own parser for all, or its Python workers. Both make the same rows."""

ERROR = "_error"
"""The column that says what is wrong with a record; null where nothing is."""

FROM_KAFKA = ("key", "timestamp", "timestampType")
"""Columns of a record that are in no table unless the transform renames them."""

_STRICT = {
    "mode": "PERMISSIVE",
    # Spark accepts both by default; RFC 8259 allows neither.
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


def parse_json(df: DataFrame, schema: str, *, column: str = "value", parser: Parser | None = None) -> DataFrame:
    """The columns of `schema`, then those of `df` (see below), then `_raw` and `_error`.

    It keeps the origin columns, and whatever a transform has added to `df`. It leaves out `column` and Kafka's `key`,
    `timestamp` and `timestampType`. To keep one of these, rename it first:

        parse_json(records.withColumnRenamed("timestamp", "_timestamp"), "id BIGINT")

    Args:
        df: records; `column` is binary or string.
        schema: the fields of a record as DDL, such as `"id BIGINT, name STRING"`. A field that is not in the record is null;
            a field of the record that is not in the schema is ignored.
        column: what to parse.
        parser: what parses the records that fit; the rows are the same. By default `python` in a load of 100,000 offsets or
            more, if Spark's Python workers have pyarrow and msgspec, and `jvm` otherwise. A schema with types that `python`
            does not know (DECIMAL, FLOAT, MAP, BINARY and others) is always parsed by `jvm`.

    A record that fits has null in `_raw` and `_error`. One that is not a JSON object, is not UTF-8, has no value (a
    tombstone), or holds a value that does not fit its field keeps its row: `_error` says why, `_raw` holds the whole text
    (base64 where it is not UTF-8), and the fields of a JSON object that do fit are filled.

    JSON is what RFC 8259 defines: one value, with nothing before or after it but spaces, tabs and line breaks. Where the RFC
    leaves a choice:

    - A byte order mark, NaN and Infinity are not JSON.
    - Of two fields with one name the last one counts, but each has to fit.
    - Text beyond the limits of Spark's parser is reported as `not valid JSON`: more than 998 levels, a number of more than
      1,000 digits, a string of more than 20,000,000 characters.
    - An escaped surrogate without its other half is valid, and becomes `?`: a text column holds UTF-8 only.
    - A number too large for its field does not fit; one too large for a DOUBLE is infinity.
    """
    # from_json stops after the first value and drops what follows it. So the record is parsed as the first element of a list,
    # and a mark as the second: only a text that is one whole value has the mark beside it. No record can forge the list or the
    # mark, since their name is random and newer than the record.
    mark = f"_{secrets.token_hex(8)}"
    value, outer = F.col(column), F.col("_parsed")
    own, by_workers = f"{mark}_decoded", _decoded(df, f"{schema}, {mark} INT", value, parser)
    decoded = F.col(own)
    if by_workers is not None:
        df = df.withColumn(own, by_workers)
        # of a record that is decoded there is nothing left to parse, which takes no time
        value = F.when(decoded.isNull(), value)
    text = value.cast("string")
    readable = F.is_valid_utf8(text)
    wrapped = F.when(readable, F.concat(F.lit(f'{{"{mark}":['), text, F.lit(f',{{"{mark}":1}}]}}')))
    options = {**_STRICT, "columnNameOfCorruptRecord": "_misfit"}
    wrapped_schema = f"{mark} ARRAY<STRUCT<{schema}, {mark}: INT>>, _misfit STRING"
    elements, fits = outer[mark], outer["_misfit"].isNull()
    marked = (F.size(elements) == 2) & (F.get(elements, F.lit(1))[mark] == 1)
    # After an error inside a field the parser goes on with the next one, whether the value did not fit or was no JSON. As texts
    # all values fit. Only broken records are parsed twice: the branches of a WHEN are evaluated when they are reached. (Both
    # sides of an OR are not: Spark evaluates a part of them that it finds elsewhere in advance.)
    texts = F.from_json(wrapped, f"{mark} ARRAY<STRING>, _misfit STRING", options)
    is_marked = (F.size(texts[mark]) == 2) & (F.get(texts[mark], F.lit(1)) == f'{{"{mark}":1}}')
    is_json = F.coalesce(texts["_misfit"].isNull() & is_marked, F.lit(False))
    first = F.get(elements, F.lit(0))
    record = F.when(fits & marked, first).when(~fits, F.when(is_json, first))
    broken = ~fits | ~F.coalesce(marked, F.lit(False)) | first.isNull()
    if by_workers is not None:
        record, broken = F.coalesce(decoded, record), decoded.isNull() & broken
    reason = (
        F.when(value.isNull(), F.lit("no value (a tombstone)"))
        .when(~readable, F.lit("not UTF-8; _raw is base64"))
        .when(~is_json, F.lit("not valid JSON"))
        .when(F.json_object_keys(text).isNull(), F.lit("not a JSON object"))
        .otherwise(F.concat(F.lit("does not fit: "), _misfits(text, record)))
    )
    raw = F.when(readable, text).otherwise(F.base64(value.cast("binary")))
    return (
        df.withColumn("_parsed", F.from_json(wrapped, wrapped_schema, options))
        .withColumns({"_raw": F.when(broken, raw), ERROR: F.when(broken, reason), "_parsed": record})
        # before the record's fields are columns: they may have the same names
        .drop(column, own, *FROM_KAFKA)
        .select("_parsed.*", "*")
        .drop("_parsed", mark)
    )


def _decoded(df: DataFrame, schema: str, value: Column, parser: Parser | None) -> Column | None:
    """The records as structs, null where Spark's parser has to look; None where Python workers do not decode.

    One round trip, for the types of the schema.
    """
    if parser == "jvm" or (parser is None and not pay_off(df.sparkSession)):
        return None
    from tidegate.spark.decoding import decoded, is_decodable  # noqa: PLC0415 - without pyarrow it cannot be imported

    of = df.select(F.from_json(F.lit(""), schema).alias("_decoded")).schema["_decoded"].dataType
    return decoded(value.cast("binary"), of) if isinstance(of, StructType) and is_decodable(of) else None


def _misfits(text: Column, record: Column) -> Column:
    """Names of the fields that have a value in the JSON and none after parsing."""
    given = F.map_keys(F.map_filter(F.from_json(text, "map<string,string>"), lambda _, value: value.isNotNull()))
    known = F.json_object_keys(F.to_json(record, {"ignoreNullFields": "false"}))
    filled = F.json_object_keys(F.to_json(record))
    names = F.array_join(F.array_except(F.array_intersect(given, known), filled), ", ")
    return F.coalesce(F.nullif(names, F.lit("")), F.lit("a nested field"))

"""JSON records as typed columns; a broken record keeps its row.

`values` makes a value of a text, and `decoding` is the fast way.
"""

from __future__ import annotations

import secrets

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import StructType

from tidegate.core.model.columns import ERROR, RAW
from tidegate.formats.columns import NOT_TEXT, TOMBSTONE, Parser, quoted, raw, staying
from tidegate.formats.json import values
from tidegate.formats.python_workers import pay_off

_STRICT = {
    "mode": "PERMISSIVE",
    # Spark accepts both by default; RFC 8259 allows neither.
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
CHECK = "tidegate.formats.json.decoding:check"
"""What fails in Python workers that cannot decode; see `tidegate.formats.python_workers`."""
_OPTIONS = {**_STRICT, "columnNameOfCorruptRecord": "_misfit"}


def parse_json(df: DataFrame, schema: str, *, column: str = "value", parser: Parser | None = None) -> DataFrame:
    """The columns of `schema`, then those of `df` (see below), then `_raw` and `_error`.

    It keeps the origin columns, and whatever a transform has added to `df`. It leaves out `column` and Kafka's `key`,
    `timestamp`, `timestampType` and `headers`. To keep one of these, rename it first (`header` takes a single header):

        parse_json(records.withColumnRenamed("timestamp", "_timestamp"), "id BIGINT")

    Raises ValueError: the schema has a type for which there is no such law: a field of type VARIANT, an interval, VOID, a
    STRING with a collation.

    Args:
        df: records; `column` is binary or string.
        schema: the fields of a record as DDL, such as `"id BIGINT, name STRING"`. A field that is not in the record is null;
            a field of the record that is not in the schema is ignored. `"VARIANT"` alone: any JSON, as one column of that type,
            with the name of `column` (Iceberg's tables have it from version 3 of their format on).
        column: what to parse.
        parser: what parses the records that fit; the rows are the same. By default `python` in a load of 100,000 offsets or
            more, if Spark's Python workers have pyarrow and msgspec, and `jvm` otherwise. A schema with types that `python`
            does not know (FLOAT, BINARY, TIMESTAMP_NTZ) is always parsed by `jvm`.

    A record that fits has null in `_raw` and `_error`. One that is not a JSON object, is not UTF-8, has no value (a
    tombstone), or holds a value that does not fit its field keeps its row: `_error` says why, `_raw` holds the whole text
    (base64 where it is not UTF-8), and the fields of a JSON object that do fit are filled.

    JSON is what RFC 8259 defines: one value, with nothing before or after it but spaces, tabs and line breaks. Where the RFC
    leaves a choice:

    - A byte order mark, NaN and Infinity are not JSON.
    - Of two fields with one name the last one counts.
    - Text beyond the limits of Spark's parser is reported as `not valid JSON`: more than 998 levels, a number of more than
      1,000 digits, a string of more than 20,000,000 characters.
    - An escaped surrogate without its other half is valid, and becomes `?`: a text column holds UTF-8 only.

    A value is stored exactly, or it does not fit; `_error` has its path, such as `lines[2].price`. Nothing depends on the clock
    or on settings of the session.

    - DOUBLE and FLOAT alone round; a number too large for them is infinity.
    - DECIMAL takes a number, or a string that is one, whose digits beyond the scale are zeros.
    - DATE takes `YYYY-MM-DD`. TIMESTAMP takes that, alone or with a time: `2026-01-05T10:00:00.123456+02:00`, where a space may
      stand for the `T`, and seconds, their fraction and the offset may be missing. Without `Z` or an offset it is UTC. A number
      is seconds since 1970. The years are 0001 to 9999.
    - STRING takes a number, an object or a list as the text that was sent.
    - VARIANT takes what Spark's `try_parse_json` does: numbers of up to 38 digits are exact, others are rounded to DOUBLE, and
      an object with a name twice does not fit.
    """
    # from_json stops after the first value and drops what follows it. So the record is parsed as the first element of a list,
    # and a mark as the second: only a text that is one whole value has the mark beside it. No record can forge the list or the
    # mark, since their name is random and newer than the record.
    mark = f"_{secrets.token_hex(8)}"
    if schema.strip().casefold() == "variant":
        return _as_variant(df, column, mark)
    columns = df.select("*", F.from_json(F.lit(""), f"{schema}, {mark} INT").alias(mark)).schema
    of = columns[mark].dataType
    assert isinstance(of, StructType)  # noqa: S101 - for mypy
    if unknown := values.unknown(of):
        message = f"parse_json makes no {', '.join(unknown)} of JSON: declare such a field as STRING, and convert it after that"
        raise ValueError(message)
    kept = staying(columns.names, column, mark)
    value, (text, parsed, made, doubt, exact) = F.col(column), (f"{mark}{n}" for n in range(5))
    decoded = None if parser == "jvm" else _decoded(df, of, value, parser)
    if decoded is None:
        decoded = F.lit(None).cast(of)
    else:
        df, decoded = df.select("*", decoded.alias(f"{mark}d")), F.col(f"{mark}d")
    # of a record that is decoded there is nothing left to parse, which takes no time
    as_text = F.when(decoded.isNull(), value.cast("string"))
    wrapped = _wrapped(F.col(text), mark)
    first, second = (f"get({parsed}.{mark}, {n})" for n in (0, 1))
    # The branches of a WHEN are evaluated when they are reached. (Both sides of an OR are not: Spark evaluates a part of them
    # that it finds elsewhere in advance.) So nothing but a record in doubt is parsed again.
    texts, is_json = _texts(wrapped, mark)
    # A text that from_json writes as it is has no number in another notation, and no space that it drops.
    is_same = F.coalesce(F.get(texts[mark], F.lit(0)) == F.col(text), F.lit(False))
    others, strings = (values.doubts(of, first, made, strings=of_strings) for of_strings in (False, True))
    if long := values.long_numbers(of):
        others.append(f"{text} RLIKE {values.text(long)}")
    is_object = F.expr(f"startswith(ltrim({values.text(values.SPACE)}, {text}), {values.text('{')})")
    misfits = F.expr(f"array_join(transform({exact}.m, p -> substr(p, 2)), ', ')")
    error = (
        F.when(decoded.isNotNull(), None)
        .when(value.isNull(), F.lit(TOMBSTONE))
        .when(F.col(text).isNull(), F.lit(NOT_TEXT))
        .when(F.col(exact).isNotNull(), F.when(F.size(f"{exact}.m") > 0, F.concat(F.lit("does not fit: "), misfits)))
        .when(F.col(doubt), F.when(is_json, F.lit("not a JSON object")).otherwise(F.lit("not valid JSON")))
    )
    record = F.coalesce(decoded, f"{exact}.v", F.when(~F.col(doubt), F.col(made)))
    # each step is one more that Spark analyses, for each load
    return (
        df.select("*", F.when(F.is_valid_utf8(as_text), as_text).alias(text))
        .select("*", F.from_json(wrapped, f"{mark} ARRAY<{values.loose(of)}>, _misfit STRING", _OPTIONS).alias(parsed))
        .select(
            "*",
            F.expr(
                f"CASE WHEN {parsed}._misfit IS NULL AND size({parsed}.{mark}) = 2 AND {second}.{mark} = 1 "
                f"THEN {values.quick(of, first, text)} END"
            ).alias(made),
        )
        .select(
            "*",
            F.when(F.col(text).isNull(), F.lit(False))
            .when(F.expr(" OR ".join([f"{made} IS NULL", *others])), F.lit(True))
            .otherwise(F.when(F.expr(" OR ".join(["false", *strings])), ~is_same).otherwise(F.lit(False)))
            .alias(doubt),
        )
        .select(
            "*",
            F.when(F.col(doubt), F.when(is_json, F.when(is_object, F.expr(values.exactly(of, text, f"{mark}k"))))).alias(exact),
        )
        .select(*kept, F.when(error.isNotNull(), raw(value, F.col(text))).alias(RAW), error.alias(ERROR), record.alias(mark))
        .select(*(F.col(f"{mark}.{quoted(name)}") for name in of.names[:-1]), *kept, RAW, ERROR)
    )


def _as_variant(df: DataFrame, column: str, mark: str) -> DataFrame:
    value, text, parsed = F.col(column), f"{mark}0", f"{mark}1"
    _, is_json = _texts(_wrapped(F.col(text), mark), mark)
    error = (
        F.when(value.isNull(), F.lit(TOMBSTONE))
        .when(F.col(text).isNull(), F.lit(NOT_TEXT))
        .when(~is_json, F.lit("not valid JSON"))
        .when(F.col(parsed).isNull(), F.lit("does not fit: VARIANT"))
    )
    as_text = value.cast("string")
    kept = staying(df.columns, column, mark)
    return (
        df.select("*", F.when(F.is_valid_utf8(as_text), as_text).alias(text))
        .select("*", F.try_parse_json(text).alias(parsed))
        .select(parsed, value, *kept, text, error.alias(ERROR))
        .select(
            F.when(F.col(ERROR).isNull(), F.col(parsed)).alias(column),
            *kept,
            F.when(F.col(ERROR).isNotNull(), raw(value, F.col(text))).alias(RAW),
            ERROR,
        )
    )


def _wrapped(text: Column, mark: str) -> Column:
    """The text as the first element of a list, with the mark as the second."""
    return F.concat(F.lit(f'{{"{mark}":['), text, F.lit(f',{{"{mark}":1}}]}}'))


def _texts(wrapped: Column, mark: str) -> tuple[Column, Column]:
    """The elements of the list as texts, and whether the first one is one whole JSON value."""
    texts = F.from_json(wrapped, f"{mark} ARRAY<STRING>, _misfit STRING", _OPTIONS)
    is_marked = (F.size(texts[mark]) == 2) & (F.get(texts[mark], F.lit(1)) == f'{{"{mark}":1}}')
    return texts, F.coalesce(texts["_misfit"].isNull() & is_marked, F.lit(False))


def _decoded(df: DataFrame, of: StructType, value: Column, parser: Parser | None) -> Column | None:
    """The records as structs, null where Spark's parser has to look; None where Python workers do not decode."""
    if parser is None and not pay_off(df.sparkSession, CHECK):
        return None
    from tidegate.formats.json.decoding import decoded, is_decodable  # noqa: PLC0415 - without pyarrow it cannot be imported

    return decoded(value.cast("binary"), of) if is_decodable(of) else None

"""A second format: a record is a line of values between tabs, without quotes. It keeps the laws of all formats.

An empty value is null, so no text is empty. As in every format, Spark's own expressions say what a record is, and the workers
decode what certainly fits: every other record comes back from them as null. (A format of Tidegate has what runs in the workers
in a module of its own, since pyarrow may be missing where it is planned.)
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import StructType

from tidegate.core.model.columns import ERROR, RAW
from tidegate.formats.columns import NOT_TEXT, TOMBSTONE, Parser, raw, staying
from tidegate.formats.python_workers import in_workers, pay_off

_INTEGER = "-?[0-9]{1,19}"
_FITS = {"string": "", "int": rf"^{_INTEGER}\z", "bigint": rf"^{_INTEGER}\z", "double": r"^-?[0-9]+(\.[0-9]+)?\z"}
_DECODED = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64()}


def parse_tabs(df: DataFrame, schema: str, *, column: str = "value", parser: Parser | None = None) -> DataFrame:
    """The columns of `schema`, then those of `df` that stay, then `_raw` and `_error`; arguments as those of `parse_json`.

    Raises ValueError: the schema has another type than STRING, INT, BIGINT and DOUBLE.
    """
    of = StructType.fromDDL(schema)
    assert isinstance(of, StructType)  # noqa: S101 - for mypy
    kinds = {field.name: field.dataType.simpleString() for field in of.fields}
    if unknown := set(kinds.values()) - _FITS.keys():
        message = f"parse_tabs makes no {', '.join(sorted(unknown))}: declare such a field as STRING, and convert it after that"
        raise ValueError(message)
    kept, value, mark = staying(df.columns, column), F.col(column), f"_{secrets.token_hex(8)}"
    if (decoded := _decoded(df, of, value, parser)) is not None:
        df, decoded = df.select("*", decoded.alias(mark)), F.col(mark)
    else:
        decoded = F.lit(None).cast(of)
    as_text = value.cast("string")
    text = F.when(F.is_valid_utf8(as_text), as_text)
    parts = F.split(text, "\t", -1)
    is_whole = F.size(parts) == len(kinds)
    fields, misfits = [], []
    for place, (name, kind) in enumerate(kinds.items()):
        sent = F.nullif(F.get(parts, F.lit(place)), F.lit(""))
        made = F.when(sent.rlike(_FITS[kind]), sent).try_cast(kind)
        fields.append(F.coalesce(decoded.getField(name), F.when(is_whole, made)).alias(name))
        misfits.append(F.when(sent.isNotNull() & made.isNull(), F.lit(name)))
    error = (
        F.when(decoded.isNotNull(), None)
        .when(value.isNull(), F.lit(TOMBSTONE))
        .when(text.isNull(), F.lit(NOT_TEXT))
        .when(~is_whole, F.lit(f"not {len(kinds)} values"))
        .when(F.coalesce(*misfits).isNotNull(), F.concat(F.lit("does not fit: "), F.concat_ws(", ", *misfits)))
    )
    return df.select(*fields, *kept, F.when(error.isNotNull(), raw(value, text)).alias(RAW), error.alias(ERROR))


def _decoded(df: DataFrame, of: StructType, value: Column, parser: Parser | None) -> Column | None:
    """The records as structs, null where the JVM has to look; None where Python workers do not decode."""
    kinds = {field.name: field.dataType.simpleString() for field in of.fields}
    if parser == "jvm" or not set(kinds.values()) <= _DECODED.keys():
        return None
    if parser is None and not pay_off(df.sparkSession, f"{__name__}:check"):
        return None

    def decode(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        arrow = pa.struct([(name, _DECODED[kind]) for name, kind in kinds.items()])
        for batch in batches:
            yield pa.array([_struct(record, kinds) for record in batch.to_pylist()], arrow)

    return in_workers(decode, of)(value.cast("binary"))


def check(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """True for every value of a column; it fails where the workers lack what decoding needs."""
    for batch in batches:
        yield pa.array([True] * len(batch))


def _struct(record: bytes | None, kinds: dict[str, str]) -> dict[str, Any] | None:
    try:
        texts = (record or b"").decode().split("\t")
    except UnicodeDecodeError:
        return None
    if record is None or len(texts) != len(kinds):
        return None
    values: dict[str, Any] = {}
    for (name, kind), text in zip(kinds.items(), texts, strict=True):
        values[name] = text or None
        if text and kind != "string":
            bits = 32 if kind == "int" else 64
            if not re.fullmatch(_INTEGER, text) or not -(1 << bits - 1) <= int(text) < 1 << bits - 1:
                return None
            values[name] = int(text)
    return values

"""Decodes JSON records in Spark's Python workers, a whole Arrow batch at a time.

Rule: a record that certainly fits is decoded here. Every other one comes back as null and is left to Spark's own parser. So
what is valid, what fits, and what is said of a broken record is defined once, in `tidegate.formats.json`: this module
may know less of JSON than that parser, and nothing that contradicts it.

The module is sent to the workers as code: they need pyarrow and msgspec, and no Tidegate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, chain
from typing import Annotated, Any, TypeAlias

import msgspec
import pyarrow as pa
from pyarrow import compute
from pyspark.sql import Column
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StringType, StructType

from tidegate.formats.python_workers import in_workers

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_DATE = "(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TEXTS = {"date": f"^{_DATE}$", "timestamp": rf"^{_DATE}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?Z$"}
_OTHERS = {"boolean": (bool, pa.bool_()), "double": (float, pa.float64()), "string": (str, pa.string())}

# Spark's parser ends at 1,000 levels, numbers of 1,000 digits (each part of which has fewer) and names of 50,000 characters.
_LONG, _TOO_LONG, _MOST_LEVELS, _MOST_DIGITS = 990, 50_000, 900, 300
_TRIED = 10_000
"""Records of a task that are tried before it gives up on a topic of records that do not fit."""
_NAME = re.compile(r'[^"\\\x00-\x1f]*')
"""Names of fields that msgspec takes."""
_AS_ZERO = bytes.maketrans(b"123456789", b"0" * 9)


def is_decodable(of: DataType) -> bool:
    """Whether records of this type can be decoded here: all but FLOAT, which Python would round twice, and rare ones."""
    if isinstance(of, StructType):
        names = of.names
        are_plain = bool(names) and len(set(names)) == len(names) and all(map(_NAME.fullmatch, names))
        # a field with a comment or a default is of another type to Spark than one without
        return are_plain and all(not f.metadata and is_decodable(f.dataType) for f in of.fields)
    if isinstance(of, ArrayType):
        return is_decodable(of.elementType)
    if isinstance(of, MapType):
        return of.keyType == StringType() and is_decodable(of.valueType)
    return isinstance(of, DecimalType) or of.simpleString() in {*_BITS, *_TEXTS, *_OTHERS}


def decoded(records: Column, of: StructType) -> Column:
    """The records (a binary column) as structs of a type that `is_decodable`; null where Spark's parser has to look."""

    def decode(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return _decode(batches, of)

    return in_workers(decode, of)(records)


# ---- in the workers


def check(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """True for every value of a column; it fails where the workers lack what decoding needs."""
    for batch in batches:
        yield pa.array([msgspec.json.decode(b"true")] * len(batch))


def _decode(batches: Iterable[pa.Array], of: StructType) -> Iterator[pa.Array]:
    kind, column = _shape(of)
    decode, arrow = msgspec.json.Decoder(kind).decode, column([]).type
    seen = left = 0
    for batch in batches:
        # where most of what comes is for Spark's parser, it is no use to try each record
        pays = seen < _TRIED or 2 * left <= seen
        structs = _structs(batch, decode) if pays else [None] * len(batch)
        seen, left = seen + len(batch), left + structs.count(None)
        try:
            yield column(structs)
        except pa.ArrowInvalid:  # 30 February, or 1.999 in DECIMAL(9, 2)
            yield pa.nulls(len(batch), arrow)


def _structs(batch: pa.Array, decode: Callable[[bytes], Any]) -> list[Any]:
    """The records of a batch as structs, None where the decoder is not certain; one by one only where it is not of all."""
    records = batch.to_pylist()
    if not batch.null_count and (compute.max(compute.binary_length(batch)).as_py() or 0) <= _LONG and _is_text(batch):
        try:
            return list(map(decode, records))
        except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
            pass

    def struct(record: bytes | None) -> Any:
        if record is None or not _is_plain(record):
            return None
        try:
            return decode(record)
        except (ValueError, RecursionError):
            return None

    return list(map(struct, records))


def _is_text(batch: pa.Array) -> bool:
    """Whether all is UTF-8, which the decoder does not look at in fields that it skips."""
    try:
        batch.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _is_plain(record: bytes) -> bool:
    """Whether a record is UTF-8, and surely within the limits of Spark's parser."""
    try:
        record.decode()
    except UnicodeDecodeError:
        return False
    return len(record) <= _LONG or (
        len(record) <= _TOO_LONG
        and record.count(b"[") + record.count(b"{") <= _MOST_LEVELS
        and b"0" * _MOST_DIGITS not in record.translate(_AS_ZERO)
    )


_Shape: TypeAlias = tuple[Any, Callable[[list[Any]], pa.Array]]
"""What a type is decoded to, and how a list of such values, or None, becomes a column."""


def _shape(of: DataType) -> _Shape:
    makers: dict[type[DataType], Callable[[Any], _Shape]]
    makers = {StructType: _struct, ArrayType: _array, MapType: _map, DecimalType: _decimal}
    if make := makers.get(type(of)):
        return make(of)
    name = of.simpleString()
    if name in _BITS:
        most = 2 ** (_BITS[name] - 1)
        integers = pa.type_for_alias(f"int{_BITS[name]}")
        return Annotated[int, msgspec.Meta(ge=-most, le=most - 1)], lambda values: pa.array(values, integers)
    if name in _TEXTS:
        times = pa.date32() if name == "date" else pa.timestamp("us", "UTC")
        kind = Annotated[str, msgspec.Meta(pattern=_TEXTS[name])]
        return kind, lambda values: pa.array(values, pa.string()).cast(times)
    python, arrow = _OTHERS[name]
    return python, lambda values: pa.array(values, arrow)


def _struct(of: StructType) -> _Shape:
    shapes = {f"f{number}": _shape(field.dataType) for number, field in enumerate(of.fields)}
    kind = msgspec.defstruct(
        "Record",
        [(own, _or_null(python), None) for own, (python, _) in shapes.items()],
        rename=dict(zip(shapes, of.names, strict=True)),
        gc=False,
    )
    nothing = kind()

    def column(values: list[Any]) -> pa.Array:
        missing = [value is None for value in values]
        mask = pa.array(missing, pa.bool_()) if any(missing) else None
        given = values if mask is None else [nothing if value is None else value for value in values]
        columns = [make([getattr(value, own) for value in given]) for own, (_, make) in shapes.items()]
        return pa.StructArray.from_arrays(columns, of.names, mask=mask)

    return kind, column


def _array(of: ArrayType) -> _Shape:
    python, make = _shape(of.elementType)

    def column(values: list[Any]) -> pa.Array:
        offsets, missing = _lists(values)
        return pa.ListArray.from_arrays(offsets, make(list(chain.from_iterable(filter(None, values)))), mask=missing)

    return list[_or_null(python)], column  # type: ignore[misc]


def _map(of: MapType) -> _Shape:
    python, make = _shape(of.valueType)

    def column(values: list[Any]) -> pa.Array:
        offsets, missing = _lists(values)
        given = list(filter(None, values))
        keys = pa.array(chain.from_iterable(given), pa.string())
        items = make([item for each in given for item in each.values()])
        return pa.MapArray.from_arrays(offsets, keys, items, mask=missing)

    return dict[str, _or_null(python)], column  # type: ignore[misc]


def _lists(values: list[Any]) -> tuple[pa.Array, pa.Array]:
    """Where each list or map begins, and which is none."""
    offsets = pa.array(accumulate((len(value or ()) for value in values), initial=0), pa.int32())
    return offsets, pa.array([value is None for value in values], pa.bool_())


def _decimal(of: DecimalType) -> _Shape:
    """From the text: msgspec's own decimals would take strings like `1_0`."""
    whole, arrow = of.precision - of.scale, pa.decimal128(of.precision, of.scale)
    number = (f"-?[0-9]{{1,{whole}}}" if whole else "-?0") + (rf"(\.[0-9]{{1,{of.scale}}})?" if of.scale else "")

    def column(values: list[Any]) -> pa.Array:
        given = [None if value is None or (sent := bytes(value)) == b"null" else sent for value in values]
        texts = pa.array(given, pa.binary()).cast(pa.string())
        if compute.all(compute.match_substring_regex(texts, f'^(?:{number}|"{number}")$')).as_py() is False:
            raise pa.ArrowInvalid
        return compute.replace_substring(texts, '"', "").cast(arrow)

    return msgspec.Raw, column


def _or_null(python: Any) -> Any:
    """Raw text holds null itself."""
    return python if python is msgspec.Raw else python | None

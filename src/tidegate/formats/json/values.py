"""What a JSON value is as a value of a type: exactly what the type can hold, or nothing.

SQL text, so that one request makes the whole expression, for any session: no literal here depends on what a backslash means to
it, no cast on ANSI mode, and no time on its time zone or `timeParserPolicy`.

There are two ways. `quick` takes what Spark's `from_json` made of a record. That changes some values (a STRING of 1.50 becomes
1.5), so it also says whether any value may be another than the one that was sent. Only such records are read `exactly`, from
their text, which takes some 20 times as long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructType

from tidegate.formats.columns import quoted

_NATIVE = {"boolean", "smallint", "int", "bigint", "float", "double", "string"}
"""Simple types that `from_json` fills with the value that was sent; of a STRING, it shows where that is not certain."""
_KNOWN = {*_NATIVE, "tinyint", "date", "timestamp", "timestamp_ntz", "binary"}
_DATE = "(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_DAY = rf"^{_DATE}\z"
_INSTANT = rf"^(?!0001|9999){_DATE}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]{{1,6}})?(?:Z|[+-][0-9]{{2}}:[0-9]{{2}})?\z"
_ZONE = r"(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)\z"
_SECONDS = r"^-?[0-9]{1,10}\z"
_MINUTE = rf"{_DATE}[T ][0-9]{{2}}:[0-9]{{2}}"
_CLOCK, _TIME = (rf"^{_DATE}\z|^{_MINUTE}(?::[0-9]{{2}}(?:\.[0-9]{{1,6}}0*)?)?{zone}" for zone in (r"\z", rf"(?:{_ZONE}|\z)"))
_INTEGER = r"^-?[0-9]+\z"
_NUMBER = r"^-?([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]{1,9}))?\z"
_BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\z"
_MAYBE_NO_TEXT = r'^(?:[\[{"]|-?(?:Inf|0\z|[0-9]+\.[0-9]+(?:E-?[0-9]+)?\z))'
"""STRINGs that `from_json` may have made of an object, a list or a number in another notation."""
_PART = r'(?s)(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},:]|[^ \t\n\r",:\[\]{}]++)[ \t\n\r]*+'
SPACE, QUOTE = " \t\n\r", '"'
_FIRST_US, _END_US = -62_135_596_800_000_000, 253_402_300_800_000_000
"""The years 0001 to 9999, in microseconds."""

_SAFE = re.compile(r"[\w .:,+\-/()\[\]{}<>=^]*", re.ASCII)
_names = count()


def text(value: str) -> str:
    """A literal that means the same whatever the session makes of backslashes."""
    return f"'{value}'" if _SAFE.fullmatch(value) else f"CAST(X'{value.encode().hex()}' AS STRING)"


def _let(value: str, body: Callable[[str], str]) -> str:
    """`body` of a value that is computed once."""
    own = f"x{next(_names)}"
    return f"get(transform(array({value}), {own} -> {body(own)}), 0)"


def _each(function: str, values: str, body: Callable[[str], str]) -> str:
    own = f"x{next(_names)}"
    return f"{function}({values}, {own} -> {body(own)})"


def _years(value: str) -> str:
    first, end = (f"timestamp_micros({micros})" for micros in (_FIRST_US, _END_US))
    return _let(value, lambda v: f"CASE WHEN {v} >= {first} AND {v} < {end} THEN {v} END")


def unknown(of: DataType) -> list[str]:
    """The types for which no law says what a JSON value is: VARIANT, intervals and others."""
    leaves = (leaf for leaf in _leaves(of) if not isinstance(leaf, DecimalType))
    return sorted({leaf.simpleString().upper() for leaf in leaves if leaf.simpleString() not in _KNOWN})


# ---- what from_json made


def loose(of: DataType) -> str:
    """The type to let `from_json` parse: what it would change in a way that nobody can tell is STRING."""
    if isinstance(of, StructType):
        return f"STRUCT<{', '.join(f'{quoted(f.name)}: {loose(f.dataType)}' for f in of.fields)}>"
    if isinstance(of, ArrayType):
        return f"ARRAY<{loose(of.elementType)}>"
    if isinstance(of, MapType):
        return f"MAP<{of.keyType.simpleString()}, {loose(of.valueType)}>"
    # of a TINYINT, 128 would be -128
    simple = of.simpleString()
    return simple if simple in _NATIVE else {"tinyint": "SMALLINT"}.get(simple, "STRING")


def quick(of: DataType, loosely: str, record: str) -> str:
    """What `from_json` made of the text `record` as the type itself; null where that is not certain."""
    if not _is_changed(of):
        return loosely
    if isinstance(of, StructType):
        fields = ", ".join(f"{text(f.name)}, {quick(f.dataType, f'{loosely}.{quoted(f.name)}', record)}" for f in of.fields)
        return f"CASE WHEN {loosely} IS NOT NULL THEN named_struct({fields}) END"
    if isinstance(of, ArrayType):
        return _each("transform", loosely, lambda each: quick(of.elementType, each, record))
    if isinstance(of, MapType):
        return f"transform_values({loosely}, (k, v) -> {quick(of.valueType, 'v', record)})"
    simple = of.simpleString()
    cases = {"date": (_DAY, f"try_cast({loosely} AS date)")}
    if isinstance(of, DecimalType):
        part = rf"(?:\.[0-9]{{1,{of.scale}}})?" if of.scale else ""
        cases[simple] = rf"^-?[0-9]{{1,15}}{part}\z", f"try_cast({loosely} AS {simple})"
    elif simple == "timestamp":
        # a number in the text, not a string: a string would be there between quotes, or escaped
        is_number = f"NOT contains({record}, concat({text(QUOTE)}, {loosely})) AND NOT contains({record}, {text(chr(92))})"
        seconds = f"WHEN {loosely} RLIKE {text(_SECONDS)} AND {is_number} THEN timestamp_seconds(try_cast({loosely} AS BIGINT))"
        zoned = f"CASE WHEN {loosely} RLIKE {text(_ZONE)} THEN {loosely} ELSE concat({loosely}, 'Z') END"
        return f"CASE WHEN {loosely} RLIKE {text(_INSTANT)} THEN try_cast({zoned} AS timestamp) {seconds} END"
    shape, value = cases.get(simple, (None, None))
    otherwise = f"try_cast({loosely} AS tinyint)" if simple == "tinyint" else f"CAST(NULL AS {simple})"
    return f"CASE WHEN {loosely} RLIKE {text(shape)} THEN {value} END" if shape else otherwise


def doubts(of: DataType, loosely: str, quickly: str, *, strings: bool) -> list[str]:
    """Conditions, one of which holds where a value may be another than the one that was sent.

    `loosely` is what `from_json` made, `quickly` that as the type itself. They are of STRINGs, which are certain in a text that
    `from_json` writes as it is, or of all other types.
    """
    if isinstance(of, StructType):
        names = [quoted(f.name) for f in of.fields]
        pairs = zip(of.fields, names, strict=True)
        found = [doubts(f.dataType, f"{loosely}.{n}", f"{quickly}.{n}", strings=strings) for f, n in pairs]
        return [doubt for each in found for doubt in each]
    if isinstance(of, ArrayType):
        return _any(of.elementType, loosely, quickly, strings=strings)
    if isinstance(of, MapType):
        keys = f"map_keys({loosely})"
        repeated = [] if strings else [f"size({keys}) <> size(array_distinct({keys}))"]
        return repeated + _any(of.valueType, f"map_values({loosely})", f"map_values({quickly})", strings=strings)
    if of.simpleString() == "string":
        return [f"{loosely} RLIKE {text(_MAYBE_NO_TEXT)}"] if strings else []
    return [f"({loosely} IS NOT NULL AND {quickly} IS NULL)"] if _is_changed(of) and not strings else []


def _any(of: DataType, loosely: str, quickly: str, *, strings: bool) -> list[str]:
    a, b = f"x{next(_names)}", f"x{next(_names)}"
    found = doubts(of, a, b, strings=strings)
    if not found:
        return []
    is_one = f"coalesce({' OR '.join(found)}, false)"
    if strings:
        return [f"exists({loosely}, {a} -> {is_one})"]
    return [f"exists(zip_with({loosely}, {quickly}, ({a}, {b}) -> {is_one}), {a} -> {a})"]


def _is_changed(of: DataType) -> bool:
    return any(leaf.simpleString() not in _NATIVE for leaf in _leaves(of))


def _leaves(of: DataType) -> Iterator[DataType]:
    if isinstance(of, StructType):
        for field in of.fields:
            yield from _leaves(field.dataType)
    elif isinstance(of, (ArrayType, MapType)):
        yield from _leaves(of.elementType if isinstance(of, ArrayType) else of.valueType)
    else:
        yield of


def long_numbers(of: DataType) -> str | None:
    """What the text of a record matches if a DECIMAL may have more digits than `from_json`, which reads a DOUBLE, has kept."""
    keys = _decimals(of)
    if not keys:
        return None
    key = "" if None in keys else "(?:" + "|".join([rf'"{re.escape(k)}"' for k in keys if k] + [r'\\.[^"]*"']) + r")\s*:\s*-?"
    return key + "[0-9.]{17}"


def _decimals(of: DataType) -> set[str | None]:
    """Names of the DECIMAL fields; None stands for elements of a list or a map."""
    if isinstance(of, StructType):
        inner = [{f.name} if isinstance(f.dataType, DecimalType) else _decimals(f.dataType) for f in of.fields]
        return set().union(*inner)
    if isinstance(of, (ArrayType, MapType)):
        of = of.elementType if isinstance(of, ArrayType) else of.valueType
        return {None} if isinstance(of, DecimalType) or _decimals(of) == {None} else _decimals(of)
    return set()


# ---- the text itself


def exactly(of: StructType, record: str, mark: str) -> str:
    """A valid JSON object as `STRUCT<v: ..., m: ARRAY<STRING>>`: what fits, and the paths of what does not.

    `from_json` loses how a number, an object or a list was written. So the text is cut into tokens, and parsed again with the
    number of its token in place of each number, and at both ends of each object and list. No record can forge such a number,
    since the mark is random and newer than the record.
    """
    is_last = [f"startswith(get(%s, i + 1), {text(end)})" for end in "}]"]

    def marked(tokens: str) -> str:
        object_ends, list_ends = (each % tokens for each in is_last)
        key, item = text(f'"{mark}":'), text(f'"{mark}')
        cases = {
            "{": f"concat({text('{')}, {key}, i, CASE WHEN {object_ends} THEN '' ELSE ',' END)",
            "}": f"concat(',', {key}, i, {text('}')})",
            "[": f"concat('[', {item}, i, {text(QUOTE)}, CASE WHEN {list_ends} THEN '' ELSE ',' END)",
            "]": f"concat(',', {item}, i, {text(QUOTE + ']')})",
            **dict.fromkeys(('"', ",", ":", "n"), "t"),
        }
        branches = " ".join(f"WHEN {text(first)} THEN {to}" for first, to in cases.items())
        each = f"CASE left(t, 1) {branches} ELSE concat({item}, i, {text(QUOTE)}) END"
        return f"named_struct('s', array_join(transform({tokens}, (t, i) -> {each}), ''), 'r', {text('{')})"

    tokens = f"regexp_extract_all(btrim({record}, {text(SPACE)}), {text(_PART)}, 0)"
    return _let(tokens, lambda found: _let(marked(found), lambda whole: _Exact(found, mark).value(of, whole)))


class _Exact:
    """Values as `STRUCT<v, m>` of what was sent, a `STRUCT<s, r>`.

    `s` is its marked text, or the value of a string; `r` the text as it was sent of all but strings.
    """

    def __init__(self, tokens: str, mark: str) -> None:
        self._tokens, self._mark = tokens, mark

    def value(self, of: DataType, sent: str) -> str:
        if isinstance(of, StructType):
            return self._struct(of, sent)
        if isinstance(of, ArrayType):
            values = _let(f"from_json({sent}.s, 'ARRAY<STRING>')", lambda v: f"slice({v}, 2, size({v}) - 2)")
            items = f"CASE WHEN {_is('[', sent)} THEN {values} END"
            return self._items(of.elementType, sent, items, "concat('[', i, ']')")
        if isinstance(of, MapType):
            return self._map(of, sent)
        return _let(
            _leaf(of, f"{sent}.r", f"{sent}.s"), lambda v: f"named_struct('v', {v}, 'm', {_misfit(sent, f'{v} IS NULL')})"
        )

    def _read(self, texts: str) -> str:
        """Marked texts as what was sent."""
        ends = [text(f'{start}{self._mark}(?:":)?([0-9]+)') for start in ("", "(?s)^.*")]
        is_marked = text(rf'^(?:[\[{{]")?{self._mark}')

        def each(s: str) -> str:
            first, last = (f"CAST(regexp_extract({s}, {end}, 1) AS INT)" for end in ends)
            part = f"array_join(slice({self._tokens}, {first} + 1, {last} - {first} + 1), '')"
            raw = f"CASE WHEN {s} RLIKE {is_marked} THEN TRIM(TRAILING {text(SPACE)} FROM {part}) END"
            return f"named_struct('s', {s}, 'r', {raw})"

        return _each("transform", texts, each)

    def _struct(self, of: StructType, sent: str) -> str:
        """All fields of one type are converted by one expression, since what Spark has to analyse costs each load."""
        kind = "STRUCT<" + ", ".join(f"{quoted(f.name)}: STRING" for f in of.fields) + ">"
        by_type: dict[DataType, list[int]] = {}
        for n, field in enumerate(of.fields):
            by_type.setdefault(field.dataType, []).append(n)
        places = {n: f"t{t}, {at})" for t, those in enumerate(by_type.values()) for at, n in enumerate(those)}

        def read(all_sent: str) -> str:
            each = (
                f"'t{t}', "
                + _each("transform", f"array({', '.join(f'get({all_sent}, {n})' for n in those)})", partial(self.value, kind))
                for t, (kind, those) in enumerate(by_type.items())
            )
            return _let(f"named_struct({', '.join(each)})", whole)

        def whole(read: str) -> str:
            found = [f"get({read}.{places[n]}" for n in range(len(of.fields))]
            values = ", ".join(f"{text(f.name)}, {found[n]}.v" for n, f in enumerate(of.fields))
            names = f"array({', '.join(text(f'.{f.name}') for f in of.fields)})"
            inner = f"array({', '.join(f'{each}.m' for each in found)})"
            paths = f"transform({inner}, (m, i) -> transform(m, p -> concat(get({names}, i), p)))"
            is_one = _is("{", sent)
            misfits = f"CASE WHEN {is_one} THEN flatten({paths}) ELSE {_misfit(sent)} END"
            return f"named_struct('v', CASE WHEN {is_one} THEN named_struct({values}) END, 'm', {misfits})"

        given = f"from_json(CASE WHEN {_is('{', sent)} THEN {sent}.s END, {text(kind)})"
        texts = _let(given, lambda g: f"array({', '.join(f'{g}.{quoted(f.name)}' for f in of.fields)})")
        return _let(self._read(texts), read)

    def _map(self, of: MapType, sent: str) -> str:
        entries = f"filter(map_entries(from_json({sent}.s, 'MAP<STRING, STRING>')), p -> p.key <> {text(self._mark)})"

        def last(pairs: str) -> str:
            keys = f"array_distinct(transform({pairs}, p -> p.key))"
            return f"transform({keys}, k -> element_at(filter({pairs}, p -> p.key = k), -1))"

        def whole(kept: str) -> str:
            values = self._items(of.valueType, sent, f"transform({kept}, p -> p.value)", f"concat('.', get({kept}, i).key)")
            return _let(
                values, lambda v: f"named_struct('v', map_from_arrays(transform({kept}, p -> p.key), {v}.v), 'm', {v}.m)"
            )

        return _let(f"CASE WHEN {_is('{', sent)} THEN {_let(entries, last)} END", whole)

    def _items(self, of: DataType, sent: str, texts: str, place: str) -> str:
        """`place` is the path of the value number `i`."""

        def whole(read: str) -> str:
            paths = f"flatten(transform({read}, (r, i) -> transform(r.m, p -> concat({place}, p))))"
            return f"named_struct('v', transform({read}, r -> r.v), 'm', coalesce({paths}, {_misfit(sent)}))"

        return _let(_each("transform", self._read(texts), partial(self.value, of)), whole)


def _is(opening: str, sent: str) -> str:
    return f"startswith({sent}.r, {text(opening)})"


def _misfit(sent: str, condition: str = "true") -> str:
    return f"CASE WHEN {sent}.s IS NOT NULL AND {condition} THEN array('') ELSE CAST(array() AS ARRAY<STRING>) END"


def _leaf(of: DataType, raw: str, sent: str) -> str:
    """A value of a simple type; `raw` is null of a string, which is `sent` then."""
    simple = of.simpleString()
    if isinstance(of, DecimalType):
        return _decimal(f"coalesce({raw}, {sent})", of)
    if simple in {"tinyint", "smallint", "int", "bigint"}:
        return f"CASE WHEN {raw} RLIKE {text(_INTEGER)} THEN try_cast({raw} AS {simple}) END"
    if simple in {"float", "double"}:
        # -0 is no other double than 0 to from_json, since it has no fraction
        return (
            f"CASE WHEN {raw} = '-0' THEN CAST(0 AS {simple}) WHEN {raw} RLIKE '^[-0-9]' THEN try_cast({raw} AS {simple}) END"
        )
    string = f"CASE WHEN {raw} IS NULL THEN {sent} END"
    seconds = f"timestamp_micros(try_cast({_decimal(raw, DecimalType(20, 6))} * 1000000 AS BIGINT))"
    return {
        "string": f"coalesce({raw}, {sent})",
        "boolean": f"CASE {raw} WHEN 'true' THEN true WHEN 'false' THEN false END",
        "date": f"CASE WHEN {string} RLIKE {text(_DAY)} THEN try_cast({sent} AS date) END",
        "timestamp": _years(f"coalesce({_instant(string)}, {seconds})"),
        "timestamp_ntz": f"CASE WHEN {string} RLIKE {text(_CLOCK)} THEN try_cast({sent} AS timestamp_ntz) END",
        "binary": f"CASE WHEN {string} RLIKE {text(_BASE64)} THEN unbase64({sent}) END",
    }[simple]


def _decimal(sent: str, of: DecimalType) -> str:
    """A number whose digits beyond the scale are zeros."""
    kind = of.simpleString()

    def cast(number: str) -> str:
        def fits(parts: str) -> str:
            digits, fraction, power = (f"get({parts}, {n})" for n in range(3))
            significant = f"TRIM(TRAILING '0' FROM {digits})"
            smallest = f"coalesce(try_cast({power} AS INT), 0) - length({fraction}) + length({digits}) - length({significant})"
            is_zero = f"{significant} = '' THEN CAST(0 AS {kind})"
            return f"CASE WHEN {is_zero} WHEN {smallest} >= {-of.scale} THEN try_cast({number} AS {kind}) END"

        parts = f"split(regexp_replace({number}, {text(_NUMBER)}, {text('$1$2 $2 $3')}), ' ')"
        return f"CASE WHEN {number} RLIKE {text(_NUMBER)} THEN {_let(parts, fits)} END"

    return _let(sent, cast)


def _instant(sent: str) -> str:
    """A time of a day; in UTC where it names no other zone."""

    def cast(time: str) -> str:
        zone = f"CASE WHEN length({time}) = 10 THEN 'T00:00:00Z' WHEN {time} RLIKE {text(_ZONE)} THEN '' ELSE 'Z' END"
        # to Spark, a time that has a zone has seconds
        second = f"regexp_replace({time}, {text(f'^({_MINUTE})(?!:)')}, {text('$1:00')})"
        return f"CASE WHEN {time} RLIKE {text(_TIME)} THEN try_cast(concat({second}, {zone}) AS timestamp) END"

    return _let(sent, cast)

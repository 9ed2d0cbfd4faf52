"""A value lands exactly as its type can hold it, or the record says that it does not fit, against a model in Python."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal, localcontext

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tests.spark.conftest import Records
from tidegate.formats.columns import NOT_TEXT, Parser
from tidegate.formats.json import parse_json

NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
EPOCH, SECOND = datetime(1970, 1, 1, tzinfo=UTC), 1_000_000
TIME = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d(?:\.\d{1,6}0*)?)?(Z|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII)
Model = Callable[[str, str | None], str | None]
"""The value of a JSON text, and of its string if it is one, as text; None where it does not fit. It may raise ValueError."""


def whole(least: int, most: int) -> Model:
    return lambda sent, string: sent if re.fullmatch("-?[0-9]+", sent) and least <= int(sent) <= most else None


def decimal(sent: str, string: str | None) -> str | None:
    """DECIMAL(6, 2)."""
    of = sent if string is None else string
    value = Decimal(of) if NUMBER.fullmatch(of) and of.isascii() else Decimal("NaN")
    return f"{value + 0:.2f}" if value * 100 == (value * 100).to_integral_value() and abs(value) < 10_000 else None


def day(sent: str, string: str | None) -> str | None:
    """In days."""
    fits = re.fullmatch(r"\d{4}-\d\d-\d\d", string or "", re.ASCII)
    return str((date.fromisoformat(fits[0]) - EPOCH.date()).days) if fits else None


def instant(sent: str, string: str | None) -> str | None:
    """In microseconds."""
    if string is None:
        micros = Decimal(sent) * SECOND if NUMBER.fullmatch(sent) else Decimal("NaN")
        fits = micros == micros.to_integral_value() and -62_135_596_800 * SECOND <= micros < 253_402_300_800 * SECOND
        return str(int(micros)) if fits else None
    found = TIME.fullmatch(string)
    if not found:
        return None
    of_day, minute, second, zone = found.groups()
    at = datetime.fromisoformat(f"{of_day}T{minute or '00:00'}{(second or ':00')[:10]}{zone or 'Z'}")
    return str((at.astimezone(UTC) - EPOCH) // (datetime.resolution))


MODELS: dict[str, Model] = {
    "BOOLEAN": lambda sent, string: sent if sent in {"true", "false"} else None,
    "TINYINT": whole(-128, 127),
    "BIGINT": whole(-(2**63), 2**63 - 1),
    "DOUBLE": lambda sent, string: str(float(sent)) if NUMBER.fullmatch(sent) else None,
    "DECIMAL(6,2)": decimal,
    "STRING": lambda sent, string: sent if string is None else string,
    "DATE": day,
    "TIMESTAMP": instant,
}
SENT = [
    *("0", "-0", "7", "127", "128", "9223372036854775807", "9223372036854775808", "1.50", "1.999", "12.340"),
    *("9999.99", "10000"),
    *("12345678901234567890.123", "1.50000000000000000000001", "1e2", "125e-2", "1E-3", "0e-9", "52.520006599999997"),
    *("1767261600", "1767261600.5", "1767261600.1234567", "1767261600000", "253402300799", "253402300800", "-62135596800"),
    *("true", '"true"', '""', '" "', '"x"', '"19,50"', '"1.50"', '"007"', '"NaN"', '"1_0"', '"\u0661"'),
    *('"\\u0031"', '"a\\\\\\"b"'),
    *('"12:30"', '"T12:30:00"', '"23456"', '"20260105"', '"2026-01-05"', '"2026-01-05 no date"'),
    *('" 2026-01-05"', '"2026-02-30"'),
    *('"2026-01-05T10:00:00Z"', '"2026-01-05T10:00:00.1234560+02:00"', '"2026-01-05 10:00"', '"2026-01-05T10:00:00-0330"'),
    *('"2026-01-05T24:00:00Z"', '"2026-01-05T10:00:00.1234567Z"', '"2026-01-05T10:00:00 Europe/Berlin"', '"today"', '"now"'),
    *('"0000-01-01"', '"0001-01-01"', '"0001-01-01T00:00:00+01:00"', '"1582-10-10"'),
    *('"9999-12-31T23:59:59Z"', '"+10000-01-01"'),
    *("{}", "[ ]", '{ "amount" : 0.10, "x":[ 1.0 , {} ,null] }', '[1,"b"]', '[[],{"a":"\\u00e9\\/"}]'),
]


def sent() -> list[str]:
    """Valid JSON values: those above, and the same with a few characters changed."""
    chance = random.Random(20260105)  # noqa: S311 - the same texts each time
    found = dict.fromkeys(SENT)
    for _ in range(300):
        text = list(chance.choice(SENT))
        for _ in range(chance.randint(1, 2)):
            at = chance.randrange(len(text))
            text[at : at + chance.randint(0, 1)] = chance.choice([*'0159.,:-+TZ eE"', "00", ""])
        try:
            value = json.loads("".join(text))
        except ValueError:
            continue
        if value is not None:
            found["".join(text).strip()] = None
    return list(found)


def expected(model: Model, text: str) -> str | None:
    value = json.loads(text)
    try:
        with localcontext(prec=100):
            return model(text, value if isinstance(value, str) else None)
    except (ValueError, ArithmeticError):
        return None


def shown(kind: str, value: str) -> str:
    number = {"TIMESTAMP": "unix_micros", "DATE": "unix_date"}.get(kind, "")  # as text they depend on the session
    return f"CAST({number}({value}) AS STRING)"


@contextmanager
def settings(spark: SparkSession) -> Iterator[None]:
    """A session whose settings change what casts and parsers do."""
    others = {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.legacy.timeParserPolicy": "LEGACY",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.parser.escapedStringLiterals": "true",
        "spark.sql.json.enablePartialResults": "false",
    }
    before = {key: spark.conf.get(key) for key in others}
    for key, value in others.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, was in before.items():
            spark.conf.set(key, str(was))


@pytest.mark.parametrize(("parser", "is_other_session"), [("jvm", True), ("python", False)])
def test_a_value_lands_exactly_or_the_record_names_its_path(
    spark: SparkSession, records: Records, parser: Parser, *, is_other_session: bool
) -> None:
    """Values of every type, as a field and in a list of objects in a map, in the order of the offsets.

    What the Python workers leave to Spark, it parses in the session's own settings.
    """
    deep = "{{" + '"other": [], "key": [{{"v": null}}, {{"v": {}}}]' + "}}"
    cases = [(n, kind, text) for n, kind in enumerate(MODELS) for text in sent()]
    values: list[bytes | None] = [f'{{"c{n}": {text}}}'.encode() for n, _, text in cases]
    values += [f'{{"d{n}":{deep.format(text)} }}'.encode() for n, _, text in cases]
    schema = ", ".join(f"c{n} {kind}, d{n} MAP<STRING, ARRAY<STRUCT<v: {kind}>>>" for n, kind in enumerate(MODELS))
    found = [f"{shown(kind, f'c{n}')}, {shown(kind, f'd{n}.key[1].v')}" for n, kind in enumerate(MODELS)]
    columns = f"coalesce({', '.join(found)}) AS found"

    def read() -> list[tuple[str | None, str | None, str | None]]:
        rows = parse_json(records(values), schema, parser=parser)
        return [tuple(row) for row in rows.orderBy("_kafka_offset").select(F.expr(columns), "_error", "_raw").collect()]

    if is_other_session:
        with settings(spark):
            rows = read()
    else:
        rows = read()
    for (n, kind, text), value, (as_text, error, raw) in zip(cases * 2, values, rows, strict=True):
        assert value is not None
        is_deep = value.startswith(b'{"d')
        exact = expected(MODELS[kind], text)
        if exact is None:
            assert (as_text, error, raw) == (
                None,
                f"does not fit: {f'd{n}.key[1].v' if is_deep else f'c{n}'}",
                value.decode(),
            ), kind
        else:
            is_same = (
                float(as_text or "nan") == float(exact) if kind == "DOUBLE" else as_text == ("0" if exact == "-0" else exact)
            )
            assert (is_same or (kind == "STRING" and as_text == exact), error, raw) == (True, None, None), (kind, text, as_text)


def test_of_two_equal_keys_the_last_counts(records: Records) -> None:
    """In objects and in maps, at every depth; what the others hold need not fit."""
    texts: list[bytes | None] = [
        b'{"id": "x", "id": 1, "m": {"a": "y", "b": 1, "a": 2}, "o": {"m": {}, "m": {"c": 1, "c": 3}}}',
        b'{"id": 1, "id": "x"}',
    ]
    schema = "id INT, m MAP<STRING, INT>, o STRUCT<m: MAP<STRING, INT>>"
    first, second = parse_json(records(texts), schema, parser="jvm").orderBy("_kafka_offset").collect()
    assert (first["id"], first["m"], first["o"]["m"], first["_error"]) == (1, {"b": 1, "a": 2}, {"c": 3}, None)
    assert (second["id"], second["_error"]) == (None, "does not fit: id")


@pytest.mark.parametrize("kind", ["VARIANT", "INTERVAL DAY TO SECOND", "MAP<STRING, ARRAY<INTERVAL MONTH>>", "VOID"])
def test_a_type_for_which_there_is_no_law_is_refused(records: Records, kind: str) -> None:
    """Before a record is read, with what to do."""
    with pytest.raises(
        ValueError, match=r"parse_json makes no (VARIANT|INTERVAL .*|VOID) of JSON: declare such a field as STRING"
    ):
        parse_json(records([b"{}"]), f"id INT, a {kind}")


def test_any_json_lands_as_one_variant_or_the_record_says_why_not(records: Records) -> None:
    """As it was sent, apart from spaces and the order of fields; a document that is null is one, too."""
    fit = [*SENT, "null", ' {"b": [1, {"a": null}], "a": 0.10} ', "12345678901234567890123456789012345678"]
    broken = {"": "not valid JSON", "1 2": "not valid JSON", "NaN": "not valid JSON", "{'a': 1}": "not valid JSON"}
    broken |= {'{"a": 1, "a": 2}': "does not fit: VARIANT", "not": "not valid JSON"}
    values = [*(text.encode() for text in (*fit, *broken)), None, b"\xff"]
    rows = parse_json(records(values), "variant").selectExpr("to_json(value) json", "_raw", "_error", "value IS NULL empty")
    *found, tombstone, no_text = rows.collect()
    assert (tombstone["_error"], no_text["_error"], no_text["_raw"]) == ("no value (a tombstone)", NOT_TEXT, "/w==")
    landed, others = found[: len(fit)], found[len(fit) :]
    assert [row["_error"] for row in others] == [*broken.values()]
    assert [(row["_raw"], row["empty"]) for row in others] == [(text, True) for text in broken]
    assert {(row["_raw"], row["_error"], row["empty"]) for row in landed} == {(None, None, False)}
    assert [json.loads(row["json"], parse_float=float) for row in landed] == [json.loads(text) for text in fit]

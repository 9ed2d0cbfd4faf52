from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pyspark.sql import DataFrame

from tests.spark.conftest import Records
from tidegate.formats.json import parse_json

Parse = Callable[..., DataFrame]
Parsed = Callable[[bytes | None], dict[str, Any]]
SCHEMA = "id INT, name STRING, at TIMESTAMP, inner STRUCT<a: INT>, tags ARRAY<STRING>"


@pytest.fixture(params=["jvm", "python"])
def parse(request: pytest.FixtureRequest) -> Parse:
    """`parse_json` by each of its parsers: all laws hold for both."""
    return partial(parse_json, parser=request.param)


@pytest.fixture
def parsed(records: Records, parse: Parse) -> Parsed:
    """The row that one record makes."""

    def row_of(value: bytes | None) -> dict[str, Any]:
        (row,) = parse(records([value]), SCHEMA).collect()
        return dict(row.asDict(recursive=True))

    return row_of


def test_a_record_that_fits_has_neither_raw_nor_error(parsed: Parsed) -> None:
    """Fields that are absent or null are null, fields that the schema does not know are ignored."""
    row = parsed(b'{"id": 1, "name": null, "inner": {"a": 2}, "more": true}')
    assert (row["id"], row["name"], row["inner"], row["tags"]) == (1, None, {"a": 2}, None)
    assert row["_raw"] is None
    assert row["_error"] is None


BROKEN = [
    (b'{"id": 1', "not valid JSON"),
    (b"", "not valid JSON"),
    (b"   ", "not valid JSON"),
    (b"id=1", "not valid JSON"),
    (b'{"id": 1} and more', "not valid JSON"),
    (b'{"id": 1}{"id": 2}', "not valid JSON"),
    (b'{"id": 1},', "not valid JSON"),
    (b'{"id": 1},{"id": 2}', "not valid JSON"),
    (b'{"id": 1}}', "not valid JSON"),
    (b'{"id": 1}]', "not valid JSON"),
    (b'{"id": 1}]}', "not valid JSON"),
    (b"{'id': 1}", "not valid JSON"),
    (b'{"id": 1}],"end":1}', "not valid JSON"),
    (b'{"id": 1}],"record":[{"id": 2}],"end":1}', "not valid JSON"),
    (b'{"id": 1}],"x":[2', "not valid JSON"),
    (b'{"id": 1},{"end": 1}]}', "not valid JSON"),
    (b'{"id": NaN}', "not valid JSON"),
    (b'{"id": 1, "x": -Infinity}', "not valid JSON"),
    (b'{"id": 01}', "not valid JSON"),
    (b'{"id": 1,}', "not valid JSON"),
    (b'{"id": 1} // one', "not valid JSON"),
    (b'{"id": 1}\x00', "not valid JSON"),
    ('\ufeff{"id": 1}'.encode(), "not valid JSON"),
    (b'{"x": %s}' % (b"9" * 1001), "not valid JSON"),
    (b'{"x": %s%s}' % (b"[" * 998, b"]" * 998), "not valid JSON"),
    (b'{"id": "a", "id": "b"}', "does not fit: id"),
    (b'{"id": 1, "id": "x"}', "does not fit: id"),
    (b'{"id": %s}' % (b"9" * 40), "does not fit: id"),
    (b'[{"id": 1}, {"id": 2}]', "not a JSON object"),
    (b'[{"id": 1}]', "not a JSON object"),
    (b"[]", "not a JSON object"),
    (b"17", "not a JSON object"),
    (b'"text"', "not a JSON object"),
    (b"null", "not a JSON object"),
    (b'{"id": "abc", "name": "n"}', "does not fit: id"),
    (b'{"id": 1.5}', "does not fit: id"),
    (b'{"id": 5000000000, "name": null}', "does not fit: id"),
    (b'{"id": 1, "at": "yesterday", "inner": 3}', "does not fit: at, inner"),
    (b'{"id": 1, "inner": {"a": "x"}}', "does not fit: inner.a"),
    (b'{"id": 1, "tags": "one"}', "does not fit: tags"),
]
UNUSUAL = [
    (b'{"id": 1, "id": 2}', "id", 2),
    (b' \t\r\n{"id": 1} \n', "id", 1),
    (b'{"name": "\\u0000"}', "name", "\0"),
    (b'{"name": "\\ud800"}', "name", "?"),
    (b'{"id": 1, "x": %s}' % (b"9" * 1000), "id", 1),
    (b'{"id": 1, "x": %s%s}' % (b"[" * 997, b"]" * 997), "id", 1),
]


def test_a_broken_record_lands_with_its_text_and_the_reason(records: Records, parse: Parse) -> None:
    """What cannot be parsed is kept as it came."""
    rows = parse(records([value for value, _ in BROKEN]), SCHEMA).orderBy("_kafka_offset").collect()
    for (value, error), row in zip(BROKEN, rows, strict=True):
        assert (row["_error"], row["_raw"]) == (error, value.decode())


def test_unusual_but_valid_json_is_parsed(records: Records, parse: Parse) -> None:
    """Duplicate fields, white space, escapes, and the limits of Spark's parser."""
    rows = parse(records([value for value, _, _ in UNUSUAL]), SCHEMA).orderBy("_kafka_offset").collect()
    for (value, field, expected), row in zip(UNUSUAL, rows, strict=True):
        assert (row[field], row["_error"]) == (expected, None), value


def mutated(chance: random.Random) -> str:
    """A JSON text with a few random changes, many of which would close something that is written around the text."""
    samples = ('{"id":1,"name":"a b","inner":{"a":2},"tags":["x"]}', '{"id":-2.5e3}', '[{"id":1}]', '"text"', "null", " {} ")
    parts = [
        *"{}[]:,\"\\ \t\n01.+-eE'/*\x00\x7f\ufeff\u00e9",
        "true",
        "nul",
        "NaN",
        "Infinity",
        '"id":',
        '"name":"',
        "\\u00e",
        "\\ud800",
    ]
    closing = ['],"end":1}', "]}", '],"record":[{"id":2}', '},{"id":3}', '],"x":[', '{"id":4}', ",{", '"],"', '}],"end":1}{']
    text = list(chance.choice(samples))
    for _ in range(chance.randint(0, 3)):
        at = chance.randint(0, len(text))
        if chance.random() < 0.4:
            del text[at : at + chance.randint(1, 3)]
        else:
            text.insert(at if chance.random() < 0.7 else len(text), chance.choice(parts if chance.random() < 0.6 else closing))
    return "".join(text)


def strict(text: str) -> dict[str, Any] | list[Any] | None:
    """What Python's `json` makes of it without its extensions; None where it is not JSON, a list where it is no object."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        value = json.loads(text, parse_constant=refuse)
    except ValueError:
        return None
    return value if isinstance(value, dict) else []


def test_a_record_is_valid_exactly_when_pythons_json_says_so(records: Records, parse: Parse) -> None:
    """Thousands of mutated texts: valid or not, object or not, and the values of what is valid."""
    chance = random.Random(20130101)  # noqa: S311 - the same texts each time
    texts = sorted({mutated(chance) for _ in range(6000)})
    rows = parse(records([text.encode() for text in texts]), SCHEMA).orderBy("_kafka_offset").collect()
    expected = [strict(text) for text in texts]
    assert sum(isinstance(value, dict) for value in expected) > 100
    for text, value, row in zip(texts, expected, rows, strict=True):
        error = row["_error"]
        if value is None:
            assert (error, row["id"], row["name"]) == ("not valid JSON", None, None), text
        elif isinstance(value, list):
            assert error == "not a JSON object", text
        else:
            assert error is None or error.startswith("does not fit: "), text
            if error is None and isinstance(value.get("name"), str) and "\\u" not in text:
                assert row["name"] == value["name"], text
            if error is None and "id" in value:
                assert row["id"] == value["id"], text


def test_text_of_every_alphabet_survives(parsed: Parsed) -> None:
    """Emoji, quotes and line breaks come out as they went in."""
    name = 'größe "x"\n\u2603 \U0001f600'
    assert parsed(json.dumps({"name": name}).encode())["name"] == name
    assert parsed(json.dumps({"name": name}, ensure_ascii=False).encode())["name"] == name

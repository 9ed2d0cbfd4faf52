from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tidegate.spark.records import parse_json

Records = Callable[[list[bytes | None]], DataFrame]
SCHEMA = "id INT, name STRING, at TIMESTAMP, inner STRUCT<a: INT>, tags ARRAY<STRING>"


def parsed(records: Records, value: bytes | None) -> dict[str, Any]:
    (row,) = parse_json(records([value]), SCHEMA).collect()
    return dict(row.asDict(recursive=True))


def test_a_record_that_fits_has_neither_raw_nor_error(records: Records) -> None:
    """Fields that are absent or null are null, fields that the schema does not know are ignored."""
    row = parsed(records, b'{"id": 1, "name": null, "inner": {"a": 2}, "more": true}')
    assert (row["id"], row["name"], row["inner"], row["tags"]) == (1, None, {"a": 2}, None)
    assert row["_raw"] is None
    assert row["_error"] is None


def test_every_other_column_is_kept(records: Records) -> None:
    """The value is replaced by its fields; origin, key and time stay."""
    columns = parse_json(records([b"{}"]), "id INT").columns
    assert columns == [
        "id",
        "key",
        "timestamp",
        "timestampType",
        "_kafka_topic",
        "_kafka_partition",
        "_kafka_offset",
        "_raw",
        "_error",
    ]


@pytest.mark.parametrize(
    ("value", "error"),
    [
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
        (b'{"id": 1, "inner": {"a": "x"}}', "does not fit: a nested field"),
        (b'{"id": 1, "tags": "one"}', "does not fit: tags"),
    ],
)
def test_a_broken_record_lands_with_its_text_and_the_reason(records: Records, value: bytes, error: str) -> None:
    """What cannot be parsed is kept as it came."""
    row = parsed(records, value)
    assert row["_error"] == error
    assert row["_raw"] == value.decode()


def test_the_fields_that_fit_are_filled_beside_one_that_does_not(records: Records) -> None:
    """One bad field does not cost the others."""
    row = parsed(records, b'{"id": "abc", "name": "n"}')
    assert (row["id"], row["name"]) == (None, "n")


def test_a_tombstone_lands_with_its_reason(records: Records) -> None:
    """A record without a value is a record."""
    row = parsed(records, None)
    assert row["_error"] == "no value (a tombstone)"
    assert row["_raw"] is None


def test_bytes_that_are_no_text_land_as_base64(records: Records) -> None:
    """A table's text columns hold UTF-8 only; nothing is replaced by question marks."""
    row = parsed(records, b'{"name": "\xff\xfe"}')
    assert row["_error"] == "not UTF-8; _raw is base64"
    assert row["_raw"] == "eyJuYW1lIjogIv/+In0="
    assert row["name"] is None


def test_a_text_column_is_parsed_as_well(spark: SparkSession) -> None:
    """Any column can be named."""
    rows = spark.createDataFrame([('{"id": 4}', 1)], "body STRING, n INT")
    assert parse_json(rows, "id INT", column="body").first() == (4, 1, None, None)


def test_text_of_every_alphabet_survives(records: Records) -> None:
    """Emoji, quotes and line breaks come out as they went in."""
    name = 'größe "x"\n\u2603 \U0001f600'
    assert parsed(records, json.dumps({"name": name}).encode())["name"] == name
    assert parsed(records, json.dumps({"name": name}, ensure_ascii=False).encode())["name"] == name

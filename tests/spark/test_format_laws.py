"""The laws of formats, for every format and by each of its two ways. `test_records` and `test_decoding` have those of JSON.

A new format is one more entry of `FORMATS`.
"""

from __future__ import annotations

import json
import logging
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tests.spark.conftest import Records
from tidegate.formats import python_workers
from tidegate.formats.json import parse_json
from tidegate.sinks.identity import ORIGIN
from tidegate.testing.tabs import parse_tabs

Parse = Callable[..., DataFrame]
Parsed = Callable[[bytes | None], dict[str, Any]]
SCHEMA = "id INT, name STRING"


@dataclass(frozen=True)
class FormatUnderTest:
    """A format as a test sees it.

    `write` makes a record of values in the order of the schema. `broken` are records that are none of `SCHEMA`, with what is
    said of them, and `misfit` is one of which only the name fits. `checks` runs in the workers when they are asked.
    """

    parse: Parse
    write: Callable[[Mapping[str, Any]], str]
    broken: Mapping[bytes, str]
    misfit: bytes
    checks: str


FORMATS = {
    "json": FormatUnderTest(
        parse_json,
        lambda values: json.dumps(values, ensure_ascii=False),
        {b'{"id": 1': "not valid JSON", b"": "not valid JSON", b"[]": "not a JSON object", b'{"id": "x"}': "does not fit: id"},
        b'{"id": "abc", "name": "n"}',
        "tidegate.formats.json.decoding.check",
    ),
    "tabs": FormatUnderTest(
        parse_tabs,
        lambda values: "\t".join(str(value) for value in values.values()),
        {b"1": "not 2 values", b"": "not 2 values", b"1\tx\t": "not 2 values", b"x\t": "does not fit: id"},
        b"abc\tn",
        "tidegate.testing.tabs.check",
    ),
}


@pytest.fixture(params=FORMATS)
def of(request: pytest.FixtureRequest) -> FormatUnderTest:
    """Each format in turn."""
    return FORMATS[request.param]


@pytest.fixture(params=["jvm", "python"])
def parse(request: pytest.FixtureRequest, of: FormatUnderTest) -> Parse:
    """The format by each of its ways: all laws hold for both."""
    return lambda *what, **more: of.parse(*what, **more, parser=request.param)


@pytest.fixture
def parsed(records: Records, parse: Parse) -> Parsed:
    """The row that one record makes."""

    def row_of(value: bytes | None) -> dict[str, Any]:
        (row,) = parse(records([value]), SCHEMA).collect()
        return dict(row.asDict())

    return row_of


def test_a_record_that_fits_has_neither_raw_nor_error(parsed: Parsed, of: FormatUnderTest) -> None:
    """Text of every alphabet comes out as it went in."""
    name = 'größe "x" \u2603 \U0001f600'
    row = parsed(of.write({"id": -(2**31), "name": name}).encode())
    assert (row["id"], row["name"], row["_raw"], row["_error"]) == (-(2**31), name, None, None)


def test_the_columns_are_those_of_the_schema_the_origin_and_the_two_of_broken_records(records: Records, parse: Parse) -> None:
    """Nothing is in the table that nobody asked for."""
    assert parse(records([b""]), "id INT").columns == ["id", *ORIGIN, "_raw", "_error"]


def test_a_column_that_the_transform_renames_or_adds_is_kept(records: Records, parse: Parse, of: FormatUnderTest) -> None:
    """So a table has the record's time, key or anything else on demand."""
    asked = (
        records([of.write({"id": 1}).encode()]).withColumnRenamed("timestamp", "_timestamp").withColumn("_decoded", F.lit(2))
    )
    rows = parse(asked, "id INT")
    assert rows.columns == ["id", "_timestamp", *ORIGIN, "_decoded", "_raw", "_error"]
    assert [(row["id"], row["_decoded"]) for row in rows.collect()] == [(1, 2)]


def test_fields_may_have_the_names_of_kafkas_columns(records: Records, parse: Parse, of: FormatUnderTest) -> None:
    """A record's own `key`, `value` and `timestamp` are columns like any other."""
    schema = "key STRING, value INT, timestamp BIGINT, timestampType STRING"
    record = of.write({"key": "k1", "value": 2, "timestamp": 3, "timestampType": "t"}).encode()
    (row,) = parse(records([record]), schema).collect()
    assert (*tuple(row)[:4], row["_error"]) == ("k1", 2, 3, "t", None)


def test_a_broken_record_lands_with_its_text_and_the_reason(records: Records, parse: Parse, of: FormatUnderTest) -> None:
    """What cannot be parsed is kept as it came."""
    rows = parse(records([*of.broken]), SCHEMA).orderBy("_kafka_offset").collect()
    assert [(row["_error"], row["_raw"].encode()) for row in rows] == [(error, value) for value, error in of.broken.items()]


def test_the_fields_that_fit_are_filled_beside_one_that_does_not(parsed: Parsed, of: FormatUnderTest) -> None:
    """One bad field does not cost the others."""
    row = parsed(of.misfit)
    assert (row["id"], row["name"], row["_error"]) == (None, "n", "does not fit: id")


def test_a_tombstone_lands_with_its_reason(parsed: Parsed) -> None:
    """A record without a value is a record."""
    row = parsed(None)
    assert (row["_error"], row["_raw"]) == ("no value (a tombstone)", None)


def test_bytes_that_are_no_text_land_as_base64(parsed: Parsed, of: FormatUnderTest) -> None:
    """A table's text columns hold UTF-8 only; nothing is replaced by question marks."""
    record = of.write({"id": 1, "name": "\udcff\udcfe"}).encode(errors="surrogateescape")
    row = parsed(record)
    assert (row["name"], row["_error"]) == (None, "not UTF-8; _raw is base64")
    assert b64decode(row["_raw"]) == record


def test_a_text_column_is_parsed_as_well(spark: SparkSession, parse: Parse, of: FormatUnderTest) -> None:
    """Any column can be named."""
    rows = spark.createDataFrame([(of.write({"id": 4}), 1)], "body STRING, n INT")
    assert parse(rows, "id INT", column="body").first() == (4, 1, None, None)


def test_both_ways_make_the_same_rows_and_the_same_schema(records: Records, of: FormatUnderTest) -> None:
    """Of whole numbers at their bounds, of what does not fit, and of what is broken."""
    bounds = (str(sign * 2**31 + by) for sign in (-1, 1) for by in (-1, 0, 1))
    numbers = ["0", "-0", "007", "+1", " 1", "1.5", "1e2", "", *bounds]
    made = [of.write({"id": number, "name": "x"}).encode() for number in (*numbers, "9" * 5000)]
    unquoted = [record.replace(b'"id": "', b'"id": ').replace(b'", "name"', b', "name"') for record in made]
    these = records([*made, *unquoted, *of.broken, of.misfit, None, b"\xff"])
    by_jvm, by_workers = (of.parse(these, SCHEMA, parser=parser) for parser in ("jvm", "python"))
    assert by_jvm.schema == by_workers.schema
    assert by_jvm.orderBy("_kafka_offset").collect() == by_workers.orderBy("_kafka_offset").collect()


def plans(df: DataFrame) -> str:
    return str(df._jdf.queryExecution().toString())


def test_a_type_that_the_workers_do_not_know_is_parsed_by_spark(records: Records, of: FormatUnderTest) -> None:
    """Whoever asks for `python` gets the plan of `jvm`."""
    unknown = "a FLOAT" if of.parse is parse_json else "a DOUBLE"
    assert "ArrowEvalPython" not in plans(of.parse(records([b"1.5"]), unknown, parser="python"))


def test_a_type_that_the_format_does_not_make_is_refused_by_name(records: Records, of: FormatUnderTest) -> None:
    """Before anything is read."""
    with pytest.raises(ValueError, match="declare such a field as STRING"):
        of.parse(records([b""]), "a VARIANT")


def test_the_workers_parse_large_loads_only(records: Records, of: FormatUnderTest) -> None:
    """They have to start first, which a small load would wait for."""
    these = records([b""])
    assert "ArrowEvalPython" not in plans(of.parse(these, "id INT"))
    with python_workers.expecting(python_workers.MANY - 1):
        assert "ArrowEvalPython" not in plans(of.parse(these, "id INT"))
    with python_workers.expecting(python_workers.MANY):
        assert "ArrowEvalPython" in plans(of.parse(these, "id INT"))
        assert "ArrowEvalPython" not in plans(of.parse(these, "id INT", parser="jvm"))


def test_workers_without_the_decoder_are_found_before_they_fail_a_load(
    records: Records, of: FormatUnderTest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark's own parser makes the same rows, and the log says why it does."""
    monkeypatch.setattr(python_workers, "_able", WeakKeyDictionary())
    monkeypatch.setattr(of.checks, lacking)
    with caplog.at_level(logging.INFO), python_workers.expecting(python_workers.MANY):
        rows = of.parse(records([of.write({"id": 1}).encode()]), "id INT")
    assert "ArrowEvalPython" not in plans(rows)
    assert "No module named 'msgspec'" in caplog.text
    assert [row["id"] for row in rows.collect()] == [1]


def lacking(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """As a worker without msgspec."""
    message = "No module named 'msgspec'"
    raise ModuleNotFoundError(message)

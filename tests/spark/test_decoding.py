"""Spark's own parser and its Python workers make the same rows of all records, and the workers decode what they should."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import StructType

from tests.spark.conftest import Records
from tests.spark.test_records import mutated
from tidegate.formats.columns import Parser
from tidegate.formats.json import parse_json
from tidegate.formats.json.decoding import decoded, is_decodable

WIDE = (
    "id BIGINT, small INT, short SMALLINT, byte TINYINT, name STRING, amount DOUBLE, flag BOOLEAN, at TIMESTAMP, day DATE, "
    "inner STRUCT<a: INT, `b c`: STRING, deep: STRUCT<x: DOUBLE>>, tags ARRAY<STRING>, "
    "lines ARRAY<STRUCT<n: INT, at: TIMESTAMP>>, price DECIMAL(6,2), sums MAP<STRING, DECIMAL(4,0)>"
)
VALUES: dict[str, list[str]] = {
    "id": ["1", "-9223372036854775808", "9223372036854775807", "9223372036854775808", "1.0", "1e2", "-0", '"1"', "true"],
    "small": ["2147483647", "2147483648", "-2147483648", "-2147483649", "0"],
    "short": ["32767", "32768", "-32768"],
    "byte": ["127", "128", "-128", "-129"],
    "name": [
        *('"a"', '""', "1", "1.50", "true", '{"a": 1}', '[1, "b"]', '"\\ud83d\\ude00"', '"\\ud800"', '"\\u0000"'),
        *('"gr\u00f6\u00dfe"', '"\\/"'),
    ],
    "amount": [
        *("1", "1.5", "-0", "-0.0", "0.1", "1e400", "-1e400", "1e-400", "123456789012345678901234567890", '"1.5"'),
        *('"NaN"', "1E+2"),
    ],
    "flag": ["true", "false", '"true"', "1", "0"],
    "at": [
        *('"2026-01-01T10:00:00Z"', '"2026-01-01T10:00:00.1Z"', '"2026-01-01T10:00:00.123456Z"'),
        *('"2026-01-01T10:00:00.1234567Z"', '"2026-01-01T10:00:00+02:00"', '"2026-01-01T10:00:00"', '"2026-01-01 10:00:00Z"'),
        *('"2026-02-30T10:00:00Z"', '"2026-01-01T24:00:00Z"', '"2026-01-01T23:59:60Z"', '"0001-01-01T00:00:00Z"'),
        *('"0000-01-01T00:00:00Z"', '"9999-12-31T23:59:59.999999Z"', '"1582-10-10T00:00:00Z"', '"2026-01-01"'),
        *('"today"', "1767261600"),
    ],
    "day": [
        *('"2026-01-31"', '"2026-02-30"', '"1582-10-10"', '"0001-01-01"', '"2026-1-1"', '"2026-01-01T10:00:00Z"'),
        *("20000", '""'),
    ],
    "inner": [
        *("{}", '{"a": 1, "b c": "x", "deep": {"x": 2}}', '{"a": "x"}', '{"deep": null}', '{"deep": {"x": "y"}}', "[]", "3")
    ],
    "tags": ["[]", '["a", null, "b"]', '["a", 1]', '"a"', "[[]]", "{}"],
    "lines": [
        "[]",
        '[{"n": 1, "at": "2026-01-01T10:00:00Z"}, null, {}]',
        '[{"n": "x"}]',
        '[{"at": "2026-02-30T00:00:00Z"}]',
        "[3]",
    ],
    "price": [
        *("1.5", "-7", '"19.50"', '"19,50"', '"1_0"', '"\u0661"', '" 1"', '"007"', "1.999", "9999.99", "10000", "1e2", "true")
    ],
    "sums": ['{"a": 1, "b": null}', "{}", '{"a": 1, "b": 2, "a": 3}', '{"a": 1.5}', '{"a": "2"}', "[1]"],
}


def filled(chance: random.Random) -> str:
    """A record of some fields, mostly of their type, with values at the edges of what fits; sometimes a field twice or null."""
    fields = [
        f'"{name}": {"null" if chance.random() < 0.1 else chance.choice(values[: 2 if chance.random() < 0.7 else None])}'
        for name, values in VALUES.items()
        if chance.random() < 0.6
    ]
    fields += chance.choices(fields, k=chance.random() < 0.1) if fields else []
    fields += ['"unknown": [1, {"x": "\\n"}]'] if chance.random() < 0.3 else []
    chance.shuffle(fields)
    return "{" + chance.choice([", ", ",", " ,\n"]).join(fields) + "}"


def edges() -> list[bytes | None]:
    """What the decoder and Spark's parser could see differently: limits, encodings, and all of the records above."""
    chance = random.Random(20260101)  # noqa: S311 - the same texts each time
    texts = [filled(chance) for _ in range(1000)] + [mutated(chance) for _ in range(1000)]
    texts += [f'{{"{name}": {value}}}' for name, values in VALUES.items() for value in values]
    long = [
        *('{"id": 1, "x": %s}', '{"id": 1, "x": "%s"}', '{"id": 1, "%s": 2}', '{"amount": 0.%s}', '{"amount": %s}'),
        *('{"amount": 1e%s}', '{"name": "%s"}'),
    ]
    texts += [each % (digit * length) for each in long for digit in "19" for length in (300, 400, 990, 999, 1000, 1001, 50_001)]
    texts += ['{"id": 1, "x": ' + "[" * n + "]" * n + "}" for n in (890, 900, 996, 997, 998, 1500)]
    texts += ['{"id": 1, "x": ' + '{"a":' * n + "1" + "}" * n + "}" for n in (890, 997, 998)]
    found: list[bytes | None] = [text.encode() for text in texts]
    broken = [
        *(b'{"id": 1, "x": "\xff"}', b'{"id": 1, "\xff": 2}', b'{"name": "\xed\xa0\x80"}', b'{"id": 1, "x": "\xc0\x80"}'),
        *(b"\xff", b""),
    ]
    return found + broken + [None]


def test_both_parsers_make_the_same_row_of_every_record(spark: SparkSession, records: Records) -> None:
    """To the letter of `_raw` and `_error`, in a batch of its own or with all others, whatever the session's time zone."""
    settings = {"spark.sql.session.timeZone": "America/New_York", "spark.sql.execution.arrow.maxRecordsPerBatch": "1"}
    before = {key: spark.conf.get(key) for key in settings}
    these = records(edges()).coalesce(1)

    def read(parser: Parser, batch: int) -> list[str]:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(batch))
        made = parse_json(these, WIDE, parser=parser)
        # as text: Python has no year 0, and takes 0.0 for -0.0
        as_text = made.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}), "_kafka_offset")
        return [row[0] for row in as_text.orderBy("_kafka_offset").collect()]

    spark.conf.set("spark.sql.session.timeZone", settings["spark.sql.session.timeZone"])
    try:
        by_jvm, alone, together = read("jvm", 10_000), read("python", 1), read("python", 10_000)
    finally:
        for key, set_before in before.items():
            spark.conf.set(key, str(set_before))
    for record, *rows in zip(edges(), by_jvm, alone, together, strict=True):
        assert len(set(rows)) == 1, record


def test_both_parsers_make_the_same_schema(records: Records) -> None:
    """So a table that one of them made takes the rows of the other."""
    by_jvm, by_python = (parse_json(records([b"{}"]), WIDE, parser=parser).schema for parser in ("jvm", "python"))
    assert by_python == by_jvm


def test_the_workers_decode_what_fits(records: Records) -> None:
    """Not one of these is left to Spark's parser."""
    fitting: list[bytes | None] = [
        b"{}",
        b'{"id": 9223372036854775807, "name": "x", "amount": 1, "flag": true, "unknown": [{"a": 1}]}',
        b'{"at": "2026-01-01T10:00:00.5Z", "day": "2026-01-31", "inner": {"b c": null}}',
        b'{"tags": ["a", null], "lines": [{"n": 1}, null], "price": 1.5, "sums": {"a": "7", "b": null}}',
        b'{"name": "%s"}' % (b"x" * 40_000),
    ]
    these = records(fitting)
    of = these.select(F.from_json(F.lit(""), WIDE).alias("parsed")).schema["parsed"].dataType
    assert isinstance(of, StructType)
    assert is_decodable(of)
    assert [row[0] for row in these.select(decoded(F.col("value"), of).isNull()).collect()] == [False] * len(fitting)


@pytest.mark.parametrize(
    "schema",
    [
        *("a FLOAT", "a BINARY", "a ARRAY<TIMESTAMP_NTZ>", "a MAP<STRING, FLOAT>"),
        *("a INT COMMENT 'of an order'", "a STRUCT<x: INT COMMENT 'of an order'>", '`a"b` INT', "`a\\\\b` INT", "`a\tb` INT"),
    ],
)
def test_a_type_that_the_workers_do_not_know_is_parsed_by_spark(records: Records, schema: str) -> None:
    """Whoever asks for `python` gets the plan of `jvm`."""
    assert "ArrowEvalPython" not in plans(parse_json(records([b"{}"]), schema, parser="python"))


def test_a_topic_of_records_that_do_not_fit_is_parsed_all_the_same(records: Records) -> None:
    """The workers stop trying after a batch (10,000 records) that is mostly left to Spark; what fits after it does fit."""
    values: list[bytes | None] = [*([b'{"id": "no"}'] * 10_000), *([b'{"id": 1}'] * 5_000)]
    rows = parse_json(records(values).coalesce(1), "id INT", parser="python")
    assert rows.groupBy("id", "_error").count().orderBy("count").collect() == [
        (1, None, 5_000),
        (None, "does not fit: id", 10_000),
    ]


def plans(df: DataFrame) -> str:
    return str(df._jdf.queryExecution().toString())

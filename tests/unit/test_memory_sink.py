"""The sink in memory, and what a sink declares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pkgutil import resolve_name
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from tests.records import changed, load_job, write_of
from tidegate.core.config.parse import parse_pipeline
from tidegate.core.config.pipeline import Contract, Quarantine
from tidegate.core.config.sinks import ICEBERG, KINDS, Replaces
from tidegate.core.load.lookup import Lookup
from tidegate.core.model.columns import BATCH
from tidegate.core.model.errors import ConfigError, SinkMisfit
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.state.jobs import LoadJob, Maintained, MaintenanceJob
from tidegate.core.state.receipt import Receipt
from tidegate.sinks import maintain, reader_of, sink_of
from tidegate.sinks.identity import ORIGIN, ByBatch, ByOrigin, Identity
from tidegate.sinks.port import Phases
from tidegate.testing.contracts.sink_reader import SinkReaderContract
from tidegate.testing.sinks import MEMORY, TABLES, MemoryReader, MemorySink, MemoryTable

ID = StructField("id", IntegerType())
BY_ORIGIN = StructType([ID, *(StructField(name, kind) for name, kind in ORIGIN.items())])
BY_BATCH = StructType([ID, *(StructField(name, kind) for name, kind in ByBatch.columns.items())])


class Frame:
    """As much of a DataFrame as the sink asks for."""

    schema = StructType([*BY_ORIGIN.fields, StructField("attempt", StringType())])

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.rows = rows

    def collect(self) -> list[Row]:
        return [Row(**row) for row in self.rows]


def job_of(seq: int, *ranges: OffsetRange, pipeline: str = "orders") -> LoadJob:
    return load_job(pipeline, seq, "r", ranges, "t:f", "memory", {})


def put(sink: MemorySink, job: LoadJob, mark: int) -> Receipt:
    """Load a row for each offset, or one row for a batch, whose `id` is the mark; as `load_range` does it."""
    identity: Identity
    places: list[tuple[Any, ...]]
    if job.load.batch is None:
        identity, schema = ByOrigin(job.load.ranges), BY_ORIGIN
        places = [(r.topic, r.partition, offset) for r in job.load.ranges for offset in range(r.from_offset, r.until_offset)]
    else:
        identity, schema, places = ByBatch(job.load.batch), BY_BATCH, [(job.load.batch,)]
    frame = Frame(*({"id": mark, **dict(zip(identity.columns, place, strict=True))} for place in places))
    lookup = sink.lookup(job)
    sink.prepare(schema, identity, job, lookup)
    load = write_of(
        job.load.pipeline, job.load.seq, "r", job.load.ranges, "t@1", "a", replay=job.load.replay, batch=job.load.batch
    )
    return sink.replace(lambda: cast("DataFrame", frame), identity, load, lookup, again=False, phases=Phases())


def at(first: int, until: int, partition: int = 0) -> OffsetRange:
    return OffsetRange("orders", partition, first, until)


def marks(table: MemoryTable) -> dict[tuple[int, int], int]:
    return {(row["_kafka_partition"], row["_kafka_offset"]): row["id"] for row in table.rows}


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink({}, "memory")


def test_a_load_replaces_the_rows_of_its_ranges_and_no_other(sink: MemorySink) -> None:
    """Also where ranges cross; the receipt counts what was written, and knows the offsets of its own rows."""
    assert sink.lookup(job_of(0, at(0, 4))) == Lookup(exists=False)
    first = put(sink, job_of(0, at(0, 4), at(0, 2, 1)), 1)
    second = put(sink, job_of(1, at(2, 6)), 2)
    table = sink.tables["memory"]
    old, new = {(0, 0): 1, (0, 1): 1, (1, 0): 1, (1, 1): 1}, {(0, offset): 2 for offset in range(2, 6)}
    assert marks(table) == {**old, **new}
    assert (first.rows, second.rows, len(table.rows)) == (6, 4, 8)
    assert sink.offsets_of(first) == {TopicPartition("orders", 0): (0, 3), TopicPartition("orders", 1): (0, 1)}
    assert sink.offsets_of(second) == {TopicPartition("orders", 0): (2, 5)}


def test_values_are_counted_in_the_rows_of_the_commit_that_a_receipt_is_of(sink: MemorySink) -> None:
    """Not in rows of others, and not in those that replaced some of them since."""
    put(sink, job_of(0, at(0, 2, 1)), 3)
    first = put(sink, job_of(1, at(0, 4)), 1)
    second = put(sink, job_of(2, at(2, 6)), cast("int", None))
    assert [sink.count_of(receipt, ByOrigin(receipt.load.ranges), "id") for receipt in (first, second)] == [4, 0]


def test_a_commit_that_was_rolled_back_has_not_landed(sink: MemorySink) -> None:
    """The table is as it was, and a later commit has a number of its own."""
    first, second = put(sink, job_of(0, at(0, 2)), 1), put(sink, job_of(1, at(2, 4)), 1)
    assert sink.lookup(job_of(1, at(2, 4))) == Lookup(exists=True, landed=second, owns=True)
    table = sink.tables["memory"]
    table.roll_back(first.snapshot)
    assert sink.lookup(job_of(1, at(2, 4))) == Lookup(exists=True, owns=True)
    assert marks(table) == {(0, 0): 1, (0, 1): 1}
    assert put(sink, job_of(1, at(2, 4)), 3).snapshot not in (first.snapshot, second.snapshot)
    table.roll_back(0)
    assert table.rows == ()


def test_two_pipelines_share_a_table_and_not_their_rows(sink: MemorySink) -> None:
    """Both have to say so, and the rows of one are in the way of the other."""
    first = put(sink, job_of(0, at(0, 2)), 1)
    visits = job_of(0, at(2, 4), pipeline="visits")
    with pytest.raises(SinkMisfit, match="belongs to pipeline orders, not to visits"):
        put(sink, visits, 2)
    put(sink, replace(visits, shared_with=("orders",)), 2)
    assert sink.tables["memory"].owners == {"orders", "visits"}
    crossing = job_of(1, at(1, 3), pipeline="visits")
    assert sink.lookup(crossing).others == (first,)
    with pytest.raises(SinkMisfit, match=re.escape("holds rows of orders-0 [1, 2) by pipeline orders")):
        put(sink, crossing, 3)


def test_a_batch_is_replaced_as_a_whole_and_its_rows_have_no_offsets(sink: MemorySink) -> None:
    """Known by its number; a table of batches takes no rows that are identified by their origin."""
    for seq in (1, 2):
        put(sink, changed(job_of(seq, at(seq, seq + 1)), identity="batch"), seq)
    again = put(sink, changed(job_of(1, at(1, 2)), identity="batch"), 7)
    assert {row[BATCH]: row["id"] for row in sink.tables["memory"].rows} == {1: 7, 2: 2}
    assert sink.offsets_of(again) is None
    with pytest.raises(SinkMisfit, match="are identified by their batch"):
        put(sink, job_of(3, at(3, 4)), 3)


def test_rows_that_do_not_fit_the_table_are_refused(sink: MemorySink) -> None:
    """Columns of another type, one that the table does not have, one that it requires: all at once, each with its fix."""
    job = job_of(0, at(0, 2))
    put(sink, job, 1)
    held = [*BY_ORIGIN.fields, StructField("size", StringType()), StructField("shop", StringType(), nullable=False)]
    sink.tables["memory"].schema = StructType(held)
    others = [StructField("ID", LongType()), StructField("size", IntegerType()), StructField("extra", IntegerType())]
    job = replace(job, contract=Contract("freeze", "freeze"))
    with pytest.raises(SinkMisfit) as caught:
        sink.prepare(StructType([*BY_ORIGIN.fields[1:], *others]), ByOrigin(job.load.ranges), job, sink.lookup(job))
    for told in (
        *(
            "id is int there and bigint here",
            "un ALTER TABLE memory ALTER COLUMN `id` TYPE bigint, or cast id in the transform",
        ),
        *("size is string there and int here", "cast size in the transform, or write to a new table"),
        *("it has no column extra", "un ALTER TABLE memory ADD COLUMNS (`extra` int)", "it requires a value of shop"),
        "ALTER COLUMN `shop` DROP NOT NULL, or let the transform make shop",
    ):
        assert told in str(caught.value)
    assert caught.value.fields["columns"] == "id, size, shop, extra"


def test_columns_to_change_are_told_and_changed_when_a_load_prepares(sink: MemorySink) -> None:
    """Of a table that there is."""
    job, wider = (
        job_of(0, at(0, 2)),
        StructType([StructField("id", LongType()), StructField("more", IntegerType()), *BY_ORIGIN.fields[1:]]),
    )
    assert sink.changes(wider, job) == []
    put(sink, job, 1)
    told = ["ALTER TABLE memory ADD COLUMNS (`more` int)", "ALTER TABLE memory ALTER COLUMN `id` TYPE bigint"]
    assert sink.changes(wider, job) == told
    sink.prepare(wider, ByOrigin(job.load.ranges), job, sink.lookup(job))
    assert sink.changes(wider, job) == []


def test_quarantine_holds_what_the_newest_load_of_a_range_has_set_aside(sink: MemorySink) -> None:
    """What another attempt has set aside there is swept, unless it is on top of it; where some is missing is returned.

    So is what was set aside beside a table of before, whatever its load.
    """
    job = replace(job_of(0, at(0, 4)), quarantine=Quarantine("aside"))

    def set_aside(attempt: str, *offsets: int, of_load: str = "batch 0 of orders", year: int = 9999) -> None:
        said: dict[str, Any] = {"rejected_by": "decode", "reason": "broken", "value": b"<", "attempt": attempt, "load": of_load}
        said |= {"transform": "m:f", "added_at": datetime(year, 1, 1, tzinfo=UTC)}
        rows = ({"id": 0, "_kafka_topic": "orders", "_kafka_partition": 0, "_kafka_offset": n, **said} for n in offsets)
        of = replace(job, load=replace(job.load, ranges=(at(0, 9),)))
        sink.set_aside(cast("DataFrame", Frame(*rows)), ByOrigin(job.load.ranges), of, attempt)

    def held() -> set[tuple[str, int]]:
        reader = MemoryReader(sink.tables)
        found = reader.rejections("aside")
        assert {*reader.rejected_values("aside", found).values()} == {b"<"}
        assert reader.broken("aside", (at(1, 3),), most=1) == [one for one in found if one.offset in (1, 2)][:1]
        return {(one.attempt, one.offset) for one in found}

    first = put(sink, job, 1)
    again = Frame({"_kafka_topic": "orders", "_kafka_partition": 0, "_kafka_offset": 2})
    assert sink.held_aside(cast("DataFrame", again), job) == 0
    mine = replace(first, write=replace(first.write, quarantined=1))
    assert sink.sweep(mine, job) == job.load.ranges
    for attempt in ("a", "dead", "a"):
        set_aside(attempt, 2)
    set_aside("beyond", 7)
    assert sink.held_aside(cast("DataFrame", again), job) == 1
    assert sink.sweep(mine, job) == ()
    assert held() == {("a", 2), ("beyond", 7)}
    later = replace(first.write, attempt="later", load=replace(first.write.load, ranges=(at(1, 3),)))
    sink.tables["memory"].commit(later.to_properties(), (), made=0)
    set_aside("later", 1)
    set_aside("under way", 2, of_load="batch 9 of orders")
    set_aside("of a table before", 3, of_load="batch 9 of orders", year=2013)
    assert sink.sweep(replace(mine, write=replace(mine.write, quarantined=2)), job) == (at(0, 1), at(3, 4))
    assert held() == {("later", 1), ("under way", 2), ("beyond", 7)}


PIPELINE: dict[str, Any] = {"source": {"topics": ["orders"]}, "transform": "t:f", "sink": {"table": "lake.shop.orders"}}


class CommittedRows:
    """A table of the sink in memory, as the laws of readers make it."""

    name = "t"

    def __init__(self) -> None:
        self.made = MemoryTable(schema=BY_ORIGIN, owners=set())
        self.tables = {self.name: self.made}

    def commit(self, properties: Mapping[str, str], *offsets: int, kept: int = 0) -> int:
        rows = (*self.made.rows, *({"_kafka_offset": offset} for offset in offsets))
        return self.made.commit(properties, rows, made=len(offsets) - kept, kept=kept).snapshot

    def roll_back(self, snapshot: int) -> None:
        self.made.roll_back(snapshot)

    def expire(self, snapshot: int) -> None:
        self.made.commits = [commit for commit in self.made.commits if commit.made.snapshot != snapshot]

    def own(self, pipeline: str) -> None:
        self.made.owners.add(pipeline)

    def drop(self) -> None:
        self.tables.clear()


class TestMemoryReader(SinkReaderContract):
    @pytest.fixture
    def table(self) -> CommittedRows:
        return CommittedRows()

    @pytest.fixture
    def reader(self, table: CommittedRows) -> MemoryReader:
        return MemoryReader(table.tables)

    @pytest.fixture
    def unreachable(self) -> tuple[MemoryReader, str]:
        return MemoryReader({}, away=True), "t"


def test_what_is_called_is_of_the_kind_that_a_job_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of a kind are named as texts, so that a reader is imported without Spark."""
    assert all(callable(resolve_name(part)) for part in (ICEBERG.reader, ICEBERG.writer, ICEBERG.maintain))
    monkeypatch.setitem(KINDS, MEMORY.name, MEMORY)
    spark = cast("SparkSession", None)
    assert reader_of(MEMORY.name) == MemoryReader(TABLES)
    assert sink_of(changed(job_of(1, at(0, 1)), sink=MEMORY.name), spark) == MemorySink(TABLES, "memory")
    assert maintain(spark, MaintenanceJob("p", "t", "compact", now_ms=1, sink=MEMORY.name)) == Maintained("compact")


def test_a_file_names_a_kind_that_there_is() -> None:
    with pytest.raises(ConfigError, match=r'sink\.kind: expected "iceberg", got "memory"'):
        parse_pipeline("orders", {**PIPELINE, "sink": {**PIPELINE["sink"], "kind": "memory"}}, file="orders.yaml")


@pytest.mark.parametrize(
    ("replaces", "identity", "refusal"),
    [
        (Replaces.ANY_RANGE, "origin", None),
        (Replaces.ANY_RANGE, "batch", None),
        (Replaces.WHOLE_BATCHES, "batch", None),
        (Replaces.WHOLE_BATCHES, "origin", "a sink of kind other .* expected `identity: batch`"),
        (Replaces.NOTHING, "origin", "a sink of kind other only appends"),
        (Replaces.NOTHING, "batch", "a sink of kind other only appends"),
    ],
)
def test_a_sink_takes_the_pipelines_whose_rows_it_can_replace(
    monkeypatch: pytest.MonkeyPatch, replaces: Replaces, identity: str, refusal: str | None
) -> None:
    """When the file is checked; the message has the setting that would fit. Iceberg replaces any range."""
    monkeypatch.setitem(KINDS, "other", replace(ICEBERG, name="other", replaces=replaces))
    file = {**PIPELINE, "sink": {**PIPELINE["sink"], "kind": "other"}, "identity": identity}
    with nullcontext() if refusal is None else pytest.raises(ConfigError, match=rf"orders\.yaml: sink: {refusal}"):
        assert parse_pipeline("orders", file, file="orders.yaml").identity == identity


def test_each_kind_says_how_its_tables_are_named() -> None:
    """Iceberg: a catalog, at least one namespace, and a table."""
    assert all(map(ICEBERG.table.fullmatch, ("lake.shop.orders", "lake.shop.eu.orders")))
    for name in ("orders", "shop.orders", "lake.shop.", "lake.shop.or-ders", "lake.shop.orders ", ""):
        assert not ICEBERG.table.fullmatch(name)

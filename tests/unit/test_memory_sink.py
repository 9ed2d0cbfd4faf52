"""What a sink declares, and the reader of the sink in memory. Its writer: `tests/spark`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tests.records import load_job
from tidegate.core.config.parse import parse_pipeline
from tidegate.core.config.sinks import ICEBERG, KINDS, Replaces
from tidegate.core.model.errors import ConfigError
from tidegate.core.state.jobs import Maintained, MaintenanceJob
from tidegate.sinks import maintain, reader_of, sink_of
from tidegate.testing.contracts.sink_reader import SinkReaderContract
from tidegate.testing.sinks import MEMORY, TABLES, MemoryReader, MemorySink, MemoryTable

PIPELINE: dict[str, Any] = {"source": {"topics": ["orders"]}, "transform": "t:f", "sink": {"table": "lake.shop.orders"}}


class CommittedRows:
    """A table of the sink in memory, as the laws of readers make it."""

    name = "t"

    def __init__(self) -> None:
        self.made = MemoryTable(schema=StructType(), owners=set())
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
    assert sink_of(load_job("p", 1, "r", (), "t:f", "memory", {}, sink=MEMORY.name), spark) == MemorySink(TABLES, "memory")
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

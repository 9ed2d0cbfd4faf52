"""The reader of Iceberg tables obeys the laws of its port, on real tables in a temporary folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyiceberg.catalog
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tidegate.sinks.iceberg.history import IcebergReader
from tidegate.sinks.iceberg.summary import KEPT, OWNER
from tidegate.testing.contracts.sink_reader import SinkReaderContract

SCHEMA = pa.schema([("_kafka_topic", pa.string()), ("_kafka_partition", pa.int32()), ("_kafka_offset", pa.int64())])


class IcebergTable:
    """A table that PyIceberg writes."""

    name = "lake.demo.flights"

    def __init__(self, catalog: SqlCatalog) -> None:
        self.catalog = catalog
        catalog.create_namespace("demo")
        self.table = catalog.create_table("demo.flights", SCHEMA)

    def commit(self, properties: Mapping[str, str], *offsets: int, kept: int = 0) -> int:
        rows = {"_kafka_topic": ["t"] * len(offsets), "_kafka_partition": [0] * len(offsets), "_kafka_offset": list(offsets)}
        summary = {**properties, **({KEPT: str(kept)} if kept else {})}
        self.table.append(pa.table(rows, schema=SCHEMA), snapshot_properties=summary)
        snapshot = self.table.current_snapshot()
        assert snapshot is not None
        return snapshot.snapshot_id

    def roll_back(self, snapshot: int) -> None:
        self.table.manage_snapshots().set_current_snapshot(snapshot_id=snapshot).commit()

    def expire(self, snapshot: int) -> None:
        self.table.maintenance.expire_snapshots().by_id(snapshot).commit()

    def own(self, pipeline: str) -> None:
        with self.table.transaction() as change:
            change.set_properties({f"{OWNER}{pipeline}": "yes"})

    def drop(self) -> None:
        self.catalog.drop_table("demo.flights")


class TestIcebergReader(SinkReaderContract):
    @pytest.fixture
    def reader(self) -> IcebergReader:
        return IcebergReader()

    @pytest.fixture
    def table(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IcebergTable:
        catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
        monkeypatch.setattr(pyiceberg.catalog, "load_catalog", lambda name: {"lake": catalog}[name])
        return IcebergTable(catalog)

    @pytest.fixture
    def unreachable(self, monkeypatch: pytest.MonkeyPatch) -> tuple[IcebergReader, str]:
        monkeypatch.setattr(
            pyiceberg.catalog, "load_catalog", lambda name: SqlCatalog(name, uri="sqlite:////nowhere/catalog.db")
        )
        return IcebergReader(), IcebergTable.name

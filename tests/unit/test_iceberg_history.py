"""What a table's commits say, read through PyIceberg from a real table in a temporary folder."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyiceberg.catalog
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, StringType

from tests.records import write_of
from tidegate.core.model.errors import SinkMisfit, SinkUnavailable, StateCorrupt
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.sinks.iceberg.history import IcebergReader, changed_columns, strangers
from tidegate.sinks.iceberg.origins import read_origins, rows_without_origin
from tidegate.sinks.iceberg.rename import move_owner

NAME = "lake.demo.flights"
SCHEMA = pa.schema([("_kafka_topic", pa.string()), ("_kafka_partition", pa.int32()), ("_kafka_offset", pa.int64())])


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """An empty table with origin columns, in the catalog that `lake` names."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    monkeypatch.setattr(pyiceberg.catalog, "load_catalog", lambda name: {"lake": catalog}[name])
    catalog.create_namespace("demo")
    return catalog.create_table("demo.flights", SCHEMA)


def load(table: Table, seq: int, *offsets: int, **changes: Any) -> int:
    """A commit with a receipt; its snapshot."""
    ranges = (OffsetRange("t", 0, min(offsets), max(offsets) + 1),)
    promise = write_of("p", seq, f"run{seq}", ranges, "v", f"a{seq}", **changes)
    return write(table, *offsets, **promise.to_properties())


def write(table: Table, *offsets: int | None, topic: str | None = "t", **properties: str) -> int:
    rows = {"_kafka_topic": [topic] * len(offsets), "_kafka_partition": [0] * len(offsets), "_kafka_offset": list(offsets)}
    table.append(pa.table(rows, schema=SCHEMA), snapshot_properties=properties)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def reached() -> tuple[int, int] | None:
    return IcebergReader().history(NAME).reached("p")


def test_receipts_are_read_in_the_order_of_their_commits(table: Table) -> None:
    """Strangers' commits and other pipelines' are passed over, replays are not."""
    load(table, 1, 0, 1)
    write(table, 7)
    load(table, 3, 5, replay="again")
    load(table, 2, 2)
    found = IcebergReader().receipts(NAME, "p")
    assert [(r.load.seq, r.load.replay, r.rows) for r in found] == [(1, None, 2), (3, "again", 1), (2, None, 1)]
    assert IcebergReader().receipts(NAME, "q") == []


def test_whether_the_table_has_rows_is_known_without_reading_them(table: Table) -> None:
    """No table and an empty one have none; one whose rows were deleted has none any more."""
    assert not IcebergReader().history("lake.demo.nothing").has_rows
    assert not IcebergReader().history(NAME).has_rows
    load(table, 1, 0, 1)
    assert IcebergReader().history(NAME).has_rows
    table.delete("_kafka_offset >= 0")
    assert not IcebergReader().history(NAME).has_rows


def test_the_furthest_batch_counts_not_the_last_commit(table: Table) -> None:
    """A batch done over comes later; a replay is none; a later generation is further than any batch of an earlier one."""
    assert reached() is None
    load(table, 9, 9, replay="again")
    assert reached() is None
    load(table, 1, 0)
    load(table, 2, 1)
    load(table, 1, 0)
    assert reached() == (0, 2)
    load(table, 1, 0, generation=1)
    assert reached() == (1, 1)


def test_a_commit_that_was_rolled_back_does_not_count(table: Table) -> None:
    """Its rows are gone."""
    first = load(table, 1, 0)
    load(table, 2, 1)
    table.manage_snapshots().set_current_snapshot(snapshot_id=first).commit()
    assert [r.load.seq for r in IcebergReader().receipts(NAME, "p")] == [1]
    assert reached() == (0, 1)
    assert list(read_origins(NAME)[TopicPartition("t", 0)]) == [0]


def test_commits_of_others_that_changed_rows_are_told(table: Table) -> None:
    """Not our own, and not those that changed nothing."""
    load(table, 1, 0, 1)
    assert strangers(NAME) == []
    theirs = write(table, 5)
    table.delete("_kafka_offset = 0")
    found = strangers(NAME)
    assert found[-1]["snapshot"] == theirs
    assert datetime.fromisoformat(found[-1]["at"]).tzinfo is UTC
    assert [c["operation"] for c in found] in (["overwrite", "append"], ["delete", "append"])


def test_what_others_did_to_the_columns_is_told(table: Table) -> None:
    """Until the next load commits under the new ones; without a load there is nothing to compare with."""
    assert changed_columns("lake.demo.nothing") == []
    load(table, 1, 0)
    assert changed_columns(NAME) == []
    with table.update_schema() as change:
        change.add_column("note", StringType())
        change.rename_column("_kafka_topic", "topic")
        change.update_column("_kafka_partition", field_type=LongType())
        change.delete_column("_kafka_offset")
    assert changed_columns(NAME) == [
        "_kafka_offset was dropped",
        "_kafka_partition is long, it was int",
        "_kafka_topic is called topic",
        "note (string) was added",
    ]
    with pytest.raises(SinkMisfit, match="no column _kafka_topic and no _kafka_offset"):
        read_origins(NAME)


def test_rows_of_no_record_are_counted(table: Table) -> None:
    """They are in no partition."""
    assert rows_without_origin("lake.demo.nothing") == 0
    load(table, 1, 0, 1)
    assert rows_without_origin(NAME) == 0
    write(table, None)
    write(table, 5, topic=None)
    assert rows_without_origin(NAME) == 2
    assert {tp: list(offsets) for tp, offsets in read_origins(NAME).items()} == {TopicPartition("t", 0): [0, 1]}


def test_a_renamed_pipeline_has_what_it_loaded_before(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one change of the table's properties; where PyIceberg cannot write it, the error has the SQL."""
    load(table, 1, 0)
    table.transaction().set_properties({"tidegate.owner.p": "true"}).commit_transaction()
    move_owner(NAME, "p", "q")
    history = IcebergReader().history(NAME)
    assert (history.owners, history.formerly("q"), history.reached("p"), history.reached("q")) == (
        frozenset({"q"}),
        ("p",),
        None,
        (0, 1),
    )
    assert [receipt.load.pipeline for receipt in IcebergReader().receipts(NAME, "q")] == ["q"]
    move_owner("lake.demo.nothing", "p", "q")
    monkeypatch.setattr(Table, "transaction", None)
    with pytest.raises(SinkUnavailable) as caught:
        move_owner(NAME, "q", "r")
    sets = "'tidegate.owner.r' = 'true', 'tidegate.renamed.q' = 'r', 'tidegate.renamed.p' = 'r'"
    assert f"SET TBLPROPERTIES ({sets})" in caught.value.fix
    assert "UNSET TBLPROPERTIES ('tidegate.owner.q'); then rename once more" in caught.value.fix


def origins() -> tuple[bool, str | None]:
    """Whether the commits leave it open that rows have no origin, and why the files say so."""
    return IcebergReader().history(NAME).origins.unproved, IcebergReader().without_origin(NAME)


def test_rows_without_origin_are_found_by_metadata(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside loads and commits of others that have one; no file of rows is opened. A commit of loads alone proves itself."""
    load(table, 1, 0, 1)
    assert origins() == (False, None)
    write(table, 7)
    assert origins() == (True, None)
    write(table, None)
    monkeypatch.setattr(Table, "scan", None)
    assert origins() == (True, "foreign")
    assert not IcebergReader().without_origin("lake.demo.nothing")


def test_a_table_that_others_have_written_gets_its_columns_and_its_rows_have_no_origin(table: Table) -> None:
    """By the rows that it holds before the columns are there, and by their files after that."""
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.add_column("note", StringType())
        for name in SCHEMA.names:
            change.delete_column(name)
    assert IcebergReader().history(NAME).origins.lacks == tuple(SCHEMA.names)
    assert origins() == (False, None)
    table.append(pa.table({"note": ["a"]}))
    assert origins() == (True, "foreign")
    with table.update_schema() as change:
        for name, kind in zip(SCHEMA.names, (StringType(), IntegerType(), LongType()), strict=True):
            change.add_column(name, kind)
    assert origins() == (True, "foreign")


def test_an_origin_that_was_renamed_is_followed_by_its_column(table: Table) -> None:
    """Renamed, added once more, and given back; a dropped one has no name."""
    load(table, 1, 0, 1)
    assert (IcebergReader().history(NAME).origins.lacks, IcebergReader().history(NAME).origins.moved) == ((), {})
    with table.update_schema() as change:
        change.rename_column("_kafka_offset", "at")
    history = IcebergReader().history(NAME)
    assert (history.origins.lacks, history.origins.moved, history.origins.unproved) == (
        ("_kafka_offset",),
        {"_kafka_offset": "at"},
        True,
    )
    with table.update_schema() as change:
        change.add_column("_kafka_offset", LongType())
    history = IcebergReader().history(NAME)
    assert (history.origins.lacks, history.origins.moved, origins()) == ((), {"_kafka_offset": "at"}, (True, "lost"))
    with table.update_schema() as change:
        change.delete_column("_kafka_offset")
    with table.update_schema() as change:
        change.rename_column("at", "_kafka_offset")
    assert (IcebergReader().history(NAME).origins.lacks, origins()) == ((), (True, None))
    write(table, 5, topic=None)
    assert origins() == (True, "foreign")
    with table.update_schema() as change:
        change.delete_column("_kafka_offset")
    assert (IcebergReader().history(NAME).origins.moved, origins()) == ({"_kafka_offset": ""}, (True, "lost"))


def test_partitions_prove_the_origin_of_what_was_loaded_before_the_oldest_commit(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then no manifest is read; a null among them is looked for."""
    with table.update_spec() as change:
        change.add_identity("_kafka_topic")
        change.add_identity("_kafka_partition")
    first = load(table, 1, 0, 1)
    load(table, 2, 2)
    table.maintenance.expire_snapshots().by_id(first).commit()
    with monkeypatch.context() as patched:
        patched.setattr(ManifestFile, "fetch_manifest_entry", None)
        assert origins() == (True, None)
    last = load(table, 3, 3)
    write(table, 5, topic=None)
    load(table, 4, 4)
    for snapshot in [s.snapshot_id for s in table.metadata.snapshots[:-1] if s.snapshot_id != last]:
        table.maintenance.expire_snapshots().by_id(snapshot).commit()
    assert origins() == (True, "foreign")


def test_a_broken_receipt_is_named_and_a_missing_table_has_none(table: Table) -> None:
    """A catalog that is not configured is another thing."""
    write(table, 0, **{**write_of("p", 1, "r", (OffsetRange("t", 0, 0, 1),), "v", "a").to_properties(), "tidegate.seq": "x"})
    with pytest.raises(StateCorrupt, match="cannot be read"):
        reached()
    with pytest.raises(StateCorrupt, match="cannot be read"):
        IcebergReader().receipts(NAME, "p")
    assert IcebergReader().receipts("lake.demo.nothing", "p") == []
    assert read_origins("lake.demo.nothing") == {}
    with pytest.raises(SinkUnavailable, match="PYICEBERG_CATALOG__SEA__URI"):
        IcebergReader().receipts("sea.demo.flights", "p")


def test_the_lineage_of_a_table_is_its_current_states(table: Table) -> None:
    """Complete until older commits expire; a table that is not there has none."""
    missing = IcebergReader().history("lake.demo.nothing")
    assert (missing.exists, missing.commits) == (False, ())
    empty = IcebergReader().history(NAME)
    assert (empty.exists, empty.commits, empty.complete) == (True, (), True)
    first, second = load(table, 1, 0), load(table, 2, 1)
    found = IcebergReader().history(NAME)
    assert ([c.snapshot for c in found.commits], found.complete) == ([second, first], True)
    by_run = found.batch_of_run("p", "run1")
    assert by_run is not None
    assert by_run.snapshot == first
    assert found.batch_of_run("p", "run9") is None
    assert found.batch_of_run("q", "run1") is None
    table.maintenance.expire_snapshots().by_id(first).commit()
    expired = IcebergReader().history(NAME)
    assert ([c.snapshot for c in expired.commits], expired.complete) == ([second], False)

"""What a table's commits and properties say, read through PyIceberg from real tables in a temporary folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyiceberg.catalog
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.transforms import parse_transform
from pyiceberg.types import IntegerType, LongType, StringType

from tests.records import write_of
from tidegate.core.config.layout import Layout
from tidegate.core.model.errors import SinkMisfit, SinkUnavailable, StateCorrupt
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.state.rejection import Rejection
from tidegate.sinks.iceberg import summary
from tidegate.sinks.iceberg.catalog import move_owner
from tidegate.sinks.iceberg.history import IcebergReader, changed_columns, read_origins, rows_without_origin, strangers
from tidegate.testing.contracts.sink_reader import SinkReaderContract

NAME = "lake.demo.flights"
SCHEMA = pa.schema([("_kafka_topic", pa.string()), ("_kafka_partition", pa.int32()), ("_kafka_offset", pa.int64())])


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlCatalog:
    """That `lake` names."""
    made = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    monkeypatch.setattr(pyiceberg.catalog, "load_catalog", lambda name: {"lake": made}[name])
    made.create_namespace("demo")
    return made


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """An empty table with origin columns."""
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


def test_whether_the_table_has_rows_is_known_without_reading_them(table: Table) -> None:
    """No table and an empty one have none; one whose rows were deleted has none any more. Of no catalog that is not known."""
    assert not IcebergReader().history("lake.demo.nothing").has_rows
    assert (IcebergReader().receipts("lake.demo.nothing", "p"), read_origins("lake.demo.nothing")) == ([], {})
    with pytest.raises(SinkUnavailable, match="PYICEBERG_CATALOG__SEA__URI"):
        IcebergReader().receipts("sea.demo.flights", "p")
    assert not IcebergReader().history(NAME).has_rows
    load(table, 1, 0, 1)
    assert IcebergReader().history(NAME).has_rows
    table.delete("_kafka_offset >= 0")
    assert not IcebergReader().history(NAME).has_rows


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


def test_broken_records_of_some_ranges_are_found_in_a_table_and_in_a_quarantine(catalog: SqlCatalog) -> None:
    """However many partitions there are; other rows are not."""
    says = pa.schema([*SCHEMA, ("_error", pa.string())])
    aside = pa.schema([*SCHEMA, *((name, pa.string()) for name in ("rejected_by", "reason", "attempt"))])
    place = {"_kafka_topic": ["t"] * 4, "_kafka_partition": [0, 0, 1, 0], "_kafka_offset": [3, 4, 5, 8]}
    catalog.create_table(NAME[5:], says).append(pa.table({**place, "_error": ["x", None, "y", "z"]}, schema=says))
    rejected = {**place, "rejected_by": ["transform"] * 4, "reason": list("abcd"), "attempt": ["1"] * 4}
    held = catalog.create_table("demo.aside", aside, properties={f"tidegate.quarantine-of.{NAME}": "true"})
    held.append(pa.table(rejected, schema=aside))
    ranges = [OffsetRange("t", partition, 3, 8 + partition) for partition in range(1500)]
    found = IcebergReader().broken(NAME, ranges, most=9)
    assert found == [Rejection("t", 0, 3, "decode", "x", ""), Rejection("t", 1, 5, "decode", "y", "")]
    assert [one.reason for one in IcebergReader().broken("lake.demo.aside", ranges, most=9)] == ["a", "b", "c"]
    assert len(IcebergReader().broken("lake.demo.aside", ranges, most=2)) == 2
    assert IcebergReader().broken(NAME, (), most=9) == []


def test_a_layout_has_no_field_that_a_file_cannot_name(table: Table) -> None:
    """By a column of any name, or of a transform that is none, such as what is left of a dropped field."""
    with table.update_schema() as change:
        for name in ("at", "order-id", "note"):
            change.add_column(name, StringType())
    with table.update_spec() as spec:
        for name, transform in (("at", "bucket[4]"), ("order-id", "identity"), ("note", "void"), ("_kafka_topic", "identity")):
            spec.add_field(name, parse_transform(transform))
    held = IcebergReader().layout(NAME)
    assert held is not None
    assert held.partition_by == ("bucket(4, at)",)
    assert Layout().changes(held, NAME) == [f"ALTER TABLE {NAME} DROP PARTITION FIELD bucket(4, at)"]


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
    assert (history.owners, history.formerly("q")) == (frozenset({"q"}), ("p",))
    assert (history.reached("p"), history.reached("q")) == (None, (0, 1))
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

    def after(*changes: str) -> tuple[tuple[str, ...], dict[str, str]]:
        for change in changes:
            with table.update_schema() as schema:
                name, *words = change.split()
                getattr(schema, name)(*words, **({"field_type": LongType()} if name == "add_column" else {}))
        found = IcebergReader().history(NAME).origins
        return found.lacks, dict(found.moved)

    assert after() == ((), {})
    assert after("rename_column _kafka_offset at") == (("_kafka_offset",), {"_kafka_offset": "at"})
    assert IcebergReader().history(NAME).origins.unproved
    assert (after("add_column _kafka_offset"), origins()) == (((), {"_kafka_offset": "at"}), (True, "lost"))
    assert after("delete_column _kafka_offset", "rename_column at _kafka_offset")[0] == ()
    assert origins() == (True, None)
    write(table, 5, topic=None)
    assert origins() == (True, "foreign")
    assert after("delete_column _kafka_offset")[1] == {"_kafka_offset": ""}
    assert origins() == (True, "lost")


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


class IcebergTable:
    """A table that PyIceberg writes."""

    name = NAME

    def __init__(self, catalog: SqlCatalog) -> None:
        self.catalog, self.table = catalog, catalog.create_table("demo.flights", SCHEMA)

    def commit(self, properties: Mapping[str, str], *offsets: int, kept: int = 0) -> int:
        return write(self.table, *offsets, **properties, **({summary.KEPT: str(kept)} if kept else {}))

    def roll_back(self, snapshot: int) -> None:
        self.table.manage_snapshots().set_current_snapshot(snapshot_id=snapshot).commit()

    def expire(self, snapshot: int) -> None:
        self.table.maintenance.expire_snapshots().by_id(snapshot).commit()

    def own(self, pipeline: str) -> None:
        with self.table.transaction() as change:
            change.set_properties({f"{summary.OWNER}{pipeline}": "yes"})

    def drop(self) -> None:
        self.catalog.drop_table("demo.flights")


class TestIcebergReader(SinkReaderContract):
    @pytest.fixture
    def reader(self) -> IcebergReader:
        return IcebergReader()

    @pytest.fixture
    def table(self, catalog: SqlCatalog) -> IcebergTable:
        return IcebergTable(catalog)

    @pytest.fixture
    def unreachable(self, monkeypatch: pytest.MonkeyPatch) -> tuple[IcebergReader, str]:
        nowhere = "sqlite:////nowhere/catalog.db"
        monkeypatch.setattr(pyiceberg.catalog, "load_catalog", lambda name: SqlCatalog(name, uri=nowhere))
        return IcebergReader(), NAME


LOAD = write_of("p", 1, "r", (OffsetRange("t", 0, 0, 15),), "v", "a")


@pytest.mark.parametrize(
    ("counters", "expected"),
    [({"added-records": "15"}, (15, 0)), ({"added-records": "15", "tidegate.kept": "4"}, (11, 4)), ({}, (0, 0))],
)
def test_rows_that_were_written_again_are_not_the_loads(counters: dict[str, str], expected: tuple[int, int]) -> None:
    """Iceberg counts them as added, and leaves out counters that are zero."""
    receipt = summary.receipt_in({**LOAD.to_properties(), **counters}, snapshot=9, committed_at_ms=1)
    assert receipt is not None
    assert (receipt.write, receipt.snapshot, receipt.committed_at_ms) == (LOAD, 9, 1)
    assert (receipt.rows, receipt.kept) == summary.row_counts(counters) == expected


@pytest.mark.parametrize("broken", [{"added-records": "x"}, {"added-records": "1", "tidegate.kept": "?"}])
def test_broken_counters_make_a_receipt_unreadable_and_concern_no_other_commit(broken: dict[str, str]) -> None:
    """So a history that has such a commit can be read."""
    assert summary.row_counts(broken) == (None, 0)
    assert summary.receipt_in(broken, snapshot=9, committed_at_ms=1) is None
    with pytest.raises(StateCorrupt, match="9"):
        summary.receipt_in({**LOAD.to_properties(), **broken}, snapshot=9, committed_at_ms=1)


@pytest.mark.parametrize(
    ("asked", "said", "answer"),
    [
        # the commit that creates a table has no counters, one that replaces nothing has zeros
        *((summary.changes_rows, said, False) for said in ({}, {"added-data-files": "0", "total-records": "5"})),
        *((summary.changes_rows, {name: "1"}, True) for name in ("added-data-files", "removed-delete-files")),
        *((summary.holds_rows, said, bool(said)) for said in ({"total-records": "5"}, {})),
        (summary.holds_rows, {"total-records": "0"}, False),
        # a pipeline's name is all that follows the prefix, whatever the value is
        (summary.owners_in, {"tidegate.owner.p": "true", "tidegate.owner.q_2": "", "owner": "root"}, {"p", "q_2"}),
        *((summary.changed_partitions, {"changed-partition-count": text}, count) for text, count in (("40", 40), ("?", 0))),
        (summary.changed_partitions, {}, 0),
        # what somebody wrote there by hand may be no number
        (summary.compacted, {"tidegate.compacted-files": "12", "tidegate.compacted-bytes": "400"}, (12, 400)),
        (summary.compacted, {"tidegate.compacted-files": "x", "tidegate.compacted-bytes": "400"}, (0, 0)),
        (summary.compacted, {"tidegate.compacted-files": "12", "tidegate.compacted-bytes": "9" * 5000}, (0, 0)),
        *((summary.compacted, said, (0, 0)) for said in ({"tidegate.compacted-files": "12"}, {})),
    ],
)
def test_a_summary_says_as_much_as_can_be_read_of_it(
    asked: Callable[[dict[str, str]], object], said: dict[str, str], answer: object
) -> None:
    assert asked(said) == answer


def test_a_pipeline_that_is_renamed_leads_from_each_of_its_names_to_the_last() -> None:
    """Once more, and back. The table of commits is beside its table, so whoever may write the one may write the other."""
    properties = {f"{summary.OWNER}a": "true", f"{summary.OWNER}z": "true"}
    for old, new in (("a", "b"), ("b", "c"), ("c", "a")):
        changes, dropped = summary.renaming(properties, old, new)
        properties = {key: value for key, value in {**properties, **changes}.items() if key not in dropped}
    assert summary.renamed_in(properties) == {"b": "a", "c": "a"}
    assert summary.owners_in(properties) == {"a", "z"}
    assert summary.commits_table("lake.sales.orders") == "lake.sales.orders_commits"

"""A table's columns change as the contract of its pipeline says: in the load that needs it, never otherwise, and by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import tidegate.spark.load
from tests.spark.conftest import Job, Load
from tests.spark.sinks_under_test import SinkUnderTest, either_sink
from tidegate.core.config.pipeline import Contract
from tidegate.core.model.columns import ColumnChange
from tidegate.core.model.errors import SinkConflict, SinkMisfit
from tidegate.core.state.jobs import LoadJob
from tidegate.core.state.receipt import Receipt
from tidegate.sinks.iceberg.table import IcebergTable

TRANSFORMS = """
from pyspark.sql import functions as F
from tidegate.formats.json import parse_json

def first(records):
    return parse_json(records, "id INT").drop("_raw", "_error").withColumn("ratio", F.lit(0.5).cast("float"))

def second(records):
    rows = first(records).withColumn("id", F.col("id").cast("bigint")).withColumn("ratio", F.col("ratio").cast("double"))
    return rows.withColumn("note", F.lit("new"))

NESTED = "named_struct('x', {x}, 'list', array(named_struct('z', {z})), 'map', map('k', named_struct('q', {q})))"

def nested(records):
    return first(records).withColumn("deep", F.expr(NESTED.format(x="id", z="id", q="id")))

def nested_more(records):
    more = NESTED.format(x="bigint(id), 'a b', 'x'", z="bigint(id), 'v', 1.5D", q="id, 'r', true")
    return first(records).withColumn("deep", F.expr(more))

def shuffled(records):
    return first(records).withColumn("deep", F.expr("named_struct('map', map('k', named_struct('q', id)), 'x', id)"))

def variant(records):
    return first(records).withColumn("extra", F.parse_json(F.lit("{}")))

def with_errors(records):
    return parse_json(records, "id INT").withColumn("ratio", F.lit(0.5).cast("float"))

def narrowed(records):
    return first(records).withColumn("id", F.col("id").cast("string"))
"""
FREEZE, DISCARD = Contract("freeze", "freeze"), Contract("discard")
CHANGES = (
    ColumnChange("id", "int", "bigint"),
    ColumnChange("ratio", "float", "double"),
    ColumnChange("note", None, "string"),
)


@pytest.fixture(scope="module")
def spark_jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of transforms, module `shop`."""
    folder = tmp_path_factory.mktemp("spark_jobs")
    (folder / "shop.py").write_text(TRANSFORMS)
    return folder


def killing(_point: str) -> None:
    raise KeyboardInterrupt


def by(job: LoadJob, contract: Contract) -> LoadJob:
    return replace(job, contract=contract)


@either_sink
def test_a_load_changes_the_columns_that_it_needs_and_its_receipt_says_so(
    sink: SinkUnderTest, load: Load, job: Job, table: str
) -> None:
    """A new column, and wider types; rows of before have null there, and the next load changes nothing."""
    assert load(job(0, 5, transform="shop:first")).receipt.write.columns == ()
    receipt = load(job(5, 10, seq=1, transform="shop:second")).receipt
    assert sorted(receipt.write.columns) == sorted(CHANGES)
    assert Receipt.from_json(receipt.to_json()) == receipt
    assert sorted((row["id"], row["note"]) for row in sink.rows(table)) == [
        *((n, None) for n in range(5)),
        *((n, "new") for n in range(5, 10)),
    ]
    assert load(job(10, 15, seq=2, transform="shop:second")).receipt.write.columns == ()


@either_sink
@pytest.mark.parametrize("contract", [Contract(), FREEZE, DISCARD], ids=["evolve", "freeze", "discard"])
def test_offsets_replay_by_an_old_transform_and_by_a_new_one_under_every_contract(
    sink: SinkUnderTest, load: Load, job: Job, table: str, contract: Contract
) -> None:
    """Narrower types and missing columns always fit: the row has the table's types, and null."""
    load(job(0, 10, transform="shop:first"))
    load(job(10, 20, seq=1, transform="shop:second"))
    for seq, (start, until, transform) in enumerate([(12, 18, "first"), (2, 8, "second"), (15, 20, "second")], 2):
        assert load(by(job(start, until, seq=seq, transform=f"shop:{transform}"), contract)).receipt.write.columns == ()
    noted = {row["id"] for row in sink.rows(table) if row["note"]}
    assert noted == {*range(2, 8), 10, 11, 18, 19, 15, 16, 17}
    assert sorted(row["id"] for row in sink.rows(table)) == [*range(20)]


@either_sink
def test_what_is_discarded_is_not_written_and_nothing_changes(sink: SinkUnderTest, load: Load, job: Job, table: str) -> None:
    """A wider type is still taken; columns that the table does not have are left out."""
    load(job(0, 5, transform="shop:first"))
    assert load(by(job(5, 10, seq=1, transform="shop:second"), DISCARD)).receipt.write.columns == CHANGES[:2]
    assert {*sink.rows(table)[0]} == {"id", "ratio", "_kafka_topic", "_kafka_partition", "_kafka_offset"}


@either_sink
def test_the_column_of_errors_can_be_discarded(sink: SinkUnderTest, load: Load, job: Job, table: str) -> None:
    """Nobody counts them then."""
    load(job(0, 5, transform="shop:first"))
    assert load(by(job(5, 10, seq=1, transform="shop:with_errors"), DISCARD)).observed.errors is None
    assert len(sink.rows(table)) == 10


@either_sink
@pytest.mark.parametrize(
    ("transform", "contract", "told"),
    [
        ("second", FREEZE, ["from offset 5 of orders-0 on", "no column note", "id is int there and bigint here", "discard"]),
        ("narrowed", Contract(), ["from offset 5 of orders-0 on", "id is int there and string here", "cast id"]),
    ],
)
def test_what_does_not_fit_is_named_with_the_first_offset_and_the_choices(
    sink: SinkUnderTest, load: Load, job: Job, table: str, transform: str, contract: Contract, told: list[str]
) -> None:
    """Nothing is written, and no column changes."""
    load(job(0, 5, transform="shop:first"))
    with pytest.raises(SinkMisfit) as caught:
        load(by(job(5, 10, seq=1, transform=f"shop:{transform}"), contract))
    assert [text for text in told if text not in str(caught.value).lower()] == []
    assert len(sink.rows(table)) == 5
    assert load(job(5, 10, seq=1, transform="shop:first")).receipt.write.columns == ()


def test_fields_inside_of_structs_lists_and_maps_evolve_too(
    sink: SinkUnderTest, spark: SparkSession, load: Load, job: Job, table: str
) -> None:
    """In at most two commits of the table; rows whose fields are fewer, or in another order, go by name."""
    load(job(0, 1, transform="shop:nested"))
    commits = spark.table(f"{table}.metadata_log_entries")
    before = commits.count()
    with pytest.raises(SinkMisfit, match=r"deep\.x is int there and bigint here"):
        load(by(job(1, 2, seq=1, transform="shop:nested_more"), Contract(types="quarantine")))
    changes = {str(one) for one in load(job(1, 2, seq=1, transform="shop:nested_more")).receipt.write.columns}
    assert commits.count() == before + 3  # the columns twice, and the rows
    assert changes == {
        "deep.x int is bigint now",
        "deep.a b string was added",
        "deep.list.element.z int is bigint now",
        "deep.list.element.v double was added",
        "deep.map.value.r boolean was added",
    }
    load(job(2, 3, seq=2, transform="shop:shuffled"))
    load(by(job(3, 4, seq=3, transform="shop:nested_more"), FREEZE))
    rows = spark.table(table).collect()
    deep: dict[int, Any] = {row["id"]: row["deep"].asDict(recursive=True) for row in rows}
    assert deep[0] == {"x": 0, "list": [{"z": 0, "v": None}], "map": {"k": {"q": 0, "r": None}}, "a b": None}
    assert deep[1] == {"x": 1, "list": [{"z": 1, "v": 1.5}], "map": {"k": {"q": 1, "r": True}}, "a b": "x"}
    assert deep[2] == {"x": 2, "list": None, "map": {"k": {"q": 2, "r": None}}, "a b": None}
    assert deep[3]["a b"] == "x"


def test_a_column_that_a_killed_load_has_added_is_in_the_receipt_of_its_next_try(
    sink: SinkUnderTest, spark: SparkSession, load: Load, job: Job, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its comment names the load that added it. A later load has no part in it."""
    load(job(0, 5, transform="shop:first"))
    with monkeypatch.context() as killed:
        killed.setattr(tidegate.spark.load, "reach", killing)
        with pytest.raises(KeyboardInterrupt):
            load(job(5, 10, seq=1, transform="shop:second"))
    assert spark.table(table).schema["note"].metadata["comment"] == "added by batch 1 of orders"
    assert load(job(5, 10, seq=1, transform="shop:second")).receipt.write.columns == CHANGES[2:]
    assert load(job(10, 15, seq=2, transform="shop:second")).receipt.write.columns == ()


def test_a_column_that_another_load_adds_first_is_taken_as_it_is(
    sink: SinkUnderTest, spark: SparkSession, load: Load, job: Job, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is looked at anew, and the receipt names only what is left to change."""
    load(job(0, 5, transform="shop:first"))
    change, beaten = IcebergTable._change, list[DataFrame]()

    def late(at: IcebergTable, statements: list[str], *, can_retry: bool) -> bool:
        if not beaten:
            beaten.append(spark.sql(statements[0].replace("added by", "seen by")))
        return change(at, statements, can_retry=can_retry)

    monkeypatch.setattr(IcebergTable, "_change", late)
    assert load(job(5, 10, seq=1, transform="shop:second")).receipt.write.columns == CHANGES[:2]
    assert {row["note"] for row in sink.rows(table)} == {None, "new"}


def test_a_receipt_names_what_a_refused_try_has_changed(load: Load, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next try finds nothing left to change."""
    load(job(0, 5, transform="shop:first"))
    write, refused = IcebergTable.overwrite, [SinkConflict("another load was first")]

    def once(at: IcebergTable, *arguments: object) -> None:
        if refused:
            raise refused.pop()
        write(at, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(IcebergTable, "overwrite", once)
    assert sorted(load(job(5, 10, seq=1, transform="shop:second")).receipt.write.columns) == sorted(CHANGES)


def test_columns_that_change_all_the_time_are_a_conflict(load: Load, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written by rows that were made for other columns."""
    load(job(0, 5, transform="shop:first"))
    monkeypatch.setattr(IcebergTable, "_change", lambda *_, can_retry: True)
    with pytest.raises(SinkConflict, match="others change the columns"):
        load(job(5, 10, seq=1, transform="shop:second"))


def test_a_change_that_the_table_refuses_is_named(sink: SinkUnderTest, load: Load, job: Job, table: str) -> None:
    """With the statement, and what the table says of it: version 2 of the format has no VARIANT."""
    load(job(0, 5, transform="shop:first"))
    with pytest.raises(SinkMisfit, match=r"ADD COLUMNS \(`extra`"):
        load(job(5, 10, seq=1, transform="shop:variant"))
    assert len(sink.rows(table)) == 5

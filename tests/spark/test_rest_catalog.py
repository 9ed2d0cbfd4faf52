"""Appends by compare-and-set in a REST catalog, whose commits are requirements that the server checks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyiceberg.utils.config import Config
from pyspark.sql import SparkSession

from tests.spark.conftest import Job, Load
from tests.spark.rest_catalog import CLOSED, OK, RestCatalog, rest_catalog
from tests.spark.sinks_under_test import SinkUnderTest, ids
from tests.spark.test_appends import operations
from tidegate.core.model.errors import TableLost
from tidegate.sinks.iceberg.history import IcebergReader


@pytest.fixture(scope="module")
def server(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    """The catalog `rest` of the session."""
    with rest_catalog(tmp_path_factory.mktemp("rest")) as server:
        settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": server.uri, ".cache-enabled": "false"}
        for key, value in settings.items():
            spark.conf.set(f"spark.sql.catalog.rest{key}", value)
        yield server


@pytest.fixture
def table(server: RestCatalog, table: str) -> str:
    """As in other modules, in the catalog `rest`."""
    server.commits.clear()
    return table.replace("lake.", "rest.", 1)


@pytest.fixture
def reader(server: RestCatalog, monkeypatch: pytest.MonkeyPatch) -> IcebergReader:
    """PyIceberg on the same catalog."""
    monkeypatch.setenv("PYICEBERG_CATALOG__REST__TYPE", "rest")
    monkeypatch.setenv("PYICEBERG_CATALOG__REST__URI", server.uri)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    return IcebergReader()


def test_loads_are_appends_whose_receipts_both_sides_find(
    sink: SinkUnderTest, load: Load, job: Job, table: str, server: RestCatalog, reader: IcebergReader
) -> None:
    """Also where an answer is lost: that a table was made, or a load, which the client looks for after a 500, else the load."""
    server.lost += [500, OK, 500, CLOSED]
    results = [load(job(seq * 5, seq * 5 + 5, seq=seq)) for seq in range(3)]
    assert [result.landed_before for result in results] == [False, False, True]
    assert load(job(5, 10, seq=1)).landed_before
    assert server.commits == [200] * 4  # the first is the table
    assert operations(table) == ["append"] * 3
    assert ids(sink, table) == list(range(15))
    assert reader.receipts(table, "orders") == [result.receipt for result in results]
    assert reader.history(table).owners == {"orders"}


def test_a_commit_that_the_server_refuses_is_looked_at_anew(
    sink: SinkUnderTest, load: Load, job: Job, table: str, server: RestCatalog
) -> None:
    """It has left the client when another load of the same batch lands, or one of another batch."""
    load(job(0, 5))
    server.commits.clear()
    server.before.append(lambda: load(job(5, 10, seq=1)))
    assert load(job(5, 10, seq=1)).landed_before
    server.before.append(lambda: load(job(15, 20, seq=3)))
    assert not load(job(10, 15, seq=2)).landed_before
    assert server.commits == [200, 409, 200, 409, 200]
    assert operations(table) == ["append"] * 4
    assert ids(sink, table) == list(range(20))


def test_a_table_that_lost_files_by_a_repeated_commit_is_named_and_rolled_back(
    spark: SparkSession, sink: SinkUnderTest, load: Load, job: Job, table: str, server: RestCatalog
) -> None:
    """A server must not say 503 and `Retry-After` of a commit that landed: Iceberg's client removes what it refers to."""
    first = load(job(0, 5))
    server.lost.append(503)
    with pytest.raises(TableLost, match=r"has lost its files.*snap-\S+\.avro") as caught:
        load(job(5, 10, seq=1))
    assert not caught.value.retryable
    spark.sql(f"CALL rest.system.rollback_to_snapshot('{table.removeprefix('rest.')}', {first.receipt.snapshot})").collect()
    assert not load(job(5, 10, seq=1)).landed_before
    assert ids(sink, table) == list(range(10))

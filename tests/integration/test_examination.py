"""What a Spark Connect server lacks is known before a load needs it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from tidegate.core.audit.findings import Finding
from tidegate.formats import python_workers
from tidegate.spark import examination
from tidegate.spark.examination import CATALOG, spark_found


def lacking(spark: SparkSession, catalog: str = "lake") -> dict[str, Finding]:
    return {each.check: each for each in spark_found(spark, "c", catalog) if each.state != "sound"}


def test_the_embedded_server_lacks_nothing(spark: SparkSession) -> None:
    assert {each.check for each in spark_found(spark, "c", "lake")} == {"spark", "catalog", "extensions", "workers"}
    assert lacking(spark) == {}


def test_a_catalog_is_there_and_keeps_nothing_that_it_has_read(spark: SparkSession) -> None:
    found = lacking(spark, "nowhere")["catalog"]
    assert (found.state, f"spark.sql.catalog.nowhere={CATALOG}" in found.fix) == ("broken", True)
    spark.conf.set("spark.sql.catalog.kept", CATALOG)
    found = lacking(spark, "kept")["catalog"]
    assert (found.state, "spark.sql.catalog.kept.cache-enabled=false" in found.fix) == ("broken", True)


def test_what_loads_can_do_without_is_doubtful(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Extensions, workers that decode, the client's version, and the same time."""
    monkeypatch.setattr(examination, "EXTENSIONS", "org.nobody.Extensions")
    monkeypatch.setattr(examination, "pyspark", SimpleNamespace(__version__="3.5.1"))
    monkeypatch.setattr(examination, "time", SimpleNamespace(time=lambda: 0.0))
    monkeypatch.setattr(python_workers, "resolve_name", lambda _: lambda _: 1 / 0)
    found = list(spark_found(spark, "c", "lake"))
    assert [each.check for each in found if each.state == "doubtful"] == ["spark", "spark", "extensions", "workers"]
    assert [each.check for each in found if each.state == "sound"] == ["catalog"]
    told = " ".join(each.says for each in found)
    assert "its client here 3.5.1" in told
    assert "ahead of that of Airflow's worker" in told
    assert "Error" in told

"""What a Spark Connect server is, and has, that loads need: nothing is read from Kafka, and nothing is written."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyspark
from pyspark.sql import SparkSession

from tidegate.core.audit.findings import Finding, broken, doubtful, sound
from tidegate.core.model.times import CLOCKS_APART_MS
from tidegate.formats.json import CHECK
from tidegate.formats.python_workers import why_not

EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
CATALOG = "org.apache.iceberg.spark.SparkCatalog"


def spark_found(spark: SparkSession, connection: str, catalog: str) -> Iterator[Finding]:
    """What the server of a connection has, and whether that catalog."""
    yield from _server(spark, connection)
    yield _catalog(spark, catalog)
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    if EXTENSIONS in extensions:
        yield sound("extensions", connection)
    else:
        yield doubtful(
            "extensions",
            connection,
            "Spark lacks Iceberg's SQL extensions, which sink.sort_by and changes of a table's partitioning need",
            f"Start the server with spark.sql.extensions={EXTENSIONS}",
        )
    why = why_not(spark, CHECK)
    if why is None:
        yield sound("workers", connection)
    else:
        yield doubtful(
            "workers",
            connection,
            f"Python workers cannot decode records ({why}): Spark's own parser makes the same rows, more slowly",
            "Install pyarrow and msgspec, and the driver's version of Python, where executors run",
        )


def _server(spark: SparkSession, connection: str) -> Iterator[Finding]:
    ours, theirs = (".".join(version.split(".")[:2]) for version in (pyspark.__version__, spark.version))
    asked_s = time.time()
    theirs_s = spark.sql("SELECT unix_millis(current_timestamp())").collect()[0][0] / 1000
    answered_s = time.time()
    # the answer may have waited for an executor, before or after the clock was read
    apart_s = theirs_s - min(max(theirs_s, asked_s), answered_s)
    found = []
    if ours != theirs:
        says = f"Spark is {spark.version}, and its client here {pyspark.__version__}"
        found.append(doubtful("spark", connection, says, f"Run Spark {ours}, which Tidegate is tested with"))
    if abs(apart_s) * 1000 > CLOCKS_APART_MS:
        ahead = f"Spark's clock is {abs(apart_s):.0f} s {'ahead of' if apart_s > 0 else 'behind'} that of Airflow's worker"
        says = f"{ahead}: what says how old records are is wrong by that"
        found.append(doubtful("spark", connection, says, "Let both machines keep time by NTP"))
    yield from found or [sound("spark", connection)]


def _catalog(spark: SparkSession, catalog: str) -> Finding:
    name = f"spark.sql.catalog.{catalog}"
    held = spark.conf.get(name, None)
    if held is None:
        return broken(
            "catalog",
            catalog,
            f"Spark has no catalog {catalog}, which the table's name begins with",
            f"Start Spark with {name}={CATALOG}, and with the catalog's type and uri",
        )
    is_cached = (spark.conf.get(f"{name}.cache-enabled", None) or "true").lower() != "false"
    if is_cached and spark.conf.get(f"{name}.cache.expiration-interval-ms", None) != "0":
        return broken(
            "catalog",
            catalog,
            f"Spark keeps what it has read of the tables of {catalog}, and does not see the commits of others",
            f"Start Spark with {name}.cache-enabled=false",
        )
    return sound("catalog", catalog)

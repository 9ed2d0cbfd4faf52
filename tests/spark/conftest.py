"""One classic Spark session for all tests here, with an Iceberg catalog `lake` in a temporary folder. No broker.

A process cannot hold a classic session beside a Spark Connect session that works: this one ends with the last test here.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyiceberg.utils.config import Config
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

import tidegate.spark.load
import tidegate.testing.sinks
from tests.records import changed, load_job
from tests.spark.log import PLAIN, logged, rows_of
from tests.spark.sinks_under_test import Iceberg, Memory, SinkUnderTest
from tidegate.core.config.sinks import KINDS
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.jobs import LoadJob, LoadResult
from tidegate.sinks.iceberg.history import IcebergReader
from tidegate.testing.sinks import MEMORY
from tidegate_local.jars import ensure_jars

RECORDS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))),
        StructField("_kafka_topic", StringType()),
        StructField("_kafka_partition", IntegerType()),
        StructField("_kafka_offset", LongType()),
    ]
)
HERE = Path(__file__).parent
PARTS = "parts"
TRANSFORMS = f'''
from pyspark.sql import functions as F
{PLAIN}
def bare(records): return plain(records).drop("_error", "_raw")
def holed(records): return bare(records).withColumn("id", F.when(F.col("id") < 12, F.col("id")))
def doubled(records): return plain(records).withColumn("id", F.explode(F.array(F.col("id"), F.col("id") + 1000)))
def counted(records): return by_parity(plain(records))
def counted_odd(records): return counted(records).where("parity = 1")
def counted_none(records): return by_parity(plain(records).where("id > 1000"))
def numbered(records): return counted(records).withColumn("_Batch", F.lit(7))
def odd(records): return plain(records).where("id % 2 = 1")
def typed_otherwise(records): return plain(records).withColumn("id", F.col("id").cast("string"))
def widened(records): return plain(records).withColumn("extra", F.lit(1.5))
def no_offset(records): return plain(records).drop("_kafka_offset")
def text_offset(records): return plain(records).withColumn("_kafka_offset", F.col("_kafka_offset").cast("string"))
def moved(records): return plain(records).withColumn("_kafka_offset", F.col("_kafka_offset") + 5)
def nowhere(records): return plain(records).withColumn("_kafka_topic", F.lit(None).cast("string"))
def misnamed(records): return records.select("nothing")

def picky(records):
    """Fails of the records from 17 on, each by a cast of its own text."""
    return bare(records).withColumn("id", F.when(F.col("id") < 17, "1").otherwise(F.concat(F.lit("x"), "id")).cast("int"))

def unnamed(records):
    """The records from 4 on have a text for the table's UUID that is none."""
    good = F.lit("f79c3e09-677c-4bbd-a479-3f349cb785e7")
    return bare(records).withColumn("u", F.when(F.col("id") < 4, good).otherwise(F.concat(F.lit("no"), "id")))

def by_parity(rows):
    """Their number and the sum of their ids, by parity."""
    return rows.groupBy((F.col("id") % 2).alias("parity")).agg(F.count("*").alias("n"), F.sum("id").alias("total"))

def raising(records):
    """Fails."""
    raise KeyError("no such field")

def nothing(records):
    """Forgets to return."""

constant = 7
'''


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Py4J leaves sockets to the garbage collector, which may find them in any test here."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning"))


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The classic session; its catalog `lake` is JDBC on SQLite, as on the embedded platform."""
    folder = tmp_path_factory.mktemp("lake")
    catalog = "spark.sql.catalog.lake"
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraClassPath": f"{ensure_jars().spark}/*",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.sql.dataFrameDebugging.enabled": "false",  # each call would cost five more, to say where it is made
        "spark.sql.warehouse.dir": (folder / "spark").as_uri(),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{folder}/catalog.db",
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": folder.as_uri(),
        f"{catalog}.cache-enabled": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("tests")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)  # otherwise `python3`, which need not be this one
        session = builder.config(map=settings).getOrCreate()
        session.sparkContext.setLogLevel("OFF")  # the tests fail jobs on purpose
        yield session
        session.stop()
    gc.collect()  # while the warnings about Py4J's sockets are ignored


Records = Callable[[list[bytes | None]], DataFrame]
Load = Callable[[LoadJob], LoadResult]
Job = Callable[..., LoadJob]
"""Makes jobs, as `job` and `batch` do."""


@pytest.fixture
def records(spark: SparkSession) -> Records:
    """Makes records as `read_ranges` gives them: partition 0 of `orders`, offsets from 0."""

    def make(values: list[bytes | None]) -> DataFrame:
        at = datetime(2026, 1, 1, tzinfo=UTC)
        rows = [(b"k", value, at, 0, None, "orders", 0, offset) for offset, value in enumerate(values)]
        return rows_of(spark, rows, RECORDS)

    return make


@pytest.fixture
def table(request: pytest.FixtureRequest) -> str:
    """The name of a table that no other test uses; it does not exist yet."""
    return f"lake.tests.{re.sub(r'[^a-z0-9]+', '_', request.node.name.lower()).strip('_')}"


@pytest.fixture
def reader(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> IcebergReader:
    """PyIceberg on the session's catalog."""
    uri = spark.conf.get("spark.sql.catalog.lake.uri")
    assert uri is not None
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", uri.replace("jdbc:sqlite:", "sqlite:///"))
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    return IcebergReader()


@pytest.fixture(scope="package")
def spark_jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of transforms, module `shapes`."""
    folder = tmp_path_factory.mktemp("spark_jobs")
    (folder / "shapes.py").write_text(TRANSFORMS)
    return folder


@pytest.fixture
def sink(request: pytest.FixtureRequest, spark: SparkSession, reader: IcebergReader) -> SinkUnderTest:
    """The sink that `load` writes to: Iceberg's, unless the test is parametrized by another one (`either_sink`)."""
    return Memory() if getattr(request, "param", "iceberg") == "memory" else Iceberg(spark)


@pytest.fixture
def load(spark: SparkSession, spark_jobs: Path, sink: SinkUnderTest, monkeypatch: pytest.MonkeyPatch) -> Load:
    """`load_range` into a sink, on a topic of 30 records, whose ids are their offsets, read in as many tasks as PARTS says."""

    def read(_spark: SparkSession, ranges: tuple[OffsetRange, ...], options: dict[str, str], **_plan: object) -> DataFrame:
        (only,) = ranges
        there = replace(only, from_offset=min(only.from_offset, 30), until_offset=min(only.until_offset, 30))
        return logged(spark, there, F.format_string('{"id": %d}', "id"), int(options.get(PARTS, 1)))

    monkeypatch.setattr(tidegate.spark.load, "read_ranges", read)
    monkeypatch.setitem(KINDS, MEMORY.name, MEMORY)
    monkeypatch.setattr(tidegate.testing.sinks, "TABLES", {})
    return lambda job: tidegate.spark.load.load_range(spark, replace(job, sink=sink.kind), spark_jobs=spark_jobs)


@pytest.fixture
def job(table: str) -> Job:
    """Makes jobs on that table: `job(0, 10)` reads offsets [0, 10) of partition 0."""

    def make(
        from_offset: int, until_offset: int, *, seq: int = 0, transform: str = "shapes:plain", redo: bool = False
    ) -> LoadJob:
        ranges = (OffsetRange("orders", 0, from_offset, until_offset),)
        options = {"kafka.bootstrap.servers": "nowhere:1"}
        return load_job("orders", seq, "manual__1", ranges, transform, table, options, redo=redo)

    return make


@pytest.fixture
def batch(job: Job) -> Job:
    """`batch(3)` is batch 3: offsets [20, 30)."""

    def make(seq: int, *, transform: str = "counted", redo: bool = False) -> LoadJob:
        made = job(seq * 10 - 10, seq * 10, seq=seq, transform=f"shapes:{transform}", redo=redo)
        return changed(made, identity="batch")

    return make

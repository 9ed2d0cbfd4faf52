"""A load whose task fails, and whose executor dies between two stages: in a process with a cluster of its own.

In a session that runs its tasks itself, the lost blocks of an executor would be those of the driver.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

import tidegate.spark.load
from tests.records import load_job
from tests.spark.log import PLAIN, logged
from tidegate.core.model.ranges import OffsetRange
from tidegate_local.jars import ensure_jars

SHAPES = f'''
from pathlib import Path

import psutil
from pyspark import TaskContext
from pyspark.sql import functions as F

DIED = Path(__file__).parent / "died"
{PLAIN}
def retried(records):
    """The first attempt at a task fails. Then the executor dies with the files of that stage, which has to run again."""
    @F.udf("int")
    def fails(value):
        task = TaskContext.get()
        if task.partitionId() == 0 and task.attemptNumber() == 0:
            raise RuntimeError("once")
        return value

    @F.udf("int")
    def dies(value):
        try:
            DIED.touch(exist_ok=False)
        except FileExistsError:
            return value
        psutil.Process().parent().parent().kill()

    return plain(records).withColumn("id", fails("id")).repartition(2, "id").withColumn("id", dies("id"))
'''


def main(folder: Path) -> None:
    """Load 30 records; print what was counted, as JSON."""
    jars, catalog = f"{ensure_jars().spark}/*", "spark.sql.catalog.lake"
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraClassPath": jars,
        "spark.executor.extraClassPath": jars,
        "spark.sql.shuffle.partitions": "2",
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": (folder / "spark").as_uri(),
        "spark.shuffle.io.maxRetries": "0",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hadoop",
        f"{catalog}.warehouse": folder.as_uri(),
    }
    (folder / "retried.py").write_text(SHAPES)
    spark = SparkSession.builder.master("local-cluster[1,2,1024]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")

    def read(_spark: SparkSession, ranges: tuple[OffsetRange, ...], _options: object, **_plan: object) -> DataFrame:
        (only,) = ranges
        return logged(spark, only, F.format_string('{"id": %d}', "id"), parts=2)

    tidegate.spark.load.read_ranges = read  # type: ignore[assignment, attr-defined]
    job = load_job("orders", 1, "run", (OffsetRange("orders", 0, 0, 30),), "retried:retried", "lake.tests.retried", {})
    result = tidegate.spark.load.load_range(spark, job, spark_jobs=folder)
    rows = [row.id for row in spark.table(job.table).select("id").collect()]
    sys.stdout.write(json.dumps({"observed": [result.observed.records, result.observed.rows], "ids": sorted(rows)}))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Which adapter writes to a job's table. The one place outside an adapter that names it."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tidegate.core.load.job import LoadJob
from tidegate.spark.sinks.iceberg.table import IcebergTable
from tidegate.spark.sinks.port import SinkWriter


def sink_of(job: LoadJob, spark: SparkSession) -> SinkWriter:
    """The sink that holds the job's table."""
    return IcebergTable(spark, job.table)

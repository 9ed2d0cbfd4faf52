"""Which adapter writes to a job's table, or maintains it. The one place outside an adapter that names it."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tidegate.core.load.job import LoadJob
from tidegate.core.maintenance.job import Maintained, MaintenanceJob
from tidegate.spark.sinks.iceberg import maintenance
from tidegate.spark.sinks.iceberg.table import IcebergTable
from tidegate.spark.sinks.port import SinkWriter


def sink_of(job: LoadJob, spark: SparkSession) -> SinkWriter:
    """The sink that holds the job's table."""
    return IcebergTable(spark, job.table)


def maintain(spark: SparkSession, job: MaintenanceJob) -> Maintained:
    """One step of the maintenance of the job's table; see `tidegate.spark.sinks.iceberg.maintenance.maintain`."""
    return maintenance.maintain(spark, job)

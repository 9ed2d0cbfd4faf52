"""Which adapter writes to a job's table, or maintains it; `readers` says which one reads it. No other module names one."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tidegate.core.state.jobs import LoadJob, Maintained, MaintenanceJob
from tidegate.sinks.iceberg import maintenance
from tidegate.sinks.iceberg.table import IcebergTable
from tidegate.sinks.port import SinkWriter


def sink_of(job: LoadJob, spark: SparkSession) -> SinkWriter:
    """The sink that holds the job's table."""
    return IcebergTable(spark, job.table)


def maintain(spark: SparkSession, job: MaintenanceJob) -> Maintained:
    """One step of the maintenance of the job's table; see `tidegate.sinks.iceberg.maintenance.maintain`."""
    return maintenance.maintain(spark, job)

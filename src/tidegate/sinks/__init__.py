"""Where rows go: the port of writers, the registry by kind, and a folder for each kind.

What reads, writes and maintains tables is imported when it is first asked for, as `tidegate.core.config.sinks` names it.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING

from tidegate.core.config.sinks import KINDS
from tidegate.core.state.jobs import LoadJob, Maintained, MaintenanceJob
from tidegate.core.state.ports import SinkReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.sinks.port import SinkWriter


def reader_of(kind: str) -> SinkReader:
    """What reads tables of this kind, without Spark."""
    reader: SinkReader = resolve_name(KINDS[kind].reader)()
    return reader


def sink_of(job: LoadJob, spark: SparkSession) -> SinkWriter:
    """What writes into the job's table."""
    writer: SinkWriter = resolve_name(KINDS[job.sink].writer)(spark, job.table)
    return writer


def maintain(spark: SparkSession, job: MaintenanceJob) -> Maintained:
    """One step of the maintenance of the job's table; see `tidegate.sinks.iceberg.maintenance.maintain`."""
    done: Maintained = resolve_name(KINDS[job.sink].maintain)(spark, job)
    return done

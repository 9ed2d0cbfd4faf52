"""The owners of an Iceberg table, as the table itself names them.

Rules:
- Each owner is one property of the table (`tidegate.owner.<pipeline>`), so that two pipelines that come at once cannot
  overwrite each other's. It is written with the table, or before the first load of a pipeline that shares it.
- A table without such a property was made by somebody else, or has lost it: it belongs to the pipelines of its receipts.
- Properties take two round trips to read, so they are read only where no recent commit of the pipeline says that they name it
  (`OWNED`).
- Whoever owns the table, rows that another pipeline has loaded are not replaced, as far as receipts are kept.
"""

from __future__ import annotations

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.core.load.lookup import Lookup, check_owners, check_rows
from tidegate.core.state.jobs import LoadJob
from tidegate.core.state.receipt import PIPELINE, PREFIX
from tidegate.sinks.iceberg.summary import OWNER, owners_in
from tidegate.sinks.origin import any_of


def quoted(table: str) -> str:
    """A table's name, or the part of one, as SQL takes it."""
    return ".".join(f"`{part}`" for part in table.split("."))


def by_others(job: LoadJob) -> Column:
    """Whether a snapshot is one of another pipeline whose rows the load could replace, as far as its summary shows."""
    summary = F.col("summary")
    of_another = ~summary[PIPELINE].isin(*job.names)
    if job.load.batch is not None:
        return of_another
    ranges = summary[f"{PREFIX}ranges"]
    return of_another & any_of(F.contains(ranges, F.lit(f'"{topic}":')) for topic in sorted({r.topic for r in job.load.ranges}))


def check_owner(spark: SparkSession, job: LoadJob, lookup: Lookup) -> bool:
    """Refuse a table that belongs to other pipelines, or their rows. True where the pipeline has yet to be made an owner.

    No round trip where a recent commit says that the pipeline owns the table. Otherwise two, and one more for a table that
    names no owner.

    Raises:
        SinkMisfit: the table, or rows that the load would replace, are another pipeline's.
    """
    check_rows(job, lookup.others)
    named = set() if lookup.owns else _named(spark, job.table)
    check_owners(job, named or ({job.load.pipeline} if lookup.owns else _loaded(spark, job.table)), lookup.others)
    return not lookup.owns and job.load.pipeline not in named


def add_owner(spark: SparkSession, job: LoadJob) -> None:
    """Make the pipeline an owner of its table."""
    spark.sql(f"ALTER TABLE {quoted(job.table)} SET TBLPROPERTIES ('{OWNER}{job.load.pipeline}' = 'true')")


def _named(spark: SparkSession, table: str) -> set[str]:
    """The pipelines that the table's properties name."""
    properties = spark.sql(f"SHOW TBLPROPERTIES {quoted(table)}").collect()
    return owners_in(row["key"] for row in properties)


def _loaded(spark: SparkSession, table: str) -> set[str]:
    """The pipelines that the table's receipts name."""
    pipeline = F.col("summary")[PIPELINE].alias("pipeline")
    rows = spark.table(f"{table}.snapshots").select(pipeline).where("pipeline IS NOT NULL").distinct().collect()
    return {row["pipeline"] for row in rows}

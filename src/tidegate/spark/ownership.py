"""Whose table it is, as the table itself says.

Rules:
- Each owner is one property of the table (`tidegate.owner.<pipeline>`), so that two pipelines that come at once cannot
  overwrite each other's. It is written with the table, or before the first load of a pipeline that shares it.
- A table without such a property was made by an older version or by somebody else: it belongs to whoever its receipts name.
- Properties take two round trips to read, so they are read only where no recent commit of the pipeline says that they name it
  (`OWNED`).
- Whoever owns the table, rows that another pipeline has loaded are not replaced, as far as receipts are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.core.errors import SinkMisfit, some
from tidegate.core.load.job import LoadJob
from tidegate.core.load.receipt import OWNER, PREFIX, Receipt
from tidegate.core.offsets.algebra import common
from tidegate.spark.origin import any_of

OWNED = f"{PREFIX}owned"
"""The property of a commit that says that its pipeline was an owner of the table by then."""
WHOSE = f"{PREFIX}pipeline"


@dataclass(frozen=True)
class Looked:
    """What a table's receipts say of a load.

    Args:
        exists: whether there is such a table.
        landed: the newest receipt of the same batch or chunk.
        owns: whether a recent commit says that the pipeline owns the table.
        others: what other pipelines have loaded that the load could replace, and that the table still holds, newest first.
    """

    exists: bool
    landed: Receipt | None = None
    owns: bool = False
    others: tuple[Receipt, ...] = ()


def by_others(job: LoadJob) -> Column:
    """Whether a commit is one of another pipeline that the load could be in the way of."""
    summary = F.col("summary")
    theirs = summary[WHOSE] != job.pipeline
    if job.batch_replaced is not None:
        return theirs
    ranges = summary[f"{PREFIX}ranges"]
    return theirs & any_of(F.contains(ranges, F.lit(f'"{topic}":')) for topic in sorted({r.topic for r in job.ranges}))


def in_the_way(receipt: Receipt, job: LoadJob) -> bool:
    """Whether the load could replace rows of another pipeline's commit."""
    return job.batch_replaced is not None or bool(common(receipt.load.ranges, job.ranges))


def check_owner(spark: SparkSession, job: LoadJob, looked: Looked) -> bool:
    """Refuse a table that belongs to other pipelines, or their rows. Says whether the pipeline has yet to be made an owner.

    No round trip where a recent commit says that the pipeline owns the table. Otherwise two, and one more for a table that
    names no owner.

    Raises:
        SinkMisfit: the table, or rows that the load would replace, are another pipeline's.
    """
    me, table = job.pipeline, job.table
    if job.batch_replaced is None and looked.others:
        theirs = looked.others[0]
        held = some(str(r) for r in common(theirs.load.ranges, job.ranges))
        raise SinkMisfit(
            f"table {table} holds rows of {held} by pipeline {theirs.load.pipeline}, which a load of {me} would delete",
            fix=f"Let {me} write into a table of its own, or read other partitions than {theirs.load.pipeline}",
            table=table,
            pipeline=me,
            owner=theirs.load.pipeline,
        )
    named = set() if looked.owns else _named(spark, table)
    owners = named or ({me} if looked.owns else _loaded(spark, table))
    strangers = sorted(owners - {me} | {r.load.pipeline for r in looked.others})
    if job.batch_replaced is not None and strangers:
        raise SinkMisfit(
            f"table {table} is pipeline {strangers[0]}'s, whose batches have the same numbers as those of {me}",
            fix="Write to a table of its own: with `identity: batch` a table belongs to one pipeline",
            table=table,
            pipeline=me,
            owner=strangers[0],
        )
    if me not in owners and not set(strangers) <= set(job.shared_with):
        whose = " and ".join(strangers)
        raise SinkMisfit(
            f"table {table} belongs to pipeline {whose}, not to {me}",
            fix=f"Let {me} write into a table of its own, or let the files of both name each other in sink.shared_with",
            table=table,
            pipeline=me,
            owner=whose,
        )
    return not looked.owns and me not in named


def own(spark: SparkSession, job: LoadJob) -> None:
    """Make the pipeline an owner of its table."""
    spark.sql(f"ALTER TABLE {_quoted(job.table)} SET TBLPROPERTIES ('{OWNER}{job.pipeline}' = 'true')")


def _named(spark: SparkSession, table: str) -> set[str]:
    """The pipelines that the table's properties name."""
    properties = spark.sql(f"SHOW TBLPROPERTIES {_quoted(table)}").collect()
    return {row["key"].removeprefix(OWNER) for row in properties if row["key"].startswith(OWNER)}


def _loaded(spark: SparkSession, table: str) -> set[str]:
    """The pipelines that the table's receipts name."""
    whose = F.col("summary")[WHOSE].alias("whose")
    found = spark.table(f"{table}.snapshots").select(whose).where("whose IS NOT NULL").distinct().collect()
    return {row["whose"] for row in found}


def _quoted(table: str) -> str:
    return ".".join(f"`{part}`" for part in table.split("."))

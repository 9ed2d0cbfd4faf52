"""What a sink's receipts say of a load before it begins, and whether the load may write into that table.

A load replaces the rows of its ranges, or of its batch, whoever wrote them. So a table has owners, and a load of any other
pipeline is refused, as is one that would replace rows of another owner. How a sink keeps its owners is its own affair; who may
write is decided here, alike for all sinks.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from tidegate.core.errors import SinkMisfit, some
from tidegate.core.load.job import LoadJob
from tidegate.core.load.receipt import Receipt
from tidegate.core.offsets.algebra import common


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a table's receipts say of a load. Only receipts of commits that the table's current state descends from count.

    Args:
        exists: whether there is such a table.
        landed: the newest receipt of the same batch, or of the same chunk of a replay.
        owns: whether a recent commit says that the pipeline owns the table.
        others: commits of other pipelines whose rows the load could replace, newest first; a sink may name just the newest.
    """

    exists: bool
    landed: Receipt | None = None
    owns: bool = False
    others: tuple[Receipt, ...] = ()


def in_the_way(receipt: Receipt, job: LoadJob) -> bool:
    """Whether a load could replace rows of another pipeline's commit."""
    if receipt.load.pipeline == job.pipeline:
        return False
    return job.batch_replaced is not None or bool(common(receipt.load.ranges, job.ranges))


def check_rows(job: LoadJob, others: tuple[Receipt, ...]) -> None:
    """Refuse a load that would delete rows of another pipeline, known by their origin.

    Args:
        job: the load.
        others: see `Lookup`.

    Raises:
        SinkMisfit: it would; the error names the ranges and the pipeline of the first of `others`.
    """
    if job.batch_replaced is not None or not others:
        return
    owner, me = others[0].load.pipeline, job.pipeline
    ranges = some(str(r) for r in common(others[0].load.ranges, job.ranges))
    raise SinkMisfit(
        f"table {job.table} holds rows of {ranges} by pipeline {owner}, which a load of {me} would delete",
        fix=f"Let {me} write into a table of its own, or read other partitions than {owner}",
        table=job.table,
        pipeline=me,
        owner=owner,
    )


def check_owners(job: LoadJob, owners: AbstractSet[str], others: tuple[Receipt, ...]) -> None:
    """Refuse a table that belongs to other pipelines.

    A table of batches is never shared: the batches of two pipelines have the same numbers.

    Args:
        job: the load.
        owners: the pipelines that the table belongs to; none where nobody has claimed it yet.
        others: see `Lookup`.

    Raises:
        SinkMisfit: the table belongs to pipelines with which the job's does not share it.
    """
    me, table = job.pipeline, job.table
    strangers = sorted(owners - {me} | {r.load.pipeline for r in others})
    if job.batch_replaced is not None and strangers:
        raise SinkMisfit(
            f"table {table} is pipeline {strangers[0]}'s, whose batches have the same numbers as those of {me}",
            fix="Write to a table of its own: with `identity: batch` a table belongs to one pipeline",
            table=table,
            pipeline=me,
            owner=strangers[0],
        )
    if me not in owners and not set(strangers) <= set(job.shared_with):
        names = " and ".join(strangers)
        raise SinkMisfit(
            f"table {table} belongs to pipeline {names}, not to {me}",
            fix=f"Let {me} write into a table of its own, or let the files of both name each other in sink.shared_with",
            table=table,
            pipeline=me,
            owner=names,
        )

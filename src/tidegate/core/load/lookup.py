"""What a sink's receipts say of a load before it begins, and whether the load may write into that table.

How a sink keeps its owners is its own affair; who may write is decided here, alike for all sinks
(docs/adr/0008-owners-of-a-table.md).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from tidegate.core.model.errors import SinkMisfit, some
from tidegate.core.model.ranges import common
from tidegate.core.state.jobs import LoadJob
from tidegate.core.state.receipt import Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """What a table's receipts say of a load. Only receipts of commits that the table's current state descends from count.

    Args:
        exists: whether there is such a table.
        landed: the newest receipt of the same batch, or of the same chunk of a replay.
        owns: whether a recent commit says that the pipeline owns the table.
        others: commits of other pipelines whose rows the load could replace, newest first; a sink may name just the newest.
        head: the commit that was the table's current state when it was looked at; None without one.
        last: the receipt of `head`, if that commit says that the table holds no later rows in the places of its own.
    """

    exists: bool
    landed: Receipt | None = None
    owns: bool = False
    others: tuple[Receipt, ...] = ()
    head: int | None = None
    last: Receipt | None = None


def own(receipt: Receipt, job: LoadJob) -> Receipt:
    """The receipt; one that the pipeline has left under a name of before is its own."""
    if receipt.load.pipeline not in job.formerly:
        return receipt
    return receipt.of(pipeline=job.load.pipeline)


def in_the_way(receipt: Receipt, job: LoadJob) -> bool:
    """Whether a load could replace rows of another pipeline's commit."""
    if receipt.load.pipeline == job.load.pipeline:
        return False
    return job.load.batch is not None or bool(common(receipt.load.ranges, job.load.ranges))


def check_rows(job: LoadJob, others: tuple[Receipt, ...]) -> None:
    """Refuse a load that would delete rows of another pipeline, known by their origin; `others` as in `Lookup`.

    Raises SinkMisfit: it would; the error names the ranges and the pipeline of the first of `others`.
    """
    if job.load.batch is not None or not others:
        return
    owner, me = others[0].load.pipeline, job.load.pipeline
    ranges = some(str(r) for r in common(others[0].load.ranges, job.load.ranges))
    raise SinkMisfit(
        f"table {job.table} holds rows of {ranges} by pipeline {owner}, which a load of {me} would delete",
        fix=f"Let {me} write into a table of its own, or read other partitions than {owner}",
        table=job.table,
        pipeline=me,
        owner=owner,
    )


def check_owners(job: LoadJob, owners: AbstractSet[str], others: tuple[Receipt, ...]) -> None:
    """Refuse a table that belongs to other pipelines; see `refuse_strangers`, and `Lookup` for `others`."""
    refuse_strangers(
        job.load.pipeline,
        job.table,
        {job.load.pipeline if owner in job.formerly else owner for owner in owners},
        {r.load.pipeline for r in others},
        shared_with=job.shared_with,
        by_batch=job.load.batch is not None,
    )


def refuse_strangers(
    me: str,
    table: str,
    owners: AbstractSet[str],
    loaders: AbstractSet[str],
    *,
    shared_with: Collection[str],
    by_batch: bool,
) -> None:
    """Refuse a table that belongs to other pipelines than `me` and those that it shares the table with.

    `owners` are none where nobody has claimed it yet; `loaders` have loaded into it, as far as it matters. A table of batches
    is never shared: the batches of two pipelines have the same numbers.

    Raises SinkMisfit: it belongs to them.
    """
    strangers = sorted((owners | loaders) - {me})
    if by_batch and strangers:
        raise SinkMisfit(
            f"table {table} belongs to pipeline {strangers[0]}, whose batches have the same numbers as those of {me}",
            fix=f"{_named_back(me, strangers)}write to a table of its own: "
            "with `identity: batch` a table belongs to one pipeline",
            table=table,
            pipeline=me,
            owner=strangers[0],
        )
    if me not in owners and not set(strangers) <= set(shared_with):
        names = " and ".join(strangers)
        raise SinkMisfit(
            f"table {table} belongs to pipeline {names}, not to {me}",
            fix=f"{_named_back(me, strangers)}let {me} write into a table of its own, "
            "or let the files of both name each other in sink.shared_with",
            table=table,
            pipeline=me,
            owner=names,
        )


def _named_back(me: str, strangers: Sequence[str]) -> str:
    """What to do where the pipeline is one of the others under a new name."""
    one, old = (strangers[0], strangers[0]) if len(strangers) == 1 else ("one of them", "OLD")
    return f"If {me} is {one} under a new name, name its file back, or run `tidegate rename {old} {me}`; otherwise "

"""Conflicts between pipeline files: which of them would write into one table, or commit to one consumer group, and must not.

A load replaces the rows of its ranges, whichever pipeline wrote them. So a table belongs to one pipeline, unless the files of
several pipelines name each other (`sink.shared_with`), and then no two of them read the same partition. The owners that the
table itself names, in its properties, are checked by each load. One of the pipelines of a table may maintain it, and then the
table that keeps its commits is nobody else's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import permutations, product

from tidegate.core.config.names import COMMITS_TABLE
from tidegate.core.config.pipeline import Pipeline, Source
from tidegate.core.model.errors import some


def table_faults(pipelines: Iterable[Pipeline], files: Collection[str] = ()) -> dict[str, list[str]]:
    """What is wrong with the tables of these pipelines, by the name of the pipeline: the setting, and a sentence.

    Args:
        pipelines: those whose files are valid.
        files: the names of further pipelines that have a file, valid or not.
    """
    faults: dict[str, list[str]] = {}
    by_name = sorted(pipelines, key=lambda p: p.name)
    known = {p.name for p in by_name} | {*files}
    for this in by_name:
        if unknown := sorted({*this.sink.shared_with} - known):
            faults[this.name] = [_unknown_fault(unknown)]
    for this, that in product(by_name, repeat=2):
        fault = _orphans_fault(this, that)
        if this is not that:
            fault = _maintenance_fault(this, that) or fault or _fault(this, that)
        if fault is not None:
            faults.setdefault(this.name, []).append(fault)
    return faults


def group_faults(pipelines: Iterable[Pipeline]) -> dict[str, list[str]]:
    """As `table_faults`, of their consumer groups: what one pipeline has read, lag tools would see of the other."""
    faults: dict[str, list[str]] = {}
    for this, that in permutations(sorted(pipelines, key=lambda p: p.name), 2):
        if (this.source.connection, this.consumer_group) == (that.source.connection, that.consumer_group):
            fault = f"group: {this.consumer_group} is also the consumer group of pipeline {that.name}; choose another name"
            faults.setdefault(this.name, []).append(fault)
    return faults


def _fault(this: Pipeline, that: Pipeline) -> str | None:
    table = this.sink.table
    if table.lower() != that.sink.table.lower():
        if that.writes(table):
            return f"sink.table: replays of pipeline {that.name} may write into {table}; choose a table of another name"
        return None
    also, own = f"{table} is also the table of pipeline {that.name}", "choose another table"
    if "batch" in (this.identity, that.identity):
        return f"sink.table: {also}, and with `identity: batch` a table belongs to one pipeline; {own}"
    without = [p.name for p, q in ((this, that), (that, this)) if q.name not in p.sink.shared_with]
    if without:
        missing = " and ".join(f"{name}.yaml" for name in sorted(without))
        return (
            f"sink.table: {also}; {own}, or let both files name the other pipeline in sink.shared_with (missing in {missing})"
        )
    common = _read_by_both(this.source, that.source)
    if common:
        return f"sink.table: {also}, and both read {some(common)}: a load of one would delete the rows of the other; {own}"
    return None


def _unknown_fault(names: list[str]) -> str:
    """Whoever shares a table with a pipeline that does not run begins behind records that nobody has read."""
    files = " and ".join(f"{name}.yaml" for name in names)
    return (
        f"sink.shared_with: there is no {files}; leave the name out, or, where a pipeline had that name before, "
        "name its file back, or run `tidegate rename OLD NEW`"
    )


def _maintenance_fault(this: Pipeline, that: Pipeline) -> str | None:
    """Of the pipeline whose file asks for maintenance: another one is not stopped by it."""
    if this.maintenance is None:
        return None
    commits = f"{this.sink.table}{COMMITS_TABLE}"
    if that.writes(commits):
        return f"maintenance: it keeps commits in {commits}, which pipeline {that.name} writes; rename one of the tables"
    if that.maintenance is not None and this.sink.table.lower() == that.sink.table.lower():
        return f"maintenance: {that.sink.table} is also maintained by pipeline {that.name}; leave it to one of them"
    return None


def _orphans_fault(this: Pipeline, that: Pipeline) -> str | None:
    """Catalogs keep a table in a folder of its name, below the one of its namespace, and its files there in `data`."""
    if this.maintenance is None or this.maintenance.keep_orphans is None:
        return None
    folder = f"{this.sink.table}.data".lower()
    for table in (that.sink.table, *that.replay.tables):
        if table.lower() == folder or table.lower().startswith(f"{folder}."):
            return (
                f"maintenance.keep_orphans: {table} of pipeline {that.name} may keep its files in the data folder of "
                f"{this.sink.table}, where they look like orphans; leave keep_orphans out"
            )
    return None


def _read_by_both(this: Source, that: Source) -> list[str]:
    """The topics, and the partitions of a topic, that both files name."""
    of_this, of_that = _partitions_by_topic(this), _partitions_by_topic(that)
    common = []
    for topic in sorted(of_this.keys() & of_that.keys()):
        one, other = of_this[topic], of_that[topic]
        if one is None or other is None:
            common.append(f"topic {topic}")
        else:
            common += [f"{topic}-{partition}" for partition in sorted(one & other)]
    return common


def _partitions_by_topic(source: Source) -> dict[str, frozenset[int] | None]:
    """The topics that a file names, each with the partitions that it names; None is every partition."""
    if source.assign is not None:
        return {topic: frozenset(partitions) for topic, partitions in source.assign.items()}
    return dict.fromkeys(source.topics or ())

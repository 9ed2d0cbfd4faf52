"""Whose table is whose: what the pipelines' files say of each other.

A load replaces the rows of its ranges, whoever wrote them. So a table belongs to one pipeline, unless the files of several name
each other (`sink.shared_with`), and then no two of them read the same partition. The table keeps its owners too: a load is
checked against them by `tidegate.core.load.lookup`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from tidegate.core.config.pipeline import Pipeline, Source
from tidegate.core.errors import some


def table_faults(pipelines: Iterable[Pipeline]) -> dict[str, list[str]]:
    """What is wrong with the tables of these pipelines, by the name of the pipeline: the setting, and a sentence."""
    found: dict[str, list[str]] = {}
    for one, other in combinations(sorted(pipelines, key=lambda p: p.name), 2):
        for this, that in ((one, other), (other, one)):
            fault = _fault(this, that)
            if fault is not None:
                found.setdefault(this.name, []).append(fault)
    return found


def _fault(this: Pipeline, that: Pipeline) -> str | None:
    table = this.sink.table
    if table.lower() != that.sink.table.lower():
        if that.writes(table):
            return f"sink.table: replays of pipeline {that.name} may write into {table}; write into a table of another name"
        return None
    also, own = f"{table} is the table of pipeline {that.name}, too", "write into a table of its own"
    if "batch" in (this.identity, that.identity):
        return f"sink.table: {also}, and with `identity: batch` a table belongs to one pipeline; {own}"
    silent = [p.name for p, q in ((this, that), (that, this)) if q.name not in p.sink.shared_with]
    if silent:
        missing = " and ".join(f"{name}.yaml" for name in sorted(silent))
        return f"sink.table: {also}; {own}, or let both name each other in sink.shared_with (missing in {missing})"
    common = _common(this.source, that.source)
    if common:
        return f"sink.table: {also}, and both read {some(common)}: a load of one would delete the rows of the other; {own}"
    return None


def _common(this: Source, that: Source) -> list[str]:
    """What both read, as far as their files name it: topics, or partitions of a topic. None is every partition."""
    one, other = _named(this), _named(that)
    found = []
    for topic in sorted(one.keys() & other.keys()):
        mine, theirs = one[topic], other[topic]
        if mine is None or theirs is None:
            found.append(f"topic {topic}")
        else:
            found += [f"{topic}-{partition}" for partition in sorted(mine & theirs)]
    return found


def _named(source: Source) -> dict[str, frozenset[int] | None]:
    if source.assign is not None:
        return {topic: frozenset(numbers) for topic, numbers in source.assign.items()}
    return dict.fromkeys(source.topics or ())

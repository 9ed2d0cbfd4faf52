"""Which comparisons there are, in the order of the page."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.bench import backlog, growth, pipelines, planning, replay, runs, skew, throughput
from tidegate.bench.suite import Comparison
from tidegate.core.errors import RequestError

COMPARISONS: tuple[Comparison, ...] = tuple(
    module.COMPARISON for module in (runs, throughput, backlog, planning, replay, skew, pipelines, growth)
)


def chosen(names: Sequence[str]) -> list[Comparison]:
    """The comparisons of these names, in the order of the page; all where none is named.

    Raises:
        RequestError: there is no comparison of a name.
    """
    known = [comparison.name for comparison in COMPARISONS]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise RequestError(f"there is no comparison {unknown[0]}", fix=f"The comparisons are: {', '.join(known)}")
    return [comparison for comparison in COMPARISONS if not names or comparison.name in names]

"""A simulation in the terminal: a table of figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.table import Table

from tidegate.simulation.comparison import Simulated, Summary


def count(number: float) -> str:
    """A number of records in at most four digits and a unit."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f}"


def duration(seconds: float) -> str:
    """A time in its unit."""
    for unit, size in (("d", 172_800.0), ("h", 7200.0), ("min", 300.0)):
        if seconds >= size:
            return f"{seconds / {'d': 86_400, 'h': 3600, 'min': 60}[unit]:.3g} {unit}"
    return f"{seconds:.3g} s"


FIGURES: dict[str, Callable[[Summary], str]] = {
    "batches": lambda of: f"{of.batches:,}",
    "longer than 1.25 T": lambda of: f"{of.overlong:,}",
    "longest run": lambda of: duration(of.longest_run_s),
    "worst delay": lambda of: duration(of.worst_delay_s),
    "most lag": lambda of: count(of.most_lag),
    "lag at the end": lambda of: count(of.last_lag),
    "skipped": lambda of: duration(of.skipped_s),
    "backlog lasts": lambda of: "past the end" if of.backlog_s is None else duration(of.backlog_s),
}


def figures(done: Sequence[Simulated]) -> Table:
    """A row for each figure, so that what is compared stands side by side, and a column for each policy."""
    table = Table("policy", box=None, pad_edge=False)
    for each in done:
        table.add_column(each.name.replace(",", ",\n"), justify="right", overflow="fold")
    for title, figure in FIGURES.items():
        table.add_row(title, *(figure(each.summary) for each in done))
    return table

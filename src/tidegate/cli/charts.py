"""A simulation in the terminal: the records that wait, as a line of blocks for each policy, and a table of figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.table import Table

from tidegate.cli.shared import out, print_table
from tidegate.core.simulation.comparison import Simulated, Summary

BLOCKS = " ▁▂▃▄▅▆▇█"
MOST_COLUMNS = 100
LEAST_COLUMNS = 20


def draw(seconds: float, done: Sequence[Simulated]) -> None:
    """The lag under each policy over so much time, all on one scale, and the figures."""
    label = max(len(each.name) for each in done) + 2
    columns = max(LEAST_COLUMNS, min(MOST_COLUMNS, out.width - label))
    top = max(each.summary.most_lag for each in done)
    out.print(f"\nrecords that wait, █ = {count(top)}", style="bold", highlight=False)
    for each in done:
        line = sparkline(each.trace.lags, seconds, columns, top)
        out.print(f"{each.name:<{label}}{line}", markup=False, highlight=False, no_wrap=True, crop=True)
    out.print()
    print_table(_figures(done), fold=True)


def sparkline(points: Sequence[tuple[float, float]], seconds: float, columns: int, top: float) -> str:
    """The largest value in each part of the time, or the last one before it, as blocks of which a full one is `top`.

    What is above 0 is seen.
    """
    parts: list[list[float]] = [[] for _ in range(columns)]
    for second, value in points:
        parts[min(int(second * columns / seconds), columns - 1)].append(value)
    line, last = "", 0.0
    for part in parts:
        value = max(part, default=last)
        line += BLOCKS[0 if value <= 0 else max(1, min(8, round(8 * value / top)))]
        last = part[-1] if part else last
    return line


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


def _figures(done: Sequence[Simulated]) -> Table:
    """A row for each figure, so that what is compared stands side by side, and a column for each policy."""
    table = Table("policy", box=None, pad_edge=False)
    for each in done:
        table.add_column(each.name.replace(",", ",\n"), justify="right", overflow="fold")
    for title, figure in FIGURES.items():
        table.add_row(title, *(figure(each.summary) for each in done))
    return table

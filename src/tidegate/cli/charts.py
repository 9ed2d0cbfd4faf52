"""A simulation drawn in the terminal, in block characters: one line for each policy, one scale for each figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from tidegate.cli.shared import out, print_table
from tidegate.core.simulation.bursts import Burst, Figures, Throttled
from tidegate.core.simulation.comparison import Simulated
from tidegate.core.simulation.experiment import Experiment
from tidegate.core.simulation.measures import Summary
from tidegate.core.simulation.series import Points, Series, largest, total

BLOCKS = " ▁▂▃▄▅▆▇█"
MOST_COLUMNS = 100
LEAST_COLUMNS = 20
COLOURS = ("cyan", "yellow", "magenta", "green")


class Timed(Protocol):
    """What is simulated, as an axis shows it: for how long, and what happens between which times."""

    @property
    def seconds(self) -> float:
        """Of virtual time."""

    @property
    def event(self) -> str | None:
        """What happens, as a sentence; None: nothing."""

    @property
    def since_s(self) -> float:
        """When it begins."""

    @property
    def until_s(self) -> float:
        """When it ends."""


def draw(asked: Experiment, done: Sequence[Simulated]) -> None:
    """Lag, batch size, run time and skipped time under each policy over time, and a table of figures."""
    seconds, interval_s, names = asked.seconds, asked.plant.interval_s, [each.name for each in done]
    series = [Series.of(each.trace, interval_s) for each in done]
    runs = max(1, int(seconds / interval_s))
    # a column has the same number of runs as any other, so that a steady load is a steady line
    per_column = -(-runs // _width(names))
    columns = -(-runs // per_column)
    span_s = columns * per_column * interval_s
    _rows(names, "records that wait", count, [largest(each.lag, span_s, columns, hold=True) for each in series])
    _rows(names, "records of a batch", count, [largest(each.size, span_s, columns) for each in series])
    _rows(names, "run time", duration, [largest(each.run_s, span_s, columns) for each in series])
    _rows(names, "skipped time", duration, [total(each.skipped_s, span_s, columns) for each in series])
    out.print(axis(asked, _label(names), columns, span_s))
    print_table(_figures({each.name: each.summary for each in done}, FIGURES), fold=True)


def draw_receivers(asked: Burst, done: Sequence[Throttled]) -> None:
    """What waits at the senders, in buffers and in the topic, and what is taken in, over time; and a table of figures."""
    seconds, names = asked.seconds, [each.name for each in done]
    columns = _width(names)
    for title, points in RECEIVER_SERIES.items():
        _rows(names, title, count, [largest(points(each), seconds, columns, hold=True) for each in done])
    out.print(axis(asked, _label(names), columns, seconds))
    print_table(_figures({each.name: each.figures for each in done}, RECEIVER_FIGURES), fold=True)


def _label(names: Sequence[str]) -> int:
    return max(map(cell_len, names)) + 2


def _width(names: Sequence[str]) -> int:
    """Columns beside the names."""
    return max(LEAST_COLUMNS, min(MOST_COLUMNS, out.width - _label(names)))


def _rows(names: Sequence[str], title: str, shown: Callable[[float], str], values: Sequence[Sequence[float]]) -> None:
    """A line for each policy, all on one scale."""
    top, label = max(max(each) for each in values), _label(names)
    out.print(f"\n{title}, █ = {shown(top)}" if top else f"\n{title}: none", style="bold", highlight=False)
    for k, (name, line) in enumerate(zip(names, values, strict=True)):
        if top:
            bars = Text(blocks(line, top), style=COLOURS[k % len(COLOURS)])
            out.print(Text(f"{name:<{label}}").append_text(bars), no_wrap=True, crop=True)


def blocks(values: Sequence[float], top: float) -> str:
    """A line of blocks, of which a full one is `top`; what is above 0 is seen."""
    return "".join(BLOCKS[0 if value <= 0 else max(1, min(8, round(8 * value / top)))] for value in values)


def axis(asked: Timed, label: int, columns: int, span_s: float) -> str:
    """The event, and below it the time at its begin and end."""

    def column(second: float) -> int:
        return min(int(second * columns / span_s + 1e-9), columns - 1)

    lines = []
    if asked.event:
        since, until = column(asked.since_s), column(asked.until_s)
        lines.append(" " * (label + since) + "├" + "─" * max(0, until - since - 1) + "┤" + f" {asked.event}")
    end = duration(asked.seconds)
    marks = [(0, "0")]
    if asked.event:
        marks += [(column(asked.since_s), duration(asked.since_s)), (column(asked.until_s), duration(asked.until_s))]
    line = ""
    for at, text in [*marks, (max(0, columns - len(end)), end)]:
        if not line or at > len(line):  # what does not fit is left out
            line = f"{line:<{at}}{text}"
    return "\n".join([*lines, " " * label + line, ""])


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


RECEIVER_SERIES: dict[str, Callable[[Throttled], Points]] = {
    "records at the senders": lambda of: [(sample.second, float(sample.waiting)) for sample in of.flow.samples],
    "records in the buffers": lambda of: [(sample.second, float(sample.buffered)) for sample in of.flow.samples],
    "records in the topic": lambda of: [(sample.second, float(sample.lag)) for sample in of.flow.samples],
    "records/s taken in": lambda of: of.taken,
}

RECEIVER_FIGURES: dict[str, Callable[[Figures], str]] = {
    "most in the topic": lambda of: count(of.most_lag),
    "of max_backlog": lambda of: f"{of.most_backlogs:.2f}",
    "most in a buffer": lambda of: count(of.most_buffered),
    "most at the senders": lambda of: count(of.most_waiting),
    "held back": lambda of: duration(of.held_s),
    "longest wait at a sender": lambda of: duration(of.longest_wait_s),
    "mean delay until loaded": lambda of: duration(of.mean_delay_s),
    "longest delay": lambda of: duration(of.longest_delay_s),
    "worked off after": lambda of: "past the end" if of.worked_off_s is None else duration(of.worked_off_s),
}

T = TypeVar("T")


def _figures(done: Mapping[str, T], shown: Mapping[str, Callable[[T], str]]) -> Table:
    """A row for each figure, so that what is compared stands side by side, and a column for each policy."""
    table = Table("policy", box=None, pad_edge=False)
    for name in done:
        table.add_column(name.replace(",", ",\n"), justify="right", overflow="fold")
    for title, figure in shown.items():
        table.add_row(title, *map(figure, done.values()))
    return table

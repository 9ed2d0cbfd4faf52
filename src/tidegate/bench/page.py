"""Results as a page of the documentation, in Markdown. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegate.bench.suite import Bar, Comparison, Result

HEAD = """\
# Benchmarks

`tidegate bench` measures all comparisons on one machine and writes this page. Contenders take turns within a round;
figures are medians over the rounds, after rounds that warm up. Compare ratios, not seconds: they say the same on a
slower machine. `tidegate bench NAME` measures one comparison, and `--from` puts saved results together.

A bar is what a figure has to reach, and a stretch what would be better still.
[Where the time goes](design.md#where-the-time-goes) says what stands in the way of those that are missed.
"""
REHEARSAL = 50_000
"""With fewer records a comparison leaves its large sizes and long looks out."""

MARKS = {"missed": "missed", "met": "**met**", "stretch met": "**met**, stretch too", "not measured": "not measured"}


def number(value: float) -> str:
    """Three digits that count, and thousands apart."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def goal(bar: Bar, value: float | None) -> str:
    """A goal as a reader says it: `≥ 1.3 times`."""
    return "" if value is None else f"{'≥' if bar.at_least else '≤'} {number(value)} {bar.unit}"


def page(comparisons: Sequence[Comparison], results: Mapping[str, Result], plots: Mapping[str, str]) -> str:
    """The whole page.

    Args:
        comparisons: all there are, in order.
        results: those that were measured, by name.
        plots: the image of a comparison's section, by name, relative to the page.
    """
    sections = (_section(each, results.get(each.name), plots.get(each.name)) for each in comparisons)
    return "\n".join([HEAD, _overview(comparisons, results), *sections])


def table(rows: Sequence[Sequence[str]], numbers_from: int) -> str:
    """A Markdown table; the first row is its head, and columns from `numbers_from` on are right-aligned."""
    head, *body = rows
    rule = ["---" if k < numbers_from else "---:" for k in range(len(head))]
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, rule, *body))


def medians_table(comparison: Comparison, result: Result) -> list[list[str]]:
    """Contenders and their medians, as text, under a head."""
    medians = result.medians
    held = [name for name in comparison.measures if any(name in measures for measures in medians.values())]
    head = ["", *(f"{name}, {unit}" if (unit := comparison.measures[name]) else name for name in held)]
    body = [
        [contender, *(number(measures[name]) if name in measures else "" for name in held)]
        for contender, measures in medians.items()
    ]
    return [head, *body]


def bars_table(comparison: Comparison, result: Result | None) -> list[list[str]]:
    """Each bar, its figure and its verdict, as text, under a head."""
    medians = {} if result is None else result.medians
    rows = [["figure", "measured", "bar", "stretch", ""]]
    for bar in comparison.bars:
        value = bar.value(medians)
        told = "" if value is None else f"{number(value)} {bar.unit}"
        rows.append([bar.title, told, goal(bar, bar.bar), goal(bar, bar.stretch), bar.verdict(value)])
    return rows


def sentence(comparison: Comparison, result: Result) -> str:
    """What the medians show, unless contenders are missing that the sentence names, or took no time."""
    try:
        return comparison.shows(result.medians)
    except (KeyError, ZeroDivisionError):
        return "Not every contender was measured."


def _overview(comparisons: Sequence[Comparison], results: Mapping[str, Result]) -> str:
    rows: list[list[str]] = []
    for comparison in comparisons:
        head, *bars = bars_table(comparison, results.get(comparison.name))
        rows = rows or [head]
        rows += [_marked(row) for row in bars]
    return f"## Bars\n{table(rows, 1)}" if rows else ""


def _section(comparison: Comparison, result: Result | None, plot: str | None) -> str:
    parts = [f"## {comparison.title}\n{comparison.about}\n"]
    if result is None:
        parts.append("Not measured yet.\n")
    else:
        parts.append(f"{sentence(comparison, result)}\n")
        parts.append(table(medians_table(comparison, result), 1))
        if plot is not None:
            parts.append(f"![{comparison.title}]({plot})\n")
        machine = ", ".join(f"{key} {value}" for key, value in result.machine.items())
        parts.append(f"`tidegate bench {comparison.name}`, {result.at}, {_count(result)}. {machine}.\n")
    return "\n".join(parts)


def _count(result: Result) -> str:
    rounds = f"{result.rounds} round{'s' if result.rounds != 1 else ''}, {result.records:,} records"
    return f"{rounds} (a rehearsal, whose figures mean nothing)" if is_rehearsal(result.records) else rounds


def is_rehearsal(records: int) -> bool:
    """Whether so few records show that a comparison runs, and no more."""
    return records < REHEARSAL


def _marked(row: list[str]) -> list[str]:
    return [*row[:-1], MARKS[row[-1]]]

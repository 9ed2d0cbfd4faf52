"""Results as a table fault x phase; several results, such as slices of one long run, are added up.

python -m tests.chaos.table results.json [more.json]     prints Markdown
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tidegate.failpoints import POINTS

PHASES = (*POINTS, "random")


def cells(results: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Header and rows: how often each fault struck at each phase, how long the schedule took to go on, what broke."""
    struck = [s for result in results for s in result["struck"] if not s["skipped"]]
    count = Counter((s["fault"], s["phase"]) for s in struck)
    lines = [["fault", *PHASES, "all", "goes on after (median, most)", "broken"]]
    for fault in dict.fromkeys(s["fault"] for s in sorted(struck, key=lambda s: s["fault"])):
        mine = [s for s in struck if s["fault"] == fault]
        seconds = sorted(s["recovery_s"] for s in mine)
        broken = sum(_is_broken(s) for s in mine)
        phases = [str(count[fault, phase] or "") for phase in PHASES]
        lines.append([fault, *phases, str(len(mine)), f"{seconds[len(seconds) // 2]:.0f} s, {seconds[-1]:.0f} s", str(broken)])
    return lines


def _is_broken(struck: dict[str, Any]) -> bool:
    return bool(struck["broken"]) or struck["help"] != struck.get("needed", 0)


def summary(results: Sequence[dict[str, Any]]) -> str:
    """One sentence: faults, seeds, and the sum of the last verdict on each pipeline."""
    faults = sum(not s["skipped"] for r in results for s in r["struck"])
    last = [verdict for r in results for verdict in {v.get("pipeline"): v for v in r["verdicts"]}.values()]
    total = {what: sum(v[what] for v in last) for what in ("records", "rows", "lost", "duplicated", "unknown")}
    broken = any(_is_broken(s) for r in results for s in r["struck"]) or not all(
        v["holds"] for r in results for v in [*r["verdicts"], *r.get("followed", {}).values()]
    )
    held = "The law held" if all(r["holds"] for r in results) else "Ended early, and not judged to the end"
    held = "THE LAW DID NOT HOLD" if broken or any(r["changed_rows"] for r in results) else held
    seeds = ", ".join(str(r["seed"]) for r in results)
    return f"{held}: {faults} faults (seeds {seeds}), " + ", ".join(f"{count:,} {what}" for what, count in total.items()) + "."


def render(results: Sequence[dict[str, Any]]) -> str:
    """For a terminal."""
    return drawn(cells(results), summary(results))


def drawn(lines: Sequence[Sequence[str]], sentence: str) -> str:
    """Header, rows and a sentence, for a terminal."""
    header, *rows = lines
    table = Table(*header)
    for row in rows:
        table.add_row(*row)
    console = Console(width=180)
    with console.capture() as captured:
        console.print(table)
        console.print(sentence)
    return captured.get()


def markdown(lines: Sequence[Sequence[str]], sentence: str) -> str:
    """The same, for a page."""
    header, *rows = lines
    return "\n".join([*(f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *rows)), "", sentence])


def print_page(
    lines: Callable[[Sequence[dict[str, Any]]], list[list[str]]], sentence: Callable[[Sequence[dict[str, Any]]], str]
) -> None:
    """Print the results in the files that the command line names."""
    results = [json.loads(Path(name).read_text()) for name in sys.argv[1:]]
    print(markdown(lines(results), sentence(results)))  # noqa: T201 - what a command is for


if __name__ == "__main__":
    print_page(cells, summary)

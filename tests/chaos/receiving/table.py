"""Results by fault; several results are added up.

python -m tests.chaos.receiving.table results.json [more.json]     prints Markdown
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.chaos.table import print_page

COUNTS = ("acknowledged", "records", "repeated", "rows", "lost", "repeated_rows", "unknown", "unloaded")


def cells(results: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Header and rows: how often each fault struck, how long until posts were acknowledged again, what broke."""
    struck = [s for result in results for s in result["struck"]]
    lines = [["fault", "struck", "acknowledged again after (median, most)", "supervised again after (median, most)", "broken"]]
    for fault in sorted({s["fault"] for s in struck}):
        mine = [s for s in struck if s["fault"] == fault]
        times = [_times([s[name] for s in mine]) for name in ("acknowledged_s", "supervised_s")]
        lines.append([fault, str(len(mine)), *times, str(sum(bool(s["broken"]) for s in mine))])
    return lines


def summary(results: Sequence[dict[str, Any]]) -> str:
    """One sentence: faults, seeds, and the sum of the last verdicts."""
    last = [result["verdicts"][-1] for result in results if result["verdicts"]]
    told = ", ".join(f"{sum(v[what] or 0 for v in last):,} {what.replace('_', ' ')}" for what in COUNTS)
    held = "The law held" if all(result["holds"] for result in results) else "THE LAW DID NOT HOLD TO THE END"
    faults, seeds = sum(len(r["struck"]) for r in results), ", ".join(str(r["seed"]) for r in results)
    return f"{held}: {faults} faults (seeds {seeds}), {told}."


def _times(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return f"{ordered[len(ordered) // 2]:.0f} s, {ordered[-1]:.0f} s"


if __name__ == "__main__":
    print_page(cells, summary)

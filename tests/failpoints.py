"""Arms the places where a process may end or stop (`tidegate.failpoints`), and tells what was reached."""

from __future__ import annotations

import json
from pathlib import Path

from tidegate.failpoints import POINTS, SIGNALS


def arm(folder: Path, point: str, action: str) -> None:
    """Let the next process that reaches `point` be killed or stopped; what was reached there before is forgotten.

    Raises:
        ValueError: no such point or action.
    """
    if point not in POINTS or action not in SIGNALS:
        raise ValueError(f"no fail point {point!r} with action {action!r}")
    (folder / f"{point}.reached").unlink(missing_ok=True)
    waiting = folder / f".{point}"
    waiting.write_text(action, encoding="utf-8")
    waiting.rename(folder / point)


def disarm(folder: Path) -> None:
    """Forget every point that nothing has reached."""
    for point in POINTS:
        (folder / point).unlink(missing_ok=True)


def reached(folder: Path, point: str) -> tuple[int, int] | None:
    """The pid and the parent's pid of the process that got to `point`; None while it is still armed, or never was."""
    try:
        process = json.loads((folder / f"{point}.reached").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return process["pid"], process["parent"]

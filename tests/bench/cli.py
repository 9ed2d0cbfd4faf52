"""How a benchmark is run: options from its defaults, a temporary folder, and what was measured as JSON or as a table."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def as_json(measured: Any) -> str:
    """To be read by people and programs."""
    return json.dumps(measured, indent=2)


def markdown(rows: Iterable[Iterable[str]]) -> str:
    """A table for a page; the first row is its header."""
    header, *lines = [list(row) for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *lines))


def run(doc: str | None, measure: Callable[..., Any], *, show: Callable[[Any], str] = as_json, **defaults: float) -> None:
    """Measure and print.

    Args:
        doc: of the benchmark's module, which `--help` shows.
        measure: gets the value of each option, in their order, and the folder.
        show: what is printed of the measures.
        defaults: of each option; a value is of the same type.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    chosen = vars(parser.parse_args())
    # what a server still writes while it ends is no reason to lose what was measured
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-", ignore_cleanup_errors=True) as folder:
        print(show(measure(*chosen.values(), Path(folder))))  # noqa: T201

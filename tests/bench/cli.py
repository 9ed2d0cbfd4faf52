"""How a benchmark is run: options from its defaults, a temporary folder, and what was measured as JSON."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def run(doc: str | None, measure: Callable[..., dict[str, Any]], **defaults: float) -> None:
    """Measure and print.

    Args:
        doc: of the benchmark's module, which `--help` shows.
        measure: gets the value of each option, in their order, and the folder.
        defaults: of each option; a value is of the same type.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    chosen = vars(parser.parse_args())
    # what a server still writes while it ends is no reason to lose what was measured
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-", ignore_cleanup_errors=True) as folder:
        print(json.dumps(measure(*chosen.values(), Path(folder)), indent=2))  # noqa: T201

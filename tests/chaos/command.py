"""What the commands of the harnesses share: options, a folder, a clock, and results that are written whatever happens."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

Tell = Callable[[str], object]


class Result(Protocol):
    """What faults did."""

    @property
    def holds(self) -> bool:
        """Whether the law held to the end."""

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""


def options(about: str | None, *, faults: int) -> argparse.ArgumentParser:
    """The options of every harness; `faults` is how many there are by default."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=faults, help=f"how many (default: {faults})")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="default: a new one")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--state", type=Path, help="an empty folder to work in, kept; default: a temporary one")
    return parser


def carry_out(
    given: argparse.Namespace, again: str, result: Result, render: Callable[[], str], work: Callable[[Path, Tell], object]
) -> int:
    """Let `work` fill the result, in a folder; the exit code, 0 only when the law held.

    Args:
        given: the parsed options.
        again: the command that does the same again.
        result: what `work` fills.
        render: the result for the terminal.
        work: gets the folder, and what takes a line for the terminal.
    """
    # in the background, too, what was started is stopped
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit("ended by SIGTERM"))
    root = given.state or Path(tempfile.mkdtemp(prefix="tidegate-chaos-"))
    root.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()

    def tell(line: str) -> None:
        _say(f"[{time.monotonic() - started:6.0f} s] {line}")

    tell(f"seed {given.seed}, {given.faults} faults, files in {root}; again: {again}")
    try:
        work(root, tell)
    finally:
        _say(render())
        if given.json is not None:
            given.json.write_text(json.dumps(result.to_json(), indent=1) + "\n")
    if not result.holds:
        _say(f"The law did not hold. Logs and state: {root}. Again: {again}")
        return 1
    if given.state is None:
        shutil.rmtree(root)
    return 0


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - what a command is for

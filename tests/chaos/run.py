"""`make chaos`: prove exactly-once by killing things.

    python -m tests.chaos.run --faults 50 --seed 7 --json results.json

The sequence of faults, phases and delays comes from the seed alone. The exit code is 0 only when the law held.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.harness import Harness, Result
from tests.chaos.schedule import Planned, plan
from tests.chaos.stage import Stage
from tests.chaos.table import render

RATE = 300


def main() -> int:
    """Run what the command line asks for."""
    options = _options()
    # in the background, too, what was started is stopped
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit("ended by SIGTERM"))
    planned = plan(options.seed, options.faults, only=options.only, skip=options.skip)
    root = options.state or Path(tempfile.mkdtemp(prefix="tidegate-chaos-"))
    root.mkdir(parents=True, exist_ok=True)
    again = f"python -m tests.chaos.run --faults {options.faults} --seed {options.seed}"
    again += "".join(f" --{name} {','.join(words)}" for name in ("only", "skip") if (words := getattr(options, name)))
    started = time.monotonic()

    def tell(line: str) -> None:
        _say(f"[{time.monotonic() - started:6.0f} s] {line}")

    tell(f"seed {options.seed}, {len(planned)} faults, files in {root}; again: {again}")
    result = Result(options.seed)
    try:
        with Stage.built(root) as stage:
            _run(Harness(stage, result, tell), options, planned)
    finally:
        _say(render([result.to_json()]))
        if options.json is not None:
            options.json.write_text(json.dumps(result.to_json(), indent=1) + "\n")
    if not result.holds:
        _say(f"The law did not hold. Logs and state: {root}. Again: {again}")
        return 1
    if options.state is None:
        shutil.rmtree(root)
    return 0


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - what a command is for


def _run(harness: Harness, options: argparse.Namespace, planned: Sequence[Planned]) -> None:
    """Until the last fault, or until the law is broken."""
    with harness.stage.generator(RATE, options.seed):
        harness.begin()
        for strike in planned:
            if not harness.strike(strike).holds or (strike.number % options.judge_every == 0 and not harness.judge()):
                return
    harness.finish()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=50, help="how many (default: 50)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="default: a new one")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--state", type=Path, help="an empty folder to work in, kept; default: a temporary one")
    for name, meaning in (("only", "faults, phases or fault:phase, by commas"), ("skip", "the same, to be left out")):
        parser.add_argument(f"--{name}", type=lambda text: text.split(","), default=[], help=meaning)
    parser.add_argument("--judge-every", type=int, default=10, help="faults between verdicts (default: 10)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

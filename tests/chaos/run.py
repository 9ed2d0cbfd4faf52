"""`make chaos`: prove exactly-once by killing things.

    python -m tests.chaos.run --faults 50 --seed 7 --json results.json

The sequence of faults, phases and delays comes from the seed alone. The exit code is 0 only when the law held.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.command import Tell, carry_out, options
from tests.chaos.harness import Harness, Result
from tests.chaos.schedule import Planned, plan
from tests.chaos.stage import Stage
from tests.chaos.table import render

RATE = 300


def main() -> int:
    """Run what the command line asks for."""
    given = _options()
    planned = plan(given.seed, given.faults, only=given.only, skip=given.skip)
    again = f"python -m tests.chaos.run --faults {given.faults} --seed {given.seed}"
    again += "".join(f" --{name} {','.join(words)}" for name in ("only", "skip") if (words := getattr(given, name)))
    result = Result(given.seed)

    def work(root: Path, tell: Tell) -> None:
        with Stage.built(root) as stage:
            _run(Harness(stage, result, tell), given, planned)

    return carry_out(given, again, result, lambda: render([result.to_json()]), work)


def _run(harness: Harness, given: argparse.Namespace, planned: Sequence[Planned]) -> None:
    """Until the last fault, or until the law is broken."""
    with harness.stage.generator(RATE, given.seed):
        harness.begin()
        for strike in planned:
            if not harness.strike(strike).holds or (strike.number % given.judge_every == 0 and not harness.judge()):
                return
    harness.finish()


def _options() -> argparse.Namespace:
    parser = options(__doc__, faults=50)
    for name, meaning in (("only", "faults, phases or fault:phase, by commas"), ("skip", "the same, to be left out")):
        parser.add_argument(f"--{name}", type=lambda text: text.split(","), default=[], help=meaning)
    parser.add_argument("--judge-every", type=int, default=10, help="faults between verdicts (default: 10)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

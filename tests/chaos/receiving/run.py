"""`make chaos-receivers`: show that nothing acknowledged is lost, by killing what is between a sender and the table.

    python -m tests.chaos.receiving.run --faults 20 --seed 7 --json results.json

The sequence of faults and delays comes from the seed alone. The exit code is 0 only when the law held.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.chaos.command import Tell, carry_out, options
from tests.chaos.receiving.faults import plan
from tests.chaos.receiving.harness import Harness, Result
from tests.chaos.receiving.sender import Sender
from tests.chaos.receiving.stage import ReceivingStage
from tests.chaos.receiving.table import cells, summary
from tests.chaos.table import drawn


def main() -> int:
    """Run what the command line asks for."""
    given = options(__doc__, faults=20).parse_args()
    again = f"python -m tests.chaos.receiving.run --faults {given.faults} --seed {given.seed}"
    result = Result(given.seed)

    def work(root: Path, tell: Tell) -> None:
        with ReceivingStage.built(root) as stage, Sender(stage.port, given.seed) as sender:
            harness = Harness(stage, sender, result, tell)
            harness.begin()
            if all(not harness.strike(planned).broken for planned in plan(given.seed, given.faults)):
                harness.finish()

    return carry_out(given, again, result, lambda: drawn(cells([result.to_json()]), summary([result.to_json()])), work)


if __name__ == "__main__":
    sys.exit(main())

"""Places where somebody who tests crashes may end or stop this process: the boundaries of a batch's phases.

    before-range   after-range      a range is saved           (plan)
    between-commits                 the quarantine has its records, and the table no rows yet   (load)
    before-write   after-write      the sink's commit          (load; after: the receipt is not handed on yet)
    before-cursor  after-cursor     the cursor moves           (commit)

Nothing happens unless `TIDEGATE_FAIL_POINTS` names a folder. Then a file in it, named like the point, says what happens to the
process that gets there first: `kill` (SIGKILL) or `stop` (SIGSTOP). That process takes the file away and leaves
`<point>.reached` with its pid and its parent's, so that whoever armed the point can do the rest.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

VARIABLE = "TIDEGATE_FAIL_POINTS"
OF_QUARANTINE = "between-commits"
"""The one that only batches of pipelines with a quarantine reach."""
POINTS = ("before-range", "after-range", OF_QUARANTINE, "before-write", "after-write", "before-cursor", "after-cursor")
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def reach(point: str) -> None:
    """Do to this process what is armed at `point`; nothing, unless the environment says otherwise."""
    folder = os.environ.get(VARIABLE)
    if folder is None:
        return
    armed = Path(folder) / point
    taken = armed.with_suffix(f".{os.getpid()}")
    try:
        armed.rename(taken)  # of two processes only one gets it
    except FileNotFoundError:
        return
    action = taken.read_text(encoding="utf-8").strip()
    taken.write_text(json.dumps({"pid": os.getpid(), "parent": os.getppid(), "action": action}), encoding="utf-8")
    taken.rename(armed.with_suffix(".reached"))
    os.kill(os.getpid(), SIGNALS[action])

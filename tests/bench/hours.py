"""Seconds of a load that looks at the hours of its records, and of one that does not, alternately.

    python -m tests.bench.hours [--records 4000000] [--rounds 5] [--warm-up 2]

Broker and Spark Connect (two cores) are an embedded platform in a temporary folder, started and stopped here. The records lie
in two partitions; each load of raw bytes goes into the same table by `redo`. `in order`: no record is late. `late`: each is,
as in a replay.
"""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.bench.cli import run
from tests.bench.stage import Stage
from tests.records import changed
from tidegate.core.model.hours import DAY_MS

PARTITIONS = 2
TOPIC = "hours"


def measure(records: int, rounds: int, warm_up: int, folder: Path) -> dict[str, Any]:
    """Of whole loads, without `announce` and with it."""
    with closing(Stage(folder, rounds, warm_up)) as stage:
        stage.up("kafka", "spark")
        begun_ms = time.time_ns() // 1_000_000
        ranges = stage.fill(TOPIC, [records // PARTITIONS] * PARTITIONS)
        plain = changed(stage.job_for("raw bytes", ranges, "lake.bench.hours"), redo=True)
        jobs = {
            "without": plain,
            "in order": changed(plain, hours=(0, begun_ms)),
            "late": changed(plain, hours=(0, begun_ms + DAY_MS)),
        }
        return {**stage.compare_loads(jobs, dict.fromkeys(("in order", "late"), "without")), "records": records}


if __name__ == "__main__":
    run(__doc__, measure, records=4_000_000, rounds=5, warm_up=2)

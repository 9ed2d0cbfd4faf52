"""Seconds of a load that looks at the hours of its records, and of one that does not, alternately.

    python -m tests.bench.hours [--records 4000000] [--rounds 5] [--warm-up 2]

Broker and Spark Connect (two cores) are an embedded platform in a temporary folder, started and stopped here. The records lie
in two partitions; each load of raw bytes goes into the same table by `redo`. `in order`: no record is late. `late`: each is,
as in a replay.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from tests.bench.cli import run
from tests.bench.loads import by_turns
from tests.bench.stage import fill, transform, write_transforms
from tests.records import changed, load_job
from tidegate.core.announce.hours import DAY_MS
from tidegate.core.offsets.ranges import OffsetRange
from tidegate.local import Platform

REPO = Path(__file__).parents[2]
PARTITIONS = 2
TOPIC = "hours"


def measure(records: int, rounds: int, warm_up: int, folder: Path) -> dict[str, Any]:
    """Medians of the whole load, in seconds, and how many times as long it takes with `announce`, after rounds that warm up."""
    write_transforms(folder)
    platform = Platform(folder / ".tidegate", REPO)
    each = records // PARTITIONS
    try:
        platform.up(("kafka", "spark"))
        begun_ms = time.time_ns() // 1_000_000
        fill(platform.bootstrap_servers, TOPIC, [each] * PARTITIONS)
        ranges = tuple(OffsetRange(TOPIC, partition, 0, each) for partition in range(PARTITIONS))
        options = {"kafka.bootstrap.servers": platform.bootstrap_servers}
        plain = load_job("bench", 1, "bench", ranges, transform("raw bytes"), "lake.bench.hours", options, redo=True)
        jobs = {
            "without": plain,
            "in order": changed(plain, hours=(0, begun_ms)),
            "late": changed(plain, hours=(0, begun_ms + DAY_MS)),
        }
        found = by_turns(platform.spark_remote, jobs, rows=each * PARTITIONS, rounds=rounds, warm_up=warm_up, folder=folder)
    finally:
        platform.down()
    medians = {name: round(statistics.median(seconds), 2) for name, seconds in found.items()}
    ratios = {
        name: round(
            statistics.median(with_it / without for with_it, without in zip(found[name], found["without"], strict=True)), 3
        )
        for name in jobs
    }
    return {"seconds": medians, "ratio": ratios, "records": records, "rounds": rounds}


if __name__ == "__main__":
    run(__doc__, measure, records=4_000_000, rounds=5, warm_up=2)

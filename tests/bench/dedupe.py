"""Seconds of a load with and without `dedupe`, alternately: of records that all have a key, and of records that have none.

    python -m tests.bench.dedupe [--records 1000000] [--window 10000] [--rounds 5] [--warm-up 2]

Broker and Spark Connect (two cores) are an embedded platform in a temporary folder, started and stopped here. The records lie
in two partitions, no key comes twice, and each partition has a look-back of the whole window. Each load goes into the same
table by `redo`.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from tests.bench.cli import run
from tests.bench.loads import by_turns
from tests.bench.stage import fill, transform, write_transforms
from tests.records import changed, load_job
from tidegate.core.config.pipeline import Dedupe
from tidegate.core.load.job import LoadJob
from tidegate.core.load.repeats import look_back
from tidegate.core.offsets.ranges import OffsetRange
from tidegate.core.receivers.records import IDEMPOTENCY_KEY
from tidegate.local import Platform

REPO = Path(__file__).parents[2]
PARTITIONS = 2
HEADERS = {"keys": IDEMPOTENCY_KEY, "none": None}


def measure(records: int, window: int, rounds: int, warm_up: int, folder: Path) -> dict[str, Any]:
    """Medians of the whole load, in seconds, and how many times as long it takes with `dedupe`, after rounds that warm up."""
    write_transforms(folder)
    platform = Platform(folder / ".tidegate", REPO)
    each = records // PARTITIONS
    jobs: dict[str, LoadJob] = {}
    try:
        platform.up(("kafka", "spark"))
        options = {"kafka.bootstrap.servers": platform.bootstrap_servers}
        for topic, header in HEADERS.items():
            fill(platform.bootstrap_servers, topic, [window + each] * PARTITIONS, header=header)
            ranges = tuple(OffsetRange(topic, partition, window, window + each) for partition in range(PARTITIONS))
            plain = load_job("bench", 1, "bench", ranges, transform("parse_json"), f"lake.bench.{topic}", options, redo=True)
            jobs[topic] = plain
            jobs[f"{topic}, dedupe"] = changed(plain, dedupe=Dedupe(window), look_back=look_back(ranges, window, {}))
        found = by_turns(platform.spark_remote, jobs, rows=each * PARTITIONS, rounds=rounds, warm_up=warm_up, folder=folder)
    finally:
        platform.down()
    medians = {name: round(statistics.median(seconds), 2) for name, seconds in found.items()}
    ratios = {topic: round(medians[f"{topic}, dedupe"] / medians[topic], 2) for topic in HEADERS}
    return {"seconds": medians, "ratio": ratios, "records": records, "window": window, "rounds": rounds}


if __name__ == "__main__":
    run(__doc__, measure, records=1_000_000, window=10_000, rounds=5, warm_up=2)

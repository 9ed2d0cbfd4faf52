"""Seconds of a load with and without `dedupe`, alternately: of records that all have a key, and of records that have none.

    python -m tests.bench.dedupe [--records 1000000] [--window 10000] [--rounds 5] [--warm-up 2]

Broker and Spark Connect (two cores) are an embedded platform in a temporary folder, started and stopped here. The records lie
in two partitions, no key comes twice, and each partition has a look-back of the whole window. Each load goes into the same
table by `redo`.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from tests.bench.cli import run
from tests.bench.stage import Stage
from tests.records import changed
from tidegate.core.config.names import IDEMPOTENCY_KEY
from tidegate.core.config.pipeline import Dedupe
from tidegate.core.load.repeats import look_back
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.jobs import LoadJob

PARTITIONS = 2
HEADERS = {"keys": IDEMPOTENCY_KEY, "none": None}


def measure(records: int, window: int, rounds: int, warm_up: int, folder: Path) -> dict[str, Any]:
    """Of whole loads, without `dedupe` and with it."""
    each = records // PARTITIONS
    jobs: dict[str, LoadJob] = {}
    with closing(Stage(folder, rounds, warm_up)) as stage:
        stage.up("kafka", "spark")
        for topic, header in HEADERS.items():
            stage.fill(topic, [window + each] * PARTITIONS, header=header)
            ranges = tuple(OffsetRange(topic, partition, window, window + each) for partition in range(PARTITIONS))
            plain = changed(stage.job_for("parse_json", ranges, f"lake.bench.{topic}"), redo=True)
            jobs[topic] = plain
            jobs[f"{topic}, dedupe"] = changed(plain, dedupe=Dedupe(window), look_back=look_back(ranges, window, {}))
        found = stage.compare_loads(jobs, {f"{topic}, dedupe": topic for topic in HEADERS})
    return {**found, "records": records, "window": window}


if __name__ == "__main__":
    run(__doc__, measure, records=1_000_000, window=10_000, rounds=5, warm_up=2)

"""Seconds of a load with and without `split`, alternately: one partition of the topic holds 90 % of the records.

    python -m tests.bench.split_skew [--records 2000000] [--rounds 5] [--warm-up 3]

Broker and Spark Connect (two cores) are an embedded platform in a temporary folder, started and stopped here. Each load goes
into the same table by `redo`. The bar: the median with split is at least 1.5 times as fast.

More than 1.8 times cannot be: nine tenths of the records are one core's work when nothing is split. Both ways need the same CPU
time, and split uses both cores for all of it, also for what the broker, the garbage collector and the JVM's compiler do on the
idle core beside a whole load. The compiler has most to do in the first rounds, so these only warm up.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.bench.cli import run
from tests.bench.stream import TRANSFORM, fill
from tidegate.core.config.pipeline import Split
from tidegate.core.load.job import LoadJob
from tidegate.core.offsets.ranges import OffsetRange
from tidegate.local import Platform
from tidegate.spark.load import load_range
from tidegate.spark.session import connect

REPO = Path(__file__).parents[2]
TOPIC = "skewed"
PARTITIONS = 3
# Six pieces a core: with three, one core still works on the last piece while the other has none left.
SPLIT = Split(min_partitions=12)


def skewed(records: int) -> tuple[int, ...]:
    """Nine tenths of the records for partition 0, the rest evenly for the others."""
    small = records // 10 // (PARTITIONS - 1)
    return records - small * (PARTITIONS - 1), *[small] * (PARTITIONS - 1)


def measure(records: int, rounds: int, warm_up: int, folder: Path) -> dict[str, Any]:
    """Medians of the whole load, in seconds, without and with split, after rounds that warm up."""
    (folder / "skew.py").write_text(TRANSFORM)
    platform = Platform(folder / ".tidegate", REPO)
    found: dict[str, list[float]] = {"whole": [], "split": []}
    try:
        platform.up(("kafka", "spark"))
        counts = skewed(records)
        fill(platform.bootstrap_servers, TOPIC, counts)
        ranges = tuple(OffsetRange(TOPIC, partition, 0, count) for partition, count in enumerate(counts))
        options = {"kafka.bootstrap.servers": platform.bootstrap_servers}
        whole = LoadJob("skew", 0, "bench", ranges, "skew:plain", "lake.bench.skew", options, redo=True)
        jobs = {"whole": whole, "split": replace(whole, split=SPLIT)}
        with connect(platform.spark_remote, name="bench") as spark:
            for turn in range(-warm_up, rounds):
                for name, job in jobs.items():
                    started = time.perf_counter()
                    result = load_range(spark, job, spark_jobs=folder)
                    seconds = time.perf_counter() - started
                    if result.receipt.rows != records:
                        raise SystemExit(f"{name}: {result.receipt.rows} rows of {records} records")
                    if turn >= 0:
                        found[name].append(seconds)
                    print(f"round {turn}: {name} {seconds:.2f} s {dict(result.seconds)}", file=sys.stderr)  # noqa: T201
    finally:
        platform.down()
    medians = {name: round(statistics.median(seconds), 2) for name, seconds in found.items()}
    # what else runs on the machine only adds: the quickest rounds show the two ways by themselves
    quickest = round(min(found["whole"]) / min(found["split"]), 2)
    ratio = round(medians["whole"] / medians["split"], 2)
    return {**medians, "ratio": ratio, "ratio of the quickest": quickest, "records": records, "rounds": rounds}


if __name__ == "__main__":
    run(__doc__, measure, records=2_000_000, rounds=5, warm_up=3)

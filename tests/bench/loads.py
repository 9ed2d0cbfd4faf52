"""Loads by turns, for benchmarks that compare ways to load the same records."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tidegate.core.load.job import LoadJob
from tidegate.spark.load import load_range
from tidegate.spark.session import connect


def by_turns(
    remote: str, jobs: Mapping[str, LoadJob], *, rows: int, rounds: int, warm_up: int, folder: Path
) -> dict[str, list[float]]:
    """Seconds of each load in each round, after rounds that warm up.

    Args:
        remote: the Spark Connect server.
        jobs: the loads, by name.
        rows: that each of them writes; anything else ends the benchmark.
        rounds: that are measured.
        warm_up: rounds before these.
        folder: of the transforms.
    """
    found: dict[str, list[float]] = {name: [] for name in jobs}
    with connect(remote, name="bench") as spark:
        for turn in range(-warm_up, rounds):
            # every other round goes backwards, so that none always follows the same one
            for name, job in list(jobs.items())[:: -1 if turn % 2 else 1]:
                started = time.perf_counter()
                result = load_range(spark, job, spark_jobs=folder)
                seconds = time.perf_counter() - started
                if result.receipt.rows != rows:
                    raise SystemExit(f"{name}: {result.receipt.rows} rows of {rows} records")
                if turn >= 0:
                    found[name].append(seconds)
                print(f"round {turn}: {name} {seconds:.2f} s {dict(result.seconds)}", file=sys.stderr)  # noqa: T201
    return found

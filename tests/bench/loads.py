"""Loads by turns, for benchmarks that compare ways to load the same records."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from tests.bench.stage import alternate, seconds_of
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

    def load(job: LoadJob) -> None:
        result = load_range(spark, job, spark_jobs=folder)
        if result.receipt.rows != rows:
            raise SystemExit(f"{job.table}: {result.receipt.rows} rows of {rows} records")
        print(dict(result.seconds), file=sys.stderr)  # noqa: T201

    with connect(remote, name="bench") as spark:
        found = alternate(
            {name: partial(seconds_of, partial(load, job)) for name, job in jobs.items()},
            rounds=rounds,
            warm_up=warm_up,
        )
    return {name: samples["time"] for name, samples in found.items()}

"""Loads through the platform's Spark Connect server, and their tables as PyIceberg reads them."""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path
from typing import Any

from pyiceberg.catalog import load_catalog

from tests import topics
from tidegate.core.state.jobs import LoadJob, LoadResult
from tidegate.spark.load import load_range
from tidegate.spark.session import connect
from tidegate_local.platform import Platform

SPARK_JOBS = Path(__file__).parents[2] / "spark_jobs"


def load(platform: Platform, job: LoadJob, spark_jobs: Path = SPARK_JOBS) -> LoadResult:
    """The load, in a session of its own."""
    with connect(platform.spark_remote, name="tests") as spark:
        return load_range(spark, job, spark_jobs=spark_jobs)


def rows(platform: Platform, job: LoadJob) -> list[dict[str, Any]]:
    """The table as PyIceberg reads it, without Spark, in the order of origin."""
    catalog = load_catalog("lake", **platform.catalog_properties)
    found = catalog.load_table(job.table.removeprefix("lake.")).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: (row["_kafka_partition"], row["_kafka_offset"]))


def offsets(platform: Platform, job: LoadJob) -> list[int]:
    """Those of its rows."""
    return [row["_kafka_offset"] for row in rows(platform, job)]


def new_topic(platform: Platform, partitions: int = 1, **config: str) -> str:
    """A topic that no other test has."""
    return topics.make_topic({"bootstrap.servers": platform.bootstrap_servers}, f"t-{uuid.uuid4().hex}", partitions, **config)


def submitted(platform: Platform, *words: object, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """An application, with its arguments, that spark-submit has run on this machine."""
    environment = {**os.environ, **platform.environment(), **env}
    command = [str(Path(environment["SPARK_HOME"]) / "bin" / "spark-submit"), *map(str, words)]
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=180, check=False)

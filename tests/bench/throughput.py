"""One bounded range of JSON records into Iceberg, by Tidegate and by Structured Streaming.

    python -m tests.bench.throughput [--records 4000000] [--rounds 5] [--warm-up 2]

`availableNow` runs in a session of the same warm server, and writes into a table of the same kind. `cold` begins with the start
of a server, or of a process, and ends when the rows are committed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from tests.bench import jobs
from tests.bench.cli import run
from tests.bench.stage import TRANSFORMS, Round, Stage, check_rows, drop, seconds_of, tell, told
from tidegate.core.model.ranges import OffsetRange, total_count
from tidegate.core.state.jobs import LoadJob
from tidegate.spark.kafka_source import read_ranges
from tidegate.spark.load import load_range
from tidegate.spark.session import connect
from tidegate_local.process import last_meaningful_line

POLL_S = 30.0
WRITTEN = ("parse_json", "raw bytes")
"""Transforms whose rows are also written alone."""


def measure(records: int, rounds: int, warm_up: int, folder: Path) -> dict[str, Any]:
    """Warm contenders by turns, then cold ones."""
    with closing(Stage(folder, rounds, warm_up)) as stage:
        platform = stage.up("kafka", "spark")
        ranges = stage.fill("records", (records // 2,) * 2)
        with connect(platform.spark_remote, name="bench") as spark:
            contenders: dict[str, Round] = {
                "Kafka consumer (librdkafka)": lambda: rate_of(lambda: consume(stage, ranges), ranges),
                "read only (noop sink)": lambda: rate_of(lambda: read(spark, stage, ranges), ranges),
            }
            for name in TRANSFORMS:
                contenders[f"Tidegate, {name}"] = partial(warm_load, spark, stage, name, ranges)
                contenders[f"availableNow, {name}"] = partial(warm_stream, spark, stage, name, ranges)
            sources = [load_source(spark, stage, name, ranges) for name in WRITTEN]
            for name, source in zip(WRITTEN, sources, strict=True):
                contenders[f"write only, {name} (from a table)"] = partial(warm_write, spark, stage, name, ranges, source)
            samples = stage.alternate(contenders)
            for source in sources:
                drop(spark, source)
            cold = [stage.job_for("parse_json", ranges) for _ in range(2 * rounds)]
            for job in cold:
                stage.make_table(spark, job)
        todo = list(cold)
        samples |= stage.alternate(
            {
                "Tidegate, parse_json, cold": lambda: rate_of(partial(cold_load, stage, todo.pop()), ranges),
                "availableNow, parse_json, cold": lambda: rate_of(
                    partial(run_process, stage, "stream", stream_job(stage, todo.pop())), ranges
                ),
            },
            warm_up=0,
        )
        with connect(platform.spark_remote, name="bench") as spark:
            for job in cold:
                check_rows(spark, job)
    return told(samples)


def rate_of(run: Callable[[], object], ranges: tuple[OffsetRange, ...]) -> dict[str, float]:
    """Records per second, and how long it takes."""
    seconds = seconds_of(run)["time"]
    return {"rate": total_count(ranges) / seconds, "time": seconds}


def warm_load(spark: SparkSession, stage: Stage, name: str, ranges: tuple[OffsetRange, ...]) -> dict[str, float]:
    """A load into a new table."""
    with stage.new_table(spark, name, ranges) as job:
        return rate_of(lambda: load_range(spark, job, spark_jobs=stage.spark_jobs), ranges)


def warm_stream(spark: SparkSession, stage: Stage, name: str, ranges: tuple[OffsetRange, ...]) -> dict[str, float]:
    """A streaming query into a new table."""
    with stage.new_table(spark, name, ranges) as job:
        return rate_of(lambda: jobs.stream(spark, stream_job(stage, job)), ranges)


def load_source(spark: SparkSession, stage: Stage, name: str, ranges: tuple[OffsetRange, ...]) -> str:
    """A table of the rows that a transform makes of the ranges."""
    job = stage.job_for(name, ranges)
    tell(f"writing the rows of {name} to {job.table}")
    stage.make_table(spark, job)
    load_range(spark, job, spark_jobs=stage.spark_jobs)
    return job.table


def warm_write(spark: SparkSession, stage: Stage, name: str, ranges: tuple[OffsetRange, ...], source: str) -> dict[str, float]:
    """The same rows, read from a table, into a new one: what the sink takes by itself."""
    with stage.new_table(spark, name, ranges) as job:
        return rate_of(lambda: spark.table(source).writeTo(job.table).append(), ranges)


def stream_job(stage: Stage, job: LoadJob) -> dict[str, Any]:
    """The streaming query that writes what the load would."""
    return {
        "options": dict(job.reading.kafka_options),
        "topic": job.load.ranges[0].topic,
        "transform": job.transform,
        "spark_jobs": str(stage.spark_jobs),
        "table": job.table,
        "checkpoint": str(stage.folder / "checkpoints" / job.table),
    }


def cold_load(stage: Stage, job: LoadJob) -> None:
    """The start of a new server, and its first load."""
    server = next(each for each in stage.platform.servers() if each.name == "spark")
    server.stop()
    server.start()
    with connect(stage.platform.spark_remote, name="bench") as spark:
        load_range(spark, job, spark_jobs=stage.spark_jobs)


def run_process(stage: Stage, kind: str, job: dict[str, Any]) -> None:
    """One of `jobs` in a process of its own, from its start to its end."""
    command = [sys.executable, jobs.__file__, kind, json.dumps(job)]
    environment = {**os.environ, **stage.platform.environment()}
    done = subprocess.run(command, env=environment, cwd=stage.folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{kind} failed: {last_meaningful_line(done.stderr)}")


def read(spark: SparkSession, stage: Stage, ranges: tuple[OffsetRange, ...]) -> None:
    """Spark's Kafka source alone."""
    read_ranges(spark, ranges, stage.options).write.format("noop").mode("overwrite").save()


def consume(stage: Stage, ranges: tuple[OffsetRange, ...]) -> None:
    """The records as a plain consumer in Python gets them, which is the wire's limit on this machine."""
    settings = {**stage.kafka, "group.id": "bench", "enable.auto.commit": "false", "queued.max.messages.kbytes": 262_144}
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(r.topic, r.partition, r.from_offset) for r in ranges])
        left = total_count(ranges)
        while left > 0:
            messages = consumer.consume(min(left, 10_000), timeout=POLL_S)
            if not messages:
                raise SystemExit(f"no record came for {POLL_S:.0f} s")
            left -= len(messages)
    finally:
        consumer.close()


if __name__ == "__main__":
    run(__doc__, measure, records=4_000_000, rounds=5, warm_up=2)

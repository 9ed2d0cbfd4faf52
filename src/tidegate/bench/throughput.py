"""Comparison `throughput`: one bounded range of JSON records into Iceberg, by Tidegate and by Structured Streaming.

`availableNow` runs in a session of the same warm server, and writes into a table of the same kind. `cold` begins with the start
of a server, or of a process, and ends when the rows are committed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from tidegate.bench import jobs
from tidegate.bench.stage import TRANSFORMS, Round, Stage, evenly, rate_of
from tidegate.bench.suite import Bar, Comparison, Medians, Samples, Term
from tidegate.bench.tables import check_rows, drop, job_for, make_table, new_table
from tidegate.core.errors import BrokerUnavailable, SparkJobFailed
from tidegate.core.load.job import LoadJob
from tidegate.core.offsets.ranges import OffsetRange, total_count
from tidegate.local.process import last_meaningful_line
from tidegate.spark.kafka_source import read_ranges
from tidegate.spark.load import load_range
from tidegate.spark.session import connect

TOPIC = "records"
CEILING = "read only (noop sink)"
WIRE = "Kafka consumer (librdkafka)"
POLL_S = 30.0
WRITTEN = ("parse_json", "raw bytes")
"""Transforms whose rows are also written alone."""


def write_only(name: str) -> str:
    """Of the contender that writes what this transform makes."""
    return f"write only, {name} (from a table)"


def measure(stage: Stage) -> Samples:
    """Warm contenders by turns, then cold ones."""
    platform = stage.up("kafka", "spark")
    ranges = stage.filled(TOPIC, evenly(stage.records))
    records = total_count(ranges)
    with connect(platform.spark_remote, name="bench") as spark:
        rounds: dict[str, Round] = {
            WIRE: lambda: rate_of(lambda: consume(stage, ranges), records),
            CEILING: lambda: rate_of(lambda: read(spark, stage, ranges), records),
        }
        for name in TRANSFORMS:
            rounds[f"Tidegate, {name}"] = partial(warm_load, spark, stage, name, ranges)
            rounds[f"availableNow, {name}"] = partial(warm_stream, spark, stage, name, ranges)
        sources = [load_source(spark, stage, name, ranges) for name in WRITTEN]
        for name, source in zip(WRITTEN, sources, strict=True):
            rounds[write_only(name)] = partial(warm_write, spark, stage, name, ranges, source)
        samples = stage.alternate(rounds)
        for source in sources:
            drop(spark, source)
        cold = [job_for(stage, "parse_json", ranges) for _ in range(2 * stage.rounds)]
        for job in cold:
            make_table(spark, stage, job)
    todo = list(cold)
    samples |= stage.alternate(
        {
            "Tidegate, parse_json, cold": lambda: rate_of(partial(cold_load, stage, todo.pop()), records),
            "availableNow, parse_json, cold": lambda: rate_of(
                partial(run_process, stage, "stream", stream_job(stage, todo.pop())), records
            ),
        },
        warm_up=0,
    )
    with connect(platform.spark_remote, name="bench") as spark:
        for job in cold:
            check_rows(spark, job, records)
    return samples


def warm_load(spark: SparkSession, stage: Stage, name: str, ranges: tuple[OffsetRange, ...]) -> dict[str, float]:
    """A load into a new table."""
    with new_table(spark, stage, name, ranges) as job:
        return rate_of(lambda: load_range(spark, job, spark_jobs=stage.spark_jobs), total_count(ranges))


def warm_stream(spark: SparkSession, stage: Stage, name: str, ranges: tuple[OffsetRange, ...]) -> dict[str, float]:
    """A streaming query into a new table."""
    with new_table(spark, stage, name, ranges) as job:
        return rate_of(lambda: jobs.stream(spark, stream_job(stage, job)), total_count(ranges))


def load_source(spark: SparkSession, stage: Stage, name: str, ranges: tuple[OffsetRange, ...]) -> str:
    """A table of the rows that a transform makes of the ranges."""
    job = job_for(stage, name, ranges)
    stage.progress(f"writing the rows of {name} to {job.table}", 0, None)
    make_table(spark, stage, job)
    load_range(spark, job, spark_jobs=stage.spark_jobs)
    return job.table


def warm_write(spark: SparkSession, stage: Stage, name: str, ranges: tuple[OffsetRange, ...], source: str) -> dict[str, float]:
    """The same rows, read from a table, into a new one: what the sink takes by itself."""
    with new_table(spark, stage, name, ranges) as job:
        return rate_of(lambda: spark.table(source).writeTo(job.table).append(), total_count(ranges))


def stream_job(stage: Stage, job: LoadJob) -> dict[str, Any]:
    """The streaming query that writes what the load would."""
    return {
        "options": dict(job.kafka_options),
        "topic": job.ranges[0].topic,
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
    """One of `jobs` in a process of its own, from its start to its end.

    Raises:
        SparkJobFailed: it failed.
    """
    command = [sys.executable, jobs.__file__, kind, json.dumps(job)]
    environment = {**os.environ, **stage.platform.environment()}
    done = subprocess.run(command, env=environment, cwd=stage.folder, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise SparkJobFailed(f"{kind} failed: {last_meaningful_line(done.stderr)}", fix="Run the comparison again")


def read(spark: SparkSession, stage: Stage, ranges: tuple[OffsetRange, ...]) -> None:
    """Spark's Kafka source alone."""
    read_ranges(spark, ranges, stage.options).write.format("noop").mode("overwrite").save()


def consume(stage: Stage, ranges: tuple[OffsetRange, ...]) -> None:
    """The records as a plain consumer in Python gets them, which is the wire's limit on this machine.

    Raises:
        BrokerUnavailable: no record came for `POLL_S`.
    """
    settings = {**stage.kafka, "group.id": "bench", "enable.auto.commit": "false", "queued.max.messages.kbytes": 262_144}
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(r.topic, r.partition, r.from_offset) for r in ranges])
        left = total_count(ranges)
        while left > 0:
            messages = consumer.consume(min(left, 10_000), timeout=POLL_S)
            if not messages:
                raise BrokerUnavailable(f"no record came for {POLL_S:.0f} s", fix="Run the comparison again")
            left -= len(messages)
    finally:
        consumer.close()


def _bar(title: str, ours: str, theirs: str, bar: float, stretch: float) -> Bar:
    return Bar(f"throughput: {title}", Term(ours, "rate"), bar, stretch, against=Term(theirs, "rate"), at_least=True)


def shows(m: Medians) -> str:
    """Warm and cold, to the streaming query."""
    ours, theirs = ("Tidegate, parse_json", "availableNow, parse_json")
    warm, cold = (m[ours + state]["rate"] / m[theirs + state]["rate"] for state in ("", ", cold"))
    most = [m[CEILING]["time"] / (m[CEILING]["time"] + m[write_only(name)]["time"]) for name in WRITTEN]
    return (
        f"Tidegate loads {m[ours]['rate']:,.0f} records/s with `parse_json`, {warm:.2f} times what the streaming query does; "
        f"cold, {cold:.2f} times. Reading and writing keep the same cores busy: what does both can reach {most[0]:.2f} of the "
        f"read alone with these rows, before anything is parsed, and {most[1]:.2f} with raw bytes."
    )


COMPARISON = Comparison(
    name="throughput",
    title="Throughput of one bounded range",
    about="`--records` JSON records of about 140 bytes in two partitions, into a new Iceberg table with Tidegate's "
    "properties. Tidegate and `availableNow` use the same warm Spark Connect server, Kafka options, transform and "
    "kind of table. `parse_json` is as in a pipeline: Python workers decode a large load, and Spark's own parser a "
    "streaming query; `by workers` lets them decode both. `from_json` is Spark's own, which lets broken records pass as "
    "nulls. `cold` begins with the start of a server or process. The ceiling is the same read into Spark's `noop` sink. "
    "`write only` copies the same rows from one table into a new one. "
    "The broker's jars hold no consumer performance tool, so the wire is measured by a consumer loop of librdkafka.",
    measures={"rate": "records/s", "time": "s"},
    bars=(
        _bar("parse_json, to availableNow", "Tidegate, parse_json", "availableNow, parse_json", 1.3, 1.8),
        _bar(
            "parse_json by workers, to the same in availableNow",
            "Tidegate, parse_json by workers",
            "availableNow, parse_json by workers",
            1.0,
            1.3,
        ),
        _bar("from_json, to availableNow", "Tidegate, from_json", "availableNow, from_json", 1.0, 1.1),
        _bar("parsed, to the read alone", "Tidegate, parse_json", CEILING, 0.3, 0.45),
        _bar("raw bytes, to the read alone", "Tidegate, raw bytes", CEILING, 0.55, 0.7),
    ),
    shows=shows,
    measure=measure,
)

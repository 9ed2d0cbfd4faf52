"""What a table's layout, or a quarantine, costs its loads and replays, and saves its readers: files of a query, and seconds.

    python -m tests.bench.layouts [--batches 100] [--records 4000] [--days 30] [--rounds 3] [--tables 3]

Records lie in two partitions. Their event times follow the offsets, and are up to two days late; each is of one of a thousand
customers, and one in a hundred is not JSON. Each batch is loaded into each table in turn; then the queries take turns, and two
replays: one of a whole batch, one from the middle of a batch to the middle of the next. At last files are merged, and the
queries asked again.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tests.bench.cli import run
from tests.bench.stage import Samples, Stage, seconds_of, tell
from tests.records import changed
from tidegate.core.config.layout import Layout
from tidegate.core.config.pipeline import Maintenance, Quarantine
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.jobs import LoadJob
from tidegate.sinks.iceberg.catalog import load_table
from tidegate.sinks.iceberg.maintenance import compact
from tidegate.spark.load import load_range
from tidegate.spark.session import connect
from tidegate_local.flights import create_topic

TOPIC = "laid_out"
PARTITIONS = 2
CUSTOMERS = 1000
LATE_S = 2 * 86_400
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
CONTENDERS: dict[str, dict[str, Any]] = {
    "origin": {},
    "days": {"layout": Layout(partition_by=("days(at)",))},
    "quarantine": {"quarantine": Quarantine("lake.bench.rejected")},
}
TRANSFORM = """
from tidegate import parse_json

def orders(records):
    return parse_json(records, "customer BIGINT, amount DOUBLE, at TIMESTAMP")
"""


def measure(batches: int, records: int, days: int, rounds: int, tables: int, folder: Path) -> dict[str, dict[str, float]]:
    """By contender: data files, those that each query opens, and medians of seconds of a load, of each query and replay."""
    with closing(Stage(folder, rounds, 1)) as stage:
        stage.up("kafka", "spark")
        (stage.spark_jobs / "laid.py").write_text(TRANSFORM)
        fill(stage, batches * records, days)
        each = records // PARTITIONS
        with connect(stage.platform.spark_remote, name="bench") as spark:
            jobs = {name: job_of(stage, number, what) for number, (name, what) in enumerate([*CONTENDERS.items()][:tables])}
            loads: dict[str, list[float]] = {name: [] for name in jobs}
            for batch in range(batches):
                for name, job in jobs.items():
                    took = seconds_of(partial(load, stage, spark, part(job, batch * each, each, seq=batch)))
                    loads[name].append(took["time"])
            wanted = BEGIN + timedelta(days=days // 2)
            bounds = [day.isoformat() for day in (wanted, wanted + timedelta(days=1))]
            queries = {"a day": f"at >= '{bounds[0]}' and at < '{bounds[1]}'", "a key": "customer = 7", "all": "customer >= 0"}
            found: dict[str, dict[str, float]] = {}
            for name in jobs:
                found[name] = {"load, s": statistics.median(loads[name])}
            ask_all(stage, spark, jobs, queries, found, "")
            for replay, begins in (("aligned replay", 0), ("unaligned replay", each // 2)):
                # each time another place: what was cut once is aligned from then on
                turns = {name: partial(again, stage, spark, job, count(begins, 2 * each), each) for name, job in jobs.items()}
                add(found, f"{replay}, s", stage.alternate(turns))
            for job in jobs.values():
                compact(spark, job.table, Maintenance())
            ask_all(stage, spark, jobs, queries, found, "merged, ")
    return {name: {what: round(value, 3) for what, value in measures.items()} for name, measures in found.items()}


def ask_all(
    stage: Stage,
    spark: SparkSession,
    jobs: Mapping[str, LoadJob],
    queries: Mapping[str, str],
    found: dict[str, dict[str, float]],
    of: str,
) -> None:
    """The files that each query opens in each table, and its seconds; `of` says in which state the tables are."""
    for query, condition in queries.items():
        for name, job in jobs.items():
            found[name][f"{of}{query}, files"] = opened(job, condition)
        turns = {name: partial(ask, spark, job.table, condition) for name, job in jobs.items()}
        add(found, f"{of}{query}, s", stage.alternate(turns))


def add(found: dict[str, dict[str, float]], what: str, samples: Samples) -> None:
    """The median of each contender."""
    for name, values in samples.items():
        found[name][what] = statistics.median(values["time"])


def fill(stage: Stage, records: int, days: int) -> None:
    """The topic."""
    create_topic(stage.kafka, TOPIC, PARTITIONS)
    producer, draw = Producer({**stage.kafka, "linger.ms": 50}), random.Random(1)  # noqa: S311 - to be repeated
    for number in range(records):
        at = BEGIN + timedelta(seconds=number / records * days * 86_400 - draw.random() * LATE_S)
        value = {"customer": draw.randrange(CUSTOMERS), "amount": number / 7, "at": at.isoformat(), "note": "x" * 40}
        text = json.dumps(value) if number % 100 else "broken"
        producer.produce(TOPIC, text.encode(), partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.flush()
    if producer.flush(60):
        raise SystemExit("the broker did not take all records in a minute")


def job_of(stage: Stage, number: int, what: Mapping[str, Any]) -> LoadJob:
    """Into a table of its own."""
    job = stage.job_for("parse_json", (OffsetRange(TOPIC, 0, 0, 1),), f"lake.bench.layout_{number}")
    return changed(job, transform="laid:orders", **what)


def part(job: LoadJob, start: int, offsets: int, seq: int = 0) -> LoadJob:
    """So many offsets of each partition."""
    return changed(job, seq=seq, ranges=tuple(OffsetRange(TOPIC, p, start, start + offsets) for p in range(PARTITIONS)))


def ask(spark: SparkSession, table: str, condition: str) -> dict[str, float]:
    """How long a sum takes."""
    return seconds_of(spark.sql(f"SELECT sum(amount), count(*) FROM {table} WHERE {condition}").collect)  # noqa: S608


def again(stage: Stage, spark: SparkSession, job: LoadJob, begins: Iterator[int], each: int) -> dict[str, float]:
    """How long the replay of the next place takes."""
    order = changed(part(job, next(begins), each), replay="again", redo=True)
    return seconds_of(partial(load, stage, spark, order))


def load(stage: Stage, spark: SparkSession, job: LoadJob) -> None:
    """Once."""
    done = load_range(spark, job, spark_jobs=stage.spark_jobs)
    tell(f"{job.table} {job.load.seq}: {done.receipt.rows} rows, {dict(done.seconds)}")


def opened(job: LoadJob, condition: str) -> int:
    """The data files that a reader with this condition opens."""
    table = load_table(job.table)
    if table is None:
        raise SystemExit(f"{job.table} is not there")
    return len(list(table.scan(row_filter=condition).plan_files()))


if __name__ == "__main__":
    run(__doc__, measure, batches=100, records=4000, days=30, rounds=3, tables=len(CONTENDERS))

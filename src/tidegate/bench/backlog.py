"""Comparison `backlog`: the same records as one run or as many, each planned, loaded and committed on its own."""

from __future__ import annotations

from functools import partial
from math import ceil

from pyspark.sql import SparkSession

from tidegate.bench.schedule import Schedule
from tidegate.bench.stage import Stage, evenly, rate_of, transform
from tidegate.bench.suite import Bar, Comparison, Samples, Term
from tidegate.bench.tables import drop
from tidegate.bench.throughput import TOPIC
from tidegate.core.offsets.ranges import total_count
from tidegate.spark.session import connect

RUNS = (1, 4, 16, 64)


def name_of(runs: int) -> str:
    """Of a contender."""
    return f"{runs} run{'s' if runs > 1 else ''}"


def measure(stage: Stage) -> Samples:
    """Each number of runs fills a new table."""
    platform = stage.up("kafka", "spark")
    records = total_count(stage.filled(TOPIC, evenly(stage.records)))
    with connect(platform.spark_remote, name="bench") as spark:
        sizes = stage.sizes(*RUNS)
        return stage.alternate({name_of(runs): partial(load_all, spark, stage, records, runs) for runs in sizes})


def load_all(spark: SparkSession, stage: Stage, records: int, runs: int) -> dict[str, float]:
    """All records in so many batches."""
    schedule = Schedule(
        "backlog",
        TOPIC,
        f"lake.bench.backlog_{runs}",
        transform=transform("parse_json"),
        kafka=stage.kafka,
        spark_jobs=stage.spark_jobs,
        batch=ceil(records / runs),
    )
    done: list[int] = []
    measured = rate_of(lambda: done.append(schedule.run_all(spark)), records)
    drop(spark, schedule.pipeline.sink.table)
    return {**measured, "batches": done[0]}


COMPARISON = Comparison(
    name="backlog",
    title="A backlog in many runs",
    about="`--records` JSON records that wait in two partitions, as 1, 4, 16 and 64 batches of the same size. A batch is "
    "planned, loaded by the warm server and committed as in a DAG run; what Airflow adds to each is measured by "
    "`runs`.",
    measures={"time": "s", "rate": "records/s", "batches": ""},
    bars=(Bar("backlog: 16 runs, to one", Term(name_of(16), "time"), 3, 2, against=Term(name_of(1), "time")),),
    shows=lambda m: (
        f"In 16 runs, the backlog takes {m[name_of(16)]['time'] / m[name_of(1)]['time']:.2f} times as long as in one; "
        f"in 64, {m[name_of(64)]['time'] / m[name_of(1)]['time']:.2f} times."
    ),
    measure=measure,
)

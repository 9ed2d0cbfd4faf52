"""The contenders of `yardstick`, a bounded pass each over what the topic holds: `python -m tests.bench.yardstick_jobs JOB`.

    tidegate        plan, load, commit, with the schedule in a file instead of Airflow's Variables
    tidegate-batch  the same with `identity: batch`: the transform aggregates, and a batch's rows are replaced as a whole
    append          the plain job: read from the saved offsets to the end, append to Iceberg, then save the offsets
    stream-iceberg  Structured Streaming, availableNow, into Iceberg
    stream-parquet  Structured Streaming, availableNow, into Parquet files

Each prints `ready` once its Spark session runs. `YARDSTICK` (JSON) in the environment says topic, brokers, table, state folder.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.bench.file_store import FileStore, save
from tests.records import planned_job
from tidegate.core.config.pipeline import Limits, Pipeline, Sink, Source
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.model.watermarks import Watermarks
from tidegate.core.planning.run import Planned, Request, commit_batch, plan_batch
from tidegate.kafka.brokers import AdminBrokers
from tidegate.sinks.iceberg.history import IcebergReader
from tidegate.spark.kafka_source import read_ranges
from tidegate.spark.load import load_range

MAX_RECORDS = 8_000
PIPELINE = "yardstick"
BY_BATCH = "tidegate-batch"


@dataclass(frozen=True)
class Case:
    """One contender's topic, table and state."""

    bootstrap: str
    topic: str
    table: str
    state: Path
    folder: Path
    transforms: Path
    die: bool

    @staticmethod
    def from_environment() -> Case:
        found = json.loads(os.environ["YARDSTICK"])
        paths = {name: Path(found[name]) for name in ("state", "folder", "transforms")}
        return Case(found["bootstrap"], found["topic"], found["table"], **paths, die=found["die"])


def tidegate(spark: SparkSession, case: Case) -> None:
    """One row a record."""
    run_all(
        spark, case, Pipeline(PIPELINE, Source((case.topic,)), "plain:plain", sink=Sink(case.table), limits=Limits(MAX_RECORDS))
    )


def tidegate_batch(spark: SparkSession, case: Case) -> None:
    """Sums of each batch."""
    source, sink = Source((case.topic,)), Sink(case.table)
    run_all(spark, case, Pipeline(PIPELINE, source, "sums:summed", sink=sink, limits=Limits(MAX_RECORDS), identity="batch"))


def run_all(spark: SparkSession, case: Case, pipeline: Pipeline) -> None:
    """Batches until nothing lags, each a run of its own."""
    store, brokers, sink = FileStore(case.state), AdminBrokers({"bootstrap.servers": case.bootstrap}), IcebergReader()
    while True:
        run_id = f"run-{time.time_ns()}"
        planned = plan_batch(
            pipeline, run_id, Request(), store=store, brokers=brokers, sink=sink, now_ms=time.time_ns() // 10**6
        )
        if not isinstance(planned, Planned):
            return
        job = planned_job(pipeline, planned.saved, {"kafka.bootstrap.servers": case.bootstrap})
        result = load_range(spark, job, spark_jobs=case.transforms)
        die(case)
        commit_batch(pipeline, planned.key, result.receipt, store=store)


def append(spark: SparkSession, case: Case) -> None:
    """What a home-made task does."""
    file = case.state / "offsets.json"
    while True:
        marks = AdminBrokers({"bootstrap.servers": case.bootstrap}).watermarks([case.topic])
        known = json.loads(file.read_text()) if file.exists() else {}
        ranges = plain_ranges(marks, known)
        if not ranges:
            return
        rows = read_ranges(spark, ranges, {"kafka.bootstrap.servers": case.bootstrap}).drop("key", "timestampType", "headers")
        if spark.catalog.tableExists(case.table):
            rows.writeTo(case.table).append()
        else:
            spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {case.table.rpartition('.')[0]}")
            rows.writeTo(case.table).using("iceberg").create()
        die(case)
        save(file, json.dumps({**known, **{str(r.partition): r.until_offset for r in ranges}}))


def plain_ranges(marks: Watermarks, known: dict[str, int]) -> list[OffsetRange]:
    """From the saved offsets, at most the same number of records as the others."""

    def of(tp: TopicPartition) -> OffsetRange:
        start = known.get(str(tp.partition), marks.earliest[tp])
        return OffsetRange(tp.topic, tp.partition, start, min(marks.latest[tp], start + MAX_RECORDS // len(marks.latest)))

    return [r for r in map(of, sorted(marks.latest)) if r.count]


def stream_rows(spark: SparkSession, case: Case) -> DataFrame:
    """The topic as a stream, with the origin columns."""
    options = {
        "kafka.bootstrap.servers": case.bootstrap,
        "subscribe": case.topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(MAX_RECORDS),
    }
    columns = ("value", "timestamp", "topic AS _kafka_topic", "partition AS _kafka_partition", "offset AS _kafka_offset")
    return spark.readStream.format("kafka").options(**options).load().selectExpr(*columns)


def stream_iceberg(spark: SparkSession, case: Case) -> None:
    """Iceberg's own streaming sink."""
    rows = stream_rows(spark, case)
    if not spark.catalog.tableExists(case.table):
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {case.table.rpartition('.')[0]}")
        spark.createDataFrame([], rows.schema).writeTo(case.table).using("iceberg").create()
    writer = rows.writeStream.format("iceberg").option("checkpointLocation", str(case.state / "checkpoint"))
    writer.trigger(availableNow=True).toTable(case.table).awaitTermination()


def stream_parquet(spark: SparkSession, case: Case) -> None:
    """Spark's file sink."""
    writer = stream_rows(spark, case).writeStream.format("parquet").option("checkpointLocation", str(case.state / "checkpoint"))
    writer.trigger(availableNow=True).start(str(case.folder)).awaitTermination()


def die(case: Case) -> None:
    """Between the sink's commit and the state's, if the case says so."""
    if case.die:
        os.kill(os.getpid(), signal.SIGKILL)


JOBS: dict[str, Callable[[SparkSession, Case], None]] = {
    "tidegate": tidegate,
    BY_BATCH: tidegate_batch,
    "append": append,
    "stream-iceberg": stream_iceberg,
    "stream-parquet": stream_parquet,
}


def main() -> None:
    """One pass."""
    case = Case.from_environment()
    spark = SparkSession.builder.appName(f"yardstick-{sys.argv[1]}").getOrCreate()
    spark.range(1).count()
    print("ready", flush=True)  # noqa: T201 - whoever kills this process waits for it
    JOBS[sys.argv[1]](spark, case)
    spark.stop()


if __name__ == "__main__":
    main()

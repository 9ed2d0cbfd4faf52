"""A pipeline without Airflow: its batches and replays in one warm session, by the library's own plans, loads and commits."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tidegate.core.config.pipeline import Limits, Pipeline, Sink, Source
from tidegate.core.load.job import LoadJob, LoadResult
from tidegate.core.offsets.ranges import OffsetRange
from tidegate.core.replay.request import ReplayRequest
from tidegate.core.replay.run import plan_replay
from tidegate.core.replay.verdict import verify_replay
from tidegate.core.schedule.run import Planned, Request, commit_batch, plan_batch
from tidegate.iceberg.history import IcebergReader
from tidegate.kafka.brokers import AdminBrokers
from tidegate.spark.load import load_range
from tidegate.testing.fakes import MemoryStore


class Schedule:
    """One pipeline: its forward loads, and its replays."""

    def __init__(
        self,
        name: str,
        topic: str,
        table: str,
        *,
        transform: str,
        kafka: dict[str, str],
        spark_jobs: Path,
        batch: int | None = None,
        shared_with: tuple[str, ...] = (),
    ) -> None:
        limits = Limits(max_records=batch)
        self.pipeline = Pipeline(name, Source((topic,)), transform, Sink(table, shared_with=shared_with), limits=limits)
        self.spark_jobs, self.kafka = spark_jobs, kafka
        self.store, self.sink, self.brokers = MemoryStore(), IcebergReader(), AdminBrokers(kafka)

    @property
    def ports(self) -> dict[str, Any]:
        """Of a plan."""
        return {"store": self.store, "brokers": self.brokers, "sink": self.sink, "now_ms": time.time_ns() // 1_000_000}

    def load(self, spark: SparkSession, ranges: tuple[OffsetRange, ...], **what: Any) -> LoadResult:
        """One load into the pipeline's table."""
        job = LoadJob(
            pipeline=self.pipeline.name,
            ranges=ranges,
            transform=self.pipeline.transform,
            table=self.pipeline.sink.table,
            kafka_options={f"kafka.{name}": value for name, value in self.kafka.items()},
            shared_with=self.pipeline.sink.shared_with,
            **what,
        )
        return load_range(spark, job, spark_jobs=self.spark_jobs)

    def run(self, spark: SparkSession, run_id: str) -> dict[str, float]:
        """One batch of the schedule: its records and the seconds of each step; no records where nothing waits."""
        began = time.perf_counter()
        planned = plan_batch(self.pipeline, run_id, Request(), **self.ports)
        if not isinstance(planned, Planned):
            return {"records": 0}
        saved, planned_at = planned.saved, time.perf_counter()
        loaded = self.load(
            spark, saved.to_load, seq=saved.seq, run_id=run_id, topic_ids=saved.topic_ids, generation=saved.generation
        )
        loaded_at = time.perf_counter()
        commit_batch(self.pipeline, planned.key, loaded.receipt, store=self.store)
        return {
            "records": loaded.receipt.rows,
            "plan": planned_at - began,
            "load": loaded_at - planned_at,
            "commit": time.perf_counter() - loaded_at,
        }

    def run_all(self, spark: SparkSession) -> int:
        """Batches until nothing waits; how many."""
        runs = 0
        while self.run(spark, f"run {runs}")["records"]:
            runs += 1
        return runs

    def replay(self, spark: SparkSession, run_id: str, request: ReplayRequest) -> int:
        """Plan, load and judge a whole replay; its rows."""
        planned = plan_replay(self.pipeline, run_id, request, **self.ports)
        for n in planned.todo:
            self.load(spark, planned.saved.chunk(n), seq=n, run_id=run_id, replay=planned.saved.replay)
        return verify_replay(planned.saved, sink=self.sink, brokers=self.brokers).rows

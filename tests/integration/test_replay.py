"""Replays on a real broker, a real Spark Connect server and a real table: every selector, and a transform that has changed."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from tests.records import load_job, planned_job
from tidegate.core.config.pipeline import Limits, Pipeline, Replay, Sink, Source
from tidegate.core.model.errors import ReceiptMismatch, RequestError
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.planning.run import Planned, Request, commit_batch, plan_batch
from tidegate.core.replay.request import ReplayRequest
from tidegate.core.replay.run import PlannedReplay, plan_replay
from tidegate.core.replay.verdict import verify_replay
from tidegate.core.state.jobs import LoadResult
from tidegate.core.state.ledger import Ledger
from tidegate.kafka.brokers import AdminBrokers
from tidegate.sinks.iceberg.history import IcebergReader
from tidegate.spark.load import load_range
from tidegate.testing.fakes import MemoryStore
from tidegate_local.platform import Platform

BATCH = 20
"""Records of each partition in a batch; three batches, and two partitions."""
FIRST_MS = 1_356_998_400_000
OLD = """
from pyspark.sql import functions as F

__version__ = "1"


def rows(records):
    number = F.col("value").cast("string").cast("int").alias("n")
    return records.select(number, "_kafka_topic", "_kafka_partition", "_kafka_offset")
"""
NEW = """
from pyspark.sql import functions as F
from old import rows as old_rows

__version__ = "2"


def rows(records):
    \"\"\"None for even numbers, three for those that five divides, else one; and each number has another value.\"\"\"
    odd = old_rows(records).where("n % 2 = 1").withColumn("n", F.col("n") + 1000)
    return odd.withColumn("copy", F.explode(F.sequence(F.lit(1), F.when(F.col("n") % 5 == 0, 3).otherwise(1)))).drop("copy")
"""


@dataclass
class World:
    """A pipeline that has committed three batches."""

    platform: Platform
    spark: SparkSession
    topic: str
    spark_jobs: Path
    pipeline: Pipeline
    store: MemoryStore = field(default_factory=MemoryStore)
    sink: IcebergReader = field(default_factory=IcebergReader)

    @property
    def kafka(self) -> dict[str, str]:
        return {"bootstrap.servers": self.platform.bootstrap_servers}

    @property
    def ports(self) -> dict[str, Any]:
        now_ms = time.time_ns() // 1_000_000
        return {"store": self.store, "brokers": AdminBrokers(self.kafka), "sink": self.sink, "now_ms": now_ms}

    def run(self, run_id: str) -> None:
        planned = plan_batch(self.pipeline, run_id, Request(), **self.ports)
        assert isinstance(planned, Planned)
        job = planned_job(self.pipeline, planned.saved, {"kafka.bootstrap.servers": self.platform.bootstrap_servers})
        loaded = load_range(self.spark, job, spark_jobs=self.spark_jobs)
        commit_batch(self.pipeline, planned.key, loaded.receipt, store=self.store, record_bytes=loaded.observed.record_bytes)

    def plan(self, run_id: str | None = None, **params: Any) -> PlannedReplay:
        return plan_replay(self.pipeline, run_id or uuid.uuid4().hex, ReplayRequest.from_params(params), **self.ports)

    def load(self, planned: PlannedReplay, *numbers: int) -> list[LoadResult]:
        saved = planned.saved
        options = {"kafka.bootstrap.servers": self.platform.bootstrap_servers}

        def load(n: int) -> LoadResult:
            to = (saved.chunks[n], saved.transform, saved.table, options)
            job = load_job(self.pipeline.name, n, saved.load.run_id, *to, replay=saved.name, redo=planned.redo)
            return load_range(self.spark, job, spark_jobs=self.spark_jobs)

        return [load(n) for n in numbers or planned.todo]

    def replay(self, **params: Any) -> PlannedReplay:
        planned = self.plan(**params)
        self.load(planned)
        verify_replay(planned.saved, sink=self.sink, brokers=AdminBrokers(self.kafka))
        return planned

    def rows(self, table: str | None = None) -> list[tuple[int, int, int]]:
        """Partition, offset and value of every row."""
        catalog = load_catalog("lake", **self.platform.catalog_properties)
        found = catalog.load_table((table or self.pipeline.sink.table).removeprefix("lake.")).scan().to_arrow().to_pylist()
        return sorted((row["_kafka_partition"], row["_kafka_offset"], row["n"]) for row in found)


def old(partition: int, first: int, last: int) -> list[tuple[int, int, int]]:
    """What the old transform makes of these offsets."""
    return [(partition, n, n) for n in range(first, last)]


def new(partition: int, first: int, last: int) -> list[tuple[int, int, int]]:
    """What the new one makes of them."""
    return [(partition, n, n + 1000) for n in range(first, last) if n % 2 for _ in range(3 if (n + 1000) % 5 == 0 else 1)]


@pytest.fixture(scope="module")
def spark_jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs")
    (folder / "old.py").write_text(OLD)
    (folder / "new.py").write_text(NEW)
    return folder


@pytest.fixture
def world(platform: Platform, spark: SparkSession, spark_jobs: Path, catalog: None) -> World:
    """Sixty records a second apart in each of two partitions, all loaded."""
    name = uuid.uuid4().hex[:8]
    settings = {"bootstrap.servers": platform.bootstrap_servers}
    admin = AdminClient({**settings})
    config = {"retention.ms": "-1"}
    admin.create_topics([NewTopic(f"t-{name}", num_partitions=2, replication_factor=1, config=config)])[f"t-{name}"].result(30)
    producer = Producer(settings)
    for partition in (0, 1):
        for n in range(3 * BATCH):
            producer.produce(f"t-{name}", value=str(n), partition=partition, timestamp=FIRST_MS + n * 1000)
    assert producer.flush(30) == 0
    pipeline = Pipeline(
        f"p_{name}",
        Source((f"t-{name}",)),
        "old:rows",
        sink=Sink(f"lake.it.r{name}"),
        limits=Limits(max_records=2 * BATCH),
        replay=Replay(transforms=("new:rows",)),
    )
    made = World(platform, spark, f"t-{name}", spark_jobs, pipeline)
    for n in range(3):
        made.run(f"run {n + 1}")
    return made


def test_every_selector_means_the_offsets_that_it_names(world: World) -> None:
    """Resolved by the real broker and the real table; loaded; the table holds one copy, and the cursor has not moved."""
    first, second, third = ((n * BATCH, (n + 1) * BATCH) for n in range(3))
    before = Ledger(world.store, world.pipeline.name).cursor()
    cases: list[tuple[dict[str, Any], tuple[int, int]]] = [
        ({"offsets": {world.topic: {"0": list(second), "1": list(second)}}}, second),
        ({"offsets": list(first)}, first),
        ({"offsets": {world.topic: [2 * BATCH, None]}}, third),
        ({"from_time": FIRST_MS + BATCH * 1000, "until_time": FIRST_MS + 2 * BATCH * 1000}, second),
        ({"until_time": FIRST_MS + BATCH * 1000}, first),
        ({"from_time": FIRST_MS + 2 * BATCH * 1000}, third),
        ({"batches": "1..2"}, (0, 2 * BATCH)),
        ({"run": "run 3"}, third),
        ({"versions": "=1"}, (0, 3 * BATCH)),
    ]
    for params, (start, until) in cases:
        planned = world.replay(**params)
        assert planned.saved.selection == tuple(OffsetRange(world.topic, p, start, until) for p in (0, 1)), params
    assert world.rows() == old(0, 0, 3 * BATCH) + old(1, 0, 3 * BATCH)
    assert Ledger(world.store, world.pipeline.name).cursor() == before
    assert world.sink.history(world.pipeline.sink.table).reached(world.pipeline.name) == (0, 3)


def test_a_replay_goes_on_with_what_is_missing(world: World) -> None:
    """By the same run, and by another one that asks the same; what landed is found and not written again."""
    first = world.plan("first", batches="1..3")
    world.load(first, 1)
    with pytest.raises(ReceiptMismatch, match="2 of 3 chunks"):
        verify_replay(first.saved, sink=world.sink, brokers=AdminBrokers(world.kafka))
    assert world.plan("first", batches="1..3").todo == (0, 2)
    assert world.load(first, 1)[0].landed_before
    second = world.replay(batches="1..3")
    assert len(second.saved.chunks) == 2
    assert second.saved.resumes == (first.saved.name,)
    assert world.rows() == old(0, 0, 3 * BATCH) + old(1, 0, 3 * BATCH)


def test_versions_of_the_transform_select_what_still_stands(world: World) -> None:
    """Rows that the new version has loaded are not replayed as the old one's."""
    world.replay(batches="2", transform="new:rows")
    assert {r.write.transform for r in world.sink.receipts(world.pipeline.sink.table, world.pipeline.name)} == {
        "old:rows@1",
        "new:rows@2",
    }
    planned = world.replay(versions="<2", transform="new:rows")
    assert planned.saved.selection == tuple(
        OffsetRange(world.topic, p, start, start + BATCH) for p in (0, 1) for start in (0, 2 * BATCH)
    )
    assert world.rows() == new(0, 0, 3 * BATCH) + new(1, 0, 3 * BATCH)
    with pytest.raises(RequestError, match="was loaded by a version <2"):
        world.plan(versions="<2")


@pytest.mark.parametrize("params", [{"offsets": [7, 45]}, {"offsets": [7, 45], "chunk_size": 11}])
def test_a_replay_that_cuts_through_batches_leaves_exactly_the_new_rows(world: World, params: dict[str, Any]) -> None:
    """Fewer, more and other rows inside, the old ones untouched outside; and again, by the old version, to where it was."""
    world.replay(**params, transform="new:rows")
    assert world.rows() == sorted(row for p in (0, 1) for row in [*old(p, 0, 7), *new(p, 7, 45), *old(p, 45, 3 * BATCH)])
    world.replay(offsets=[3, 50], transform="old:rows")
    assert world.rows() == old(0, 0, 3 * BATCH) + old(1, 0, 3 * BATCH)

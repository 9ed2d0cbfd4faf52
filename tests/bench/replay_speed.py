"""Records per second of a replay against the forward load of the same records in the same run.

    python -m tests.bench.replay_speed [--records 4000000] [--batches 4]

forward     the batches of the schedule, one after the other, into a new table (after one throw-away round that warms the JVM)
aligned     a replay of all of them in chunks that end where the batches end
unaligned   a replay whose chunks cut through the batches' files, while a second pipeline's schedule loads into the same table

Plans, chunks and verdict are the library's own (`plan_replay`, `verify_replay`), each load one `load_range` on an embedded
Spark Connect server of two cores. The bars: aligned at least 0.9 of forward, unaligned at least 0.5.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.cli import run
from tests.bench.stream import TRANSFORM, fill
from tidegate.core.config.pipeline import Limits, Pipeline, Sink, Source
from tidegate.core.load.job import LoadJob
from tidegate.core.offsets.ranges import OffsetRange
from tidegate.core.replay.request import Asked, ReplayRequest
from tidegate.core.replay.run import plan_replay
from tidegate.core.replay.verdict import verify_replay
from tidegate.core.schedule.run import Planned, Request, commit_batch, plan_batch
from tidegate.iceberg.history import IcebergReader
from tidegate.kafka.brokers import AdminBrokers
from tidegate.local import Platform
from tidegate.spark.load import load_range
from tidegate.spark.session import connect
from tidegate.testing.fakes import MemoryStore

REPO = Path(__file__).parents[2]
PARTITIONS = 4


class Schedule:
    """One pipeline: its forward loads, and its replays."""

    def __init__(self, platform: Platform, name: str, table: str, folder: Path, batch: int, *shared_with: str) -> None:
        self.platform, self.folder = platform, folder
        self.pipeline = Pipeline(
            name, Source((name,)), "plain:plain", Sink(table, shared_with=shared_with), limits=Limits(max_records=batch)
        )
        self.store, self.sink = MemoryStore(), IcebergReader()
        self.brokers = AdminBrokers({"bootstrap.servers": platform.bootstrap_servers})

    @property
    def ports(self) -> dict[str, Any]:
        return {"store": self.store, "brokers": self.brokers, "sink": self.sink, "now_ms": time.time_ns() // 1_000_000}

    def load(self, spark: Any, ranges: tuple[OffsetRange, ...], **what: Any) -> Any:
        options = {"kafka.bootstrap.servers": self.platform.bootstrap_servers}
        job = LoadJob(
            pipeline=self.pipeline.name,
            ranges=ranges,
            transform=self.pipeline.transform,
            table=self.pipeline.sink.table,
            kafka_options=options,
            shared_with=self.pipeline.sink.shared_with,
            **what,
        )
        return load_range(spark, job, spark_jobs=self.folder)

    def run(self, spark: Any, run_id: str) -> int:
        """One batch of the schedule; its records, 0 where nothing waits."""
        planned = plan_batch(self.pipeline, run_id, Request(), **self.ports)
        if not isinstance(planned, Planned):
            return 0
        saved = planned.saved
        loaded = self.load(spark, saved.to_load, seq=saved.seq, run_id=run_id, topic_ids=saved.topic_ids)
        commit_batch(self.pipeline, planned.key, loaded.receipt, store=self.store)
        return int(loaded.receipt.rows)

    def replay(self, spark: Any, run_id: str, request: ReplayRequest) -> tuple[int, float]:
        """Rows of a whole replay, and seconds from its plan to its verdict."""
        started = time.perf_counter()
        planned = plan_replay(self.pipeline, run_id, request, **self.ports)
        for n in planned.todo:
            self.load(spark, planned.saved.chunk(n), seq=n, run_id=run_id, replay=planned.saved.replay)
        found = verify_replay(planned.saved, sink=self.sink, brokers=self.brokers)
        return found.rows, time.perf_counter() - started


@contextmanager
def live(schedule: Schedule, platform: Platform) -> Iterator[list[int]]:
    """The schedule's batches a second apart, in a session and a thread of their own, until the block ends."""
    ended, done = threading.Event(), list[int]()

    def loop() -> None:
        with connect(platform.spark_remote, name="live") as spark:
            while not ended.is_set():
                done.append(schedule.run(spark, f"live {len(done)}"))
                ended.wait(1)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield done
    finally:
        ended.set()
        thread.join()


def tell(name: str, rows: int, seconds: float) -> None:
    """One line for whoever waits."""
    print(f"{name}: {rows:,} records in {seconds:.1f} s, {rows / seconds:,.0f} a second", file=sys.stderr)  # noqa: T201


def measure(records: int, batches: int, folder: Path) -> dict[str, Any]:
    """Records per second of each way, and the ratios."""
    (folder / "plain.py").write_text(TRANSFORM)
    platform = Platform(folder / ".tidegate", REPO)
    seconds: dict[str, float] = {}
    try:
        platform.up(("kafka", "spark"))
        platform.use_catalog()
        fill(platform.bootstrap_servers, "speed", [records // PARTITIONS] * PARTITIONS)
        fill(platform.bootstrap_servers, "beside", [max(records // 10, 1000) // PARTITIONS] * PARTITIONS)
        size = records // batches
        with connect(platform.spark_remote, name="bench") as spark:
            warm = Schedule(platform, "speed", "lake.bench.warm", folder, size)
            warm.run(spark, "warm")
            forward = Schedule(platform, "speed", "lake.bench.speed", folder, size, "beside")
            started, loaded = time.perf_counter(), 0
            for n in range(batches):
                loaded += forward.run(spark, f"run {n}")
            seconds["forward"] = time.perf_counter() - started
            tell("forward", loaded, seconds["forward"])
            rows, seconds["aligned"] = forward.replay(spark, "aligned", ReplayRequest(batches=(1, batches), chunk_size=size))
            tell("aligned", rows, seconds["aligned"])
            if not loaded == rows == records:
                raise SystemExit(f"{loaded} rows forward, {rows} rows replayed, of {records} records")
            # from within the first batch on, and each batch in two chunks, of which one cuts through its files
            first = size // PARTITIONS // 4
            cut = ReplayRequest(offsets=(Asked(None, None, first, None),), chunk_size=size * 2 // 3)
            beside = Schedule(platform, "beside", "lake.bench.speed", folder, max(records // 200, 100), "speed")
            with live(beside, platform) as done:
                rows, seconds["unaligned"] = forward.replay(spark, "unaligned", cut)
            counts = {"forward": loaded, "aligned": records, "unaligned": rows}
    finally:
        platform.down()
    rates = {name: round(counts[name] / s) for name, s in seconds.items()}
    return {
        "records per second": rates,
        "aligned to forward": round(rates["aligned"] / rates["forward"], 2),
        "unaligned to forward": round(rates["unaligned"] / rates["forward"], 2),
        "records": records,
        "batches": batches,
        "live batches beside": sum(1 for rows in done if rows),
    }


if __name__ == "__main__":
    run(__doc__, measure, records=4_000_000, batches=4)

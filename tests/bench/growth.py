"""A batch of a pipeline whose table has 10, 100, 1,000 and 5,000 snapshots, and `tidegate ledger show`.

    python -m tests.bench.growth [--most 5000] [--rounds 5] [--warm-up 2]

The tables get their history from PyIceberg (`add_history`); one of them was maintained before it is measured. The loads and
commits that are measured are those of the library, and so is the saved state: the cursor, and as many ranges as a schedule
keeps. No table has more than `--most` snapshots.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyspark.sql import SparkSession

from tests.bench.cli import run
from tests.bench.stage import RUN, Stage, seconds_of, tell, told, transform
from tests.records import changed, cursor_of, planned_job, range_of, write_of
from tidegate.airflow.remote.api import AirflowApi
from tidegate.core.config.pipeline import Maintenance, Pipeline, Sink, Source
from tidegate.core.model.columns import OFFSET, PARTITION, TOPIC
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.planning.run import Planned, Request, commit_batch, plan_batch
from tidegate.core.state.jobs import MaintenanceJob
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.receipt import Write
from tidegate.core.state.saved_range import Decision
from tidegate.kafka.brokers import AdminBrokers
from tidegate.sinks import maintain
from tidegate.sinks.iceberg.catalog import load_table
from tidegate.sinks.iceberg.history import IcebergReader
from tidegate.sinks.iceberg.summary import OWNED
from tidegate.spark.load import load_range
from tidegate.spark.session import connect
from tidegate.testing.fakes import MemoryStore

SNAPSHOTS = (10, 100, 1000, 5000)
KEPT = 1000
"""Ranges that a schedule keeps."""
KEPT_SNAPSHOTS = 100
"""The fewest that a pipeline file may keep."""
MAINTAINED = "growth_maintained"
FILE_SIZE = "write.target-file-size-bytes"


class Grown:
    """A pipeline with a history."""

    def __init__(self, stage: Stage, spark: SparkSession, name: str, snapshots: int) -> None:
        self.stage, self.spark, self.name, self.snapshots = stage, spark, name, snapshots
        stage.fill(name, [snapshots])
        self.pipeline = Pipeline(name, Source((name,)), transform("parse_json"), sink=Sink(f"lake.bench.{name}"))
        self.store, self.sink, self.brokers = MemoryStore(), IcebergReader(), AdminBrokers(stage.kafka)
        self.saved: dict[str, str] = {}

    def grow(self) -> None:
        """A row, a commit with a receipt, and a saved range for each batch; the cursor behind the last."""
        topic_ids = self.brokers.watermarks([self.name]).topic_ids
        job = self.stage.job_for("parse_json", (OffsetRange(self.name, 0, 0, 1),), self.pipeline.sink.table)
        self.stage.make_table(self.spark, changed(job, pipeline=self.name))
        table = load_table(job.table)
        if table is None:
            raise SystemExit(f"{job.table} is not there")
        tell(f"making {self.snapshots:,} snapshots")
        ledger = Ledger(self.store, self.name)
        loads = []
        for seq in range(1, self.snapshots + 1):
            ranges = (OffsetRange(self.name, 0, seq - 1, seq),)
            run_id = f"scheduled__2026-01-01T00:00:00+00:00-{seq}"
            loads.append(write_of(self.name, seq, run_id, ranges, "v", f"a{seq}", topic_ids))
            if seq > self.snapshots - KEPT:
                decisions = (Decision(TopicPartition(self.name, 0), "cursor", "max_records"),)
                ledger.save_range(range_of(self.name, seq, run_id, ranges, decisions, topic_ids, {}, seq))
        add_history(table, self.name, loads)
        offsets = {TopicPartition(self.name, 0): self.snapshots}
        ledger.save_cursor(cursor_of(self.name, self.snapshots, offsets, topic_ids, starts=dict.fromkeys(offsets, 0)))

    def maintain(self) -> None:
        """All steps, at a time when the whole history is old."""
        tell(f"maintaining {self.name}")
        keep = Maintenance(keep_snapshots=KEPT_SNAPSHOTS)
        then_ms = time.time_ns() // 1_000_000 + int(2 * keep.keep * 1000)
        for step in keep.steps:
            maintain(self.spark, MaintenanceJob(self.name, self.pipeline.sink.table, step, now_ms=then_ms, maintenance=keep))

    def save(self, api: AirflowApi) -> None:
        """Let Airflow's Variables be the state, as far as it has changed."""
        for key, value in self.store.values.items():
            if self.saved.get(key) != value:
                api.set_variable(key, value)
        self.saved = dict(self.store.values)

    def batch(self, api: AirflowApi) -> dict[str, float]:
        """`ledger show`, and then one batch."""
        project = str(self.stage.folder)
        command = [str(Path(sys.executable).with_name("tidegate")), "ledger", "show", self.name, "--project", project]
        shown = seconds_of(partial(subprocess.run, command, stdout=subprocess.DEVNULL, check=True))["time"]
        self.stage.fill(self.name, [RUN])
        seconds = self._run(f"run {len(self.saved)} {shown}")
        self.save(api)
        return {**seconds, "load + commit": seconds["load"] + seconds["commit"], "ledger show": shown}

    def _run(self, run_id: str) -> dict[str, float]:
        """One batch, without Airflow; the seconds of each step."""
        began = time.perf_counter()
        ports: dict[str, Any] = {"store": self.store, "brokers": self.brokers, "sink": self.sink}
        planned = plan_batch(self.pipeline, run_id, Request(), **ports, now_ms=time.time_ns() // 1_000_000)
        if not isinstance(planned, Planned):
            raise SystemExit(planned.reason)
        planned_at = time.perf_counter()
        job = planned_job(self.pipeline, planned.saved, self.stage.options)
        loaded = load_range(self.spark, job, spark_jobs=self.stage.spark_jobs)
        loaded_at = time.perf_counter()
        commit_batch(self.pipeline, planned.key, loaded.receipt, store=self.store)
        return {"plan": planned_at - began, "load": loaded_at - planned_at, "commit": time.perf_counter() - loaded_at}


def add_history(table: Table, topic: str, loads: Sequence[Write]) -> None:
    """A data file with one row for each load, and a snapshot with its receipt.

    PyIceberg copies all metadata for each append, which would take hours. So one append writes all files, and the snapshots
    share its list of them, in one commit: what reads receipts and metadata finds as much to read as after so many loads.
    """
    schema = table.schema().as_arrow()
    rows = len(loads)
    columns = {name: [None] * rows for name in schema.names} | {
        TOPIC: [topic] * rows,
        PARTITION: [0] * rows,
        OFFSET: list(range(rows)),
    }
    with table.transaction() as transaction:
        transaction.set_properties({FILE_SIZE: "1"})  # a file for each row
        transaction.append(pa.table(columns, schema=schema), snapshot_properties=_properties(loads[0]))
        transaction.remove_properties(FILE_SIZE)
    first = table.current_snapshot()
    if first is None:
        raise SystemExit(f"{topic}: its table holds nothing")
    snapshots = [first]
    for load in loads[1:]:
        last = snapshots[-1]
        counts = {"added-records": "1", "added-data-files": "1", "total-records": str(rows)}
        snapshots.append(
            last.model_copy(
                update={
                    "snapshot_id": last.snapshot_id % 2**62 + 1,
                    "parent_snapshot_id": last.snapshot_id,
                    "sequence_number": (last.sequence_number or 0) + 1,
                    "timestamp_ms": last.timestamp_ms + 1,
                    "summary": Summary(Operation.APPEND, **counts, **_properties(load)),
                }
            )
        )
    added = tuple(AddSnapshotUpdate(snapshot=snapshot) for snapshot in snapshots[1:])
    newest = {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": snapshots[-1].snapshot_id}
    main = SetSnapshotRefUpdate.model_validate(newest)
    table.catalog.commit_table(table, (), (*added, main))


def _properties(load: Write) -> dict[str, str]:
    return {**load.to_properties(), OWNED: "true"}


def measure(most: int, rounds: int, warm_up: int, folder: Path) -> dict[str, Any]:
    """Tables of all lengths, by turns."""
    sizes = {f"growth_{snapshots}": snapshots for snapshots in SNAPSHOTS if snapshots <= most}
    sizes[MAINTAINED] = max(sizes.values())
    with closing(Stage(folder, rounds, warm_up)) as stage:
        stage.set_dags(sizes)
        platform = stage.up("kafka", "spark", "airflow")
        with connect(platform.spark_remote, name="bench") as spark, platform.api() as api:
            contenders = {}
            for name, snapshots in sizes.items():
                grown = Grown(stage, spark, name, snapshots)
                grown.grow()
                if name == MAINTAINED:
                    grown.maintain()
                grown.save(api)
                contenders[f"{snapshots:,} snapshots{', maintained' * (name == MAINTAINED)}"] = partial(grown.batch, api)
            return told(stage.alternate(contenders))


if __name__ == "__main__":
    run(__doc__, measure, most=5000, rounds=5, warm_up=2)

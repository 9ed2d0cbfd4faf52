"""Comparison `growth`: a batch of a pipeline whose table has 10, 100, 1,000 and 5,000 snapshots, and `ledger show`.

The tables get their history from PyIceberg (`add_history`); one of them was maintained before it is measured. The loads and
commits that are measured are those of the library, and so is the saved state: the cursor, and as many ranges as a schedule
keeps.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyspark.sql import SparkSession

from tidegate.airflow.remote.api import AirflowApi
from tidegate.bench.schedule import Schedule
from tidegate.bench.stage import RUN, Stage, seconds_of, transform
from tidegate.bench.suite import Bar, Comparison, Medians, Samples, Term
from tidegate.bench.tables import job_for, make_table
from tidegate.core.config.maintenance import Maintenance
from tidegate.core.errors import PlatformError, SinkUnavailable
from tidegate.core.load.columns import OFFSET, PARTITION, TOPIC
from tidegate.core.load.receipt import LoadId
from tidegate.core.maintenance.job import MaintenanceJob
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.saved_range import Decision, SavedRange
from tidegate.iceberg.history import load_table
from tidegate.iceberg.summary import OWNED
from tidegate.local.process import last_meaningful_line
from tidegate.spark.session import connect
from tidegate.spark.sinks.registry import maintain

SNAPSHOTS = (10, 100, 1000, 5000)
KEPT = 1000
"""Ranges that a schedule keeps."""
KEPT_SNAPSHOTS = 100
"""The fewest that a pipeline file may keep."""
MAINTAINED = "growth_maintained"
AT_ONCE = 100
"""Variables that are worth an import; fewer are set by the API."""
FILE_SIZE = "write.target-file-size-bytes"


def name_of(snapshots: int, *, maintained: bool = False) -> str:
    """Of a contender."""
    return f"{snapshots:,} snapshots{', maintained' if maintained else ''}"


class Grown:
    """A pipeline with a history."""

    def __init__(self, stage: Stage, spark: SparkSession, name: str, snapshots: int) -> None:
        self.stage, self.spark, self.name, self.snapshots = stage, spark, name, snapshots
        stage.fill(self.name, [snapshots])
        self.schedule = Schedule(
            self.name,
            self.name,
            f"lake.bench.{self.name}",
            transform=transform("parse_json"),
            kafka=stage.kafka,
            spark_jobs=stage.spark_jobs,
        )
        self.saved: dict[str, str] = {}

    def grow(self) -> None:
        """A row, a commit with a receipt, and a saved range for each batch; the cursor behind the last."""
        topic_ids = self.schedule.brokers.watermarks([self.name]).topic_ids
        job = job_for(self.stage, "parse_json", (OffsetRange(self.name, 0, 0, 1),), self.schedule.pipeline.sink.table)
        make_table(self.spark, self.stage, replace(job, pipeline=self.name))
        table = load_table(job.table)
        if table is None:
            raise SinkUnavailable(f"{job.table} is not there", fix="Run the comparison again")
        self.stage.progress(f"making {self.snapshots:,} snapshots", 0, None)
        ledger = Ledger(self.schedule.store, self.name)
        loads = []
        for seq in range(1, self.snapshots + 1):
            ranges = (OffsetRange(self.name, 0, seq - 1, seq),)
            run_id = f"scheduled__2026-01-01T00:00:00+00:00-{seq}"
            loads.append(LoadId(self.name, seq, run_id, ranges, "v", f"a{seq}", topic_ids))
            if seq > self.snapshots - KEPT:
                decisions = (Decision(TopicPartition(self.name, 0), "cursor", "max_records"),)
                ledger.save_range(SavedRange(self.name, seq, run_id, ranges, decisions, topic_ids, {}, seq))
        add_history(table, self.name, loads)
        offsets = {TopicPartition(self.name, 0): self.snapshots}
        ledger.save_cursor(Cursor(self.name, self.snapshots, offsets, topic_ids, starts=dict.fromkeys(offsets, 0)))

    def maintain(self) -> None:
        """All steps, at a time when the whole history is old."""
        self.stage.progress(f"maintaining {self.name}", 0, None)
        keep = Maintenance(keep_snapshots=KEPT_SNAPSHOTS)
        then_ms = time.time_ns() // 1_000_000 + int(2 * keep.keep * 1000)
        for step in keep.steps:
            maintain(self.spark, MaintenanceJob(self.name, self.schedule.pipeline.sink.table, step, then_ms, keep))

    def save(self, api: AirflowApi) -> None:
        """Let Airflow's Variables be the state, as far as it has changed."""
        values = self.schedule.store.values
        changed = {key: value for key, value in values.items() if self.saved.get(key) != value}
        if len(changed) > AT_ONCE:
            file = self.stage.folder / f"{self.name}.json"
            file.write_text(json.dumps(changed))
            run(*self.stage.platform.airflow_command(["variables", "import", str(file)]))
        else:
            for key, value in changed.items():
                api.set_variable(key, value)
        self.saved = dict(values)

    def batch(self, api: AirflowApi) -> dict[str, float]:
        """`ledger show`, and then one batch."""
        project = str(self.stage.folder)
        command = [str(Path(sys.executable).with_name("tidegate")), "ledger", "show", self.name, "--project", project]
        shown = seconds_of(partial(run, command, dict(os.environ)))["time"]
        self.stage.fill(self.name, [RUN])
        seconds = self.schedule.run(self.spark, f"run {len(self.saved)} {shown}")
        self.save(api)
        del seconds["records"]
        return {**seconds, "load + commit": seconds["load"] + seconds["commit"], "ledger show": shown}


def add_history(table: Table, topic: str, loads: Sequence[LoadId]) -> None:
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
        raise SinkUnavailable(f"{topic}: its table holds nothing", fix="Run the comparison again")
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


def _properties(load: LoadId) -> dict[str, str]:
    return {**load.to_properties(), OWNED: "true"}


def run(command: list[str], environment: dict[str, str]) -> None:
    """A command to its end.

    Raises:
        PlatformError: it failed.
    """
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise PlatformError(f"{' '.join(command)} failed: {last_meaningful_line(done.stderr)}", fix="Run the comparison again")


def measure(stage: Stage) -> Samples:
    """Tables of all lengths, by turns."""
    sizes = {f"growth_{snapshots}": snapshots for snapshots in stage.sizes(*SNAPSHOTS)}
    sizes[MAINTAINED] = max(sizes.values())
    stage.set_dags({name: name for name in sizes})
    platform = stage.up("kafka", "spark", "airflow")
    with connect(platform.spark_remote, name="bench") as spark, platform.api() as api:
        contenders = {}
        for name, snapshots in sizes.items():
            grown = Grown(stage, spark, name, snapshots)
            grown.grow()
            if name == MAINTAINED:
                grown.maintain()
            grown.save(api)
            contenders[name_of(snapshots, maintained=name == MAINTAINED)] = partial(grown.batch, api)
        return stage.alternate(contenders)


def shows(m: Medians) -> str:
    """The longest table, to the shortest."""
    long, kept, short = m[name_of(5000)], m[name_of(5000, maintained=True)], m[name_of(10)]
    ratio, maintained = (each["load + commit"] / short["load + commit"] for each in (long, kept))
    return (
        f"At 5,000 snapshots, load and commit take {ratio:.2f} times as long as at 10, and {maintained:.2f} times where the "
        f"table was maintained; `ledger show` takes {long['ledger show']:.1f} s and {kept['ledger show']:.1f} s."
    )


COMPARISON = Comparison(
    name="growth",
    title="Tables with thousands of snapshots",
    about="A batch of 4,000 records of a pipeline that has loaded 10 to 5,000 batches before, and `tidegate ledger show` as "
    "a user waits for it. PyIceberg made the history: a snapshot with a receipt and a data file of one row for each "
    "batch, as small runs without maintenance leave them, but in one manifest. `maintained`: before it was measured, the files "
    f"were merged and all snapshots but {KEPT_SNAPSHOTS} expired. The bare library is timed, without Airflow's tasks.",
    measures={"load + commit": "s", "plan": "s", "load": "s", "commit": "s", "ledger show": "s"},
    bars=(
        Bar(
            "growth: load and commit at 5,000 snapshots, maintained, to 10",
            Term(name_of(5000, maintained=True), "load + commit"),
            1.3,
            1.1,
            against=Term(name_of(10), "load + commit"),
        ),
        Bar(
            "growth: load and commit at 5,000 snapshots, never maintained, to 10",
            Term(name_of(5000), "load + commit"),
            1.3,
            1.1,
            against=Term(name_of(10), "load + commit"),
        ),
    ),
    shows=shows,
    measure=measure,
)

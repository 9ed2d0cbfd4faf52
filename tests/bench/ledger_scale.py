"""Seconds of `tidegate ledger show` and of a rebuild for a history of 1,000 batches, as a user waits for them.

    python -m tests.bench.ledger_scale [--batches 1000]

Airflow is an embedded platform in a temporary folder; the table is written by PyIceberg, one commit with a receipt a batch,
which takes some minutes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from tests.bench.cli import run
from tidegate.airflow.remote.schedule import ApiStore
from tidegate.core.load.receipt import LoadId
from tidegate.core.offsets.ranges import OffsetRange
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.saved_range import Decision, SavedRange
from tidegate.local import Platform

REPO = Path(__file__).parents[2]
PARTITIONS = 4
SIZE = 10
COMMANDS = {
    "show_s": ["show", "flights"],
    "show_all_s": ["show", "flights", "--json"],
    "rebuild_s": ["rebuild", "flights", "--dry-run"],
}
SCHEMA = pa.schema([("_kafka_topic", pa.string()), ("_kafka_partition", pa.int32()), ("_kafka_offset", pa.int64())])


def fill(platform: Platform, batches: int) -> None:
    """A saved range and a commit for each batch, and the cursor behind the last."""
    catalog = SqlCatalog("lake", **platform.catalog_properties)
    catalog.create_namespace("demo")
    table = catalog.create_table("demo.flights", SCHEMA)
    rows = pa.table({"_kafka_topic": ["flights"], "_kafka_partition": [0], "_kafka_offset": [0]}, schema=SCHEMA)
    with platform.api() as api:
        ledger = Ledger(ApiStore(api), "flights")
        for seq in range(1, batches + 1):
            ranges = tuple(OffsetRange("flights", p, SIZE * (seq - 1), SIZE * seq) for p in range(PARTITIONS))
            run_id = f"scheduled__2026-01-01T00:00:00+00:00-{seq}"
            load = LoadId("flights", seq, run_id, ranges, "v", f"a{seq}", {"flights": "id"})
            decisions = tuple(Decision(r.topic_partition, "cursor", "max_records") for r in ranges)
            ledger.save_range(SavedRange("flights", seq, run_id, ranges, decisions, {"flights": "id"}, {}, seq))
            table.append(rows, snapshot_properties=load.to_properties())
        offsets = {r.topic_partition: r.until_offset for r in ranges}
        ledger.save_cursor(Cursor("flights", batches, offsets, {"flights": "id"}, starts=dict.fromkeys(offsets, 0)))


def measure(batches: int, folder: Path) -> dict[str, float]:
    """Seconds of each command."""
    for part in ("dags", "plugins", "spark_jobs"):
        shutil.copytree(REPO / part, folder / part)
    platform = Platform(folder / ".tidegate", folder)
    try:
        platform.up(("airflow",))
        fill(platform, batches)
        found: dict[str, float] = {"batches": batches}
        for what, words in COMMANDS.items():
            began = time.perf_counter()
            command = [str(Path(sys.executable).parent / "tidegate"), "ledger", *words]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            found[what] = round(time.perf_counter() - began, 1)
            if done.returncode:
                raise SystemExit(done.stderr)
    finally:
        platform.down()
    return found


if __name__ == "__main__":
    run(__doc__, measure, batches=1000)

"""Tidegate and three alternatives under the same faults, judged by the same oracle, which never uses Spark.

    python -m tests.bench.yardstick [--seed 1] [--records 20000] [--kills 4] [--only JOB] [--json FILE]

Contenders and what a pass of them is: `yardstick_jobs.py`. Faults, each on a topic, a table and a state of its own:

    random kill     SIGKILL of the job at random instants of its work (seeded)
    at the boundary SIGKILL between the sink's commit and the state's; for the streams, which cannot be stopped just there, the
                    checkpoint's last commit entry is taken away instead, which is what such a crash leaves
    state restored  the state (Variables, offsets, checkpoint) of before the last pass is restored from a backup
    state lost      the state is gone

After the faults, a contender gets clean passes until nothing lags, and `tidegate ledger rebuild` where it asks for it (counted
as repairs). Rows of Parquet are counted twice: as Spark reads them (by `_spark_metadata`), and as everybody else does, who also
meets files that a killed task has left half written; those are counted, and left out. `counted` are the rows that an Iceberg
table's own metadata counts, by which Spark answers `count(*)`: not what is there where a committed file was written over.
Sums are made again from the records of each batch and compared; their `records` and `rows` count the records in them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Producer
from rich.console import Console

from tests.batches import BatchVerdict
from tests.bench import yardstick_jobs
from tests.bench.cli import markdown
from tests.bench.file_store import FileStore
from tests.bench.yardstick_jobs import BY_BATCH, JOBS, PIPELINE
from tests.chaos.verdict import SUMMED, BatchOracle
from tidegate.core.audit.oracle import Verdict, judge
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.planning.rebuild import rebuild
from tidegate.core.state.ledger import Ledger
from tidegate.kafka.brokers import AdminBrokers
from tidegate.kafka.log import read_offsets
from tidegate.sinks.iceberg.catalog import load_table
from tidegate.sinks.iceberg.history import IcebergReader, read_origins
from tidegate_local.flights import create_topic
from tidegate_local.platform import Platform

REPO = Path(__file__).parents[2]
FAULTS = ("random kill", "at the boundary", "state restored", "state lost")
COUNTS = ("records", "rows", "lost", "duplicated", "unknown")
PASS_TIMEOUT_S = 300
TRANSFORM = '''
def plain(records):
    """The value as it is."""
    return records.drop("key", "timestampType", "headers")
'''
err = Console(stderr=True, highlight=False)


@dataclass
class Contest:
    """One contender under one fault."""

    platform: Platform
    job: str
    fault: str
    root: Path
    random: random.Random
    records: int
    repairs: int = 0
    produced: int = 0

    def __post_init__(self) -> None:
        name = f"{self.job}_{FAULTS.index(self.fault)}".replace("-", "_")
        self.topic, self.table = f"y_{name}", f"lake.yardstick.{name}"
        self.state, self.folder = self.root / name / "state", self.root / name / "rows"
        self.state.mkdir(parents=True)
        self.kafka = {"bootstrap.servers": self.platform.bootstrap_servers}
        create_topic(self.kafka, self.topic, 2)
        transforms = self.root / "transforms"
        transforms.mkdir(exist_ok=True)
        (transforms / "plain.py").write_text(TRANSFORM)
        (transforms / "sums.py").write_text(SUMMED)
        self.case = {
            "bootstrap": self.platform.bootstrap_servers,
            "topic": self.topic,
            "table": self.table,
            "state": str(self.state),
            "folder": str(self.folder),
            "transforms": str(transforms),
        }

    def produce(self) -> None:
        """More records, evenly over the partitions."""
        producer = Producer({**self.kafka, "linger.ms": 50})
        for n in range(self.records):
            number = self.produced + n
            producer.produce(self.topic, json.dumps({"n": number}), key=str(number), partition=n % 2)
            producer.poll(0)
        producer.flush()
        self.produced += self.records

    @contextmanager
    def started(self, *, die: bool = False) -> Iterator[subprocess.Popen[str]]:
        """A pass that has its Spark session, in a process group of its own that is gone afterwards."""
        environment = {**os.environ, **self.platform.environment(), "YARDSTICK": json.dumps({**self.case, "die": die})}
        log = (self.root / f"{self.topic}.log").open("a")
        process = subprocess.Popen(
            [sys.executable, "-m", yardstick_jobs.__name__, self.job],
            cwd=REPO,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            log.close()

    def run(self, *, die: bool = False) -> int:
        """One pass to its end; the exit code."""
        with self.started(die=die) as process:
            return process.wait(PASS_TIMEOUT_S)

    def suffer(self, kills: int) -> None:
        """The fault, `kills` times where it is a kill."""
        if self.fault == "random kill":
            for _ in range(kills):
                self.produce()
                with self.started():
                    time.sleep(self.random.uniform(0, 4))
        elif self.fault == "at the boundary":
            for _ in range(2):
                self.produce()
                self.run(die=True)
                entries = [f for f in (self.state / "checkpoint" / "commits").glob("*") if f.name.isdigit()]
                for last in sorted(entries, key=lambda f: int(f.name))[-1:]:
                    last.unlink()
                    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
        else:
            backup = self.root / "backup"
            self.produce()
            self.run()
            shutil.rmtree(backup, ignore_errors=True)
            shutil.copytree(self.state, backup)
            self.produce()
            self.run()
            shutil.rmtree(self.state)
            if self.fault == "state restored":
                shutil.copytree(backup, self.state)
            else:
                self.state.mkdir()
        self.produce()

    def recover(self) -> None:
        """Clean passes until one ends well; a schedule that asks to be rebuilt is rebuilt."""
        for _ in range(3):
            if self.run() == 0:
                return
            if self.job in ("tidegate", BY_BATCH):
                ledger = self.ledger()
                made = rebuild(PIPELINE, IcebergReader().receipts(self.table, PIPELINE))
                ledger.replace(ledger.listing(), made.cursor, made.ranges, keep=1000)
                self.repairs += 1

    def ledger(self) -> Ledger:
        """The saved state of Tidegate's schedule."""
        return Ledger(FileStore(self.state), PIPELINE)

    def counted(self) -> int | None:
        """The rows of an Iceberg table by its own metadata, where a row is a record."""
        table = load_table(self.table) if self.job != BY_BATCH else None
        return None if table is None else sum(table.inspect.files()["record_count"].to_pylist())

    def verdicts(self) -> dict[str, Verdict | BatchVerdict]:
        """By reader: how the table is read matters for Parquet."""
        if self.job == BY_BATCH:
            oracle = BatchOracle(
                self.platform.bootstrap_servers, self.topic, self.table, PIPELINE, lambda: nullcontext(self.ledger())
            )
            return {"": oracle.judge_all(self.ledger().cursor())}
        log = read_offsets(self.kafka, AdminBrokers(self.kafka).watermarks([self.topic]))
        if self.job != "stream-parquet":
            return {"": judge(log, read_origins(self.table))}
        by_spark, by_others = parquet_files(self.folder)
        whole = [file for file in by_others if is_whole(file)]
        others = f" (read by others; {len(by_others) - len(whole)} broken files left out)"
        return {" (read by Spark)": judge(log, origins(by_spark)), others: judge(log, origins(whole))}


def counts_of(verdict: Verdict | BatchVerdict) -> dict[str, int]:
    """What the table shows, in records.

    Raises:
        SystemExit: the right number of records is in the sums of a batch, and they are others.
    """
    if isinstance(verdict, Verdict):
        return {what: verdict.total(what) for what in COUNTS}
    if verdict.faults:
        raise SystemExit("\n".join(verdict.faults))
    return {what: getattr(verdict, what) for what in COUNTS}


def parquet_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """The files that the sink's own log names, and all that are there."""
    named = set()
    entries = sorted((folder / "_spark_metadata").glob("*"), key=lambda f: f.name)
    for entry in entries:
        if not entry.name.endswith(".crc"):
            named |= {Path(json.loads(line)["path"].removeprefix("file://")) for line in entry.read_text().splitlines()[1:]}
    return sorted(named), sorted(folder.glob("*.parquet"))


def is_whole(file: Path) -> bool:
    """Whether the writer has come to the end of it."""
    try:
        pq.read_metadata(file)
    except pa.ArrowInvalid:
        return False
    return True


def origins(files: list[Path]) -> dict[TopicPartition, array[int]]:
    """The offsets of the rows in the files."""
    found: dict[TopicPartition, array[int]] = {}
    for file in files:
        columns = pq.read_table(file, columns=["_kafka_topic", "_kafka_partition", "_kafka_offset"]).to_pydict()
        for topic, partition, offset in zip(*columns.values(), strict=True):
            found.setdefault(TopicPartition(topic, partition), array("q")).append(offset)
    return found


def main() -> None:
    """Run the contests and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--records", type=int, default=20_000, help="of each round")
    parser.add_argument("--kills", type=int, default=4, help="random kills of each contender")
    parser.add_argument("--only", choices=JOBS, action="append")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="tidegate-yardstick-") as folder:
        platform = Platform(Path(folder) / "platform", REPO)
        try:
            platform.up(("kafka", "spark"))
            platform.use_catalog()
            for job in asked.only or JOBS:
                for fault in FAULTS:
                    contest = Contest(platform, job, fault, Path(folder), random.Random(f"{asked.seed} {fault}"), asked.records)  # noqa: S311
                    contest.suffer(asked.kills)
                    contest.recover()
                    for reader, verdict in contest.verdicts().items():
                        counts = counts_of(verdict)
                        beside = {"counted": contest.counted(), "repairs": contest.repairs}
                        row = {"contender": f"{job}{reader}", "fault": fault, **counts, **beside}
                        rows.append(row)
                        err.print(f"{row}")
        finally:
            platform.down()
    if asked.json:
        asked.json.write_text(json.dumps({"seed": asked.seed, "kills": asked.kills, "rows": rows}, indent=2) + "\n")
    told = [[f"{value:,}" if isinstance(value, int) else value or "" for value in row.values()] for row in rows]
    print(markdown([list(rows[0]), *told]))  # noqa: T201


if __name__ == "__main__":
    main()

"""Maintenance beside loads of the schedule and replays of one Iceberg table: no row, load or receipt is lost or doubled.

Rows name the load that wrote them, and receipts say in which order the loads were committed. So the receipts say what the table
has to hold. Ages are shrunk: what is older than every load in progress counts as old, snapshots and files alike.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event, RLock
from typing import Any, ClassVar, cast

import pytest
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

import tidegate.spark.load
from tests.records import load_job
from tests.spark.log import logged
from tests.spark.sinks_under_test import files_of, found, summaries
from tidegate.core.config.pipeline import Maintenance
from tidegate.core.config.schedules import DAY_S
from tidegate.core.model.errors import TidegateError
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.jobs import LoadJob, LoadResult, MaintenanceJob
from tidegate.core.state.receipt import Receipt
from tidegate.sinks.iceberg.history import IcebergReader
from tidegate.sinks.iceberg.maintenance import compact, expire, has_gap, keep_commits, maintain, remove_orphans
from tidegate.sinks.iceberg.summary import commits_table
from tidegate.sinks.iceberg.table import IcebergTable

WRITER = "writer"
"""The option of a job that its rows are marked with. It is the run of the job, too."""
TRANSFORMS = """
from pyspark.sql import functions as F

WRITER = F.col("value").cast("string").cast("int").alias("writer")

def rows(records):
    return records.select(WRITER, "_kafka_topic", "_kafka_partition", "_kafka_offset")
"""
BEGIN = 24
"""The offsets that a table begins with, in six files: Iceberg compacts no fewer than five."""
FILE, BATCH = 4, 12
NEXT = BEGIN // BATCH
"""The first batch that the table does not begin with."""
REPLAYS = {"a": [(4, 8), (6, 15)], "b": [(9, 14), (4, 20)]}
"""Chunks of replays that are made at once: of whole files and through files, over each other."""
TRIES = 10
"""Tries of a load that fails by what may be tried again; Airflow makes as many as the DAG says."""
Act = Callable[[], object]


def read(spark: SparkSession, ranges: tuple[OffsetRange, ...], options: dict[str, str], **_plan: object) -> DataFrame:
    """A record an offset, whose value is the job's writer."""
    (r,) = ranges
    return logged(spark, r, F.lit(options[WRITER]), max(1, r.count // FILE))


@dataclass
class Lake:
    """One table, the loads that were asked of it, and what came of them."""

    spark: SparkSession
    table: str
    spark_jobs: Path
    reader: IcebergReader
    results: dict[int, LoadResult] = field(default_factory=dict)
    """By writer."""
    failures: list[TidegateError] = field(default_factory=list)
    """Of loads, each of which was tried again."""
    in_progress: dict[int, int] = field(default_factory=dict)
    """When they began, epoch ms, by writer."""
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The ticks at which each load began and ended."""
    lock: RLock = field(default_factory=RLock)
    writers: Iterator[int] = field(default_factory=count)
    ticks: Iterator[int] = field(default_factory=count)

    def job(self, first: int, until: int, *, seq: int, replay: str | None = None, owner: str = "orders") -> LoadJob:
        """A job of partition 0, or of partition 1 for another owner, who shares the table."""
        with self.lock:
            writer = str(next(self.writers))
        ranges, options = (OffsetRange("topic", int(owner != "orders"), first, until),), {WRITER: writer}
        shared = ("orders", "visits")
        return load_job(owner, seq, writer, ranges, "beside:rows", self.table, options, replay=replay, shared_with=shared)

    def begin(self, owner: str) -> None:
        """Load what the table begins with, of one owner."""
        for seq in range(NEXT):
            self.load(self.batch(seq, owner))

    def batch(self, seq: int, owner: str = "orders") -> LoadJob:
        """A batch of the schedule."""
        return self.job(seq * BATCH, (seq + 1) * BATCH, seq=seq, owner=owner)

    def chunk(self, first: int, until: int, number: int, replay: str, owner: str = "orders") -> LoadJob:
        """A chunk of a replay."""
        return self.job(first, until, seq=number, replay=replay, owner=owner)

    def load(self, job: LoadJob) -> LoadResult:
        """As a task does it: again, where that may help."""
        writer = int(job.load.run_id)
        with self.lock:
            began = next(self.ticks)
            self.in_progress[writer] = _now_ms()
        for tries_left in reversed(range(TRIES)):
            try:
                result = tidegate.spark.load.load_range(self.spark, job, spark_jobs=self.spark_jobs)
                break
            except TidegateError as error:
                if not error.retryable or not tries_left:
                    raise
                self.failures.append(error)
        with self.lock:
            self.spans[writer] = began, next(self.ticks)
            self.results[writer] = result
            del self.in_progress[writer]
        return result

    def old_ms(self) -> int:
        """The time before which all is old: that at which the first of the loads in progress began."""
        with self.lock:
            return min(self.in_progress.values(), default=_now_ms())

    def age_files(self, before_ms: int) -> None:
        """Make files that are older than a time so old that they may be orphans."""
        for file in self.files():
            with suppress(FileNotFoundError):  # expired meanwhile
                if file.stat().st_mtime_ns // 1_000_000 < before_ms:
                    os.utime(file, (1, 1))

    def files(self) -> set[Path]:
        """What lies in the folder of data files."""
        described = self.spark.sql(f"DESCRIBE TABLE EXTENDED {self.table}").where("col_name = 'Location'").collect()
        folder = Path(described[0]["data_type"].removeprefix("file:")) / "data"
        return {file for file in folder.rglob("*.parquet") if file.is_file()}

    def maintain(self, *, between: Act | None = None, keep: int = 1) -> None:
        """All steps, with something between keeping the commits and expiring them."""
        compact(self.spark, self.table, Maintenance())
        before_ms = self.old_ms()
        keep_commits(self.spark, self.table, before_ms)
        if between:
            between()
        expire(self.spark, self.table, before_ms, keep)
        self.age_files(self.old_ms())
        remove_orphans(self.spark, self.table, _now_ms() - DAY_S * 1000 - 60_000)

    def receipts(self) -> list[Receipt]:
        """Of all pipelines, those of each in the order of its commits."""
        return [receipt for owner in ("orders", "visits") for receipt in self.reader.receipts(self.table, owner)]

    def check(self) -> None:
        """The table holds what its receipts say, and there is one for each load, in the order of the commits."""
        receipts = self.receipts()
        assert sorted(int(r.load.run_id) for r in receipts) == sorted(self.results)
        assert {int(r.load.run_id): r for r in receipts} == {writer: done.receipt for writer, done in self.results.items()}
        for owner in ("orders", "visits"):
            in_order = [self.spans[int(r.load.run_id)] for r in receipts if r.load.pipeline == owner]
            for at, (began, _) in enumerate(in_order):
                assert all(began < ended for _, ended in in_order[at + 1 :])
        if self.spark.catalog.tableExists(commits_table(self.table)):
            assert not has_gap(self.spark, self.table)
        held = sorted(tuple(row.values()) for row in found(self.table).scan().to_arrow().to_pylist())
        assert held == sorted(self.expected(receipts))

    def expected(self, receipts: list[Receipt]) -> list[tuple[Any, ...]]:
        """The rows: of each offset, what the newest load of it wrote."""
        writers = {
            (each.topic, each.partition, offset): int(r.load.run_id)
            for r in receipts
            for each in r.load.ranges
            for offset in range(each.from_offset, each.until_offset)
        }
        return [(writer, *origin) for origin, writer in writers.items()]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of transforms whose rows say which load wrote them."""
    made = tmp_path_factory.mktemp("spark_jobs")
    (made / "beside.py").write_text(TRANSFORMS)
    return made


@pytest.fixture
def lake(spark: SparkSession, folder: Path, table: str, reader: IcebergReader, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A table of six batches of four offsets."""
    monkeypatch.setattr(tidegate.spark.load, "read_ranges", read)
    lake = Lake(spark, table, folder, reader)
    lake.begin("orders")
    return lake


def before_the_write(monkeypatch: pytest.MonkeyPatch, act: Act) -> Iterator[int]:
    """Let something happen between the look of the next load and its write. The iterator says how many writes there were."""
    overwrite, writes = IcebergTable.overwrite, count()

    def hooked(sink: IcebergTable, *arguments: Any) -> None:
        if next(writes) == 0:
            act()
        overwrite(sink, *arguments)

    monkeypatch.setattr(IcebergTable, "overwrite", hooked)
    return writes


class _Scans:
    """Iceberg tells it of each scan before it plans its files; the snapshot is settled by then."""

    def __init__(self, table: str, act: Act) -> None:
        self.table, self.act = table, act
        self.waiting = True

    def notify(self, event: Any) -> None:
        if self.waiting and event.tableName() == self.table:
            self.waiting = False
            self.act()

    class Java:
        implements: ClassVar = ["org.apache.iceberg.events.Listener"]


@contextmanager
def in_the_next_scan(spark: SparkSession, table: str, act: Act) -> Iterator[None]:
    """Let something happen when the table is scanned next: the scan has its snapshot, and has read no manifest yet."""
    gateway: Any = spark.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    loader = gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()
    event = loader.loadClass("org.apache.iceberg.events.ScanEvent")
    scans = _Scans(table, act)
    gateway.jvm.org.apache.iceberg.events.Listeners.register(scans, event)
    try:
        yield
    finally:  # Iceberg has no way to take a listener away
        listeners = loader.loadClass("org.apache.iceberg.events.Listeners").getDeclaredField("LISTENERS")
        listeners.setAccessible(True)
        listeners.get(None).get(event).clear()
    assert not scans.waiting


def replace_kept_rows(lake: Lake) -> None:
    """Somebody replaces rows that a load of other offsets keeps where it goes through their file."""
    lake.load(lake.chunk(8, 12, 0, "b"))


def replace_and_expire(lake: Lake) -> None:
    """The snapshots before that expire as well, of no age, with the file."""
    replace_kept_rows(lake)
    before_ms = _now_ms()
    keep_commits(lake.spark, lake.table, before_ms)
    assert expire(lake.spark, lake.table, before_ms, 1)


@dataclass
class _Between:
    """A session in which something happens after some tables were asked for."""

    spark: SparkSession
    tables: int
    act: Act

    def table(self, name: str) -> DataFrame:
        if not self.tables:
            self.act()
        self.tables -= 1
        return self.spark.table(name)


class _Stopped(Exception):
    """Maintenance that was stopped."""


def _stop() -> None:
    raise _Stopped


def test_loads_replays_and_maintenance_at_once(lake: Lake) -> None:
    """The schedule of each owner, replays of old ranges, aligned or not, and maintenance that stops half-way now and then."""
    owners = ("orders", "visits")
    lake.begin("visits")
    over = Event()

    def schedule(owner: str) -> None:
        for seq in range(NEXT, NEXT + 2):
            lake.load(lake.batch(seq, owner))

    def replays(owner: str, name: str) -> None:
        for chunk, (first, until) in enumerate(REPLAYS[name]):
            lake.load(lake.chunk(first, until, chunk, name, owner))

    def maintenance() -> None:
        done = 0
        while done < 2 or not over.is_set():
            with suppress(_Stopped):
                lake.maintain(between=_stop if done % 2 == 0 else None)
            done += 1

    with ThreadPoolExecutor() as pool:
        maintained = pool.submit(maintenance)
        loads = [pool.submit(schedule, owner) for owner in owners]
        loads += [pool.submit(replays, owner, name) for owner in owners for name in ("a", "b")]
        wait(loads)
        over.set()
    for each in (maintained, *loads):
        each.result()
    lake.check()
    lake.maintain()
    lake.check()
    assert len(summaries(lake.table)) == 1
    assert len(lake.files()) == len(files_of(lake.table))


@pytest.mark.parametrize(("span", "writes"), [((4, 8), 2), ((6, 15), 2), ((24, 36), 1)])
def test_a_load_looks_again_where_its_files_were_compacted_since(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, span: tuple[int, int], writes: int
) -> None:
    """Whole files, and files that the range goes through; new offsets are in no compaction's way."""
    made = before_the_write(monkeypatch, lambda: compact(lake.spark, lake.table, Maintenance()))
    lake.load(lake.chunk(*span, 0, "a"))
    assert next(made) == writes
    assert not lake.failures
    lake.check()


@pytest.mark.parametrize(("span", "files"), [((4, 8), 6 + 1), ((24, 28), 1 + 1 + 1)])
def test_a_part_of_a_compaction_is_dropped_where_a_load_replaces_its_files(
    lake: Lake, span: tuple[int, int], files: int
) -> None:
    """Not the part of another Kafka partition, and neither where the load's offsets are new."""
    lake.begin("visits")
    with in_the_next_scan(lake.spark, lake.table, lambda: lake.load(lake.chunk(*span, 0, "a"))):
        assert compact(lake.spark, lake.table, Maintenance())["rewritten_bytes_count"] > 0
    assert len(files_of(lake.table)) == files
    lake.check()


@pytest.mark.parametrize(("span", "left"), [((4, 8), (0, 0)), ((24, 28), (1, 1))])
def test_only_a_compaction_that_lost_nothing_says_what_is_left(
    lake: Lake, span: tuple[int, int], left: tuple[int, int]
) -> None:
    """A load of new offsets takes nothing from it, and its files are not what is left."""
    lake.begin("visits")
    job = MaintenanceJob("visits", lake.table, "compact", now_ms=0, maintenance=Maintenance())
    with in_the_next_scan(lake.spark, lake.table, lambda: lake.load(lake.chunk(*span, 0, "a"))):
        done = maintain(lake.spark, job)
    files, size = lake.reader.history(lake.table).files.compacted
    assert (done.warning is None, files, min(size, 1)) == (left != (0, 0), *left)


@pytest.mark.parametrize(
    ("becomes", "reads"), [(replace_and_expire, False), (replace_kept_rows, True), (replace_and_expire, True)]
)
def test_a_load_that_keeps_rows_is_right_whatever_becomes_of_them(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, becomes: Callable[[Lake], None], *, reads: bool
) -> None:
    """Before it reads or while it does, it looks again where they are replaced, and where their files expire as well."""
    compact(lake.spark, lake.table, Maintenance())
    act = partial(becomes, lake)
    with ExitStack() as scan:
        during = partial(in_the_next_scan, lake.spark, lake.table, act)
        before_the_write(monkeypatch, (lambda: scan.enter_context(during())) if reads else act)
        lake.load(lake.chunk(4, 8, 0, "a"))
    assert not lake.failures
    lake.check()


def test_loads_between_the_keeping_of_commits_and_their_expiry_lose_none(lake: Lake) -> None:
    """Where maintenance stops there and begins anew, and where they push out more commits than would have expired before."""

    def loads() -> None:
        lake.load(lake.batch(NEXT))
        lake.load(lake.chunk(6, 15, 0, "a"))
        _stop()

    with suppress(_Stopped):
        lake.maintain(between=loads)
    lake.check()
    lake.maintain(between=lambda: [lake.load(lake.batch(NEXT + more)) for more in (1, 2, 3)], keep=2)
    assert len(summaries(lake.table)) == 3
    lake.check()


@pytest.mark.parametrize("tables", [1, 2])
def test_what_is_committed_and_expires_while_a_gap_is_looked_for_is_none(lake: Lake, tables: int) -> None:
    """Between any two of the tables that tell."""
    keep_commits(lake.spark, lake.table, _now_ms())
    between = _Between(lake.spark, tables, partial(replace_and_expire, lake))
    assert not has_gap(cast("SparkSession", between), lake.table)
    assert between.tables < 0

"""Forward loads are appends that readers can follow, by a compare-and-set on the state that was looked at.

What happens between the look of a load and its commit is made to happen there, in this thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession

import tidegate.spark.load
from tests.records import changed, write_of
from tests.spark.conftest import Job, Load
from tests.spark.sinks_under_test import SinkUnderTest, compact_all, expected, found, held, ids, summaries
from tidegate.core.load.lookup import Lookup
from tidegate.core.model.errors import SinkConflict, TableLost, TidegateError
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.jobs import LoadResult
from tidegate.core.state.receipt import Receipt
from tidegate.sinks.iceberg.catalog import load_table
from tidegate.sinks.iceberg.replacement import find_free
from tidegate.sinks.iceberg.table import IcebergTable
from tidegate.sinks.identity import ByOrigin

Act = Callable[[], object]
PASSING_OVER = {"streaming-skip-overwrite-snapshots": "true", "streaming-skip-delete-snapshots": "true"}
"""What a stream needs that meets replays, and batches without a row."""


def operations(table: str) -> list[str]:
    """What Iceberg calls the commits of loads, oldest first. The commit that creates the table is none."""
    loads = [made for made in summaries(table) if made.additional_properties.keys() & {"tidegate.seq", "tidegate.chunk"}]
    return [made.operation.value for made in loads]


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Iterator[int]]:
    """`between(act, …)` lets each happen between look and write, one write after the other; the iterator counts writes."""
    real, waiting, writes = IcebergTable.overwrite, list[Act](), count()

    def overwrite(sink: IcebergTable, *given: Any) -> None:
        next(writes)
        if waiting:
            waiting.pop(0)()
        real(sink, *given)

    def make(*acts: Act) -> Iterator[int]:
        waiting.extend(acts)
        return writes

    monkeypatch.setattr(IcebergTable, "overwrite", overwrite)
    return make


def test_a_load_of_new_rows_is_an_append_and_every_other_an_overwrite(load: Load, job: Job, table: str) -> None:
    """New: the first batch, the next, one cleared before it landed. Not: redone, other code, a replay, rows in the way."""
    load(job(0, 5))
    load(job(5, 10, seq=1))
    load(job(10, 15, seq=2, transform="shapes:doubled"))
    assert operations(table) == ["append"] * 3
    load(job(5, 10, seq=1, redo=True))
    load(job(0, 5, transform="shapes:odd"))
    load(changed(job(0, 10), replay="again"))
    load(job(12, 20, seq=3))
    assert operations(table) == ["append"] * 3 + ["overwrite"] * 4
    load(job(20, 25, seq=4, redo=True))
    assert operations(table)[-1] == "append"


def test_a_load_into_a_table_of_others_that_has_just_got_its_columns_is_an_overwrite(
    spark: SparkSession, sink: SinkUnderTest, load: Load, job: Job, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its snapshot lacks them, also where they were there before under another name. The log says so; the next is an append."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.tests")
    spark.sql(f"CREATE TABLE {table} (id INT) USING iceberg TBLPROPERTIES ('tidegate.owner.orders' = 'true')")
    spark.sql("SELECT -1 AS id").writeTo(table).append()
    columns = "_kafka_topic STRING, _kafka_partition INT, _kafka_offset BIGINT, _raw STRING, _error STRING"
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({columns})")
    load(job(0, 5))
    assert f"Table {table} may hold rows of this range" in caplog.text
    load(job(5, 10, seq=1))
    assert operations(table) == ["overwrite", "append"]
    assert ids(sink, table) == [-1, *range(10)]


def test_a_batch_whose_rows_are_known_by_their_batch_is_an_append_too(
    sink: SinkUnderTest, load: Load, batch: Job, table: str
) -> None:
    """And done over by a replay it is an overwrite."""
    for seq in (1, 2):
        load(batch(seq))
    load(changed(batch(1), seq=1, replay="again", batch=1))
    assert operations(table) == ["append", "append", "overwrite"]
    assert held(sink, table) == expected(1, 2)


def test_a_load_knows_of_no_later_rows_only_where_each_of_its_partitions_has_none(spark: SparkSession, table: str) -> None:
    """A partition without new records is one of them: the next batch may have some. A new one has not been looked at."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.tests")
    rows = spark.createDataFrame([(1, "orders", 1, 7)], "id INT, _kafka_topic STRING, _kafka_partition INT, _kafka_offset LONG")
    rows.writeTo(table).using("iceberg").create()
    (head,) = spark.table(f"{table}.refs").select("snapshot_id").collect()

    def look(*spans: tuple[int, int, int]) -> tuple[bool, bool] | None:
        ranges = tuple(OffsetRange("orders", *span) for span in spans)
        cut = find_free(spark, table, ByOrigin(ranges), Lookup(exists=True, head=head[0], last=last))
        return None if cut is None else (cut.last, cut.boxes == ())

    last: Receipt | None = None
    assert look((0, 0, 10)) == (True, True)
    assert look((0, 0, 10), (1, 5, 5)) == (False, True)
    assert look((0, 0, 10), (1, 5, 8)) is None
    before = tuple(OffsetRange("orders", *span) for span in ((0, 0, 10), (1, 8, 8)))
    last = Receipt(write_of("orders", 0, "r", before, "t@1", "a"), head[0], 0, rows=10)
    found = ByOrigin((OffsetRange("orders", 0, 10, 20), OffsetRange("orders", 1, 8, 8)))
    assert found.follows(last.load)
    for others in ((0, 9, 20), (2, 0, 0), (2, 0, 5)):
        assert not ByOrigin((*found.ranges, OffsetRange("orders", *others))).follows(last.load)
    assert look((1, 8, 9)) == (True, True)


def test_of_two_loads_of_one_batch_at_once_the_second_finds_the_first(
    sink: SinkUnderTest, load: Load, job: Job, table: str, between: Callable[..., Iterator[int]]
) -> None:
    """Into a table that exists, and where both make it: one append, and the other writes nothing."""
    for seq, wanted in enumerate([job(0, 5), job(5, 10, seq=1)]):
        first: list[LoadResult] = []
        between(lambda wanted=wanted, first=first: first.append(load(wanted)))
        late = load(wanted)
        assert late.landed_before
        assert late.receipt == first[0].receipt
        assert operations(table) == ["append"] * (seq + 1)
    assert ids(sink, table) == list(range(10))


def test_of_two_attempts_at_one_replay_the_second_finds_the_first(
    sink: SinkUnderTest, load: Load, job: Job, table: str, between: Callable[..., Iterator[int]]
) -> None:
    """As of two loads of a batch: what it looked at is gone, and it writes nothing."""
    load(job(0, 10))
    replay = changed(job(0, 10), replay="again")
    first: list[LoadResult] = []
    between(lambda: first.append(load(replay)))
    late = load(replay)
    assert late.landed_before
    assert late.receipt == first[0].receipt
    assert operations(table) == ["append", "overwrite"]


def test_a_zombie_with_other_code_replaces_what_its_successor_appended(
    sink: SinkUnderTest, load: Load, job: Job, table: str, between: Callable[..., Iterator[int]]
) -> None:
    """Both loads say that they are whole, so the later commit replaces the rows of the earlier one."""
    load(job(0, 5))
    between(lambda: load(job(5, 10, seq=1)))
    load(job(5, 10, seq=1, transform="shapes:odd"))
    assert operations(table) == ["append", "append", "overwrite"]
    assert ids(sink, table) == [0, 1, 2, 3, 4, 5, 7, 9]


@pytest.mark.parametrize(
    ("act", "writes", "ids_after"),
    [
        ("other_load", 2, [*range(20), *range(20, 25)]),
        ("compaction", 1, [*range(10), *range(10, 15)]),
        ("new_column", 1, [*range(10), *range(10, 15)]),
        ("delete", 2, [*range(3), *range(4, 15)]),
        ("rollback", 2, [*range(5), *range(10, 15)]),
        ("other_table", 2, list(range(10, 15))),
    ],
)
def test_what_is_committed_between_look_and_append_is_kept_and_no_row_is_doubled(
    spark: SparkSession,
    sink: SinkUnderTest,
    load: Load,
    job: Job,
    table: str,
    between: Callable[..., Iterator[int]],
    *,
    act: str,
    writes: int,
    ids_after: list[int],
) -> None:
    """What adds rows, and a state that does not descend from the one that was looked at, make the load look anew."""
    first = load(job(0, 5))
    load(job(5, 10, seq=1))
    acts: dict[str, Act] = {
        "other_load": lambda: load(job(15, 20, seq=7)) and load(job(20, 25, seq=8)) and load(job(10, 15, seq=9)),
        "compaction": lambda: compact_all(spark, table),
        "new_column": lambda: spark.sql(f"ALTER TABLE {table} ADD COLUMNS (extra DOUBLE)"),
        "delete": lambda: spark.sql(f"DELETE FROM {table} WHERE id = 3"),  # noqa: S608 - a test's own table
        "rollback": lambda: sink.roll_back(table, first.receipt),
        "other_table": lambda: spark.sql(f"CREATE OR REPLACE TABLE {table} USING iceberg AS SELECT * FROM {table} LIMIT 0"),  # noqa: S608
    }
    made = between(acts[act])
    before = next(made)
    result = load(job(10, 15, seq=2))
    assert not result.landed_before
    assert next(made) - before - 1 - (3 if act == "other_load" else 0) == writes
    assert ids(sink, table) == ids_after
    assert operations(table)[-1] == ("overwrite" if act == "other_load" else "append")


def test_a_table_that_is_made_anew_during_a_load_holds_no_row_twice(
    spark: SparkSession, sink: SinkUnderTest, load: Load, job: Job, table: str, between: Callable[..., Iterator[int]]
) -> None:
    """Dropped, and made and loaded by another run: the load that looked at the old table must not append to the new one."""
    load(job(0, 5))

    def anew() -> None:
        spark.sql(f"DROP TABLE {table}")
        load(job(5, 10, seq=1))

    between(anew)
    result = load(job(5, 10, seq=1))
    assert result.landed_before
    assert ids(sink, table) == list(range(5, 10))


def test_an_append_that_others_are_in_the_way_of_each_time_fails_and_is_never_an_overwrite(
    spark: SparkSession,
    sink: SinkUnderTest,
    load: Load,
    job: Job,
    table: str,
    between: Callable[..., Iterator[int]],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would be silence for those who follow the table. The log has a line for each write, with Iceberg's reason."""
    monkeypatch.setattr(tidegate.spark.load, "TRIES", 3)
    load(job(0, 5))
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (extra DOUBLE)")
    add = "INSERT INTO {} (id) VALUES ({})"
    between(*(partial(spark.sql, add.format(table, -n)) for n in range(1, 4)))
    with pytest.raises(SinkConflict) as caught:
        load(job(5, 10, seq=1))
    assert caught.value.retryable
    lines = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert [line.split(" was refused")[0] for line in lines] == [f"Write {n} of at most 3" for n in (1, 2)]
    assert all("Found conflicting files" in line for line in lines)
    assert set(operations(table)) == {"append"}
    assert ids(sink, table) == [*range(-3, 0), *range(5)]


@pytest.mark.parametrize("held", [range(5), range(0)], ids=["later", "first"])
def test_a_commit_whose_files_are_gone_is_no_receipt_and_the_way_back_is_named(
    spark: SparkSession, sink: SinkUnderTest, load: Load, job: Job, table: str, monkeypatch: pytest.MonkeyPatch, held: range
) -> None:
    """A client that repeats an unanswered commit meets its own; Iceberg refuses it then, and removes the files of both."""
    if held:
        load(job(0, 5))
    real = IcebergTable.overwrite
    lost: list[Row] = []

    def repeated(self: IcebergTable, *given: Any) -> None:
        real(self, *given)
        lost.append(spark.table(f"{table}.snapshots").orderBy("committed_at", ascending=False).collect()[0])
        Path(lost[0]["manifest_list"].removeprefix("file:")).unlink()
        raise RuntimeError("org.apache.iceberg.exceptions.ValidationException: Found conflicting files that can contain …")

    monkeypatch.setattr(IcebergTable, "overwrite", repeated)
    for _ in ("the same process", "another one"):
        with pytest.raises(TableLost) as caught:
            load(job(5, 10, seq=1))
        assert f"snap-{lost[0]['snapshot_id']}-" in caught.value.message
    assert len(lost) == 1
    assert "rollback_to_snapshot" in caught.value.fix
    assert "DROP TABLE" in caught.value.fix
    back = f"CALL lake.system.rollback_to_snapshot('{table.partition('.')[2]}', {lost[0]['parent_id']})"
    spark.sql(back if held else f"DROP TABLE {table}")
    monkeypatch.setattr(IcebergTable, "overwrite", real)
    assert not load(job(5, 10, seq=1)).landed_before
    assert ids(sink, table) == [*held, *range(5, 10)]
    assert operations(table) == ["append"] * (3 if held else 1)


def test_readers_that_follow_see_each_row_of_the_schedule_once(
    spark: SparkSession, sink: SinkUnderTest, load: Load, job: Job, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's stream, and the incremental scans of Spark and PyIceberg, though loads die before and after their commit.

    A replay is no append: the changelog holds the rows whose content changed, and no other.
    """
    real, writes = IcebergTable.overwrite, count()

    def dying(sink: IcebergTable, *given: Any) -> None:
        write = next(writes)
        if write % 3 == 1:
            raise KeyboardInterrupt
        real(sink, *given)
        if write % 3 == 2:
            raise KeyboardInterrupt

    def follow(**options: str) -> list[int]:
        stream = (
            spark.readStream.options(**options)
            .table(table)
            .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        )
        query = stream.trigger(availableNow=True).toTable(f"{table}_followed")
        query.awaitTermination()
        return ids(sink, f"{table}_followed")

    load(job(0, 3))
    first = load(job(0, 3)).receipt.snapshot
    monkeypatch.setattr(IcebergTable, "overwrite", dying)
    for seq in range(1, 5):
        for _ in range(3):
            with suppress(KeyboardInterrupt):
                load(job(seq * 3, seq * 3 + 3, seq=seq))
                break
        if seq == 2:
            assert follow() == list(range(9))
    monkeypatch.setattr(IcebergTable, "overwrite", real)
    name = table.removeprefix("lake.")
    compact_all(spark, table)
    last = load(job(15, 18, seq=5)).receipt.snapshot
    assert follow() == list(range(18))

    since = {"start-snapshot-id": str(first), "end-snapshot-id": str(last)}
    assert sorted(row["id"] for row in spark.read.options(**since).table(table).collect()) == list(range(3, 18))
    scan = found(table).incremental_append_scan(from_snapshot_id_exclusive=first, selected_fields=("id",))
    assert sorted(scan.to_arrow()["id"].to_pylist()) == list(range(3, 18))

    load(changed(job(4, 8, transform="shapes:odd"), replay="again"))
    changes = {"start-snapshot-id": str(last)}
    listed = ", ".join(f"'{key}', '{value}'" for key, value in changes.items())
    spark.sql(
        f"CALL lake.system.create_changelog_view(table => '{name}', changelog_view => 'changes', options => map({listed}))"
    )
    assert [(row["_change_type"], row["id"]) for row in spark.table("changes").orderBy("id").collect()] == [
        ("DELETE", 4),
        ("DELETE", 6),
    ]
    for first, until in ((18, 20), (20, 21), (22, 23)):
        load(job(first, until, seq=first, transform="shapes:plain" if first < 22 else "shapes:odd"))
    load(changed(job(20, 21, transform="shapes:odd"), replay="none"))
    assert operations(table)[-4:] == ["append", "append", "overwrite", "delete"]
    assert follow(**PASSING_OVER) == list(range(21))


BATCH = 6
MADE = {"plain": lambda o: [o], "doubled": lambda o: [o, o + 1000], "odd": lambda o: [o] if o % 2 else []}
"""The column `id` of what each transform makes of an offset."""
TABLES = count()
Op = tuple[str, int, int, str, bool]
"""What happens, from which offset, until which, by which transform, and whether it is asked for again."""
BATCHES = st.integers(0, 4).map(lambda seq: (seq * BATCH, seq * BATCH + BATCH))
SPANS = st.tuples(st.integers(0, 20), st.integers(1, 9)).map(lambda span: (span[0], sum(span)))
LOADS = st.one_of(st.tuples(st.just("batch"), BATCHES), st.tuples(st.just("chunk"), SPANS))
OTHERS = st.tuples(st.sampled_from(["compact", "delete", "roll_back", "drop"]), SPANS)


def ops(kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[Op]:
    made = st.tuples(kinds, st.sampled_from(["plain", "plain", *MADE]), st.integers(0, 5).map(lambda n: n == 0))
    return made.map(lambda op: (op[0][0], *op[0][1], op[1], op[2]))


@dataclass
class Table:
    """A table, and what it has to hold by the law."""

    spark: SparkSession
    name: str
    load: Load
    job: Job
    sink: SinkUnderTest
    held: dict[int, list[int]] = field(default_factory=dict)
    landed: dict[int, str] = field(default_factory=dict)
    """The transform of the newest load of each batch."""
    states: list[tuple[int, dict[int, list[int]], dict[int, str]]] = field(default_factory=list)
    between: list[Op] = field(default_factory=list)
    """What happens between the look and the commit of the next load."""

    def do(self, op: Op, between: Sequence[Op] = ()) -> None:
        """Let it happen, and hold the table against what it has to be."""
        kind, first, until, transform, again = op
        if kind in {"batch", "chunk"}:
            self.between = list(between)
            self._load(kind, first, until, transform, again=again)
        elif self.exists():
            getattr(self, f"_{kind}")(first, until)
        table = load_table(self.name)
        if table is not None:
            head = table.current_snapshot()
            assert head is not None
            self.states.append((head.snapshot_id, dict(self.held), dict(self.landed)))
            assert ids(self.sink, self.name) == sorted(n for made in self.held.values() for n in made)

    def exists(self) -> bool:
        return load_table(self.name) is not None

    def _load(self, kind: str, first: int, until: int, transform: str, *, again: bool) -> None:
        wanted = self.job(first, until, seq=first // BATCH, transform=f"shapes:{transform}", redo=again)
        try:
            result = self.load(
                changed(wanted, table=self.name, replay=None if kind == "batch" else f"{first}-{until}-{transform}")
            )
        except TidegateError:
            assert not self.exists()  # dropped during the load
            return
        finally:
            self.between = []
        if result.landed_before:
            assert kind == "chunk" or self.landed[first // BATCH] == transform
            return
        if kind == "batch":
            self.landed[first // BATCH] = transform
        self.held |= {offset: MADE[transform](offset) for offset in range(first, until)}

    def _compact(self, _first: int, _until: int) -> None:
        compact_all(self.spark, self.name)

    def _delete(self, first: int, until: int) -> None:
        self.spark.sql(f"DELETE FROM {self.name} WHERE _kafka_offset BETWEEN {first} AND {until}")  # noqa: S608
        self.held = {offset: made for offset, made in self.held.items() if not first <= offset <= until}

    def _roll_back(self, first: int, _until: int) -> None:
        if self.states:
            snapshot, held_then, landed = self.states[first % len(self.states)]
            name = self.name.removeprefix("lake.")
            self.spark.sql(f"CALL lake.system.set_current_snapshot('{name}', {snapshot}L)").collect()
            self.held, self.landed = dict(held_then), dict(landed)

    def _drop(self, _first: int, _until: int) -> None:
        self.spark.sql(f"DROP TABLE {self.name}")
        self.held, self.landed, self.states = {}, {}, []


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(ops(LOADS | OTHERS), st.lists(ops(LOADS | OTHERS), max_size=2)), min_size=3, max_size=6))
def test_whatever_happens_in_whatever_order_a_table_holds_what_the_law_says(
    spark: SparkSession, load: Load, job: Job, table: str, sink: SinkUnderTest, steps: list[tuple[Op, list[Op]]]
) -> None:
    """Batches, again or redone, chunks of replays, deletes, compaction, rollback, drop; also inside of loads."""
    made = Table(spark, f"{table}_{next(TABLES)}", load, job, sink)
    real = IcebergTable.overwrite

    def overwrite(sink: IcebergTable, *given_: Any) -> None:
        between, made.between = made.between, []
        for op in between:
            made.do(op)
        real(sink, *given_)

    with mock.patch.object(IcebergTable, "overwrite", overwrite):
        for op, between in steps:
            made.do(op, between)
    spark.sql(f"DROP TABLE IF EXISTS {made.name}")

"""The laws of `SinkReader`: what a table's own commits prove about the loads that made it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import pytest

from tidegate.core.model.errors import SinkUnavailable, StateCorrupt, StateNewer
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.cursor import Position
from tidegate.core.state.ports import SinkReader
from tidegate.core.state.receipt import Load, Write

ODD_PIPELINES = ("p2", "p_", "pp", "p_2_shop", "P")
"""Names that contain, or differ little from, the name `p`."""


class ReadTable(Protocol):
    """The table that the reader under test reads. It has the origin columns, and no commit to begin with."""

    name: str

    def commit(self, properties: Mapping[str, str], *offsets: int, kept: int = 0) -> int:
        """A commit with these properties, of one row for each offset of partition 0 of topic `t`; its id.

        `kept` of the rows are older ones that the load wrote again, recorded as a load into this sink records them.
        """

    def roll_back(self, snapshot: int) -> None:
        """The table's state is that of an earlier commit again."""

    def expire(self, snapshot: int) -> None:
        """Forget the oldest commit; its rows stay."""

    def own(self, pipeline: str) -> None:
        """Name one more pipeline as an owner of the table."""

    def drop(self) -> None:
        """There is no such table any more."""


def write_of(seq: int, *offsets: int, **changes: Any) -> Write:
    """What a load of the pipeline `p` promises: batch `seq`, from the least to the greatest of the offsets."""
    ranges = (OffsetRange("t", 0, min(offsets), max(offsets) + 1),)
    return Write(replace(Load(pipeline="p", seq=seq, run_id=f"run{seq}", ranges=ranges), **changes), "v", f"attempt{seq}")


class SinkReaderContract:
    """Laws of a `SinkReader`.

    Fixtures of the subclass:
        reader: the reader under test.
        table: a `ReadTable`, new for each test.
        unreachable: a reader, and the name of a table whose catalog does not answer it.
    """

    def test_a_table_without_commits_exists_and_is_complete(self, reader: SinkReader, table: ReadTable) -> None:
        """It has no receipt and no owner."""
        history = reader.history(table.name)
        assert (history.exists, history.complete, history.commits, history.owners) == (True, True, (), frozenset())
        assert history.reached("p") is None
        assert reader.receipts(table.name, "p") == []

    def test_a_table_that_does_not_exist_is_told_from_one_without_commits(self, reader: SinkReader, table: ReadTable) -> None:
        """It has no history either; it is no error."""
        table.commit(write_of(1, 0).to_properties(), 0)
        table.own("p")
        table.drop()
        history = reader.history(table.name)
        assert (history.exists, history.commits, history.owners) == (False, (), frozenset())
        assert reader.receipts(table.name, "p") == []
        assert reader.layout(table.name) is None

    def test_a_quarantine_that_does_not_exist_holds_nothing(self, reader: SinkReader, table: ReadTable) -> None:
        """As before the first record is rejected."""
        assert reader.rejections(f"{table.name}_none", most=1) == []
        assert reader.broken(f"{table.name}_none", (OffsetRange("t", 0, 0, 9),), most=1) == []

    def test_rows_that_do_not_say_what_is_wrong_are_not_broken(self, reader: SinkReader, table: ReadTable) -> None:
        """As those of a transform without a column of errors."""
        table.commit(write_of(1, 0).to_properties(), 0)
        assert reader.broken(table.name, (OffsetRange("t", 0, 0, 9),), most=1) == []

    def test_a_history_is_in_the_order_of_the_commits(self, reader: SinkReader, table: ReadTable) -> None:
        """The newest first, those of others between; each with its id, its properties, and a time that never goes back."""
        ids = [
            table.commit(write_of(1, 0).to_properties(), 0),
            table.commit({"somebody": "else's"}, 5),
            table.commit(write_of(2, 1).to_properties(), 1),
        ]
        history = reader.history(table.name)
        assert [commit.snapshot for commit in history.commits] == ids[::-1]
        assert history.snapshots == {*ids}
        assert history.commits[1].properties["somebody"] == "else's"
        assert write_of(2, 1).to_properties().items() <= history.commits[0].properties.items()
        times = [commit.committed_at_ms for commit in history.commits]
        assert times == sorted(times, reverse=True)
        assert history.complete

    def test_receipts_are_oldest_first_replays_too(self, reader: SinkReader, table: ReadTable) -> None:
        """In the order of their commits, whatever their numbers; commits of others are passed over. Their rows have origins."""
        table.commit(write_of(1, 0, 1).to_properties(), 0, 1)
        table.commit({}, 7)
        table.commit(write_of(3, 5, replay="again").to_properties(), 5)
        table.commit(write_of(2, 2, pipeline="q").to_properties(), 2)
        table.commit(write_of(2, 3).to_properties(), 3)
        receipts = reader.receipts(table.name, "p")
        assert [(r.load.seq, r.load.replay, r.rows) for r in receipts] == [(1, None, 2), (3, "again", 1), (2, None, 1)]
        assert [r.load.seq for r in reader.receipts(table.name, "q")] == [2]
        assert reader.receipts(table.name, "r") == []
        assert not reader.without_origin(table.name)

    def test_a_receipt_is_what_its_load_promised(self, reader: SinkReader, table: ReadTable) -> None:
        """Every field of it, with the commit's id and time; rows that were written again are not the load's."""
        load = Load(
            pipeline="p",
            seq=7,
            run_id="manual__2026-01-01T00:00:00+00:00 'ä' \"b\" 100%",
            ranges=(OffsetRange("t", 0, 3, 9), OffsetRange("t.b-c_d", 12, 2**40, 2**40 + 5), OffsetRange("t", 1, 4, 4)),
            topic_ids={"t": "AbC_-123", "t.b-c_d": "xyz"},
            generation=3,
            beside=Position(),
        )
        write = Write(load, "transforms.shop:orders@1+ä", "attempt")
        snapshot = table.commit(write.to_properties(), 1, 2, 3, 4, 5, kept=2)
        [receipt] = reader.receipts(table.name, "p")
        assert receipt.of(ranges=()).write == replace(write, load=replace(load, ranges=()))
        assert sorted(receipt.load.ranges) == sorted(load.ranges)
        assert (receipt.snapshot, receipt.rows, receipt.kept) == (snapshot, 3, 2)
        assert receipt.committed_at_ms == reader.history(table.name).commits[0].committed_at_ms > 0

    @pytest.mark.parametrize("name", ODD_PIPELINES)
    def test_a_pipeline_has_its_own_receipts_only(self, reader: SinkReader, table: ReadTable, name: str) -> None:
        """Names compare exactly, and as a whole; so do owners."""
        table.commit(write_of(1, 0).to_properties(), 0)
        table.commit(write_of(2, 1, pipeline=name).to_properties(), 1)
        table.own(name)
        history = reader.history(table.name)
        assert [r.load.seq for r in reader.receipts(table.name, "p")] == [1]
        assert [r.load.seq for r in reader.receipts(table.name, name)] == [2]
        assert (history.reached("p"), history.reached(name)) == ((0, 1), (0, 2))
        assert history.owners == {name}

    def test_all_owners_are_named(self, reader: SinkReader, table: ReadTable) -> None:
        """By the table's properties, whether they have loaded or not."""
        for name in ("p", "p_2_shop"):
            table.own(name)
        assert reader.history(table.name).owners == {"p", "p_2_shop"}

    def test_the_furthest_batch_counts_not_the_last_commit(self, reader: SinkReader, table: ReadTable) -> None:
        """A batch that is done over comes later; a replay is no batch; a later generation is further than any earlier one."""
        for load, reached in (
            (write_of(9, 9, replay="again"), None),
            (write_of(1, 0), (0, 1)),
            (write_of(2, 1), (0, 2)),
            (write_of(1, 0), (0, 2)),
            (write_of(1, 0, generation=1), (1, 1)),
        ):
            table.commit(load.to_properties(), 0)
            assert reader.history(table.name).reached("p") == reached

    def test_a_commit_that_was_rolled_back_does_not_count(self, reader: SinkReader, table: ReadTable) -> None:
        """Its rows are gone, also after the table has gone on from there; those before it count."""
        first = table.commit(write_of(1, 0).to_properties(), 0)
        second = table.commit(write_of(2, 1).to_properties(), 1)
        table.roll_back(first)
        assert [commit.snapshot for commit in reader.history(table.name).commits] == [first]
        assert [r.load.seq for r in reader.receipts(table.name, "p")] == [1]
        third = table.commit(write_of(3, 2).to_properties(), 2)
        history = reader.history(table.name)
        assert [commit.snapshot for commit in history.commits] == [third, first]
        assert second not in history.snapshots
        assert [r.load.seq for r in reader.receipts(table.name, "p")] == [1, 3]
        assert history.complete

    def test_a_history_of_which_commits_expired_is_not_complete(self, reader: SinkReader, table: ReadTable) -> None:
        """What is kept is as before; the rows of expired commits are still there."""
        first = table.commit(write_of(1, 0).to_properties(), 0)
        second = table.commit(write_of(2, 1).to_properties(), 1)
        assert reader.history(table.name).complete
        table.expire(first)
        history = reader.history(table.name)
        assert ([commit.snapshot for commit in history.commits], history.complete) == ([second], False)
        assert [r.load.seq for r in reader.receipts(table.name, "p")] == [2]

    @pytest.mark.parametrize(
        "broken",
        [
            {"tidegate.seq": "x"},
            {"tidegate.ranges": "{"},
            {"tidegate.ranges": '{"t":{"0":[5,1]}}'},
            {"tidegate.topic-ids": "[1]"},
            {"tidegate.format": "999"},
        ],
        ids=["number", "json", "range", "shape", "newer"],
    )
    def test_a_broken_receipt_is_never_passed_over(self, reader: SinkReader, table: ReadTable, broken: dict[str, str]) -> None:
        """Nor one of a newer version: other receipts would hide it. Other pipelines are not concerned, the history is read."""
        table.commit(write_of(1, 0).to_properties(), 0)
        snapshot = table.commit({**write_of(2, 1).to_properties(), **broken}, 1)
        table.commit(write_of(3, 2).to_properties(), 2)
        table.commit(write_of(4, 3, pipeline="q").to_properties(), 3)
        with pytest.raises((StateCorrupt, StateNewer), match=str(snapshot)):
            reader.receipts(table.name, "p")
        assert [r.load.seq for r in reader.receipts(table.name, "q")] == [4]
        assert len(reader.history(table.name).commits) == 4

    @pytest.mark.parametrize(
        "call",
        [
            lambda reader, table: reader.history(table),
            lambda reader, table: reader.layout(table),
            lambda reader, table: reader.receipts(table, "p"),
        ],
        ids=["history", "layout", "receipts"],
    )
    def test_a_catalog_that_does_not_answer_is_unavailable(
        self, unreachable: tuple[SinkReader, str], call: Callable[[SinkReader, str], object]
    ) -> None:
        """Never a table that does not exist; the question can be asked again."""
        with pytest.raises(SinkUnavailable) as refused:
            call(*unreachable)
        assert refused.value.retryable

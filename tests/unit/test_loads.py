"""Laws of the loads that a table's commits hold: as all receipts, parsed one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, repeat

import pytest

from tests.records import changed, write_of
from tidegate.core.model.errors import StateCorrupt
from tidegate.core.model.ranges import OffsetRange, TopicPartition, total_count
from tidegate.core.state.history import TableCommit, TableHistory
from tidegate.core.state.receipt import offsets_of
from tidegate.ui import caches
from tidegate.ui.caches import Landings
from tidegate.views.entries import Loads
from tidegate.views.history import Point


def commit(snapshot: int, seq: int, replay: str | None = None, pipeline: str = "p") -> TableCommit:
    ranges = (OffsetRange("t", 0, 10 * seq, 10 * seq + 10), OffsetRange("u", 3, 0, seq))
    load = write_of(pipeline, seq, "r", ranges, "m:f", "a", replay=replay)
    return TableCommit(snapshot, 1000 * snapshot, load.to_properties(), rows=9)


def landed(seq: int, at_ms: int, offsets: int) -> Point:
    return Point(at_ms, seq, 1, lag=None, records=offsets, rows=9)


COMMITS = [commit(1, 1), commit(2, 0, "early"), commit(3, 2), commit(4, 7, pipeline="other"), TableCommit(5, 5000, {})]
COMMITS += [commit(6, 3), commit(7, 0, "late"), commit(8, 2)]
HISTORY = TableHistory(commits=tuple(COMMITS[::-1]))


@pytest.mark.parametrize(
    ("batches", "snapshots"),
    [({1, 2, 3}, [1, 2, 3, 6, 7, 8]), ({2}, [3, 7, 8]), ({3}, [6, 7]), ({3, 9}, [2, 6, 7])],
    ids=["all", "one", "the last", "one whose load has expired"],
)
def test_receipts_of_batches_come_with_the_replays_that_may_have_replaced_them(batches: set[int], snapshots: list[int]) -> None:
    """In the order of the commits; a replay before the first of them has replaced nothing of them."""
    loads = Loads.of(HISTORY, "p")
    found = loads.of_batches(batches)
    assert [r.snapshot for r in found] == snapshots
    assert loads.batches == {1, 2, 3}
    assert found == [r for r in HISTORY.receipts("p") if r.snapshot in snapshots]
    assert [r.snapshot for r in loads.of_replay("early")] == [2]


def test_the_receipts_have_the_ranges_that_were_asked_for() -> None:
    loads, u, nobody = Loads.of(HISTORY, "p"), TopicPartition("u", 3), TopicPartition("t", 9)
    some, every = loads.of_batches({3}, {u, nobody, TopicPartition("v", 0)}), loads.of_batches({3})
    assert [r.load.ranges for r in some] == [(OffsetRange("u", 3, 0, 3),), (OffsetRange("u", 3, 0, 0),)]
    assert [changed(r, ranges=o.load.ranges) for r, o in zip(some, every, strict=True)] == every
    assert [r.load.ranges for r in loads.of_batches({3}, ())] == [(), ()]


def test_offsets_are_counted_as_the_ranges_have_them() -> None:
    """Without making ranges of them; what is broken is named."""
    for each in HISTORY.loads("p"):
        assert offsets_of(each.properties, snapshot=each.snapshot) == total_count(each.receipt().load.ranges)
    for broken in ("{", "[]", '{"t": 3}', '{"t": {"0": [1]}}'):
        with pytest.raises(StateCorrupt, match="snapshot 9 "):
            offsets_of({"tidegate.ranges": broken}, snapshot=9)
    with pytest.raises(StateCorrupt, match="snapshot 9 "):
        Loads.of(TableHistory(commits=(TableCommit(9, 1, {"tidegate.pipeline": "p", "tidegate.seq": "?"}),)), "p")


def test_a_request_counts_for_so_long_and_the_next_one_goes_on() -> None:
    """The newest first. Batches whose saved ranges are known need not be counted, and older ones are not asked for."""
    times: Iterator[float] = chain([0.0, 0.1], repeat(9.0))
    loads, landings = Loads.of(HISTORY, "p"), Landings(lambda: next(times))
    newest = landed(2, 8000, 12)
    assert landings.of(loads, (), from_ms=0) == ([newest], False)
    times = repeat(9.0)
    every = [landed(1, 1000, 11), landed(2, 3000, 12), landed(3, 6000, 13), newest]
    assert landings.of(loads, (), from_ms=0) == (every, True)
    assert landings.of(loads, {2}, from_ms=6500) == ([replace(every[1], records=0), replace(newest, records=0)], True)
    assert landings.of(None, (), from_ms=0) == ([], True)


def test_counts_of_receipts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are forgotten are counted anew."""
    monkeypatch.setattr(caches, "MOST_KNOWN", 2)
    loads, landings = Loads.of(HISTORY, "p"), Landings(lambda: 0.0)
    first = landings.of(loads, (), from_ms=0)
    assert ([load.seq for load in first[0]], first[1]) == ([1, 2, 3, 2], True)
    assert landings.of(loads, (), from_ms=0) == first
    assert len(landings._offsets) <= 2

"""Laws of cutting a selection into chunks."""

from __future__ import annotations

import sys
from itertools import pairwise, zip_longest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import changed, replay_of, write_of
from tests.unit.test_ranges import offsets, some_ranges
from tidegate.core.model.errors import RequestError
from tidegate.core.model.ranges import OffsetRange, merged, total_count, without
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.saved_replay import TURN_CHUNKS, TURN_OFFSETS, cut_chunks, live, smallest_size, turns, whole_batches


def r(start: int, until: int, partition: int = 0) -> OffsetRange:
    return OffsetRange("t", partition, start, until)


def receipt(number: int, *ranges: OffsetRange, replay: str | None = None) -> Receipt:
    return Receipt(write_of("p", number, f"run{number}", ranges, "m:f@1", f"a{number}", replay=replay), number, number, rows=1)


selections = some_ranges.map(merged)
cuts = st.lists(st.integers(0, 60), max_size=8).map(lambda found: sorted({0, *found, 60}))


@given(selections, st.lists(cuts, min_size=3, max_size=3), st.integers(1, 30))
def test_chunks_partition_the_selection_exactly(selection: tuple[OffsetRange, ...], bounds: list[list[int]], size: int) -> None:
    """Each offset in one chunk, no chunk with two ranges of a partition, none empty, none much larger than asked."""
    cut = [[r(*ends, p) for ends in pairwise(each)] for p, each in enumerate(bounds)]
    batches = [tuple(one for one in batch if one is not None) for batch in zip_longest(*cut)]
    chunks = cut_chunks(selection, batches, size)
    assert merged(one for chunk in chunks for one in chunk) == selection
    assert sum(total_count(chunk) for chunk in chunks) == total_count(selection)
    for chunk in chunks:
        assert 0 < total_count(chunk) <= size + 2
        assert len({one.topic_partition for one in chunk}) == len(chunk)


def test_chunks_end_where_batches_end() -> None:
    """Small batches are put together, a large one is cut evenly in all its partitions."""
    batches = [(r(0, 10), r(0, 10, 1)), (r(10, 20), r(10, 20, 1)), (r(20, 60), r(20, 60, 1))]
    selection = (r(0, 60), r(0, 60, 1))
    assert cut_chunks(selection, batches, 45) == ((r(0, 20), r(0, 20, 1)), (r(20, 40), r(20, 40, 1)), (r(40, 60), r(40, 60, 1)))
    assert cut_chunks((r(5, 25),), batches, 8) == ((r(5, 10),), (r(10, 15),), (r(15, 20),), (r(20, 25),))


@given(st.lists(st.integers(1, 60_000), min_size=1, max_size=40), st.data())
def test_tasks_load_each_chunk_once_in_order_and_share_only_what_is_small(sizes: list[int], data: st.DataObject) -> None:
    """A load of a large chunk waits for no other."""
    numbers = sorted(data.draw(st.sets(st.sampled_from(range(len(sizes))), min_size=1)))
    chunks = [(r(0, size),) for size in sizes]
    found = turns(chunks, numbers)
    assert [number for turn in found for number in turn] == numbers
    for turn in found:
        assert len(turn) == 1 or (len(turn) <= TURN_CHUNKS and sum(sizes[number] for number in turn) <= TURN_OFFSETS)


def test_many_small_chunks_share_tasks_and_few_have_one_each() -> None:
    assert turns([(r(0, 10),)] * 21, range(21)) == [*([n, n + 1] for n in range(0, 20, 2)), [20]]
    assert turns([(r(0, 10),)] * 21, range(20)) == [[n] for n in range(20)]


@given(selections, st.integers(1, 12))
def test_the_smallest_size_that_fits_is_the_smallest(selection: tuple[OffsetRange, ...], most: int) -> None:
    """One less makes too many chunks."""
    found = smallest_size(selection, [], most)
    if found is None:
        assert len(cut_chunks(selection, [], 1000)) > most
        return
    assert len(cut_chunks(selection, [], found)) <= most
    assert found == 1 or len(cut_chunks(selection, [], found - 1)) > most


@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 12)), max_size=4), max_size=8))
def test_each_offset_is_live_in_its_newest_load_alone(loads: list[list[tuple[int, int, int]]]) -> None:
    """Whatever order the loads were in, by disjoint sorted ranges; an empty range is nothing."""
    receipts, newest = [], dict[tuple[int, int], int]()
    for number, ranges in enumerate(loads):
        by_partition = {partition: r(start, start + size, partition) for partition, start, size in ranges}
        receipts.append(receipt(number, *by_partition.values()))
        newest |= dict.fromkeys(offsets(by_partition.values()), number)
    found = {one.load.seq: left for one, left in live(receipts)}
    assert {offset: seq for seq, left in found.items() for offset in offsets(left)} == newest
    assert all(left == merged(left) and left for left in found.values())


def test_offsets_of_a_former_topic_are_live_no_more() -> None:
    """Those of other topics of the same load are; a topic whose id is not known is taken for the same."""
    u = OffsetRange("u", 0, 0, 5)
    former = changed(receipt(1, r(0, 50), u), topic_ids={"t": "one", "u": "same"})
    unknown, new = receipt(2, r(50, 60)), changed(receipt(3, r(70, 80)), topic_ids={"t": "two"})
    found = [(one.load.seq, left) for one, left in live([former, unknown, new], {"t": "two", "u": "same"})]
    assert found == [(3, (r(70, 80),)), (2, (r(50, 60),)), (1, (u,))]
    assert [left for _, left in live([former])] == [(r(0, 50), u)]


def test_whole_batches_are_those_that_the_selection_touches() -> None:
    """More than the selection, where it cuts through one."""
    batches = {4: (r(0, 10), r(0, 0, 1)), 5: (r(10, 20),), 6: (r(20, 30),)}
    assert whole_batches((r(5, 15),), batches) == {4: (r(0, 10),), 5: (r(10, 20),)}


def test_a_saved_replay_has_its_chunks_as_loads() -> None:
    saved = replay_of("p", "run", "run-1", ((r(0, 5), r(0, 5, 1)), (r(5, 9),)), "lake.a.b", "m:f", {"t": "id"}, 12)
    assert saved.selection == (r(0, 9), r(0, 5, 1))
    assert saved.chunk(1) == changed(saved.load, seq=1, ranges=(r(5, 9),))
    with pytest.raises(RequestError, match=r"has no chunk 2\. Its chunks are 0 to 1"):
        saved.chunk(2)


def test_the_work_of_cutting_grows_with_the_batches_and_not_with_their_square() -> None:
    """Every second batch is selected, and every second one was loaded again. Calls are counted, which no clock disturbs."""

    def calls(count: int) -> int:
        batches = [tuple(r(n * 10, n * 10 + 10, p) for p in range(2)) for n in range(count)]
        selection = merged(one for batch in batches[::2] for one in batch)
        receipts = [receipt(n, *batch) for n, batch in enumerate(batches)]
        receipts += [receipt(n, *batches[n], replay="x") for n in range(0, count, 2)]
        events: list[str] = []
        sys.setprofile(lambda _frame, event, _argument: events.append(event))
        try:
            cut_chunks(selection, batches, 50)
            smallest_size(selection, batches, count)
            whole_batches(selection, dict(enumerate(batches)))
            live(receipts)
            without(merged(one for batch in batches for one in batch[:1]), selection)
        finally:
            sys.setprofile(None)
        return len(events)

    assert calls(400) < 3 * calls(200)

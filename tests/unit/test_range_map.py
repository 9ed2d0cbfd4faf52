"""Laws of the range map: it shows each offset once, in as many blocks as there is room for."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import changed, cursor_of, write_of
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.model.watermarks import Watermarks
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.saved_range import Decision, SavedRange
from tidegate.views.entries import BatchState, Entry
from tidegate.views.pages import encode
from tidegate.views.range_map import (
    WORST_FIRST,
    MapBlock,
    PartitionRow,
    level_of_detail,
    offset_map,
    partition_rows,
    span,
    time_map,
)

A, B, C = (TopicPartition("t", n) for n in range(3))


def entry(
    seq: int,
    *ranges: tuple[int, int, int],
    state: BatchState = BatchState.COMMITTED,
    planned_ms: int | None = 0,
    loaded_ms: int | None = 0,
    rows: int = 0,
    more: tuple[OffsetRange, ...] = (),
    **load: Any,
) -> Entry:
    """A batch; each range is partition, from and until."""
    write = write_of("p", seq, f"run {seq}", (*(OffsetRange("t", *r) for r in ranges), *more), "v1", **load)
    saved = None if planned_ms is None else SavedRange(load=write.load, planned_at_ms=planned_ms)
    receipts = () if loaded_ms is None else (Receipt(write, 1, loaded_ms, rows=rows),)
    return Entry(seq=seq, state=state, saved=saved, receipts=receipts)


def a_map(
    *batches: Entry, cursor: Cursor, ends: dict[TopicPartition, int] | None = None, columns: int = 1000, **how: Any
) -> tuple[PartitionRow, ...]:
    log = None if ends is None else Watermarks(dict.fromkeys(ends, 0), ends)
    return offset_map(partition_rows(cursor, log), batches, columns, **how)


def shown(rows: tuple[PartitionRow, ...], row: int = 0) -> list[tuple[int, int, str]]:
    return [(b.from_offset, b.until_offset, b.kind) for b in rows[row].blocks]


@st.composite
def blocks(draw: st.DrawFn) -> list[MapBlock]:
    """Sorted, disjoint blocks with gaps between some of them."""
    at, made = draw(st.integers(0, 50)), []
    for seq, (gap, size) in enumerate(draw(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40)), max_size=60))):
        kind, transform = draw(st.sampled_from(WORST_FIRST)), draw(st.sampled_from(["v1", "v2"]))
        made.append(MapBlock(at + gap, at + gap + size, kind, seqs=(seq, seq), batches=1, transform=transform))
        at += gap + size
    return made


@given(blocks(), st.integers(1, 30))
def test_a_row_has_at_most_two_blocks_a_column_and_counts_each_batch_once(given_blocks: list[MapBlock], columns: int) -> None:
    found = level_of_detail(given_blocks, columns)
    assert len(found) <= 2 * columns + 1
    assert sum(b.batches for b in found) == len(given_blocks)
    assert all(one.until_offset <= other.from_offset for one, other in pairwise(found))
    if given_blocks:
        assert (found[0].from_offset, found[-1].until_offset) == (given_blocks[0].from_offset, given_blocks[-1].until_offset)
        column = (found[-1].until_offset - found[0].from_offset) / columns
        assert {b for b in given_blocks if b.until_offset - b.from_offset > column} <= {*found}


def test_a_block_of_several_batches_shows_what_needs_attention() -> None:
    many = [MapBlock(n, n + 1, "committed", seqs=(n, n), batches=1, transform="v1") for n in range(100)]
    assert level_of_detail(many, 1) == (MapBlock(0, 100, "committed", seqs=(0, 99), batches=100, transform="v1"),)
    many[40] = MapBlock(40, 41, "planned", seqs=(40, 40), batches=1, transform=None)
    assert level_of_detail(many, 1) == (MapBlock(0, 100, "planned", seqs=(0, 99), batches=100, transform=None),)
    assert level_of_detail([MapBlock(0, 1, "lost"), MapBlock(1, 2, "pending")], 1) == (MapBlock(0, 2, "lost"),)


def test_a_row_shows_batches_and_what_is_not_read_yet() -> None:
    """By state; empty ranges are no block, and offsets that a saved range will read are not pending."""
    batches = (
        entry(1, (0, 0, 10), (1, 0, 0)),
        entry(2, (0, 10, 15), state=BatchState.LOADED),
        entry(3, (0, 15, 18), state=BatchState.PLANNED, loaded_ms=None),
    )
    versions = {("v1", False): [OffsetRange("t", 0, 0, 15)]}
    view = a_map(*batches, cursor=cursor_of("p", 1, {A: 10, B: 0}), ends={A: 25, B: 0}, versions=versions)
    states = [(0, 10, "committed"), (10, 15, "loaded"), (15, 18, "planned"), (18, 25, "pending")]
    assert [shown(view), shown(view, 1), view[0].behind] == [states, [], 15]
    shown_row = json.loads(encode(view[0]))
    first, *_, last = shown_row.pop("blocks")
    assert shown_row == {"topic": "t", "partition": 0, "next_offset": 10, "log_start": 0, "log_end": 25, "behind": 15}
    assert first == (
        {"from": 0, "until": 10, "kind": "committed", "seqs": [1, 1], "batches": 1}
        | {"transform": "v1", "marks": [], "records": 10, "rows": 0, "seconds": 0}
    )
    assert last["seqs"] is None


def test_a_loss_is_shown_and_otherwise_once_it_is_accepted() -> None:
    """What a saved range was to read is shown as saved; what a partition held before its first read is nobody's loss."""
    batches, accepted = (entry(1, (0, 0, 10)), entry(2, (0, 20, 30))), [OffsetRange("t", 0, 10, 20)]
    view = a_map(*batches, cursor=cursor_of("p", 2, {A: 30}), accepted=accepted)
    known = [(0, 10, "committed"), (10, 20, "accepted"), (20, 30, "committed")]
    assert shown(view) == known
    assert (view[0].log_start, view[0].log_end, view[0].behind) == (None, None, None)
    saved = entry(3, (0, 30, 33), state=BatchState.PLANNED, loaded_ms=None)
    rows = partition_rows(cursor_of("p", 2, {A: 30}), Watermarks({A: 40, B: 7}, {A: 50, B: 9}))
    view = offset_map(rows, [*batches, saved], 1000, accepted=[*accepted, OffsetRange("t", 0, 33, 35)])
    assert shown(view) == [*known, (30, 33, "planned"), (33, 35, "accepted"), (35, 40, "lost"), (40, 50, "pending")]
    assert shown(view, 1) == [(7, 9, "pending")]


def test_a_batch_shows_the_versions_that_loaded_its_offsets_last() -> None:
    """A replay by another one among them; the batch begins in one block, so it still counts once."""
    of_v1 = [OffsetRange("t", 0, 0, 4), OffsetRange("t", 0, 6, 20)]
    versions = {("v1", False): of_v1, ("v2", True): [OffsetRange("t", 0, 4, 6)]}
    view = a_map(entry(1, (0, 0, 10)), entry(2, (0, 10, 20)), cursor=cursor_of("p", 2, {A: 20}), versions=versions)
    assert [(b.from_offset, b.until_offset, b.transform, b.batches, b.seqs, b.marks) for b in view[0].blocks] == [
        (0, 4, "v1", 1, (1, 1), ()),
        (4, 6, "v2", 0, (1, 1), ("replayed",)),
        (6, 10, "v1", 0, (1, 1), ()),
        (10, 20, "v1", 1, (2, 2), ()),
    ]
    whole = a_map(entry(1, (0, 0, 10)), cursor=cursor_of("p", 1, {A: 10}), versions=versions, columns=1)
    assert [(b.batches, b.transform) for b in whole[0].blocks] == [(1, None)]


@pytest.mark.parametrize("read_again", [True, False])
def test_offsets_of_a_former_topic_are_left_out(*, read_again: bool) -> None:
    """Once it was created again, also before the first batch of the new one."""
    batches = [entry(1, (0, 0, 50)), entry(2, (0, 50, 90))] + ([entry(3, (0, 0, 7))] if read_again else [])
    view = a_map(*batches, cursor=cursor_of("p", 3, {A: 7 if read_again else 0}), ends={A: 9})
    assert shown(view) == ([(0, 7, "committed"), (7, 9, "pending")] if read_again else [(0, 9, "pending")])


def test_a_topic_is_known_by_its_id_also_where_it_begins_later_than_the_former_one() -> None:
    """And where nobody knows any more that it was created again; other topics keep their batches."""
    former, new = {"t": "one", "u": "same"}, {"t": "two", "u": "same"}
    batches = [
        entry(1, (0, 0, 50), (1, 0, 9), topic_ids=former, more=(OffsetRange("u", 0, 0, 4),)),
        entry(2, (0, 50, 90), topic_ids=former),
        entry(3, (0, 70, 95), topic_ids=new),
        entry(4, (0, 95, 99), topic_ids={}),
    ]
    view = a_map(*batches, cursor=cursor_of("p", 4, {A: 99, B: 0, TopicPartition("u", 0): 4}))
    of_t = [(70, 95, "committed"), (95, 99, "committed")]
    assert [shown(view, row) for row in range(3)] == [of_t, [], [(0, 4, "committed")]]


def test_the_partitions_that_are_the_furthest_behind_come_first() -> None:
    log = Watermarks({A: 0, B: 900, C: 0}, {A: 20, B: 910, C: 16})
    rows = partition_rows(cursor_of("p", 1, {A: 5}), log)
    assert [(row.topic_partition, row.behind) for row in rows] == [(C, 16), (A, 15), (B, 10)]
    # one that has lost records is not on the last of many pages
    lost = partition_rows(cursor_of("p", 1, {A: 5, B: 899}), log)
    assert [(row.topic_partition, row.behind) for row in lost] == [(B, 11), (C, 16), (A, 15)]


def test_blocks_carry_marks_and_rates_of_their_batches() -> None:
    one, two = entry(1, (0, 0, 10), rows=20, loaded_ms=2000), entry(2, (0, 10, 20), rows=5, loaded_ms=500)
    one = replace(one, saved=changed(one.saved, decisions=(Decision(A, "recreated", "log end"),)))
    view = a_map(one, two, entry(3, (0, 20, 30)), cursor=cursor_of("p", 3, {A: 30}), marks={2: frozenset({"errors", "cold"})})
    found = [(b.marks, b.records, b.rows, b.seconds) for b in view[0].blocks]
    assert found == [(("recreated",), 10, 20, 2.0), (("cold", "errors"), 10, 5, 0.5), ((), 10, 0, 0)]
    both = dict.fromkeys((1, 2), frozenset({"errors", "cold"}))
    (whole,) = a_map(one, two, cursor=cursor_of("p", 2, {A: 20}), columns=1, marks=both)[0].blocks
    assert (whole.marks, whole.records, whole.rows, whole.seconds) == (("cold", "errors", "recreated"), 20, 25, 2.5)


def timed(seq: int, planned_ms: int | None, loaded_ms: int | None, **more: Any) -> Entry:
    return entry(seq, (0, 10 * seq, 10 * seq + 10), (1, 0, 0), planned_ms=planned_ms, loaded_ms=loaded_ms, **more)


def test_on_the_axis_of_time_a_batch_lasts_from_its_plan_to_its_first_load() -> None:
    """One that is not loaded lasts until now; one whose plan is gone is known by its load; no two overlap."""
    batches = [
        timed(1, None, 900),
        replace(timed(2, 1000, 3000), receipts=timed(2, 0, 3000).receipts + timed(2, 0, 9000).receipts),
        timed(3, 2500, 3500),
        timed(4, 4000, None),
        timed(5, 5000, None, state=BatchState.PLANNED),
    ]
    rows = partition_rows(cursor_of("p", 4, {A: 50, B: 0}), Watermarks({A: 0}, {A: 90}))
    view = time_map(rows, batches, 1000, now_ms=7000)
    times = [(900, 901), (1000, 3000), (3000, 3500), (4000, 4001)]
    assert shown(view) == [*((*each, "committed") for each in times), (5000, 7000, "planned")]
    assert ([b.records for b in view[0].blocks], view[0].log_end) == ([10] * 5, 90)
    assert [span(some, 7000) for some in (batches, batches[:3], [])] == [(900, 7000), (900, 3500), (7000, 7000)]


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 9000), st.booleans()), max_size=60), st.integers(1, 20))
def test_on_the_axis_of_time_each_batch_counts_once(given_batches: list[tuple[int, int, bool]], columns: int) -> None:
    batches = [
        timed(n, at_ms, at_ms - 5 + took_ms if loaded else None) for n, (at_ms, took_ms, loaded) in enumerate(given_batches)
    ]
    cursor = cursor_of("p", 100, {A: 1000})
    found = time_map(partition_rows(cursor, None), batches, columns, now_ms=600)[0].blocks
    assert sum(b.batches for b in found) == len(batches)
    assert len(found) <= 2 * columns + 1
    assert all(one.until_offset <= other.from_offset for one, other in pairwise(found))

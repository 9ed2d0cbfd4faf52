"""Laws of every record that crosses a process: it is read back as it was, and what cannot be is an error."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import changed, cursor_of, load_job, range_of, replay_of, write_of
from tidegate.core.config.pipeline import Dedupe, Split
from tidegate.core.model.errors import StateCorrupt
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.rates import BatchTiming
from tidegate.core.state.accepted import Accepted
from tidegate.core.state.cursor import Cursor, LastCommit, Position
from tidegate.core.state.jobs import LoadResult
from tidegate.core.state.receipt import Observed, Receipt
from tidegate.core.state.saved_range import Decision

P0, P1, P2 = (TopicPartition("t", p) for p in range(3))
RANGES = (OffsetRange("t", 0, 10, 20), OffsetRange("t", 1, 0, 5))
SEVERAL = (OffsetRange("t", 0, 5, 9), OffsetRange("t", 0, 12, 20))
CURSOR = cursor_of("p", 3, {P0: 5}, {"t": "id"}, receipt=LastCommit(1, parent=None, committed_at_ms=3))
JOB = load_job("p", 1, "r", RANGES, "transforms.x:f", "lake.a.b", {"kafka.sasl.jaas.config": "hunter2"})
RECEIPT = Receipt(write_of("p", 7, "manual__x", RANGES, "abc", "attempt-1"), snapshot=99, committed_at_ms=1, rows=15)
BOUNDS = {P0: (10, 19), P1: (3, 3), TopicPartition("u", 10): (0, 2**62)}
WHY = (Decision(P0, "cursor", "max_records"), Decision(P1, "earliest", "log end"))
RECORDS = {
    "first cursor": Cursor(pipeline="p", seq=0),
    "cursor": changed(CURSOR, starts={P0: 1}, former={P1: 9}, timings=(BatchTiming(1, None, 2, 3, 4, 5),), fired_at_ms=1),
    "range": range_of("p", 1, "run", RANGES, WHY, {"t": "id"}, {"max_records": 40}, 5, {P0: 1}, (P2,), "other"),
    "range that leads on": range_of("p", 2, "r", (), (), {}, {}, 1, beside=Position(offsets={P1: 4}, topic_ids={"t": "id"})),
    "replay": replay_of(
        "p",
        "run",
        "run-1",
        (RANGES, (OffsetRange("t", 0, 20, 29),)),
        "lake.a.b",
        "m:f",
        {"t": "id"},
        12,
        request={"batches": [1, 2]},
        lost=SEVERAL,
        resumes=("other",),
        parallel=3,
        generation=1,
        batches=(1, 2),
    ),
    "acceptance": Accepted(seq=4, loss=RANGES, recreated={"t": "new"}, absent=SEVERAL, gone=True, foreign="lake.a.b"),
    "receipt": RECEIPT,
    "receipt without repeats": changed(RECEIPT, dedupe=Dedupe(5)),
    "job": JOB,
    "job of a batch": changed(JOB, identity="batch"),
    "job of a replayed batch": changed(JOB, identity="batch", replay="again", batch=7),
    "job with options": changed(
        JOB, redo=True, split=Split(4), isolation_level="read_uncommitted", contiguous=True, shared_with=("q", "r"), attempt="a"
    ),
    "job without repeats": changed(JOB, dedupe=Dedupe(5, "id"), look_back={P0: 5, P1: 0}),
    "result": LoadResult(RECEIPT, Observed(15, 15, 2**40, BOUNDS, 3, 2), {"write": 0.5}, spark_age_s=7.5),
    "unknown result": LoadResult(RECEIPT, Observed(None, None), {}),
}


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_every_record_is_read_back_as_it_was(record: Any) -> None:
    """Through JSON. A field that is missing is an error: missing is not empty."""
    written = json.loads(json.dumps(record.to_json()))
    assert type(record).from_json(written) == record
    for name in written:
        with pytest.raises(StateCorrupt):
            type(record).from_json({key: value for key, value in written.items() if key != name})


@pytest.mark.parametrize(
    ("record", "change"),
    [
        *[(CURSOR, {"seq": seq}) for seq in (-1, True, "3")],
        *[(CURSOR, {"offsets": offsets}) for offsets in ([1], {"t": {"0": -5}}, {"t": {"x": 5}})],
        *[(JOB, {"split": {limit: number}}) for limit, number in (("min_partitions", 0), ("max_records_per_partition", -1))],
        (JOB, {"split": {"min_partitions": True}}),
    ],
)
def test_a_record_that_cannot_be_is_refused(record: Any, change: dict[str, Any]) -> None:
    """Negative offsets, odd numbers, other shapes."""
    with pytest.raises(StateCorrupt):
        type(record).from_json({**record.to_json(), **change})
    with pytest.raises(StateCorrupt):
        cursor_of("p", 0, {P0: -1})


def test_an_orders_secrets_are_not_in_its_repr() -> None:
    """A logged order tells no password."""
    assert "hunter2" not in repr(JOB)
    assert replace(JOB, formerly=("old", "older")).names == ("p", "old", "older")


TPS = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "ü"]), st.integers(0, 20))


@given(st.dictionaries(TPS, st.integers(0, 2**63 - 1)), st.dictionaries(TPS, st.integers(0)))
def test_any_position_is_read_back_as_it_was(offsets: dict[TopicPartition, int], former: dict[TopicPartition, int]) -> None:
    """The order of writing is fixed."""
    cursor = cursor_of("p", 1, offsets, former=former)
    written = cursor.to_json()
    assert Cursor.from_json(json.loads(json.dumps(written))) == cursor
    assert list(written["offsets"]) == sorted({tp.topic for tp in offsets})

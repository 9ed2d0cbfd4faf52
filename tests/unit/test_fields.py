"""Laws of the fields of saved state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import cursor_of, replay_of
from tidegate.core.errors import StateCorrupt
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition
from tidegate.core.rates import BatchTiming
from tidegate.core.replay.chunks import SavedReplay
from tidegate.core.state.cursor import Cursor, LastCommit
from tidegate.core.state.fields import (
    MAPPING,
    OFFSETS,
    RANGES,
    SELECTION,
    TUPLE,
    each,
    fields_from_json,
    fields_to_json,
    optional,
)

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)


@dataclass(frozen=True)
class Sample:
    """A field of every form."""

    seq: int
    offsets: Mapping[TopicPartition, int] = field(metadata=OFFSETS)
    ranges: tuple[OffsetRange, ...] = field(metadata=RANGES)
    absent: tuple[OffsetRange, ...] = field(metadata=SELECTION)
    chunks: tuple[tuple[OffsetRange, ...], ...] = field(metadata=each(RANGES))
    receipt: Mapping[str, Any] | None = field(metadata=optional(MAPPING))
    names: tuple[str, ...] = field(default=("x",), metadata=TUPLE)


RANGE, NEXT = OffsetRange("orders", 0, 2, 5), OffsetRange("orders", 0, 7, 9)
SAMPLE = Sample(1, {ONE: 4, ZERO: 3}, (RANGE,), (RANGE, NEXT), ((RANGE,), ()), {"rows": 2}, ("a", "b"))
WRITTEN = {
    "seq": 1,
    "offsets": {"orders": {"0": 3, "1": 4}},
    "ranges": {"orders": {"0": [2, 5]}},
    "absent": {"orders": {"0": [[2, 5], [7, 9]]}},
    "chunks": [{"orders": {"0": [2, 5]}}, {}],
    "receipt": {"rows": 2},
    "names": ["a", "b"],
}


def test_each_field_is_written_under_its_name_in_its_form_and_read_back() -> None:
    """In the order of the fields."""
    assert json.dumps(fields_to_json(SAMPLE)) == json.dumps(WRITTEN)
    assert fields_from_json(Sample, WRITTEN) == SAMPLE
    assert fields_from_json(Sample, {**WRITTEN, "receipt": None, "unknown": 1}).receipt is None


@pytest.mark.parametrize("name", WRITTEN)
def test_a_field_that_is_missing_is_an_error(name: str) -> None:
    """Missing is not empty, even where the field has a default."""
    with pytest.raises(KeyError, match=name):
        fields_from_json(Sample, {key: held for key, held in WRITTEN.items() if key != name})


CURSORS = st.builds(
    cursor_of,
    st.just("orders"),
    st.integers(0),
    offsets=st.dictionaries(st.sampled_from([ZERO, ONE]), st.integers(0)),
    receipt=st.none() | st.just(LastCommit(1, None, 3)),
    former=st.dictionaries(st.sampled_from([ZERO, ONE]), st.integers(0)),
    timing=st.none() | st.just(BatchTiming(1, None, 2, 3, 4, 5)),
)


@given(CURSORS)
def test_a_cursor_is_read_back_as_it_was(cursor: Cursor) -> None:
    """Through JSON."""
    assert Cursor.from_json(json.loads(json.dumps(cursor.to_json()))) == cursor


def test_a_replay_of_several_ranges_of_a_partition_is_read_back_as_it_was() -> None:
    """Lost ranges may be several of one partition; a chunk has one of each."""
    saved = replay_of("orders", "run", "r", ((RANGE,), (NEXT,)), "lake.a.b", "m:f", {}, 5, lost=(RANGE, NEXT), batches=(1, 2))
    written = saved.to_json()
    assert written["lost"] == {"orders": {"0": [[2, 5], [7, 9]]}}
    assert SavedReplay.from_json(written) == saved
    with pytest.raises(StateCorrupt, match="lost"):
        SavedReplay.from_json({name: value for name, value in written.items() if name != "lost"})

"""Loads of the pipeline `p` from one partition, as its table and its Variables keep them."""

from __future__ import annotations

from typing import Any

from tests.records import changed, range_of, write_of
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.state.cursor import Position
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.saved_range import Decision, SavedRange

P0 = TopicPartition("t", 0)


def receipt(seq: int, start: int, until: int, **changes: Any) -> Receipt:
    """Of a batch, or with changes of its `Write`."""
    load = write_of(
        "p", seq, f"run{seq}", (OffsetRange("t", 0, start, until),), "v1", f"a{seq}", {"t": "id"}, beside=Position()
    )
    return Receipt(changed(load, **changes), 100 + seq, 1000 * seq, rows=until - start)


def saved(seq: int, start: int, until: int, **changes: Any) -> SavedRange:
    """Of a batch that began at the cursor, changed."""
    made = range_of(
        "p", seq, f"run{seq}", (OffsetRange("t", 0, start, until),), (Decision(P0, "cursor", "log end"),), {"t": "id"}, {}, 500
    )
    return changed(made, **changes)

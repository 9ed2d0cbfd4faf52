"""Loads of the pipeline `p` from one partition, as its table and its Variables keep them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidegate.core.load.receipt import LoadId, Receipt
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition
from tidegate.core.state.saved_range import Decision, SavedRange

P0 = TopicPartition("t", 0)


def receipt(seq: int, start: int, until: int, **changes: Any) -> Receipt:
    """Of a batch, or with changes of its `LoadId`."""
    load = LoadId("p", seq, f"run{seq}", (OffsetRange("t", 0, start, until),), "v1", f"a{seq}", {"t": "id"})
    return Receipt(replace(load, **changes), 100 + seq, 1000 * seq, until - start)


def saved(seq: int, start: int, until: int, **changes: Any) -> SavedRange:
    """Of a batch that began at the cursor, changed."""
    made = SavedRange(
        "p", seq, f"run{seq}", (OffsetRange("t", 0, start, until),), (Decision(P0, "cursor", "log end"),), {"t": "id"}, {}, 500
    )
    return replace(made, **changes)

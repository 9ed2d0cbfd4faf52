"""Laws of receipts and of a load's order and answer."""

from __future__ import annotations

import json

import pytest

from tidegate.errors import StateCorrupt
from tidegate.jobs import LoadJob, LoadResult
from tidegate.ranges import OffsetRange
from tidegate.receipts import LoadId, Observed, Receipt

RANGES = (OffsetRange("t", 0, 10, 20), OffsetRange("t", 1, 0, 5))
LOAD = LoadId("flights", 7, "manual__x", RANGES, "abc", "attempt-1")
RECEIPT = Receipt(LOAD, snapshot=99, committed_at_ms=1, rows=15)


def test_a_receipt_is_read_back_from_a_commits_properties() -> None:
    """Every property is a string, and the commit's own counters are used."""
    properties = {**LOAD.to_properties(), "added-records": "15"}
    assert all(isinstance(v, str) for v in properties.values())
    assert Receipt.from_properties(properties, snapshot=99, committed_at_ms=1) == RECEIPT


def test_a_strangers_commit_has_no_receipt() -> None:
    """Other writers' snapshots are passed over."""
    assert Receipt.from_properties({"added-records": "3"}, snapshot=1, committed_at_ms=1) is None


@pytest.mark.parametrize(
    "change", [{"tidegate.seq": "x"}, {"tidegate.ranges": "{"}, {"tidegate.ranges": '{"t": {"0": [3, 1]}}'}]
)
def test_a_broken_receipt_is_an_error_not_an_absence(change: dict[str, str]) -> None:
    """A receipt that cannot be read is never taken for none."""
    with pytest.raises(StateCorrupt):
        Receipt.from_properties({**LOAD.to_properties(), **change}, snapshot=1, committed_at_ms=1)


def test_a_receipt_covers_its_ranges_and_no_more() -> None:
    """Covering is judged offset by offset."""
    assert RECEIPT.covers(RANGES)
    assert RECEIPT.covers((OffsetRange("t", 0, 12, 13),))
    assert not RECEIPT.covers((OffsetRange("t", 0, 9, 13),))
    assert not RECEIPT.covers((OffsetRange("t", 2, 0, 1),))


JOB = LoadJob("p", 1, "r", RANGES, "transforms.x:f", "lake.a.b", {"kafka.sasl.jaas.config": "hunter2"})


def test_json_brings_orders_and_answers_back() -> None:
    """What crosses a file is the same on the other side."""
    result = LoadResult(RECEIPT, Observed(15, 15), {"write": 0.5})
    assert LoadResult.from_json(json.loads(json.dumps(result.to_json()))) == result
    assert LoadJob.from_json(json.loads(json.dumps(JOB.to_json()))) == JOB
    assert Receipt.from_json(RECEIPT.to_json()) == RECEIPT


def test_an_orders_secrets_are_not_in_its_repr() -> None:
    """A logged order tells no password."""
    assert "hunter2" not in repr(JOB)


@pytest.mark.parametrize("read", [LoadJob.from_json, LoadResult.from_json, Receipt.from_json])
def test_a_broken_order_or_answer_is_named(read) -> None:  # noqa: ANN001
    """Missing keys are a corrupt state."""
    with pytest.raises(StateCorrupt):
        read({})

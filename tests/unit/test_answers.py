"""Laws of a load's answer on its way to the commit."""

from __future__ import annotations

import json

import pytest

from tidegate.core.errors import ReceiptMismatch, StateCorrupt
from tidegate.core.load.answer import brief, whole
from tidegate.core.load.job import LoadResult
from tidegate.core.load.receipt import LoadId, Observed, Receipt
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition
from tidegate.core.schedule.plan import SavedRange


def ranges(partitions: int, until: int = 1_000_000) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange("t", n, 0, until) for n in range(partitions))


def saved(partitions: int = 2, until: int = 1_000_000) -> SavedRange:
    return SavedRange("p", 3, "run", ranges(partitions, until), (), {"t": "id"}, {}, 1)


def result(partitions: int = 2) -> LoadResult:
    load = LoadId("p", 3, "run", ranges(partitions), "m:f@1", "attempt", {"t": "id"}, 4)
    bounds = {TopicPartition("t", n): (0, 9) for n in range(partitions)}
    return LoadResult(Receipt(load, 7, 1, 5, 2), Observed(5, 6, 70, bounds), {"write": 0.1}, landed_before=True)


def nothing(_: int) -> None:
    raise AssertionError("the table is asked for nothing")


def test_an_answer_is_as_small_with_thousands_of_partitions_as_with_two() -> None:
    """An XCom is a row of Airflow's database."""
    few, many = (json.dumps(brief(result(count))) for count in (2, 5000))
    assert len(many) < len(few) + 10 < 1000


def test_the_receipt_comes_back_whole_without_a_look_at_the_table() -> None:
    """Where it is of the saved range, as nearly always."""
    found = whole(json.loads(json.dumps(brief(result()))), saved(), nothing)
    assert found.receipt == result().receipt
    assert found.observed == Observed(5, 6, 70, None)
    assert (found.seconds, found.landed_before) == ({"write": 0.1}, True)


def test_a_receipt_of_other_ranges_is_read_again_from_the_table() -> None:
    """What landed before may cover more; it is judged by what the table says, never by what was asked."""
    by_snapshot: dict[int, Receipt | None] = {7: result().receipt}
    found = whole(brief(result()), saved(until=10), by_snapshot.get)
    assert found.receipt == result().receipt
    assert found.observed.records == 5


def test_a_receipt_of_other_ranges_that_is_gone_is_refused() -> None:
    """It cannot be judged."""
    with pytest.raises(ReceiptMismatch, match="snapshot 7, which the load of batch 3 found"):
        whole(brief(result()), saved(until=10), lambda _: None)


def test_an_answer_that_was_handed_on_whole_is_taken() -> None:
    """A run may be between load and commit while the library is replaced."""
    assert whole(result().to_json(), saved(), nothing) == result()


def test_what_is_no_answer_is_refused() -> None:
    """With what to do."""
    with pytest.raises(StateCorrupt, match="Clear the run's load task"):
        whole({"receipt": {}}, saved(), nothing)

"""Laws of a load's answer on its way to the commit."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.records import load_job, range_of, write_of
from tidegate.core.load.answer import answer_by_receipt, brief, whole
from tidegate.core.model.errors import ReceiptMismatch, StateCorrupt
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.state.jobs import LoadResult
from tidegate.core.state.receipt import Observed, Receipt
from tidegate.core.state.saved_range import SavedRange


def ranges(partitions: int, until: int = 1_000_000) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange("t", n, 0, until) for n in range(partitions))


def saved(partitions: int = 2, until: int = 1_000_000) -> SavedRange:
    return range_of("p", 3, "run", ranges(partitions, until), (), {"t": "id"}, {}, 1)


def result(partitions: int = 2) -> LoadResult:
    load = write_of("p", 3, "run", ranges(partitions), "m:f@1", "attempt", {"t": "id"}, 4)
    bounds = {TopicPartition("t", n): (0, 9) for n in range(partitions)}
    return LoadResult(Receipt(load, 7, 1, rows=5, kept=2), Observed(5, 6, 70, bounds, errors=2), {"write": 0.1}, True, 3.5)


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
    assert found.observed == Observed(5, 6, 70, errors=2)
    assert (found.seconds, found.landed_before, found.spark_age_s) == ({"write": 0.1}, True, 3.5)


def test_a_receipt_of_other_ranges_is_read_again_from_the_table() -> None:
    """What landed before may cover more; it is judged by what the table says, never by what was asked."""
    by_snapshot: dict[int, Receipt | None] = {7: result().receipt}
    found = whole(brief(result()), saved(until=10), by_snapshot.get)
    assert found.receipt == result().receipt
    assert (found.observed.records, found.observed.errors, found.spark_age_s) == (5, 2, 3.5)


def test_a_receipt_of_other_ranges_that_is_gone_is_refused() -> None:
    """It cannot be judged."""
    with pytest.raises(ReceiptMismatch, match="snapshot 7, which the load of batch 3 found"):
        whole(brief(result()), saved(until=10), lambda _: None)


def test_what_is_no_answer_is_refused() -> None:
    """With what to do."""
    with pytest.raises(StateCorrupt, match="Clear the run's load task"):
        whole({"receipt": {}}, saved(), nothing)


JOB = load_job("p", 3, "run", ranges(2), "m:f", "lake.a.b", {}, attempt="mine")
TOOK = {"submit": 4.5}


def receipt(snapshot: int, attempt: str, *, seq: int = 3, until: int = 1_000_000, replay: str | None = None) -> Receipt:
    return Receipt(write_of("p", seq, "run", ranges(2, until), "m:f@1", attempt, replay=replay), snapshot, snapshot, rows=5)


def test_an_answer_that_was_lost_is_the_receipt_of_its_attempt() -> None:
    """Others of the same batch may lie before and behind it. What the job observed is unknown, and not made up."""
    receipts = [receipt(1, "before"), receipt(2, "mine"), receipt(3, "after")]
    for job in (JOB, replace(JOB, redo=True)):
        assert answer_by_receipt(job, receipts, TOOK) == LoadResult(receipts[1], Observed(None, None), TOOK)


def test_a_job_that_wrote_nothing_found_the_newest_receipt_that_covers_its_ranges() -> None:
    """Unless it was to write in any case: then its answer is not in the table."""
    receipts = [receipt(1, "first"), receipt(2, "second"), receipt(3, "short", until=9)]
    answer = answer_by_receipt(JOB, receipts, TOOK)
    assert answer == LoadResult(receipts[1], Observed(None, None), TOOK, landed_before=True)
    assert answer_by_receipt(replace(JOB, redo=True), receipts, TOOK) is None


@pytest.mark.parametrize(
    "other", [receipt(1, "mine", seq=4), receipt(1, "mine", replay="again"), receipt(1, "mine", until=999_999)]
)
def test_no_receipt_of_another_batch_replay_or_range_is_an_answer(other: Receipt) -> None:
    """Whatever its attempt is called."""
    assert answer_by_receipt(JOB, [other], TOOK) is None

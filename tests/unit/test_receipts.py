"""Laws of receipts and of a load's order and answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.records import changed, load_job, write_of
from tidegate.core.config.pipeline import Dedupe, Split
from tidegate.core.model.errors import RequestError, StateCorrupt
from tidegate.core.model.ranges import OffsetRange, TopicPartition, until_offsets
from tidegate.core.state.cursor import Position
from tidegate.core.state.jobs import LoadResult
from tidegate.core.state.receipt import Observed, Receipt, Write

RANGES = (OffsetRange("t", 0, 10, 20), OffsetRange("t", 1, 0, 5))
LOAD = write_of("flights", 7, "manual__x", RANGES, "abc", "attempt-1")
RECEIPT = Receipt(LOAD, snapshot=99, committed_at_ms=1, rows=15)


SILENT = TopicPartition("u", 3)
STARTS = {r.topic_partition: 0 for r in RANGES} | {SILENT: 4}
AFTER = Position(
    offsets=until_offsets(RANGES) | {SILENT: 40}, topic_ids={"u": "id"}, starts=STARTS, former={SILENT: 90}, foreign="lake.a.b"
)
WRITES = {
    "a batch": LOAD,
    "a replay": changed(LOAD, replay="again", topic_ids={"t": "id"}, generation=2, batch=3),
    "where it leads": changed(LOAD, beside=AFTER.beside(RANGES, LOAD.load.topic_ids)),
    "without repeats": changed(LOAD, dedupe=Dedupe(5, "id")),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_receipt_is_read_back_from_a_commits_properties(write: Write) -> None:
    """Every property is a string, and the commit's own counters are used."""
    properties = write.to_properties()
    assert all(isinstance(v, str) for v in properties.values())
    for kept in (0, 4):
        found = Receipt.from_properties(properties, snapshot=99, committed_at_ms=1, rows=15, kept=kept)
        assert found == Receipt(write, 99, 1, rows=15, kept=kept)
    assert ("tidegate.seq" in properties) == (write.load.replay is None)  # the same number names a chunk there
    assert ("tidegate.dedupe" in properties) == (write.load.dedupe is not None)


def test_a_receipt_tells_its_batch_its_version_and_where_it_leads() -> None:
    """Another setting for repeats makes other rows. A chunk is told from the batch of its number, also in words."""
    load, chunk = LOAD.load, WRITES["a replay"].load
    assert chunk.task != load.task
    assert (load.named, chunk.named) == (f"batch {load.seq}", f"chunk {chunk.seq} of replay {chunk.replay}")
    assert WRITES["where it leads"].load.after == AFTER
    assert (LOAD.version, WRITES["without repeats"].version) == ("abc", "abc, dedupe id within 5")


@pytest.mark.parametrize("rows", [3, None])
def test_a_strangers_commit_has_no_receipt(rows: int | None) -> None:
    """Other writers' snapshots are passed over."""
    assert Receipt.from_properties({"somebody": "else's"}, snapshot=1, committed_at_ms=1, rows=rows) is None


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        ({"seq": "x"}, 0),
        ({"ranges": "{"}, 0),
        ({"ranges": '{"t": {"0": [3, 1]}}'}, 0),
        ({"beside": "{}"}, 0),
        ({"dedupe": "{}"}, 0),
        ({}, None),  # the counters of its commit are broken: that is not a load without rows
    ],
)
def test_a_broken_receipt_is_an_error_not_an_absence(change: dict[str, str], rows: int | None) -> None:
    """A receipt that cannot be read is never taken for none."""
    properties = {**LOAD.to_properties(), **{f"tidegate.{name}": value for name, value in change.items()}}
    with pytest.raises(StateCorrupt):
        Receipt.from_properties(properties, snapshot=1, committed_at_ms=1, rows=rows)


def test_a_receipt_covers_its_ranges_and_no_more() -> None:
    """Covering is judged offset by offset."""
    assert RECEIPT.covers(RANGES)
    assert RECEIPT.covers((OffsetRange("t", 0, 12, 13),))
    assert not RECEIPT.covers((OffsetRange("t", 0, 9, 13),))
    assert not RECEIPT.covers((OffsetRange("t", 2, 0, 1),))


JOB = load_job("p", 1, "r", RANGES, "transforms.x:f", "lake.a.b", {"kafka.sasl.jaas.config": "hunter2"})


def test_a_receipt_of_a_batch_covers_exactly_its_ranges() -> None:
    """A row that aggregates more records counts some that the next batch counts again; empty ranges do not matter."""
    aggregated = changed(RECEIPT, batch=7)
    assert aggregated.covers((*RANGES, OffsetRange("t", 2, 4, 4)))
    assert not aggregated.covers((OffsetRange("t", 0, 10, 20),))
    assert not aggregated.covers((OffsetRange("t", 0, 10, 19), RANGES[1]))


def test_a_load_was_cold_in_the_first_two_minutes_of_its_spark() -> None:
    """Where its age is known."""
    result = LoadResult(RECEIPT, Observed(1, 1), {})
    ages = (None, 0.0, 119.9, 120.0)
    assert [replace(result, spark_age_s=age).cold for age in ages] == [False, True, True, False]


@pytest.mark.parametrize("limits", [{"min_partitions": 0}, {"max_records_per_partition": -1}, {"min_partitions": True}])
def test_a_split_is_by_whole_positive_numbers(limits: dict[str, int]) -> None:
    """Nonsense is refused where it is made."""
    with pytest.raises(RequestError, match="positive integer"):
        Split(**limits)


@pytest.mark.parametrize("level", ["", "READ_COMMITTED", "none"])
def test_an_isolation_level_is_one_of_kafkas(level: str) -> None:
    """Spark would fail inside its tasks only."""
    with pytest.raises(RequestError, match="read_committed, read_uncommitted"):
        changed(JOB, isolation_level=level)


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ({}, []),
        ({TopicPartition("t", 0): (10, 19), TopicPartition("t", 1): (4, 4)}, []),
        ({TopicPartition("t", 0): (9, 19)}, ["t-0 [10, 20) holds offsets 9 to 19"]),
        ({TopicPartition("t", 1): (0, 5)}, ["t-1 [0, 5) holds offsets 0 to 5"]),
        ({TopicPartition("t", 2): (0, 0)}, ["t-2 was not asked for"]),
    ],
)
def test_seen_offsets_lie_in_their_ranges_or_are_told(bounds: dict[TopicPartition, tuple[int, int]], told: list[str]) -> None:
    """Gaps and empty partitions are fine; one offset outside is not."""
    assert Observed(1, 1, 1, bounds).outside(RANGES) == told
    assert Observed(1, 1).outside(RANGES) == []


def test_the_mean_size_of_a_record_is_known_only_where_records_were_read() -> None:
    """Nothing read, or a commit that had landed before, tells no size."""
    assert Observed(records=4, rows=4, bytes=100).record_bytes == 25
    assert Observed(records=0, rows=0, bytes=0).record_bytes is None
    assert Observed(records=None, rows=None).record_bytes is None

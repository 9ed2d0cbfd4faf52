"""Laws of what the CLI and pages show: values made of what the ports hold, and their JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import cursor_of
from tests.unit.loads import P0, receipt, saved
from tests.unit.world import World
from tidegate.cli.verify import judge_batches
from tidegate.core.audit.lag import LagView, PartitionLag, TotalLag, measure_lag, total_lag
from tidegate.core.audit.restore import offsets_to_reload
from tidegate.core.config.pipeline import Pipeline, Sink, Source
from tidegate.core.model.errors import BrokerUnavailable, CursorBeyondLog, PartitionsDeleted, RequestError
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.planning.lifecycle import BatchState
from tidegate.core.planning.plan import Skip
from tidegate.core.state.history import Missing
from tidegate.core.state.ledger import Ledger
from tidegate.testing.fakes import FakeBrokers, MemoryStore
from tidegate.views.entries import entries, versions

P1 = TopicPartition("t", 1)
PIPELINE = Pipeline("p", Source(("t",)), "m:f", Sink("lake.a.b"))


def test_history_tells_of_each_batch_how_far_it_is_and_how_it_went() -> None:
    """From saved ranges, receipts and the cursor; a batch whose Variable was pruned is known from its receipt."""
    found = entries(
        [
            saved(2, 10, 20),
            saved(3, 20, 30, adopted_from="run0"),
            saved(3, 20, 30, run_id="run0"),
            saved(4, 30, 40),
            saved(4, 30, 40, run_id="again", adopted_from="run4"),
        ],
        [receipt(1, 0, 10), receipt(2, 10, 20), receipt(3, 20, 30), receipt(2, 10, 20, transform="v2")],
        cursor_of("p", 2),
    )
    assert [(e.seq, e.state, e.load.run_id, e.newest and e.newest.rows, len(e.receipts)) for e in found] == [
        (1, BatchState.COMMITTED, "run1", 10, 1),
        (2, BatchState.COMMITTED, "run2", 10, 2),
        (3, BatchState.LOADED, "run3", 10, 1),
        (4, BatchState.PLANNED, "again", None, 0),
    ]
    assert [e.seconds for e in found] == [None, 1.5, 2.5, None]
    assert [e.why.adopted_from for e in found] == [None, None, "run0", "run4"]
    assert [e.to_json()["transform"] for e in found] == ["v1", "v2", "v1", None]
    assert found[1].reasons == ["cursor to log end"]
    assert found[1].to_json()["state"] == "committed"


def test_chunks_of_a_replay_stand_beside_the_batches() -> None:
    """Under the replay's name."""
    found = entries(
        [], [receipt(1, 0, 10), receipt(1, 0, 5, replay="again"), receipt(2, 5, 10, replay="again")], cursor_of("p", 1)
    )
    assert [(e.load.replay, e.seq, e.state) for e in found] == [
        (None, 1, BatchState.COMMITTED),
        ("again", 1, BatchState.LOADED),
        ("again", 2, BatchState.LOADED),
    ]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12), st.sampled_from("abc")), max_size=8))
def test_versions_share_out_every_offset_that_was_ever_loaded(loads: list[tuple[int, int, str]]) -> None:
    """To the last load of each."""
    truth: dict[int, str] = {}
    for start, count, version in loads:
        truth.update(dict.fromkeys(range(start, start + count), version))
    found = versions([receipt(n, start, start + count, transform=v) for n, (start, count, v) in enumerate(loads)])
    told = [(offset, v) for v, ranges in found.items() for r in ranges for offset in range(r.from_offset, r.until_offset)]
    assert sorted(told) == sorted(truth.items())


def test_a_lag_is_cursor_and_watermarks_and_the_time_of_the_next_record() -> None:
    """What is read to its end has no time; what retention has passed has none left; a clock ahead of ours gives no lag."""
    p2 = TopicPartition("u", 0)
    brokers = FakeBrokers(latest={P0: 30, P1: 40, p2: 9_000}, earliest={P0: 0, P1: 25}, retention={"t": 5_000, "v": 1})
    partitions = measure_lag(brokers, {p2: 8_000, P1: 20, P0: 30}, now_ms=2_025, isolation_level="read_committed")
    assert partitions == [
        PartitionLag(
            topic_partition=P0, next_offset=30, latest=30, records_behind=0, seconds_behind=None, retention_left_s=None
        ),
        PartitionLag(
            topic_partition=P1, next_offset=20, latest=40, records_behind=20, seconds_behind=2.0, retention_left_s=0.0
        ),
        PartitionLag(
            topic_partition=p2, next_offset=8_000, latest=9_000, records_behind=1_000, seconds_behind=0.0, retention_left_s=None
        ),
    ]
    assert brokers.isolation_level == "read_committed"
    assert measure_lag(brokers, {P1: 30}, now_ms=2_030, assign={"t": [1]}) == [
        PartitionLag(topic_partition=P1, next_offset=30, latest=40, records_behind=10, seconds_behind=2.0, retention_left_s=3.0)
    ]
    view = LagView("p", tuple(partitions))
    assert view.total == TotalLag(partitions=3, records_behind=1_020, seconds_behind=2.0, retention_left_s=0.0)
    shown = json.loads(json.dumps(view.to_json()))
    assert shown["partitions"][1] == {
        "topic": "t", "partition": 1, "next_offset": 20, "latest": 40, "records_behind": 20, "seconds_behind": 2.0,
        "retention_left_s": 0.0, "held_back": 0, "open_s": None,
    }  # fmt: skip
    assert (shown["total"]["partitions"], shown["total"]["open_transaction"], shown["maintenance"]) == (3, None, None)


def test_a_partition_that_the_cursor_does_not_know_is_unread_from_its_first_record_on() -> None:
    """Of the topics that the cursor knows, and where the pipeline reads it."""
    p2 = TopicPartition("u", 0)
    brokers = FakeBrokers(latest={P0: 30, P1: 1_000_000, p2: 9}, earliest={P1: 5})
    added = PartitionLag(
        topic_partition=P1, next_offset=5, latest=1_000_000, records_behind=999_995, seconds_behind=2.0, retention_left_s=None
    )
    assert measure_lag(brokers, {P0: 30}, now_ms=2_005) == [
        PartitionLag(
            topic_partition=P0, next_offset=30, latest=30, records_behind=0, seconds_behind=None, retention_left_s=None
        ),
        added,
    ]
    assert measure_lag(brokers, {P0: 30}, now_ms=2_005, assign={"t": [1], "u": [0]})[1:] == [added]
    assert measure_lag(brokers, {P0: 30}, now_ms=2_005, assign={"t": [0]}) == [
        PartitionLag(
            topic_partition=P0, next_offset=30, latest=30, records_behind=0, seconds_behind=None, retention_left_s=None
        )
    ]


def _refuse(*_: Any, **__: Any) -> None:
    raise BrokerUnavailable("no record is answered")


def test_records_behind_an_open_transaction_are_told_apart_from_those_that_can_be_read() -> None:
    """In the lag, in a plan, and in the reason of a skip: each with the age of the transaction that is open longest."""
    world = World(brokers=FakeBrokers(latest={P0: 30, P1: 40}, stable={P0: 20, P1: 39}), pipeline=PIPELINE, now_ms=100_000)
    told = "11 records wait behind an open transaction, open for 100 s"
    planned = world.run("a")
    assert (planned.remarks.held_back, [r.until_offset for r in planned.saved.load.ranges]) == (told, [20, 39])
    skip = world.plan("b")
    assert isinstance(skip, Skip)
    assert skip.reason == f"caught up: the cursor is at the end of the log; {told}"
    found = measure_lag(world.brokers, world.cursor.at.offsets, now_ms=60_020, isolation_level="read_committed")
    assert found == [
        PartitionLag(
            topic_partition=P0,
            next_offset=20,
            latest=20,
            records_behind=0,
            seconds_behind=None,
            retention_left_s=None,
            held_back=10,
            open_s=60.0,
        ),
        PartitionLag(
            topic_partition=P1,
            next_offset=39,
            latest=39,
            records_behind=0,
            seconds_behind=None,
            retention_left_s=None,
            held_back=1,
            open_s=59.981,
        ),
    ]
    assert total_lag(found).open_transaction == "11 records wait behind an open transaction, open for 60 s"
    assert total_lag(measure_lag(world.brokers, {P1: 39}, now_ms=0, assign={"t": [1]})).open_transaction is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeBrokers, "next_timestamps", _refuse)
        again = world.plan("b2")
    assert isinstance(again, Skip)
    assert again.reason.endswith("; 11 records wait behind an open transaction")
    world.brokers.asked, world.brokers.stable = 0, {}
    assert world.planned("c").remarks.held_back is None
    assert (world.brokers.asked, world.brokers.isolation_level) == (1, "read_committed")  # nothing else was asked


@pytest.mark.parametrize(
    ("cursor", "error", "words"),
    [({P0: 31}, CursorBeyondLog, "t-0 at 31, log end 30"), ({P0: 1, P1: 0}, PartitionsDeleted, "t-1")],
)
def test_a_cursor_that_does_not_fit_the_log_has_no_lag(
    cursor: dict[TopicPartition, int], error: type[Exception], words: str
) -> None:
    """The partition is named."""
    with pytest.raises(error, match=words):
        measure_lag(FakeBrokers(latest={P0: 30}), cursor, now_ms=0)


def test_a_committed_batch_without_a_receipt_is_missing_where_it_read_something() -> None:
    """By its saved range; not where the partition begins after it, and not where it read nothing."""
    ledger = Ledger(MemoryStore(), "p")
    for plan in (saved(1, 0, 0), saved(2, 0, 10), saved(3, 10, 20), saved(4, 20, 30), saved(5, 30, 40)):
        ledger.save_range(plan)
    cursor = cursor_of("p", 4, {P0: 30}, {"t": "id"}, starts={P0: 10})
    receipts = [receipt(1, 0, 0, batch=1), receipt(3, 10, 20, batch=3)]
    verification = judge_batches(ledger, cursor, receipts, {3: 10, 5: 2})
    assert (verification.missing, verification.unjudged["in_flight"], verification.holds) == ((4,), 2, False)


def test_what_is_missing_is_loaded_again_as_far_as_it_is_retained() -> None:
    """Whole batches where rows are identified by their batch; Kafka is asked only for offsets that the cursor names."""
    store = MemoryStore()
    ledger = Ledger(store, "p")
    for plan in (saved(1, 0, 10), saved(2, 10, 20)):
        ledger.save_range(plan)
    cursor = cursor_of("p", 2, {P0: 20}, {"t": "id"})
    missing = Missing(ranges=(OffsetRange("t", 0, 0, 20),), batches=(1, 2), why="there is no such table", by_batch=True)

    def reload(what: Missing, earliest: int, *, accept_loss: bool) -> tuple[OffsetRange, ...]:
        def brokers() -> FakeBrokers:
            return FakeBrokers(latest={P0: 30}, earliest={P0: earliest})

        return offsets_to_reload(PIPELINE, cursor, what, store=store, brokers=brokers, accept_loss=accept_loss)

    assert reload(missing, 5, accept_loss=True) == (OffsetRange("t", 0, 10, 20),)
    assert reload(replace(missing, by_batch=False), 5, accept_loss=True) == (OffsetRange("t", 0, 5, 20),)
    assert reload(missing, 0, accept_loss=False) == missing.ranges
    for what, earliest, words in ((missing, 5, "--accept-loss"), (missing, 15, "To go on without them")):
        with pytest.raises(RequestError, match=words):
            reload(what, earliest, accept_loss=earliest == 15)
    with pytest.raises(RequestError, match="names none of the offsets"):
        reload(replace(missing, ranges=()), 0, accept_loss=True)

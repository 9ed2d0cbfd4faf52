"""Laws of what the CLI and pages show: values made of what the ports hold, and their JSON. The map: `test_range_map.py`."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import changed, cursor_of, newer_version, range_of, replay_of, write_of
from tests.unit.loads import P0, receipt, saved
from tests.unit.world import World
from tidegate.cli.verify import judge_batches
from tidegate.core.audit.lag import LagView, PartitionLag, TotalLag, aged, measure_lag, total_lag
from tidegate.core.audit.readable import Readable
from tidegate.core.audit.restore import offsets_to_reload
from tidegate.core.config.pipeline import Pipeline, Sink, Source
from tidegate.core.model.errors import BrokerUnavailable, CursorBeyondLog, PartitionsDeleted, RequestError
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.planning.plan import Skip
from tidegate.core.rates import BatchTiming
from tidegate.core.rates.control import RateBound, RateControl
from tidegate.core.rates.policy import MOST_RATE
from tidegate.core.state.cursor import Accepted, Cursor
from tidegate.core.state.history import Missing
from tidegate.core.state.jobs import COLD_S
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.rejection import Rejection
from tidegate.core.state.saved_range import Decision
from tidegate.testing.fakes import FakeBrokers, MemoryStore
from tidegate.views.broken import SHOWN, BrokenRecord, broken_of
from tidegate.views.entries import BatchRow, BatchState, entries, versions
from tidegate.views.history import Forecast, Point, forecast, points, sampled
from tidegate.views.overview import PipelineRow, by_trouble, pipeline_row
from tidegate.views.pages import encode
from tidegate.views.runs import LoadFigures, batch_of, replay_run, run_marks, without_a_batch

P1, U0 = TopicPartition("t", 1), TopicPartition("u", 0)
PIPELINE = Pipeline("p", Source(("t",)), "m:f", sink=Sink("lake.a.b"))
TIMING = BatchTiming(1000, 500, run_ms=4000, load_ms=1000, scheduling_delay_ms=10, ended_at_ms=7)
RANGES = (OffsetRange("t", 0, 20, 30), OffsetRange("t", 1, 0, 5))
SAVED = range_of("p", 3, "r3", RANGES, (Decision(P0, "cursor", "log end"),), {}, {}, 9)
CHUNKS = ((OffsetRange("t", 0, 0, 10),), (OffsetRange("t", 0, 10, 15),))
REPLAY = replay_of("p", "again", "x", CHUNKS, "lake.a.b", "v2", {}, 1, request={"versions": "=1"})


def shown(record: object) -> Any:
    """A record as a route answers it; what is not of its declared type would be a warning."""
    return json.loads(encode(record))


def holding(*ranges: Any) -> Ledger:
    ledger = Ledger(MemoryStore(), "p")
    for each in ranges:
        ledger.save_range(each)
    return ledger


# ---- batches


def test_history_tells_of_each_batch_how_far_it_is_and_how_it_went() -> None:
    """From saved ranges, receipts and the cursor. Chunks of a replay stand beside, under its name.

    A batch whose Variable was pruned is known from its receipt.
    """
    ranges = [saved(2, 10, 20), saved(3, 20, 30, adopted_from="run0"), saved(3, 20, 30, run_id="run0"), saved(4, 30, 40)]
    ranges.append(saved(4, 30, 40, run_id="again", adopted_from="run4"))
    loads = [receipt(1, 0, 10), receipt(2, 10, 20), receipt(3, 20, 30), receipt(2, 10, 20, transform="v2")]
    loads += [receipt(n, 0, 5, replay="x") for n in (1, 2)]
    found = entries(ranges, loads, cursor_of("p", 2))
    columns = ("seq", "replay", "state", "run_id", "rows", "seconds", "transform", "adopted_from")
    assert [tuple(getattr(BatchRow.of(entry), name) for name in columns) for entry in found] == [
        (1, None, "committed", "run1", 10, None, "v1", None),
        (2, None, "committed", "run2", 10, 1.5, "v2", None),
        (3, None, "loaded", "run3", 10, 2.5, "v1", "run0"),
        (4, None, "planned", "again", None, None, None, "run4"),
        (1, "x", "loaded", "run1", 5, None, "v1", None),
        (2, "x", "loaded", "run2", 5, None, "v1", None),
    ]
    assert [len(entry.receipts) for entry in found] == [1, 2, 1, 0, 1, 1]
    assert (found[1].reasons, found[3].state) == (["cursor to log end"], BatchState.PLANNED)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12), st.sampled_from("abc")), max_size=8))
def test_versions_share_out_every_offset_that_was_ever_loaded(loads: list[tuple[int, int, str]]) -> None:
    truth: dict[int, str] = {}
    for start, count, version in loads:
        truth.update(dict.fromkeys(range(start, start + count), version))
    found = versions([receipt(n, start, start + count, transform=v) for n, (start, count, v) in enumerate(loads)])
    told = [(offset, v) for v, ranges in found.items() for r in ranges for offset in range(r.from_offset, r.until_offset)]
    assert sorted(told) == sorted(truth.items())


def test_a_batch_shows_its_reasons_and_its_loads() -> None:
    """The newest load counts; replays, and loads of other batches, are none of its. One that is only planned has no time."""
    rate, snapshot = RateBound("fixed_point", 500, terms={"a": 0.5}), 2**60
    loads = [
        Receipt(write_of("p", seq, "r3", RANGES, transform, "x", replay=replay), snapshot, 5, rows=15)
        for seq, transform, replay in ((3, "v1", None), (3, "v2", "again"), (2, "v1", None), (3, "v3", None))
    ]
    cursor = cursor_of("p", 3, {P0: 30}, timing=TIMING)
    load: dict[str, Any] = {"run_id": "r3", "rows": 15, "kept": 0, "snapshot": str(snapshot), "committed_at_ms": 5}
    load |= {"columns": [], "quarantined": None}
    parts = [asdict(r) for r in RANGES]
    why = [{"from_reason": begins, "until_reason": ends} for begins, ends in (("cursor", "log end"), (None, None))]
    explained = ["It was loaded 2 times. Each load replaced the rows of the one before."]
    explained.append("15 of its offsets were loaded again by run r3, by v2.")
    assert shown(batch_of(changed(SAVED, rate=rate), cursor, loads, {"r3": "scheduled"})) == (
        {"seq": 3, "replay": None, "state": "committed", "run_id": "r3", "rows": 15, "seconds": 0.0, "transform": "v3"}
        | {"committed_at_ms": 5, "adopted_from": None, "why": ["cursor to log end"], "who": "scheduled", "planned_at_ms": 9}
        | {"limits": {}, "rate": asdict(rate), "timing": TIMING.to_json(), "load": None}
        | {"loads": [load | {"transform": "v1"}, load | {"transform": "v3"}], "explained": explained}
        | {"replays": [load | {"transform": "v2", "dag_id": "p__replay", "partitions": parts}]}
        | {"partitions": [{**part, **reason} for part, reason in zip(parts, why, strict=True)]}
    )
    planned = batch_of(SAVED, replace(cursor, seq=2), ())
    assert (planned.state, planned.rows, planned.transform, planned.timing, planned.rate) == ("planned", *[None] * 4)


def test_a_batch_says_what_was_adopted_kept_lost_and_read_anew() -> None:
    """And that a try found what an earlier one had written. A replay of a former topic of that name is none of its."""
    why = (Decision(P0, "accepted loss", "log end"), Decision(P1, "recreated", "log end"))
    read = changed(SAVED, adopted_from="r2", jumped={P0: 15}, topic_ids={"t": "new"}, decisions=why)
    write = write_of("p", 3, "r3", RANGES, "v1", "x")
    former = changed(write, replay="before", topic_ids={"t": "old"})
    backfill = changed(write, replay="since", run_id="backfill__x", ranges=(OffsetRange("t", 0, 25, 40),))
    loads = [Receipt(each, 1, 5, rows=15, kept=7) for each in (write, former, backfill)]
    load = LoadFigures(seconds={"write": 1.0}, landed_before=True)
    batch = batch_of(read, cursor_of("p", 3), loads, load=load)
    words = ["Run r2", "7 older rows", "An earlier try", "5 offsets before", "Topic t had been deleted", "5 of its offsets"]
    assert [told[: len(word)] for word, told in zip(words, batch.explained, strict=True)] == words
    assert ([each.dag_id for each in batch.replays], batch.load) == (["p"], load)


def answer_of(**changes: Any) -> LoadFigures | None:
    seen = {"records": 10, "rows": 9, "bytes": 100, "repeats": 1}
    given: dict[str, Any] = {"receipt": {}, "observed": seen, "seconds": {"write": 0.5}, "landed_before": False}
    return LoadFigures.of({**given, **changes})


def test_of_an_answer_is_shown_what_is_a_number_and_marked_what_is_known() -> None:
    """No batch depends on it: somebody may have written something else, or an older version did not count it.

    Broken records are marked, and a Spark that had just started.
    """
    counts: dict[str, Any] = {"records": 10, "rows": 9, "repeats": 1}
    assert answer_of() == LoadFigures(seconds={"write": 0.5}, **counts)
    odd = {"records": -1, "rows": "9", "errors": True}
    assert answer_of(observed=odd, seconds={"write": "long", "read": 1}, spark_age_s="x") == LoadFigures(seconds={"read": 1.0})
    assert answer_of(seconds=3) == LoadFigures(seconds={}, **counts)
    nothing: list[object] = [None, [], "x", {}, {"observed": None}]
    assert [LoadFigures.of(value) for value in nothing] == [None] * 5
    known = [(0, COLD_S), (3, None), (None, COLD_S - 1), (1, 0.0), (None, None)]
    marks = [LoadFigures(errors=errors, spark_age_s=age_s).marks for errors, age_s in known]
    assert marks == [set(), {"errors"}, {"cold"}, {"cold", "errors"}, set()]


# ---- runs


def run(run_id: str, state: str, note: str | None = None, since_ms: int = 5, kind: str = "manual") -> dict[str, Any]:
    return {"dag_run_id": run_id, "state": state, "note": note, "run_type": kind, "since_ms": since_ms}


def test_a_replay_shows_what_landed_and_what_it_replaced_and_a_dry_run_what_it_would() -> None:
    """The newest load of each chunk. Nothing is saved of a dry run; without its report, nothing is known but its note."""
    landed = [Receipt(write_of("p", 0, "again", CHUNKS[0], "v2", "a", replay="x"), 7, 100, rows=rows) for rows in (9, 10)]
    replaced = {"load": "batch 1", "offsets": 15, "rows": 14, "transform": "v1"}
    report = {"replaces": [replaced, {"load": "?"}, 3], "lost": "?", "total": 15}
    replay = replay_run(run("again", "running"), "p", REPLAY, landed=landed, report=report)
    bare: dict[str, Any] = {"pipeline": "p", "request": {}, "chunks": [], "replaces": [], "lost": [], "dry_run": False}
    bare |= dict.fromkeys(["table", "transform", "offsets", "note", "seconds", "verdict"])
    chunks = [{"chunk": 0, "offsets": 10, "rows": 10, "committed_at_ms": 100}]
    chunks.append({"chunk": 1, "offsets": 5, "rows": None, "committed_at_ms": None})  # type: ignore[dict-item]
    assert shown(replay) == (
        bare
        | {"run_id": "again", "state": "running", "table": "lake.a.b", "transform": "v2", "offsets": 15}
        | {"request": {"versions": "=1"}, "replaces": [replaced], "chunks": chunks}
    )
    report = {"total": 15, "table": "lake.a.b", "transform": "v2", "seconds": 3.5, "lost": ["t-0[0, 5)"]}
    dry = replay_run(run("dry", "success", "Dry run"), "p", report=report, verdict={"rows": 1}, dry_run=True)
    known = {"run_id": "dry", "state": "success", "note": "Dry run", "dry_run": True, "verdict": {"rows": 1}}
    offsets = report.pop("total")
    assert shown(dry) == bare | known | report | {"offsets": offsets}
    assert shown(replay_run(run("r", "failed"), "p")) == bare | {"run_id": "r", "state": "failed"}


@pytest.mark.parametrize(
    ("state", "note", "plan", "kind", "reason"),
    [
        ("success", "Nothing to read: no new records.", "skipped", "nothing", "Nothing to read: no new records."),
        ("success", None, "skipped", "nothing", "There was nothing to read."),
        ("failed", "Failed in plan: no broker.", "failed", "failed", "Failed in plan: no broker."),
        ("failed", None, None, "failed", "It failed before it had saved a range; see the log of its plan task."),
        ("queued", None, None, "planning", "It has not saved a range yet."),
        ("running", None, "running", "planning", "It has not saved a range yet."),
        ("success", None, "success", "other", "It has saved no range, or the range has been removed since."),
        (None, None, None, "other", "Airflow does not know this run."),
    ],
)
def test_a_run_without_a_batch_says_why(state: str | None, note: str | None, plan: str | None, kind: str, reason: str) -> None:
    """One that found nothing is no failure, and no plan that is still to come."""
    assert without_a_batch(None if state is None else run("r", state, note), plan) == (kind, reason)


def test_the_first_broken_records_come_in_the_order_of_the_log_with_the_sql_that_shows_all() -> None:
    """Of their table and of its quarantine, as far as there are any: of the partitions that have some."""
    broken = [Rejection("t", 0, offset, "decode", f"<{offset}>", "") for offset in range(29, 19, -1)]
    found = {"lake.a.b": broken, "lake.a.bad": [Rejection("t", 1, 3, "transform", "x", "a")], "lake.a.none": []}
    shown = broken_of(found, (*RANGES, OffsetRange("u", 0, 0, 9)), "lake.a.bad")
    assert [shown.records[0], len(shown.records), shown.more] == [BrokenRecord(place="t-0 at 20", reason="<20>"), SHOWN, True]
    assert shown.partitions == ("t-0", "t-1")
    of_0, of_1 = (
        f"(_kafka_topic = 't' AND _kafka_partition = {n} AND _kafka_offset >= {start} AND _kafka_offset < {until})"
        for n, start, until in ((0, 20, 30), (1, 0, 5))
    )
    look = 'tidegate sql "SELECT * FROM {} {} ORDER BY _kafka_offset LIMIT 100"'.format
    assert shown.commands == (
        look("lake.a.b WHERE _error IS NOT NULL AND", of_0),
        look("lake.a.bad WHERE", of_1),
    )


def test_the_last_runs_are_told_apart() -> None:
    runs = [
        *(run(name, "success", since_ms=n) for n, name in enumerate(("old", "loaded"))),
        run("nothing", "success", "Nothing to read.", since_ms=2),
        run("backfill__1", "success", since_ms=5, kind="backfill"),
        *(run(state, state, since_ms=n) for n, state in ((4, "failed"), (6, "running"), (7, "queued"))),
    ]
    replays = [run("replay", "success", since_ms=3)]
    batches = {"old": (1, 5), "loaded": (2, 10), "failed": (3, None), "running": (3, 7)}
    marks = run_marks({"p": runs, "p__replay": replays}, batches, pipeline="p", most=7)
    assert [(mark.run_id, mark.kind, mark.seq, mark.records) for mark in marks] == [
        ("loaded", "loaded", 2, 10),
        *[(kind, kind, None, None) for kind in ("nothing", "replay")],
        ("failed", "failed", 3, None),
        ("backfill__1", "replay", None, None),
        ("running", "running", 3, 7),
        ("queued", "queued", None, None),
    ]
    assert marks[2].dag_id == "p__replay"


# ---- lag


def lag(
    tp: TopicPartition, start: int, end: int, seconds: float | None = None, left_s: float | None = None, **held: Any
) -> Any:
    of: dict[str, Any] = {**tp._asdict(), "next_offset": start, "latest": end, "records_behind": end - start}
    return PartitionLag(**of, seconds_behind=seconds, retention_left_s=left_s, **held)


def test_a_lag_is_cursor_and_watermarks_and_the_time_of_the_next_record() -> None:
    """What is read to its end has no time; what retention has passed has none left; a clock ahead of ours gives no lag."""
    brokers = FakeBrokers(latest={P0: 30, P1: 40, U0: 9_000}, earliest={P0: 0, P1: 25}, retention={"t": 5_000, "v": 1})
    partitions = measure_lag(brokers, {U0: 8_000, P1: 20, P0: 30}, now_ms=2_025, isolation_level="read_committed")
    expected = [lag(P0, 30, 30), lag(P1, 20, 40, seconds=2.0, left_s=0.0), lag(U0, 8_000, 9_000, seconds=0.0)]
    assert (partitions, brokers.isolation_level) == (expected, "read_committed")
    one = measure_lag(brokers, {P1: 30}, now_ms=2_030, assign={"t": [1]})
    assert one == [lag(P1, 30, 40, seconds=2.0, left_s=3.0)]
    total = total_lag(partitions)
    assert total == TotalLag(partitions=3, records_behind=1_020, seconds_behind=2.0, retention_left_s=0.0)
    times = {"seconds_behind": 2.0, "retention_left_s": 0.0, "held_back": 0, "open_s": None}
    offsets = {"topic": "t", "partition": 1, "next_offset": 20, "latest": 40, "records_behind": 20}
    view = LagView(pipeline="p", partitions=tuple(partitions), total=total)
    assert shown(view)["partitions"][1] == offsets | times


def test_a_partition_that_the_cursor_does_not_know_is_unread_from_its_first_record_on() -> None:
    """Of the topics that the cursor knows, and where the pipeline reads it. A cursor that does not fit the log has no lag."""
    brokers = FakeBrokers(latest={P0: 30, P1: 1_000_000, U0: 9}, earliest={P1: 5})
    known, added = lag(P0, 30, 30), lag(P1, 5, 1_000_000, seconds=2.0)
    for assign, found in ((None, [known, added]), ({"t": [0, 1], "u": [0]}, [known, added]), ({"t": [0]}, [known])):
        assert measure_lag(brokers, {P0: 30}, now_ms=2_005, assign=assign) == found
    del brokers.latest[P1]
    with pytest.raises(CursorBeyondLog, match="t-0 at 31, log end 30"):
        measure_lag(brokers, {P0: 31}, now_ms=0)
    with pytest.raises(PartitionsDeleted, match="t-1"):
        measure_lag(brokers, {P0: 1, P1: 0}, now_ms=0)


def test_records_behind_an_open_transaction_are_told_apart_from_those_that_can_be_read() -> None:
    """In the lag, in a plan, and in the reason of a skip: each with the age of the transaction that is open longest."""
    world = World(brokers=FakeBrokers(latest={P0: 30, P1: 40}, stable={P0: 20, P1: 39}), pipeline=PIPELINE, now_ms=100_000)
    told = "11 records wait behind an open transaction"
    planned = world.run("a")
    assert planned.held_back == f"{told}, open for 100 s"
    assert [r.until_offset for r in planned.saved.load.ranges] == [20, 39]
    skip = world.plan("b")
    assert isinstance(skip, Skip)
    assert skip.reason == f"caught up: the cursor is at the end of the log; {told}, open for 100 s"
    found = measure_lag(world.brokers, world.cursor.at.offsets, now_ms=60_020, isolation_level="read_committed")
    assert found == [lag(P0, 20, 20, held_back=10, open_s=60.0), lag(P1, 39, 39, held_back=1, open_s=59.981)]
    assert total_lag(found).open_transaction == f"{told}, open for 60 s"
    assert total_lag(measure_lag(world.brokers, {P1: 39}, now_ms=0, assign={"t": [1]})).open_transaction is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeBrokers, "next_timestamps", mock.Mock(side_effect=BrokerUnavailable("no record is answered")))
        again = world.plan("b2")
    assert isinstance(again, Skip)
    assert again.reason.endswith(f"; {told}")
    # retention waits for no transaction: the first record that is held back was written at 20 ms
    world.brokers.retention = {"t": 70_000}
    left = measure_lag(world.brokers, world.cursor.at.offsets, now_ms=60_020, isolation_level="read_committed")
    assert [each.retention_left_s for each in left] == [10.0, 10.019]
    world.brokers.asked, world.brokers.stable = 0, {}
    assert world.planned("c").held_back is None
    assert (world.brokers.asked, world.brokers.isolation_level) == (1, "read_committed")  # nothing else was asked


# ---- what a table lacks


def test_a_committed_batch_without_a_receipt_is_missing_where_it_read_something() -> None:
    """By its saved range; not where the partition begins after it, and not where it read nothing."""
    ledger = holding(saved(1, 0, 0), *(saved(n, 10 * n - 20, 10 * n - 10) for n in range(2, 6)))
    cursor = cursor_of("p", 4, {P0: 30}, {"t": "id"}, starts={P0: 10})
    receipts = [receipt(1, 0, 0, batch=1), receipt(3, 10, 20, batch=3)]
    verification = judge_batches(ledger, cursor, receipts, {3: 10, 5: 2})
    assert (verification.missing, verification.unjudged["in_flight"], verification.holds) == ((4,), 2, False)


@pytest.mark.parametrize(
    ("lacks", "earliest", "accept", "found"),
    [
        ({}, 5, True, (OffsetRange("t", 0, 10, 20),)),
        ({"by_batch": False}, 5, True, (OffsetRange("t", 0, 5, 20),)),
        ({}, 0, False, (OffsetRange("t", 0, 0, 20),)),
        ({}, 5, False, "--accept-loss"),
        ({}, 15, True, "To go on without them"),
        ({"ranges": ()}, 0, True, "names none of the offsets"),
    ],
)
def test_what_is_missing_is_loaded_again_as_far_as_it_is_retained(
    lacks: dict[str, Any], earliest: int, *, accept: bool, found: tuple[OffsetRange, ...] | str
) -> None:
    """Whole batches where rows are identified by their batch; Kafka is asked only for offsets that the cursor names."""
    store, cursor = holding(saved(1, 0, 10), saved(2, 10, 20))._store, cursor_of("p", 2, {P0: 20}, {"t": "id"})
    missing = Missing(ranges=(OffsetRange("t", 0, 0, 20),), batches=(1, 2), why="there is no such table", by_batch=True)
    held: dict[str, Any] = {"store": store, "brokers": lambda: FakeBrokers(latest={P0: 30}, earliest={P0: earliest})}
    with pytest.raises(RequestError, match=found) if isinstance(found, str) else nullcontext():
        assert offsets_to_reload(PIPELINE, cursor, replace(missing, **lacks), **held, accept_loss=accept) == found


# ---- over time


def plan(seq: int) -> Point:
    return Point(1000 * seq, seq, 1, lag=15, records=10)


def load(seq: int, at_ms: int, rows: int = 9) -> Point:
    return Point(at_ms, seq, 1, lag=None, records=10, rows=rows)


def timing(ended_at_ms: int, records: int = 10, run_ms: int = 400) -> BatchTiming:
    return BatchTiming(records, None, run_ms=run_ms, load_ms=run_ms // 2, scheduling_delay_ms=0, ended_at_ms=ended_at_ms)


def test_what_waited_is_the_batch_and_what_it_left_behind() -> None:
    """The bound is what the policy allowed, where it was applied."""
    left = changed(SAVED, remaining=7)
    assert Point.of(left) == Point(9, 3, 1, lag=22, records=15)
    assert Point.of(changed(left, limits={"max_records": 15, "max_bytes": 1})).bound == 15
    assert [Point.of(changed(left, rate=RateBound("pid", 20, terms={}, applied=on))).bound for on in (True, False)] == [
        20,
        None,
    ]


def test_each_batch_is_one_point_that_keeps_its_place_in_time() -> None:
    """By its plan, its load and its timing; one whose plan is gone is known by its receipt alone.

    That is its first receipt, or else before the next batch; timings go to the batch whose they are.
    """
    receipts = [load(1, 900), load(2, 2600, rows=8), load(2, 2900), load(3, 3300)]
    cursor = cursor_of("p", 3, timings=(timing(500), timing(3500)))
    assert points([plan(4), plan(3), plan(2)], receipts, cursor) == [
        load(1, 900),
        replace(plan(2), run_s=0.6, rows=9),
        replace(plan(3), run_s=0.4, load_s=0.2, rows=9),
        plan(4),
    ]
    again = [load(1, 900), load(3, 3300), load(1, 5000, rows=8), load(2, 3350)]
    assert points([plan(3)], again, cursor_of("p", 3, timings=(timing(1100), timing(3400, run_ms=700)))) == [
        replace(load(1, 900, rows=8), run_s=0.4, load_s=0.2),
        load(2, 3000),
        replace(plan(3), run_s=0.7, load_s=0.35, rows=9),
    ]


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 50)), max_size=60).map(sorted),
    *(st.integers(0, 900), st.integers(1, 300), st.integers(1, 40)),
)
def test_a_sample_has_each_batch_of_its_span_once(
    batches: list[tuple[int, int]], from_ms: int, length: int, buckets: int
) -> None:
    made = [Point(at_ms, seq, 1, lag=lag, records=lag, rows=1) for seq, (at_ms, lag) in enumerate(batches)]
    inside = [point for point in made if from_ms <= point.at_ms < from_ms + length]
    found = sampled(made, from_ms=from_ms, until_ms=from_ms + length, buckets=buckets)
    assert len(found) <= buckets
    assert sum(point.batches for point in found) == sum(point.rows or 0 for point in found) == len(inside)
    assert sum(point.records for point in found) == sum(point.records for point in inside)
    assert [point.at_ms for point in found] == sorted(point.at_ms for point in found)
    assert max((p.lag or 0 for p in found), default=0) == max((p.lag or 0 for p in inside), default=0)
    # what is not known of one batch is known of others, but a sum needs all of them
    known, unknown = Point(1, 1, 1, lag=5, records=5, bound=9, run_s=1.0, rows=5), Point(2, 2, 1, lag=None, records=3)
    assert known.joined(unknown) == Point(2, 2, 2, lag=5, records=8, bound=9, run_s=1.0)


def test_the_forecast_says_what_the_policy_allows_and_when_the_backlog_is_gone() -> None:
    """By what the last batches took, and by what arrived between their plans."""
    control = RateControl({"policy": "static", "max_records": 40}, 1.0)
    timings = tuple(timing(1000 * n, records=n, run_ms=100 + 10 * n) for n in range(10, 31))
    cursor = cursor_of("p", 20, rate_state=control.saved({}), timings=timings)
    batches = [Point(1000 * n, n, 1, lag=20, records=10) for n in range(20)]
    found = forecast(cursor, batches, interval_s=1.0, lag=100)
    assert (found.next_bound, found.arrival_per_s, found.interval_s) == (40, 10.0, 1.0)
    assert found.bound_by == "the rate policy"
    assert (found.verdict or "").startswith("the pipeline keeps up: 10 records/s arrive")
    assert found.drain_s == pytest.approx(2 * 1.0 + 0.1 + 0.01 * 40, abs=0.01)
    assert forecast(cursor, batches, interval_s=1.0, lag=None) == replace(found, drain_s=None)
    unbounded = forecast(changed(cursor, rate_state={}), batches, interval_s=1.0, lag=100)
    assert (unbounded.next_bound, unbounded.bound_by, unbounded.drain_s is not None) == (None, None, True)
    # a limit of the file counts as well, whatever the policy would allow
    limited = forecast(cursor, batches, interval_s=1.0, lag=100, max_records=5)
    assert (limited.next_bound, limited.bound_by, limited.drain_s) == (5, "limits.max_records", None)
    assert "limits.max_records lets a run every 1 s load 5 of them" in (limited.verdict or "")
    assert forecast(cursor, batches, interval_s=1.0, lag=100, max_records=50) == found
    # and so does the policy, which may allow more later
    faster = [replace(point, records=50) for point in batches]
    behind = forecast(cursor, faster, interval_s=1.0, lag=100)
    assert (behind.verdict, behind.drain_s) == (
        "the pipeline falls behind: 50 records/s arrive, and the rate policy lets a run every 1 s load 40 of them",
        None,
    )
    catches_up = forecast(cursor, batches, interval_s=1.0, lag=100, max_records=5, catch_up=True)
    assert (catches_up.next_bound, catches_up.verdict, catches_up.drain_s) == (5, None, None)
    # two plans within a millisecond of a topic that has just joined
    at_once = [Point(n, n, 1, lag=2**60 * n, records=0) for n in range(2)]
    assert forecast(cursor, at_once, interval_s=1.0, lag=2**62).arrival_per_s == MOST_RATE


@pytest.mark.parametrize(
    ("state", "batches", "interval_s"),
    [
        ({}, [], 1.0),
        ({"settings": "?"}, [Point(1, 1, 1, lag=5, records=5), Point(1, 2, 1, lag=5, records=5)], 1.0),
        ({"settings": {"policy": "unheard of", "interval_s": 1.0}, "state": {}}, [Point(1, 1, 1, lag=None, records=5)], None),
        ({"settings": {"policy": "static"}, "state": {}}, [], None),
    ],
)
def test_what_is_not_known_is_not_forecast(state: dict[str, Any], batches: list[Point], interval_s: float | None) -> None:
    """Too few batches, none with records, runs without an interval, or a policy of another version."""
    for timings in ((), (timing(1),)):
        found = forecast(cursor_of("p", rate_state=state, timings=timings), batches, interval_s=interval_s, lag=5)
        assert found == Forecast(interval_s=interval_s)


# ---- all pipelines at a glance


@pytest.fixture
def ledger() -> Ledger:
    made = holding()
    made.save_cursor(cursor_of("p", 2, {P0: 20}, timing=TIMING, timings=(TIMING, TIMING)))
    return made


def seen(ledger: Ledger, *runs: dict[str, Any], **known: Any) -> PipelineRow:
    state = Readable(ledger)
    cursor, pending = state.cursor, state.pending  # read first: what cannot be read becomes a fault
    known = {"table": "lake.a.b", "interval_s": 60.0, "faults": tuple(state.faults), **known}
    return pipeline_row(cursor, runs, pending, **known)


def test_what_a_newer_version_has_saved_is_a_fault_of_its_pipeline_alone() -> None:
    """As what is broken: the rest of the list is shown."""
    made = holding()
    with newer_version():
        made.save_cursor(cursor_of("p", 2, {P0: 20}))
    found = seen(made)
    assert (found.trouble, found.seq) == ("unreadable", 0)
    assert "a newer version" in found.says


def test_what_was_accepted_for_the_next_batch_is_read_and_a_broken_one_is_a_fault(ledger: Ledger) -> None:
    accepted = Accepted(seq=3, gone=True, after=ledger.cursor().last)
    key = ledger.save_accepted(accepted)
    assert Readable(ledger).accepted == accepted
    ledger._store.put(key, "{", "")
    state = Readable(ledger)
    assert (state.accepted, len(state.faults)) == (None, 1)


def test_a_healthy_pipeline_shows_what_its_batches_took(ledger: Ledger) -> None:
    """Records per second are those of all batches that are known, over their runs. One that never ran is no trouble."""
    healthy = (
        {"pipeline": "p", "table": "lake.a.b", "paused": False, "seq": 2, "records_per_s": 250.0, "interval_s": 60.0}
        | {"last": TIMING.to_json(), "run": {"run_id": "r3", "state": "running", "since_ms": 5}}
        | {"faults": [], "lag_soon": False, "lag_points": [], "says": ""}
        | dict.fromkeys(["pending", "failure", "trouble", "lag", "lag_at_ms", "lag_error", "refusal", "waiting", "file_error"])
        | dict.fromkeys(["loses_in_s", "command"])
    )
    assert shown(seen(ledger, run("r2", "success"), run("r3", "running"))) == healthy
    assert shown(seen(holding())) == healthy | {"seq": 0, "last": None, "records_per_s": None, "run": None}


def test_what_stopped_it_is_the_newest_failure_since_the_last_success(ledger: Ledger) -> None:
    ledger.save_range(SAVED)
    runs = [run("r1", "failed", "Failed in plan: old."), run("r2", "success"), run("r3", "failed", "Failed in load: new.", 7)]
    said = shown(seen(ledger, *runs))
    assert {name: said[name] for name in ("trouble", "failure", "pending")} == {
        "trouble": "stopped",
        "failure": {"run_id": "r3", "since_ms": 7, "why": "Failed in load: new."},
        "pending": {"seq": 3, "run_id": "r3", "offsets": 15},
    }
    assert seen(ledger, *runs, run("r4", "success")).trouble is None


LAG = TotalLag(partitions=1, records_behind=25, seconds_behind=9.0, retention_left_s=7100.0)
HANGS = replace(LAG, open_transaction="3 records wait", open_s=901.0)


@pytest.mark.parametrize(
    ("known", "trouble"),
    [
        ({"paused": True, "interval_s": 1.0}, "paused"),
        ({"interval_s": 3.9}, "late"),
        ({"interval_s": None}, None),
        ({"lag": replace(LAG, retention_left_s=None)}, None),
        ({"lag": replace(LAG, retention_left_s=7300.0), "interval_s": 3600.0}, None),
        ({"lag": LAG, "interval_s": 3600.0}, None),  # the last run has read what there was
        ({"lag": replace(LAG, seconds_behind=7200.0), "interval_s": 3600.0}, "losing"),
        ({"lag": replace(LAG, retention_left_s=3599.0), "interval_s": 3600.0}, "losing"),
        ({"lag": LAG, "interval_s": 3600.0, "paused": True}, "losing"),
        ({"lag": replace(LAG, retention_left_s=86_000.0), "paused": True}, "losing"),
        ({"lag": replace(LAG, retention_left_s=86_400.0), "paused": True}, "paused"),
        ({"lag": replace(LAG, retention_left_s=3599.0, seconds_behind=3599.0), "interval_s": None}, "losing"),
        ({"lag": replace(LAG, retention_left_s=3599.0, seconds_behind=3598.0), "interval_s": None}, None),
        ({"lag": replace(LAG, retention_left_s=3600.0), "interval_s": None}, None),
        ({"lag": replace(LAG, open_transaction="3 records wait", open_s=900.0), "interval_s": 3600.0}, None),
        ({"lag": replace(HANGS, retention_left_s=None)}, "waiting"),
        ({"lag": replace(HANGS, retention_left_s=86_000.0)}, "losing"),
        ({"lag": replace(HANGS, retention_left_s=86_400.0)}, "waiting"),
        ({"file_error": "not valid YAML"}, "file"),
        ({"waiting": "load waits for x", "interval_s": 1.0}, "waiting"),
        ({"refusal": "the topic is gone"}, "stopped"),
    ],
)
def test_what_needs_attention_most_comes_first(ledger: Ledger, known: dict[str, Any], trouble: str | None) -> None:
    """Records are lost soon within two intervals or an hour, whichever is longer, and where nothing reads them, within a day.

    Where no run is due, as by lag, half of the time that they are kept has to be over.

    A run waits for a server, a slot of a pool, or its next try; records wait behind a transaction that nobody ends. A run is
    late that is longer than its interval, where runs start at fixed times.
    """
    row = seen(ledger, **known)
    assert (row.trouble, row.loses_in_s is not None) == (trouble, trouble == "losing")
    failed = seen(ledger, run("r", "failed"), **known)
    assert failed.trouble == ("losing" if failed.loses_in_s is not None else "file" if trouble == "file" else "stopped")


@pytest.mark.parametrize(
    ("known", "note", "says", "command"),
    [
        (
            {"faults": ("a range is torn. Run `tidegate ledger rebuild p`",)},
            None,
            "a range is torn",
            "tidegate ledger rebuild p",
        ),
        ({"file_error": "p.yaml: line 3"}, "x", "p.yaml: line 3", "tidegate check"),
        # the command is the one that the fix names, not what else stands in backticks
        ({}, "Failed in plan: `t` lost records. Run `tidegate accept loss p`.", "Failed in plan", "tidegate accept loss p"),
        ({}, "Failed in load: x.", "Failed in load: x.", "tidegate start p"),
        ({"paused": True}, "Failed in load: x.", "Failed in load: x. Its DAG is paused.", "tidegate start p"),
        ({"paused": True}, None, "Its DAG is paused.", "tidegate start p"),
        ({"waiting": "load waits for the pool x"}, None, "load waits for the pool x.", None),
        ({"waiting": "load waits for x"}, "Failed in load: y.", "load waits for x.", None),
        ({"waiting": "load waits: Spark is away. Start it."}, None, "load waits: Spark is away. Start it.", None),
        # what is refused fails again
        ({"refusal": "the topic is gone. Create it"}, "Failed in load: y.", "Failed in load: y.", "tidegate plan p"),
        ({"lag_error": "no broker answers. Start it"}, None, "Lag and retention are not known: no broker answers.", None),
        ({"lag_error": "no broker answers", "lag": LAG}, None, "There is no newer lag: no broker answers", None),
        # what is one of several ways, or has to be completed, is not offered alone
        ({}, "Failed in plan: x. Name it again, or run `tidegate accept loss p`.", "Failed in plan", None),
        ({}, "Failed in plan: x. Run `tidegate replay p --since TIME`.", "Failed in plan", None),
        ({"refusal": "the topic is gone. Create it"}, None, "the topic is gone. Create it", "tidegate plan p"),
        ({"refusal": "no t-0. See `tidegate plan PIPELINE`"}, None, "no t-0.", "tidegate plan p"),
        ({"lag": replace(LAG, open_transaction="3 records wait")}, None, "3 records wait.", None),
        ({"lag": replace(LAG, retention_left_s=59.0)}, None, "Unread records expire before runs read them.", "tidegate plan p"),
        ({"interval_s": 3.0}, None, "The last run took 4 s; one starts each 3 s.", "tidegate plan p"),
        ({}, None, "", None),
    ],
)
def test_each_trouble_is_a_sentence_with_the_command_that_ends_it(
    ledger: Ledger, known: dict[str, Any], note: str | None, says: str, command: str | None
) -> None:
    row = seen(ledger, *([] if note is None else [run("r", "failed", note)]), **known)
    assert row.says.startswith(says)
    assert bool(row.says) == bool(says)
    assert ".." not in row.says
    assert row.command == command


def test_what_loses_records_first_is_the_first_of_the_list(ledger: Ledger) -> None:
    """Whatever else is wrong; then what stands still, and what is paused comes last."""

    def row(name: str, **known: Any) -> PipelineRow:
        return replace(seen(ledger, **known), pipeline=name)

    soon, sooner = (aged(replace(LAG, retention_left_s=1000.0, seconds_behind=900.0), passed) for passed in (100.0, 400.0))
    rows = [row("e"), row("a", paused=True), row("b", lag=soon), row("c", lag=sooner, paused=True), row("d", file_error="x")]
    assert [each.pipeline for each in by_trouble(rows)] == ["c", "b", "d", "e", "a"]
    assert [each.loses_in_s for each in by_trouble(rows)] == [600.0, 900.0, None, None, None]
    assert aged(replace(LAG, retention_left_s=None), 5.0).retention_left_s is None


@pytest.mark.parametrize("broken", ["cursor", "range.0000000003.r3-x"])
def test_saved_state_that_cannot_be_read_is_named(ledger: Ledger, broken: str) -> None:
    """The rest is shown, before all others."""
    ledger.save_range(changed(SAVED, seq=1))
    ledger._store.put(f"tidegate.p.{broken}", "{", "")
    row = seen(ledger, run("r", "failed"), file_error="no")
    assert (row.trouble, row.pending) == ("unreadable", None)
    assert broken in row.faults[0]
    others = [pipeline_row(Cursor(pipeline=name, seq=0), paused=name == "b") for name in "cab"]
    assert [each.pipeline for each in by_trouble([*others, row])] == ["p", "a", "c", "b"]

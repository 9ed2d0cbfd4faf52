"""Laws of every record that crosses a process: it is read back as it was, and what cannot be is an error."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import pytest

from tests.records import COMMITTED, REPLAYED, changed, cursor_of, load_job, range_of, replay_of, write_of
from tidegate.core.config.pipeline import Dedupe, Maintenance, Split
from tidegate.core.config.schedules import DAY_S
from tidegate.core.load.answer import answer_by_receipt, brief, whole
from tidegate.core.model.columns import ColumnChange
from tidegate.core.model.errors import BrokerUnavailable, ReceiptMismatch, RequestError, SinkMisfit, StateCorrupt, TidegateError
from tidegate.core.model.ranges import OffsetRange, TopicPartition, until_offsets
from tidegate.core.rates import BatchTiming
from tidegate.core.rates.advice import Resources
from tidegate.core.state.cursor import Accepted, Cursor, LastCommit, Position
from tidegate.core.state.jobs import LoadResult, Maintained, MaintenanceJob
from tidegate.core.state.receipt import Observed, Receipt, Write
from tidegate.core.state.saved_range import Decision, SavedRange

P0, P1, P2 = (TopicPartition("t", p) for p in range(3))
SILENT = TopicPartition("u", 3)
RANGES = (OffsetRange("t", 0, 10, 20), OffsetRange("t", 1, 0, 5))
SEVERAL = (OffsetRange("t", 0, 5, 9), OffsetRange("t", 0, 12, 20))
CURSOR = cursor_of("p", 3, {P0: 5}, {"t": "id"}, receipt=LastCommit(1, parent=None, committed_at_ms=3))
JOB = load_job("p", 1, "r", RANGES, "transforms.x:f", "lake.a.b", {"kafka.sasl.jaas.config": "hunter2"})
WRITE = write_of("p", 7, "manual__x", RANGES, "abc", "attempt-1")
RECEIPT = Receipt(WRITE, snapshot=99, committed_at_ms=1, rows=15)
BOUNDS = {P0: (10, 19), P1: (3, 3), TopicPartition("u", 10): (0, 2**62)}
WHY = (Decision(P0, "cursor", "max_records"), Decision(P1, "earliest", "log end"))
RANGE = range_of("p", 1, "run", RANGES, WHY, {"t": "id"}, {"max_records": 40}, 5, {P0: 1}, (P2,), "other")
SIZED = changed(RANGE, resources=Resources(2, 1, None, reason="why"))
ENDS, STARTS = until_offsets(RANGES) | {SILENT: 40}, {P0: 0, P1: 0, SILENT: 4}
AFTER = Position(offsets=ENDS, topic_ids={"u": "id"}, starts=STARTS, former={SILENT: 90}, foreign="lake.a.b")
REPLAYED_BATCHES: dict[str, Any] = {"request": {"batches": [1, 2]}, "lost": SEVERAL, "resumes": ("other",), "batches": (1, 2)}
RECORDS = {
    "first cursor": Cursor(pipeline="p", seq=0),
    "cursor of several topics": cursor_of("p", 1, {TopicPartition(topic, 12): 2**63 - 1 for topic in ("ü", "b.c", "a")}),
    "cursor": changed(CURSOR, starts={P0: 1}, former={P1: 9}, timings=(BatchTiming(1, None, 2, 3, 4, 5),), fired_at_ms=1),
    "cursor that has announced": changed(CURSOR, announced=(3_600_000, 7_200_000)),
    "range": RANGE,
    "range with resources": SIZED,
    "range that leads on": range_of("p", 2, "r", (), (), {}, {}, 1, beside=Position(offsets={P1: 4}, topic_ids={"t": "id"})),
    "replay": changed(
        replay_of("p", "run", "run-1", (RANGES, (OffsetRange("t", 0, 20, 29),)), "lake.a.b", "m:f", {"t": "id"}, 12),
        **REPLAYED_BATCHES,
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
    "result": LoadResult(
        RECEIPT, Observed(15, 15, 2**40, first_last=BOUNDS, repeats=3, errors=2), {"write": 0.5}, spark_age_s=7.5
    ),
    "unknown result": LoadResult(RECEIPT, Observed(None, None), {}),
    "maintenance": MaintenanceJob("p", "a.b.c", "compact", now_ms=1, maintenance=Maintenance("@daily", keep=2 * DAY_S)),
    "maintained": Maintained("expire", {"files_before": 1200, "files_after": 3}, "beware"),
}


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_every_record_is_read_back_as_it_was(record: Any) -> None:
    """Through JSON. A field that is missing is an error: missing is not empty."""
    written = json.loads(json.dumps(record.to_json()))
    assert type(record).from_json(written) == record
    for name in written:
        with pytest.raises(StateCorrupt):
            type(record).from_json({key: value for key, value in written.items() if key != name})


def read(record: Any, **change: Any) -> Any:
    """The record of its own JSON, changed."""
    return type(record).from_json({**record.to_json(), **change})


@pytest.mark.parametrize(
    "made",
    [
        *[partial(read, CURSOR, seq=seq) for seq in (-1, True, "3")],
        *[partial(read, CURSOR, offsets=offsets) for offsets in ([1], {"t": {"0": -5}}, {"t": {"x": 5}})],
        partial(read, SIZED, resources={"cores": 1}),
        partial(read, SIZED, resources={"executors": 0, "cores": 1, "pieces": None, "reason": ""}),
        partial(cursor_of, "p", 0, {P0: -1}),
        *[
            made
            for limits in ({"min_partitions": 0}, {"max_records_per_partition": -1}, {"min_partitions": True})
            for made in (partial(Split, **limits), partial(read, JOB, split=limits))
        ],
        # Spark would fail inside its tasks only
        *[partial(changed, JOB, isolation_level=level) for level in ("", "READ_COMMITTED", "none")],
    ],
)
def test_a_record_that_cannot_be_is_refused_where_it_is_made_or_read(made: Any) -> None:
    with pytest.raises((StateCorrupt, RequestError)):
        made()


@pytest.mark.parametrize("poison", [None, "x", [-1], [None], {"a": 1}, [1, "2"], [2, 1], [True, 2], 7])
def test_a_cursor_is_believed_without_what_no_batch_depends_on(poison: object) -> None:
    found = Cursor.from_json({**CURSOR.to_json(), "announced": poison})
    assert found == CURSOR
    if poison not in ([2, 1], 7):
        assert Cursor.from_json({**CURSOR.to_json(), "cores": poison}).pace.cores == ()


def test_an_orders_secrets_are_not_in_its_repr() -> None:
    assert "hunter2" not in repr(JOB)
    assert replace(JOB, formerly=("old", "older")).names == ("p", "old", "older")


# ---- receipts

WRITES = {
    "a batch": WRITE,
    "a replay": changed(WRITE, replay="again", topic_ids={"t": "id"}, generation=2, batch=3),
    "where it leads": changed(WRITE, beside=AFTER.beside(RANGES, WRITE.load.topic_ids)),
    "without repeats": changed(WRITE, dedupe=Dedupe(5, "id")),
    "other columns": changed(WRITE, columns=(ColumnChange("a.b", None, "int"), ColumnChange("c", "int", "bigint"))),
    "with a quarantine": changed(WRITE, quarantined=3),
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
    load, chunk = WRITE.load, WRITES["a replay"].load
    assert chunk.task != load.task
    assert (load.named, chunk.named) == (f"batch {load.seq}", f"chunk {chunk.seq} of replay {chunk.replay}")
    assert WRITES["where it leads"].load.after == AFTER
    assert (WRITE.version, WRITES["without repeats"].version) == ("abc", "abc, dedupe id within 5")


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        *[({name: "{}"}, 0) for name in ("beside", "dedupe")],
        *[({"seq": "x"}, 0), ({"ranges": "{"}, 0), ({"ranges": '{"t": {"0": [3, 1]}}'}, 0)],
        ({}, None),  # the counters of its commit are broken: that is not a load without rows
    ],
)
def test_a_broken_receipt_is_an_error_not_an_absence(change: dict[str, str], rows: int | None) -> None:
    """A commit of somebody else has none, whatever its counters are."""
    assert Receipt.from_properties({"somebody": "else's"}, snapshot=1, committed_at_ms=1, rows=rows) is None
    properties = {**WRITE.to_properties(), **{f"tidegate.{name}": value for name, value in change.items()}}
    with pytest.raises(StateCorrupt):
        Receipt.from_properties(properties, snapshot=1, committed_at_ms=1, rows=rows)


@pytest.mark.parametrize(
    ("ranges", "part", "exact"),
    [
        (RANGES, True, True),
        ((*RANGES, OffsetRange("t", 2, 4, 4)), True, True),  # empty ranges do not matter
        ((OffsetRange("t", 0, 12, 13),), True, False),
        ((OffsetRange("t", 0, 10, 19), RANGES[1]), True, False),
        ((OffsetRange("t", 0, 9, 13),), False, False),
        ((OffsetRange("t", 2, 0, 1),), False, False),
    ],
)
def test_a_receipt_covers_parts_of_its_ranges_and_one_of_a_batch_exactly_them(
    ranges: tuple[OffsetRange, ...], *, part: bool, exact: bool
) -> None:
    """A row that aggregates more records counts some that the next batch counts again."""
    assert (RECEIPT.covers(ranges), changed(RECEIPT, batch=7).covers(ranges)) == (part, exact)


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ({}, []),
        ({P0: (10, 19), P1: (4, 4)}, []),
        ({P0: (9, 19)}, ["t-0 [10, 20) holds offsets 9 to 19"]),
        ({P1: (0, 5)}, ["t-1 [0, 5) holds offsets 0 to 5"]),
        ({P2: (0, 0)}, ["t-2 was not asked for"]),
    ],
)
def test_seen_offsets_lie_in_their_ranges_or_are_told(bounds: dict[TopicPartition, tuple[int, int]], told: list[str]) -> None:
    assert Observed(1, 1, 1, first_last=bounds).outside(RANGES) == told
    assert Observed(1, 1).outside(RANGES) == []


def test_what_an_older_version_has_observed_is_read_without_what_it_did_not_know() -> None:
    """As in a run that began before an upgrade, whose next task is of the newer version."""
    assert Observed.from_json({"records": 3, "rows": 2}) == Observed(3, 2)
    assert "times" not in Observed(3, 2).to_json()


def test_what_a_load_observed_is_told_only_where_it_is_known() -> None:
    """A mean size, where records were read; a cold start, in the first two minutes of its Spark."""
    sizes = [Observed(records, records, size).record_bytes for records, size in ((4, 100), (0, 0), (None, None))]
    assert sizes == [25, None, None]
    ages = (None, 0.0, 119.9, 120.0)
    assert [LoadResult(RECEIPT, Observed(1, 1), {}, spark_age_s=age).cold for age in ages] == [False, True, True, False]


# ---- answers of loads on their way to the commit


def ranges(partitions: int, until: int = 1_000_000) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange("t", n, 0, until) for n in range(partitions))


def saved(until: int = 1_000_000) -> SavedRange:
    return range_of("p", 3, "run", ranges(2, until), (), {"t": "id"}, {}, 1)


def result(partitions: int = 2) -> LoadResult:
    load = write_of("p", 3, "run", ranges(partitions), "m:f@1", "attempt", {"t": "id"}, 4)
    observed = Observed(5, 6, 70, first_last={TopicPartition("t", n): (0, 9) for n in range(partitions)}, errors=2)
    made = Receipt(load, 7, 1, rows=5, kept=2)
    return LoadResult(made, observed, {"write": 0.1}, landed_before=True, spark_age_s=3.5)


NOT_ASKED = mock.Mock(side_effect=AssertionError("the table is asked for nothing"))
UNBOUNDED = replace(result(), observed=Observed(5, 6, 70, errors=2))


def test_an_answer_is_as_small_with_thousands_of_partitions_as_with_two() -> None:
    few, many = (json.dumps(brief(result(count))) for count in (2, 5000))
    assert len(many) < len(few) + 10 < 1000


def test_the_receipt_of_an_answer_comes_back_whole() -> None:
    """Without a look at the table where it is of the saved range; what landed before and covers more is read from the table."""
    assert whole(json.loads(json.dumps(brief(result()))), saved(), NOT_ASKED) == UNBOUNDED
    by_snapshot: dict[int, Receipt | None] = {7: result().receipt}
    assert whole(brief(result()), saved(until=10), by_snapshot.get) == UNBOUNDED


def test_what_is_no_answer_or_cannot_be_judged_is_refused() -> None:
    """Its receipt is gone, or it is something else."""
    with pytest.raises(ReceiptMismatch, match="snapshot 7"):
        whole(brief(result()), saved(until=10), lambda _: None)
    with pytest.raises(StateCorrupt, match="Clear the run's load task"):
        whole({"receipt": {}}, saved(), NOT_ASKED)


LOST = load_job("p", 3, "run", ranges(2), "m:f", "lake.a.b", {}, attempt="mine")
TOOK = {"submit": 4.5}


def receipt(snapshot: int, attempt: str, *, seq: int = 3, until: int = 1_000_000, replay: str | None = None) -> Receipt:
    return Receipt(write_of("p", seq, "run", ranges(2, until), "m:f@1", attempt, replay=replay), snapshot, snapshot, rows=5)


def test_an_answer_that_was_lost_is_the_receipt_of_its_attempt() -> None:
    """Others of the same batch may lie before and behind it. What the job observed is unknown, and not made up."""
    receipts = [receipt(1, "before"), receipt(2, "mine"), receipt(3, "after")]
    for job in (LOST, replace(LOST, redo=True)):
        assert answer_by_receipt(job, receipts, TOOK) == LoadResult(receipts[1], Observed(None, None), TOOK)


def test_a_job_that_wrote_nothing_found_the_newest_receipt_that_covers_its_ranges() -> None:
    """Unless it was to write in any case. No receipt of another batch, replay or range is an answer, whatever its attempt."""
    receipts = [receipt(1, "first"), receipt(2, "second"), receipt(3, "short", until=9)]
    answer = answer_by_receipt(LOST, receipts, TOOK)
    assert answer == LoadResult(receipts[1], Observed(None, None), TOOK, landed_before=True)
    assert answer_by_receipt(replace(LOST, redo=True), receipts, TOOK) is None
    others = [receipt(1, "mine", seq=4), receipt(1, "mine", replay="again"), receipt(1, "mine", until=999_999)]
    assert answer_by_receipt(LOST, others, TOOK) is None


# ---- what others read: the DAGs of others know these names and values, so they do not change


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (COMMITTED, {"seq": 7, "key": "tidegate.p.range.0000000007.r", "offsets": 200, "rows": 190, "snapshot": 2**62}),
        (REPLAYED, {"run_id": "manual__1", "replay": "again", "chunks": 3, "offsets": 600, "rows": 590}),
    ],
    ids=["a batch and what its load made", "a replay and what its loads made"],
)
def test_an_event_says(event: Any, told: dict[str, Any]) -> None:
    batch = event is COMMITTED
    of = {"pipeline": "p", "table": "iceberg://lake/a/b", "topics": ["kafka://kafka_default/t"]}
    rest = {
        "columns": [],
        "transform": f"m:f@{1 if batch else 2}",
        "page": f"dags/p/plugin/ranges{'?batch=7' if batch else ''}",
    }
    assert json.loads(json.dumps(event.to_json())) == {**of, **told, **rest}


def test_a_change_of_a_column_is_said_in_words() -> None:
    said = [str(ColumnChange("a.b", was, "bigint")) for was in (None, "int", "bigint")]
    assert said == ["a.b bigint was added", "a.b int is bigint now", "a.b bigint is not required any more"]


@pytest.mark.parametrize("error", [BrokerUnavailable("gone", fix="start it", servers="h:1", tries=3), SinkMisfit("no")])
def test_an_error_crosses_a_process_as_itself(error: TidegateError) -> None:
    """Class, message, fix and fields survive as JSON. A newer driver may know more names."""
    again = TidegateError.from_dict(error.to_dict())
    assert (type(again), str(again), again.fields) == (type(error), str(error), error.fields)
    assert (again.fix, again.retryable) == (error.fix, error.retryable)
    assert type(TidegateError.from_dict({"error": "Novel"})) is TidegateError
    assert [str(TidegateError("It broke", fix=fix)) for fix in ("Mend it", "")] == ["It broke. Mend it", "It broke"]

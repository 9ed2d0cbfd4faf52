"""The way of a batch: plan -> load -> commit, on ports.

    planned    its range is saved; nothing else has happened
    loaded     the sink holds a commit with its receipt
    committed  the cursor has moved past it

A run that is called again, at any step, continues its own saved range. A run that finds another run's uncommitted range for
the next batch adopts it. Nothing here knows Airflow, Kafka's client or Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tidegate.commit import apply, commit_of
from tidegate.config import Pipeline
from tidegate.cursor import Cursor
from tidegate.errors import CommitConflict, CursorLost, StateCorrupt
from tidegate.ledger import Ledger, Listing
from tidegate.planning import RangePolicy, SavedRange, Skip, plan_next
from tidegate.ports import Brokers, SinkHistory, StateStore
from tidegate.ranges import TopicPartition, from_offsets
from tidegate.receipts import Receipt


@dataclass(frozen=True)
class Request:
    """What a trigger asks of one run, beside the pipeline's own limits."""

    max_records: int | None = None
    until: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True)
class Planned:
    """A saved range and how it came to this run: `planned` now, `adopted` from another run, or `own` from an earlier try."""

    saved: SavedRange
    key: str
    origin: Literal["planned", "adopted", "own"]
    committed: bool = False


def plan_batch(
    pipeline: Pipeline, run_id: str, request: Request, *, store: StateStore, brokers: Brokers, sink: SinkHistory, now_ms: int
) -> Planned | Skip:
    """The range that this run reads, saved; or why there is none.

    Raises:
        StateError: the schedule cannot be read or believed (`CursorLost` where it must be rebuilt).
        KafkaError: the brokers cannot tell the watermarks.
        OffsetsOutOfRange: cursor and log do not fit.
        RequestError: the trigger asks for what cannot be.
    """
    ledger = Ledger(store, pipeline.name)
    listing = ledger.listing()
    cursor = _cursor(ledger, listing, pipeline, sink)
    own = listing.of_run(run_id)
    if own is not None:
        return Planned(ledger.saved_range(own.key), own.key, "own", committed=own.seq <= cursor.seq)
    pending = _pending(ledger, listing, cursor)
    if pending is not None:
        adopted = replace(pending, run_id=run_id, adopted_from=pending.run_id)
        return Planned(adopted, ledger.save_range(adopted), "adopted")
    policy = RangePolicy(
        start=pipeline.source.start,
        max_records=request.max_records if request.max_records is not None else pipeline.limits.max_records,
        until=request.until,
    )
    watermarks = brokers.watermarks(pipeline.source.topics)
    plan = plan_next(cursor, watermarks, policy, interval_s=0, now_ms=now_ms)
    if plan.skip is not None:
        return plan.skip
    planned_topics = {r.topic for r in plan.ranges}
    saved = SavedRange(
        pipeline=pipeline.name,
        seq=cursor.seq + 1,
        run_id=run_id,
        ranges=plan.ranges,
        decisions=plan.decisions,
        topic_ids={topic: topic_id for topic, topic_id in watermarks.topic_ids.items() if topic in planned_topics},
        limits={} if policy.max_records is None else {"max_records": policy.max_records},
        planned_at_ms=now_ms,
    )
    return Planned(saved, ledger.save_range(saved), "planned")


def _cursor(ledger: Ledger, listing: Listing, pipeline: Pipeline, sink: SinkHistory) -> Cursor:
    if listing.has_cursor:
        return ledger.cursor()
    later = [r for r in listing.ranges if r.seq > 1]
    if later or (not listing.ranges and sink.has_receipts(pipeline.sink.table, pipeline.name)):
        found = f"a saved range of batch {later[-1].seq}" if later else f"receipts of it in {pipeline.sink.table}"
        raise CursorLost(
            f"pipeline {pipeline.name} has no cursor ({ledger.cursor_key}), but there is {found}: "
            "it has run before, and must not start again from the beginning",
            fix=f"Run `tidegate ledger rebuild {pipeline.name}` to restore the cursor from the table's own history",
            key=ledger.cursor_key,
        )
    return Cursor(pipeline.name)


def _pending(ledger: Ledger, listing: Listing, cursor: Cursor) -> SavedRange | None:
    beyond = [r for r in listing.ranges if r.seq > cursor.seq + 1]
    if beyond:
        raise StateCorrupt(
            f"{beyond[-1].key}: batch {beyond[-1].seq} is saved, but the cursor is at batch {cursor.seq}",
            fix=f"The cursor is older than the schedule: run `tidegate ledger rebuild {ledger.pipeline}`",
            key=beyond[-1].key,
        )
    candidates = [ledger.saved_range(r.key) for r in listing.of_seq(cursor.seq + 1)]
    if not candidates:
        return None
    first = min(candidates, key=lambda s: (s.planned_at_ms, s.run_id))
    starts = from_offsets(first.ranges)
    if any(cursor.offsets.get(tp, offset) != offset for tp, offset in starts.items()):
        raise CommitConflict(
            f"the range of batch {first.seq} saved by run {first.run_id} does not start at the cursor",
            fix=f"Delete the Variable {ledger.range_key(first.seq, first.run_id)}: the next run plans it anew",
        )
    return first


def commit_batch(pipeline: Pipeline, key: str, receipt: Receipt | None, *, store: StateStore) -> tuple[SavedRange, bool]:
    """Move the cursor past the saved range at `key`; returns it, and whether the cursor moved now (False: it had before).

    Raises:
        StateError: the schedule cannot be read or believed; `CommitConflict` where the cursor is elsewhere.
        ReceiptMismatch: the receipt does not cover the range.
    """
    ledger = Ledger(store, pipeline.name)
    listing = ledger.listing()
    saved = ledger.saved_range(key)
    cursor = ledger.cursor() if listing.has_cursor else Cursor(pipeline.name)
    after = apply(cursor, commit_of(saved, receipt))
    if after is cursor:
        return saved, False
    ledger.save_cursor(after)
    ledger.prune(listing, committed=after.seq, keep=pipeline.keep_ranges)
    return saved, True

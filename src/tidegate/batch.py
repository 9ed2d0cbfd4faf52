"""The way of a batch: plan -> load -> commit, on ports.

    planned    its range is saved; nothing else has happened
    loaded     the sink holds a commit with its receipt
    committed  the cursor has moved past it

A run that is called again, at any step, continues its own saved range. A run that finds another run's uncommitted range for
the next batch adopts it. Nothing here knows Airflow, Kafka's client or Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from tidegate.commit import apply, commit_of
from tidegate.config import Pipeline, Source, Start, StartOffsets
from tidegate.cursor import Cursor
from tidegate.errors import CursorLost, RequestError, TopicNotFound, WatermarksUnstable
from tidegate.fence import catch_up, check_borne_out, check_not_passed, check_saved_topics, waiting_range
from tidegate.ledger import Ledger, Listing
from tidegate.planning import Accepted, RangePolicy, SavedRange, Skip, Watermarks, expired_ranges, plan_next
from tidegate.ports import Brokers, SinkHistory, StateStore
from tidegate.ranges import OffsetRange, TopicPartition
from tidegate.receipts import Receipt

WATERMARK_READS = 3


@dataclass(frozen=True)
class Request:
    """What a trigger asks of one run, beside the pipeline's own limits."""

    max_records: int | None = None
    until: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True)
class Planned:
    """A saved range and how it came to this run: `planned` now, `adopted` from another run, or `own` from an earlier try.

    `caught_up_from` is the batch at which the cursor was found, where something had put it back.
    """

    saved: SavedRange
    key: str
    origin: Literal["planned", "adopted", "own"]
    committed: bool = False
    caught_up_from: int | None = None


def plan_batch(
    pipeline: Pipeline,
    run_id: str,
    request: Request,
    *,
    store: StateStore,
    brokers: Brokers,
    sink: SinkHistory,
    now_ms: int,
    save: bool = True,
) -> Planned | Skip:
    """The range that this run reads, saved; or why there is none. With `save=False` nothing is written: a dry run.

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
        saved, committed = ledger.saved_range(own.key), own.seq <= cursor.seq
        check_saved_topics(pipeline, own.key, saved, brokers, sink, redo=committed)
        return Planned(saved, own.key, "own", committed=committed)
    check_borne_out(pipeline, ledger, listing, cursor, sink)
    found_at = cursor.seq
    cursor = catch_up(pipeline, ledger, listing, cursor, sink)
    if save and cursor.seq > found_at:
        ledger.save_cursor(cursor)
    waiting = waiting_range(ledger, listing, cursor)
    check_not_passed(pipeline, ledger, cursor, waiting, sink)
    if waiting is not None:
        check_saved_topics(pipeline, ledger.range_key(waiting.seq, waiting.run_id), waiting, brokers, sink, redo=False)
        found: SavedRange | Skip = replace(waiting, run_id=run_id, adopted_from=waiting.run_id)
    else:
        watermarks = read_watermarks(pipeline.source, cursor, brokers)
        start = _start(pipeline.source.start, cursor, watermarks, brokers)
        accepted = ledger.accepted(listing, cursor.seq + 1)
        found = _new_range(pipeline, run_id, request, cursor, watermarks, start, accepted, now_ms)
    if isinstance(found, Skip):
        return found
    key = ledger.save_range(found) if save else ledger.range_key(found.seq, found.run_id)
    caught_up_from = found_at if cursor.seq > found_at else None
    return Planned(found, key, "planned" if waiting is None else "adopted", caught_up_from=caught_up_from)


def _new_range(
    pipeline: Pipeline,
    run_id: str,
    request: Request,
    cursor: Cursor,
    watermarks: Watermarks,
    start: Mapping[str, Any],
    accepted: Accepted | None,
    now_ms: int,
) -> SavedRange | Skip:
    limits = pipeline.limits
    policy = RangePolicy(
        on_deleted=pipeline.source.on_deleted,
        until=request.until,
        max_rate_per_partition=limits.max_rate_per_partition,
        min_rate_per_partition=limits.min_rate_per_partition,
        max_bytes=limits.max_bytes,
        record_bytes=cursor.record_bytes,
        max_records=request.max_records if request.max_records is not None else limits.max_records,
        min_records=limits.min_records,
        max_delay_s=limits.max_delay_s,
        accepted=accepted,
        **start,
    )
    plan = plan_next(cursor, watermarks, policy, interval_s=limits.interval_s, now_ms=now_ms)
    if plan.skip is not None:
        return plan.skip
    planned_topics = {r.topic for r in plan.ranges}
    in_force = ("max_records", "max_rate_per_partition", "max_bytes", "min_records", "max_delay_s")
    return SavedRange(
        pipeline=pipeline.name,
        seq=cursor.seq + 1,
        run_id=run_id,
        ranges=plan.ranges,
        decisions=plan.decisions,
        topic_ids={topic: topic_id for topic, topic_id in watermarks.topic_ids.items() if topic in planned_topics},
        limits={name: getattr(policy, name) for name in in_force if getattr(policy, name) is not None},
        planned_at_ms=now_ms,
        jumped=plan.jumped,
        retired=plan.retired,
        generation=cursor.generation,
    )


def read_watermarks(source: Source, cursor: Cursor, brokers: Brokers) -> Watermarks:
    """The watermarks of every partition that the source names now.

    A log end below the cursor is read again, after a while, before it is believed: a new leader may not know its end yet.

    Raises:
        TopicNotFound: a named topic is missing and not to be retired, or a first run's pattern matches none.
        KafkaError: the brokers cannot tell; `WatermarksUnstable` where the log end is below the cursor, and moving.
    """
    topics = _topics(source, cursor, brokers)
    ends: list[Mapping[TopicPartition, int]] = []
    for _ in range(WATERMARK_READS):
        asked = brokers.watermarks(topics, isolation_level=source.isolation_level) if topics else Watermarks({}, {})
        watermarks = _assigned(source, asked)
        ends.append({tp: end for tp, end in watermarks.latest.items() if end < cursor.offsets.get(tp, 0)})
        if not ends[-1] or any(
            watermarks.topic_ids.get(t) != i for t, i in cursor.topic_ids.items() if t in watermarks.topic_ids
        ):
            return watermarks
        brokers.settle()
    if any(before != ends[-1] for before in ends):
        raise WatermarksUnstable(
            f"the log ends of {', '.join(map(str, sorted(ends[-1])))} are below the cursor of {cursor.pipeline}, and moving",
            fix="Nothing was planned; a broker is recovering, and the task tries again",
        )
    return watermarks


def _topics(source: Source, cursor: Cursor, brokers: Brokers) -> list[str]:
    if source.pattern is not None:
        found = brokers.match_topics(source.pattern, source.exclude)
        if not found and not cursor.offsets:
            raise TopicNotFound(f"no topic matches {source.pattern}", fix="Create one, or correct `source.pattern`")
        return found
    named = list(source.topics if source.topics is not None else source.assign or ())
    if source.on_deleted == "stop" or not cursor.offsets:
        return named
    # asking for a topic that is gone is an error; to retire it, it has to be left out
    return brokers.match_topics("|".join(map(re.escape, named)))


def _assigned(source: Source, watermarks: Watermarks) -> Watermarks:
    if source.assign is None:
        return watermarks
    wanted = {TopicPartition(topic, partition) for topic, numbers in source.assign.items() for partition in numbers}
    return Watermarks(
        {tp: offset for tp, offset in watermarks.earliest.items() if tp in wanted},
        {tp: offset for tp, offset in watermarks.latest.items() if tp in wanted},
        watermarks.topic_ids,
    )


def _start(start: Start, cursor: Cursor, watermarks: Watermarks, brokers: Brokers) -> dict[str, Any]:
    """The policy's start, as offsets where it is not a word. Only a first run resolves it: later it has no meaning."""
    if isinstance(start, str):
        return {"start": start}
    if isinstance(start, StartOffsets):
        return {"start": start.offsets, "start_reason": "offsets"}
    if cursor.seq or cursor.offsets:
        return {}
    resolved = dict(watermarks.latest)
    for tp, offset in brokers.offsets_at(dict.fromkeys(watermarks.latest, start.timestamp_ms)).items():
        if offset is not None:  # a record that came between the two answers lies beyond the log end that was read first
            resolved[tp] = min(offset, resolved[tp])
    return {"start": resolved, "start_reason": "timestamp"}


def _cursor(ledger: Ledger, listing: Listing, pipeline: Pipeline, sink: SinkHistory) -> Cursor:
    if listing.has_cursor:
        return ledger.cursor()
    later = [r for r in listing.ranges if r.seq > 1]
    if later or (not listing.ranges and sink.reached(pipeline.sink.table, pipeline.name)):
        found = f"a saved range of batch {later[-1].seq}" if later else f"receipts of it in {pipeline.sink.table}"
        raise CursorLost(
            f"pipeline {pipeline.name} has no cursor ({ledger.cursor_key}), but there is {found}: "
            "it has run before, and must not start again from the beginning",
            fix=f"Run `tidegate ledger rebuild {pipeline.name}` to restore the cursor from the table's own history",
            key=ledger.cursor_key,
        )
    return Cursor(pipeline.name)


def commit_batch(
    pipeline: Pipeline, key: str, receipt: Receipt | None, *, store: StateStore, record_bytes: float | None = None
) -> tuple[SavedRange, Cursor, bool]:
    """Move the cursor past the saved range at `key`; returns the range, the cursor, and whether it moved now (not before).

    Raises:
        StateError: the schedule cannot be read or believed; `CommitConflict` where the cursor is elsewhere.
        ReceiptMismatch: the receipt does not cover the range.
    """
    ledger = Ledger(store, pipeline.name)
    listing = ledger.listing()
    saved = ledger.saved_range(key)
    cursor = ledger.cursor() if listing.has_cursor else Cursor(pipeline.name)
    after = apply(cursor, commit_of(saved, receipt, record_bytes=record_bytes))
    if after is cursor:
        return saved, cursor, False
    ledger.save_cursor(after)
    ledger.prune(listing, committed=after.seq, keep=pipeline.keep_ranges)
    return saved, after, True


def accept_loss(pipeline: Pipeline, *, store: StateStore, brokers: Brokers, sink: SinkHistory) -> Accepted:
    """Record that the next batch may go on after what retention has deleted by now; no other batch, and no later loss.

    Raises:
        RequestError: nothing is lost.
        StateError, KafkaError: as `plan_batch`.
    """
    ledger = Ledger(store, pipeline.name)
    listing = ledger.listing()
    cursor = _cursor(ledger, listing, pipeline, sink)
    lost = expired_ranges(cursor, read_watermarks(pipeline.source, cursor, brokers))
    if not lost:
        raise RequestError(f"{pipeline.name} has lost nothing: every offset after its cursor is retained")
    return _accept(ledger, listing, cursor, loss=lost)


def accept_recreated(pipeline: Pipeline, topic: str, *, store: StateStore, brokers: Brokers, sink: SinkHistory) -> Accepted:
    """Record that the next batch may start `topic` anew, under the id that it has now.

    The new topic's records have the origins of the old one's: loading them replaces the old rows with the same offsets.

    Raises:
        RequestError: the topic is not the pipeline's, or has not been created again.
        StateError, KafkaError: as `plan_batch`.
    """
    ledger = Ledger(store, pipeline.name)
    listing = ledger.listing()
    cursor = _cursor(ledger, listing, pipeline, sink)
    if topic not in cursor.topic_ids:
        raise RequestError(
            f"{pipeline.name} has read no topic {topic}",
            fix=f"It has read {', '.join(sorted(cursor.topic_ids)) or 'nothing yet'}",
        )
    found = brokers.watermarks([topic], isolation_level=pipeline.source.isolation_level).topic_ids[topic]
    if found == cursor.topic_ids[topic]:
        raise RequestError(f"topic {topic} is the one that {pipeline.name} has read: it was not created again")
    return _accept(ledger, listing, cursor, recreated={topic: found})


def _accept(
    ledger: Ledger,
    listing: Listing,
    cursor: Cursor,
    *,
    loss: tuple[OffsetRange, ...] | None = None,
    recreated: Mapping[str, str] | None = None,
) -> Accepted:
    before = ledger.accepted(listing, cursor.seq + 1) or Accepted(cursor.seq + 1)
    accepted = Accepted(before.seq, before.loss if loss is None else loss, {**before.recreated, **(recreated or {})})
    ledger.save_accepted(accepted)
    return accepted

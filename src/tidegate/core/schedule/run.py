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

from tidegate.core.audit.table import Missing, TableHistory
from tidegate.core.config.pipeline import Pipeline, Source
from tidegate.core.config.times import StartOffsets
from tidegate.core.errors import CursorLost, RequestError, TopicNotFound, WatermarksUnstable
from tidegate.core.load.receipt import Receipt
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition
from tidegate.core.ports import Brokers, SinkReader, StateStore
from tidegate.core.rates import BatchTiming
from tidegate.core.replay.chunks import merged
from tidegate.core.schedule.commit import apply, commit_of
from tidegate.core.schedule.plan import (
    Accepted,
    RangePolicy,
    SavedRange,
    Skip,
    Watermarks,
    deleted_of,
    expired_ranges,
    plan_next,
)
from tidegate.core.schedule.trust import (
    accepted_before,
    catch_up,
    check_borne_out,
    check_loadable,
    check_not_passed,
    forgotten_range,
    landed,
    missing_in_table,
    present_again,
    waiting_range,
)
from tidegate.core.state.cursor import Cursor, Positions
from tidegate.core.state.ledger import Ledger, Listing

WATERMARK_READS = 3


@dataclass(frozen=True)
class Request:
    """What a trigger asks of one run, beside the pipeline's own limits.

    `ran_at_ms` is when the run was created (epoch ms), if somebody has cleared it since; None for one that has not run before.
    """

    max_records: int | None = None
    until: Mapping[TopicPartition, int] | None = None
    ran_at_ms: int | None = None


@dataclass(frozen=True)
class Planned:
    """A saved range and how it came to this run: `planned` now, `adopted` from another run, or `own` from an earlier try.

    `caught_up_from` is the batch at which the cursor was found, where something had put it back. `create` says whether the load
    may create the table: only where no batch has written to it, or an operator has accepted that it is gone.
    """

    saved: SavedRange
    key: str
    origin: Literal["planned", "adopted", "own"]
    committed: bool = False
    caught_up_from: int | None = None
    create: bool = True


def plan_batch(
    pipeline: Pipeline,
    run_id: str,
    request: Request,
    *,
    store: StateStore,
    brokers: Brokers,
    sink: SinkReader,
    now_ms: int,
    save: bool = True,
) -> Planned | Skip:
    """The range that this run reads, saved; or why there is none. With `save=False` nothing is written: a dry run.

    Args:
        pipeline: what to load.
        run_id: of the DAG run, which owns the range from then on.
        request: what the trigger asks.
        store: the schedule.
        brokers: the log.
        sink: the table.
        now_ms: the time, epoch ms.
        save: whether to write.

    Raises:
        StateError: the schedule cannot be read or believed (`CursorLost` where it must be rebuilt, `RangeForgotten` where
            nothing is known any more of what a cleared run has loaded).
        TableLost: the table does not hold what the cursor has committed.
        KafkaError: the brokers cannot tell the watermarks.
        OffsetsOutOfRange: cursor and log do not fit.
        RequestError: the trigger asks for what cannot be.
    """
    ledger, listing, history, found_cursor = _state(pipeline, store, sink)
    own = listing.of_run(run_id)
    cursor = catch_up(pipeline, ledger, listing, found_cursor, history) if own is None else found_cursor
    accepted = ledger.accepted(listing, cursor.seq + 1)
    missing = missing_in_table(pipeline, ledger, listing, cursor, sink=sink, history=history, accepted=accepted)
    if missing is not None:
        raise missing.lost_by(pipeline.name, pipeline.sink.table)
    create = cursor.receipt is None or bool(accepted and accepted.creates)
    if own is not None:
        saved, committed = ledger.saved_range(own.key), own.seq <= cursor.seq
        check_loadable(pipeline, own.key, saved, brokers, history, redo=committed)
        return Planned(saved, own.key, "own", committed=committed, create=create)
    done = forgotten_range(pipeline, ledger, listing, cursor, history, run_id, request.ran_at_ms)
    if done is not None:
        key = ledger.save_range(done) if save else ledger.range_key(done.seq, run_id)
        check_loadable(pipeline, key, done, brokers, history, redo=True)
        return Planned(done, key, "own", committed=True, create=False)
    check_borne_out(pipeline, ledger, listing, found_cursor, history)
    if save and cursor.seq > found_cursor.seq:
        ledger.save_cursor(cursor)
    waiting = waiting_range(ledger, listing, cursor)
    check_not_passed(pipeline, ledger, cursor, waiting, history)
    if waiting is not None:
        check_loadable(pipeline, ledger.range_key(waiting.seq, waiting.run_id), waiting, brokers, history, redo=False)
        before = accepted_before(pipeline, ledger, listing, cursor, history)
        absent = merged([*before, *(accepted.absent if accepted else ())])
        found: SavedRange | Skip = replace(waiting, run_id=run_id, adopted_from=waiting.run_id, absent=absent)
    else:
        watermarks = read_watermarks(pipeline.source, cursor, brokers)
        start = _start(pipeline.source, cursor, watermarks, brokers)
        found = _new_range(pipeline, run_id, request, cursor, watermarks, start, accepted, now_ms)
    if isinstance(found, Skip):
        return found
    found = replace(found, present=present_again(pipeline, cursor, history))
    key = ledger.save_range(found) if save else ledger.range_key(found.seq, found.run_id)
    caught_up_from = found_cursor.seq if cursor.seq > found_cursor.seq else None
    origin: Literal["planned", "adopted"] = "planned" if waiting is None else "adopted"
    return Planned(found, key, origin, caught_up_from=caught_up_from, create=create)


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
        left_out=_left_out(pipeline.source, cursor),
        **start,
    )
    plan = plan_next(cursor, watermarks, policy, interval_s=limits.interval_s, now_ms=now_ms)
    if plan.skip is not None:
        return plan.skip
    planned_topics = {r.topic for r in plan.ranges}
    moved = {r.topic_partition for r in plan.ranges}.union(plan.retired)
    others = {tp: offset for tp, offset in cursor.offsets.items() if tp not in moved}
    other_topics = {tp.topic for tp in others}
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
        others=Positions(others, {t: i for t, i in cursor.topic_ids.items() if t in other_topics}),
        absent=accepted.absent if accepted else (),
    )


def _left_out(source: Source, cursor: Cursor) -> frozenset[TopicPartition]:
    """Partitions of the cursor that the pipeline's file does not name any more."""
    if source.pattern is not None:
        wanted = re.compile(source.pattern)
        unwanted = [re.compile(text) for text in source.exclude]

        def is_named(tp: TopicPartition) -> bool:
            return bool(wanted.fullmatch(tp.topic)) and not any(regex.fullmatch(tp.topic) for regex in unwanted)

    elif source.assign is not None:
        assign = source.assign

        def is_named(tp: TopicPartition) -> bool:
            return tp.partition in assign.get(tp.topic, ())

    else:
        topics = source.topics or ()

        def is_named(tp: TopicPartition) -> bool:
            return tp.topic in topics

    return frozenset(tp for tp in cursor.offsets if not is_named(tp))


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


def _start(source: Source, cursor: Cursor, watermarks: Watermarks, brokers: Brokers) -> dict[str, Any]:
    """The policy's start, as offsets where it is not a word.

    It holds for the first run, and for a topic that the file names since: whoever adds a topic decides where to begin. What a
    pattern matches later is new to everyone, and read from its earliest offset.
    """
    start, known = source.start, {tp.topic for tp in cursor.offsets}
    begin = [tp for tp in watermarks.latest if not cursor.seq or (source.pattern is None and tp.topic not in known)]
    if isinstance(start, str):
        return {"start": start, "begin": frozenset(begin)}
    if isinstance(start, StartOffsets):
        return {"start": start.offsets, "start_reason": "offsets", "begin": frozenset(begin)}
    if not begin:
        return {}
    resolved = {tp: watermarks.latest[tp] for tp in begin}
    for tp, offset in brokers.offsets_at(dict.fromkeys(begin, start.timestamp_ms)).items():
        if offset is not None:  # a record that came between the two answers lies beyond the log end that was read first
            resolved[tp] = min(offset, resolved[tp])
    return {"start": resolved, "start_reason": "timestamp", "begin": frozenset(begin)}


def _state(pipeline: Pipeline, store: StateStore, sink: SinkReader) -> tuple[Ledger, Listing, TableHistory, Cursor]:
    """What is saved of the pipeline, and its table's commits."""
    ledger = Ledger(store, pipeline.name)
    listing = ledger.listing()
    history = sink.history(pipeline.sink.table)
    return ledger, listing, history, _cursor(ledger, listing, pipeline, history)


def _caught_up(pipeline: Pipeline, store: StateStore, sink: SinkReader) -> tuple[Ledger, Listing, TableHistory, Cursor]:
    """The same, with the cursor as the next plan will believe it: `accept` answers for the batch after it."""
    ledger, listing, history, cursor = _state(pipeline, store, sink)
    return ledger, listing, history, catch_up(pipeline, ledger, listing, cursor, history)


def missing_now(pipeline: Pipeline, *, store: StateStore, sink: SinkReader) -> tuple[Cursor, Missing | None]:
    """The cursor as the next plan will believe it, and what the table lacks of its batches that nobody has accepted.

    Raises:
        StateError, SinkUnavailable: as `plan_batch`.
    """
    ledger, listing, history, cursor = _caught_up(pipeline, store, sink)
    accepted = ledger.accepted(listing, cursor.seq + 1)
    return cursor, missing_in_table(pipeline, ledger, listing, cursor, sink=sink, history=history, accepted=accepted)


def _cursor(ledger: Ledger, listing: Listing, pipeline: Pipeline, history: TableHistory) -> Cursor:
    if listing.has_cursor:
        return ledger.cursor()
    later = [r for r in listing.ranges if r.seq > 1]
    if later or (not listing.ranges and history.was_loaded_by(pipeline.name)):
        found = f"a saved range of batch {later[-1].seq}" if later else f"rows of it in {pipeline.sink.table}"
        raise CursorLost(
            f"pipeline {pipeline.name} has no cursor ({ledger.cursor_key}), but there is {found}: "
            "it has run before, and must not start again from the beginning",
            fix=f"Run `tidegate ledger rebuild {pipeline.name}` to restore the cursor from the table's own history",
            key=ledger.cursor_key,
        )
    return Cursor(pipeline.name)


def commit_batch(
    pipeline: Pipeline,
    key: str,
    receipt: Receipt | None,
    *,
    store: StateStore,
    record_bytes: float | None = None,
    timing: BatchTiming | None = None,
) -> tuple[SavedRange, Cursor, bool]:
    """Move the cursor past the saved range at `key`; returns the range, the cursor, and whether it moved now (not before).

    Args:
        pipeline: whose batch it is.
        key: of the saved range.
        receipt: what the sink holds of it; None where there was nothing to load.
        store: the schedule.
        record_bytes: mean size of the records, where the load observed it.
        timing: what the batch took, where that is known.

    Raises:
        StateError: the schedule cannot be read or believed; `CommitConflict` where the cursor is elsewhere.
        ReceiptMismatch: the receipt does not cover the range.
    """
    ledger = Ledger(store, pipeline.name)
    listing = ledger.listing()
    saved = ledger.saved_range(key)
    cursor = ledger.cursor() if listing.has_cursor else Cursor(pipeline.name)
    accepted = ledger.accepted(listing, saved.seq)
    absent = accepted.absent if accepted else ()
    after = apply(cursor, commit_of(saved, receipt, record_bytes=record_bytes, absent=absent, timing=timing))
    if after is cursor:
        return saved, cursor, False
    if accepted and accepted.creates and receipt is None:  # the table is still to be created
        ledger.save_accepted(Accepted(saved.seq + 1, gone=True))
    ledger.save_cursor(after)
    ledger.prune(listing, committed=after.seq, keep=pipeline.keep_ranges)
    return saved, after, True


def accept_loss(
    pipeline: Pipeline, *, store: StateStore, brokers: Brokers, sink: SinkReader
) -> tuple[Accepted, tuple[SavedRange, ...]]:
    """Record that the next batch may go on after what retention has deleted by now; no other batch, and no later loss.

    A range that was planned before, and never loaded, cannot be loaded any more: its Variables are deleted, and the next run
    plans the batch anew. Returns what was accepted, and these ranges.

    Raises:
        RequestError: nothing is lost.
        StateError, KafkaError: as `plan_batch`.
    """
    ledger, listing, history, cursor = _caught_up(pipeline, store, sink)
    watermarks = read_watermarks(pipeline.source, cursor, brokers)
    pending = {r.key: ledger.saved_range(r.key) for r in listing.of_seq(cursor.seq + 1)}
    receipts = history.receipts(pipeline.name)
    useless = {
        key: saved
        for key, saved in pending.items()
        if deleted_of(saved.to_load, watermarks) and not landed(pipeline, saved, receipts)
    }
    lost = expired_ranges(cursor, watermarks)
    if not lost and not useless:
        raise RequestError(f"{pipeline.name} has lost nothing: every offset after its cursor is retained")
    accepted = _accept(ledger, listing, cursor, loss=lost)
    for key in useless:
        ledger.delete(key)
    return accepted, tuple(useless.values())


def accept_table(pipeline: Pipeline, *, store: StateStore, sink: SinkReader) -> Accepted:
    """Record that the schedule may go on though the table does not hold all that is committed; no later loss is accepted.

    What is missing by now is kept in the cursor as absent once the next batch is committed.

    Raises:
        RequestError: nothing is missing.
        StateError, SinkUnavailable: as `plan_batch`.
    """
    ledger, listing, history, cursor = _caught_up(pipeline, store, sink)
    missing = missing_in_table(pipeline, ledger, listing, cursor, sink=sink, history=history)
    if missing is None:
        raise RequestError(
            f"table {pipeline.sink.table} holds all that {pipeline.name} has committed: there is nothing to accept"
        )
    return _accept(ledger, listing, cursor, absent=missing.ranges, gone=not history.exists)


def accept_recreated(pipeline: Pipeline, topic: str, *, store: StateStore, brokers: Brokers, sink: SinkReader) -> Accepted:
    """Record that the next batch may start `topic` anew, under the id that it has now.

    The new topic's records have the origins of the old one's: loading them replaces the old rows with the same offsets.

    Raises:
        RequestError: the topic is not the pipeline's, or has not been created again.
        StateError, KafkaError: as `plan_batch`.
    """
    ledger, listing, _, cursor = _caught_up(pipeline, store, sink)
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
    absent: tuple[OffsetRange, ...] | None = None,
    gone: bool = False,
) -> Accepted:
    before = ledger.accepted(listing, cursor.seq + 1) or Accepted(cursor.seq + 1)
    accepted = Accepted(
        before.seq,
        before.loss if loss is None else loss,
        {**before.recreated, **(recreated or {})},
        before.absent if absent is None else absent,
        before.gone or gone,
    )
    ledger.save_accepted(accepted)
    return accepted

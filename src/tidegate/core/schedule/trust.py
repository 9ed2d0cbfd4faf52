"""The fence: how far saved state is believed.

Airflow Variables have no compare-and-set and no fencing token, so a task that was given up may still write one, and people
edit them. Nothing is planned on a value that others do not bear out: a cursor by its last batch and by the table's own commits,
a waiting range by the cursor, a range that is to be loaded again by the ids of its topics. What stays open is in
docs/exactly-once.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidegate.core.audit.rebuild import rebuild, saved_of
from tidegate.core.audit.table import Missing, TableHistory, find_missing
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.errors import CommitConflict, OffsetsExpired, RangeForgotten, StateCorrupt, some
from tidegate.core.load.cutting import Box
from tidegate.core.load.receipt import Receipt, task_properties
from tidegate.core.offsets.ranges import OffsetRange
from tidegate.core.ports import Brokers, SinkReader
from tidegate.core.replay.chunks import common, merged
from tidegate.core.schedule.commit import RequireCursorAt, apply, commit_of, outcome_of, requirement_of
from tidegate.core.schedule.plan import Accepted, SavedRange, Watermarks, check_same_topics, deleted_of
from tidegate.core.state.cursor import REPAIR, Cursor
from tidegate.core.state.ledger import Ledger, Listing

AS_THEY_ARE = "The rows stay as the old topic's records made them"


def missing_in_table(
    pipeline: Pipeline,
    ledger: Ledger,
    listing: Listing,
    cursor: Cursor,
    *,
    sink: SinkReader,
    history: TableHistory,
    accepted: Accepted | None = None,
) -> Missing | None:
    """What the table does not hold of the committed batches and is not accepted; see `tidegate.core.audit.table.find_missing`.

    A table that is gone is missing as a whole, also where nothing that the cursor names was in it: it may hold rows of topics
    that were retired since.

    Raises:
        SinkUnavailable: the table's files cannot be read.
        StateCorrupt: something is missing, and a saved range cannot be read.
    """
    if accepted is not None:
        cursor = replace(cursor, absent=merged([*cursor.absent, *accepted.absent]))

    def saved() -> list[SavedRange]:
        return [ledger.saved_range(key) for key in listing.committed(cursor.seq)]

    def files() -> list[Box]:
        return sink.files(pipeline.sink.table, by_batch=pipeline.identity == "batch")

    missing = find_missing(cursor, history, saved, files)
    if missing is not None and (before := accepted_before(pipeline, ledger, listing, cursor, history)):
        cursor = replace(cursor, absent=merged([*cursor.absent, *before]))
        missing = find_missing(cursor, history, saved, files)
    if missing is None and not history.exists and cursor.receipt is not None and not (accepted and accepted.creates):
        return Missing((), (), "there is no such table")
    return missing


def accepted_before(
    pipeline: Pipeline, ledger: Ledger, listing: Listing, cursor: Cursor, history: TableHistory
) -> tuple[OffsetRange, ...]:
    """What was accepted as absent for the next batch when it was committed before, and the cursor was put back since.

    The acceptance was deleted then; a saved range of the batch still has it. A range that has not landed says nothing: its
    acceptance counts only as long as it is there.
    """
    saved = [ledger.saved_range(key.key) for key in listing.of_seq(cursor.seq + 1)]
    receipts = history.receipts(pipeline.name) if any(each.absent for each in saved) else ()
    return merged(
        r
        for each in saved
        if each.absent and each.generation == cursor.generation and landed(pipeline, each, receipts)
        for r in each.absent
    )


def present_again(pipeline: Pipeline, cursor: Cursor, history: TableHistory) -> tuple[OffsetRange, ...]:
    """What of the cursor's absent ranges replays have loaded since; it counts as committed again."""
    if not cursor.absent:
        return ()
    return common(cursor.absent, [r for receipt in history.replayed(pipeline.name) for r in receipt.load.ranges])


def check_borne_out(pipeline: Pipeline, ledger: Ledger, listing: Listing, cursor: Cursor, history: TableHistory) -> None:
    """The cursor stands where its last batch ended: by the saved range, or, where somebody wrote over that, by the receipts.

    Raises:
        StateCorrupt: it stands elsewhere.
    """
    ends = [replace(outcome_of(ledger.saved_range(r.key)), generation=cursor.generation) for r in listing.of_seq(cursor.seq)]
    if not ends or any(end.holds_for(cursor) for end in ends):
        return
    receipts = [r for r in history.receipts(pipeline.name) if r.load.replay or r.load.seq <= cursor.seq]
    last = [r.load for r in receipts if r.load.task == task_properties(pipeline.name, cursor.seq)]
    if last:
        made = rebuild(pipeline.name, receipts).cursor
        # what was retired since is in older receipts, and in no newer one
        known = cursor.offsets.keys() | {r.topic_partition for load in last for r in load.ranges}
        offsets = {tp: offset for tp, offset in made.offsets.items() if tp in known}
        if RequireCursorAt(cursor.seq, offsets, generation=cursor.generation, topic_ids=made.topic_ids).holds_for(cursor):
            return
    raise StateCorrupt(
        f"{ledger.cursor_key}: batch {cursor.seq} did not lead to where the cursor is, so that records would be skipped "
        f"or read twice: {some(ends[0].faults(cursor))}",
        fix=REPAIR.format(pipeline=ledger.pipeline),
        key=ledger.cursor_key,
    )


def check_not_passed(
    pipeline: Pipeline, ledger: Ledger, cursor: Cursor, waiting: SavedRange | None, history: TableHistory
) -> None:
    """The sink's commits are the truth: a cursor that they have passed was written over, or comes from a backup.

    Raises:
        StateCorrupt: the table holds a later batch than the cursor and the range that waits.
    """
    reached = history.reached(pipeline.name)
    last = cursor.seq if waiting is None else waiting.seq
    if reached is not None and (reached[0] > cursor.generation or reached[1] > last):
        raise StateCorrupt(
            f"{ledger.cursor_key}: the cursor is at batch {cursor.seq} (generation {cursor.generation}), but the table holds "
            f"batch {reached[1]} (generation {reached[0]}), which no saved range is waiting for",
            fix=REPAIR.format(pipeline=ledger.pipeline),
            key=ledger.cursor_key,
        )


def catch_up(pipeline: Pipeline, ledger: Ledger, listing: Listing, cursor: Cursor, history: TableHistory) -> Cursor:
    """The cursor behind the last batch but one that is saved: a range is saved only after the one before was committed.

    So a cursor that stands earlier was put back: by a commit that was stopped between its check and its write, and woke up
    late, or by a backup. The commits are done again, as far as the table holds them. One that was not put back is returned.

    Raises:
        StateCorrupt: the table does not hold them, so nobody can tell how far the schedule is; or the cursor was never there.
    """
    if not any(r.seq > cursor.seq + 1 for r in listing.ranges):
        return cursor
    found, receipts, last = cursor, history.receipts(pipeline.name), listing.ranges[-1]
    for seq in range(cursor.seq + 1, last.seq):
        copies = [ledger.saved_range(r.key) for r in listing.of_seq(seq)]
        for saved in copies:
            receipt = landed(pipeline, saved, receipts)
            if requirement_of(saved).holds_for(cursor) and (receipt or not saved.to_load):
                absent = [r for copy in copies for r in copy.absent]
                cursor = apply(cursor, commit_of(saved, receipt, absent=absent))
                break
        else:
            check_borne_out(pipeline, ledger, listing, found, history)
            raise StateCorrupt(
                f"{last.key}: batch {last.seq} is saved, but the cursor is at batch {cursor.seq}, and the table does not tell "
                "how to go on from there",
                fix=REPAIR.format(pipeline=ledger.pipeline),
                key=last.key,
            )
    return cursor


def waiting_range(ledger: Ledger, listing: Listing, cursor: Cursor) -> SavedRange | None:
    """The saved range of the batch after the cursor, by whoever planned it first; None where nobody has.

    Raises:
        CommitConflict: it does not start at the cursor.
    """
    candidates = [ledger.saved_range(r.key) for r in listing.of_seq(cursor.seq + 1)]
    if not candidates:
        return None
    first = min(candidates, key=lambda s: (s.planned_at_ms, s.run_id))
    faults = some(requirement_of(first).faults(cursor))
    if faults:
        key = ledger.range_key(first.seq, first.run_id)
        raise CommitConflict(
            f"{key}: the range of batch {first.seq} does not start at the cursor, so that records would be skipped or read "
            f"twice: {faults}",
            fix=f"Run `airflow variables delete {key}`: the next run plans the batch anew",
            key=key,
        )
    return first


def check_loadable(
    pipeline: Pipeline, key: str, saved: SavedRange, brokers: Brokers, history: TableHistory, *, redo: bool
) -> None:
    """A range that was saved before is loaded only from the topics that it was planned for, and while these hold its records.

    What the table holds already needs no log any more, unless it is to be loaded again.

    Raises:
        OffsetsExpired: retention has passed the range.
        TopicRecreated, KafkaError: as `check_topics`.
    """
    if not saved.to_load or (not redo and landed(pipeline, saved, history.receipts(pipeline.name))):
        return
    drop = f"Run `airflow variables delete {key}`: the next run tells how to start the topic anew"
    since, fix = f"batch {saved.seq} was planned", AS_THEY_ARE if redo else drop
    watermarks = check_topics(pipeline, saved.topic_ids, saved.to_load, brokers, since=since, fix=fix)
    expired = deleted_of(saved.to_load, watermarks)
    if expired:
        told = some(f"{r} = {r.count} offsets" for r in expired)
        raise OffsetsExpired(
            f"retention deleted records of batch {saved.seq} of {pipeline.name} after it was planned: {told}",
            fix="The rows of this batch stay as they are; what is still retained of it can be replayed by offsets"
            if redo
            else f"Nothing was skipped. To record the loss and go on, run `tidegate accept loss {pipeline.name}`",
            lost=told,
        )


def check_topics(
    pipeline: Pipeline,
    topic_ids: Mapping[str, str],
    ranges: Sequence[OffsetRange],
    brokers: Brokers,
    *,
    since: str,
    fix: str = AS_THEY_ARE,
) -> Watermarks:
    """Ranges that were planned before are loaded only from the topics that they were planned for, by their ids.

    Returns what the brokers hold of these topics. `since` and `fix` are for the error, as in `check_same_topics`.

    Raises:
        TopicRecreated: a topic was deleted and created again since.
        KafkaError: the brokers cannot tell.
    """
    planned = {topic: topic_ids[topic] for topic in sorted({r.topic for r in ranges}) if topic in topic_ids}
    found = brokers.watermarks(list(planned), isolation_level=pipeline.source.isolation_level)
    check_same_topics(planned, found.topic_ids, since=since, fix=fix)
    return found


def forgotten_range(
    pipeline: Pipeline,
    ledger: Ledger,
    listing: Listing,
    cursor: Cursor,
    history: TableHistory,
    run_id: str,
    ran_at_ms: int | None,
) -> SavedRange | None:
    """The committed range of a run whose Variable was pruned, by the run's receipt; None for a run that never saved a range.

    Args:
        pipeline: whose run it is.
        ledger: the schedule.
        listing: what is saved; it holds no range of the run.
        cursor: how far the schedule is.
        history: the table's commits.
        run_id: of the run.
        ran_at_ms: when the run was created (epoch ms), if it was cleared since; None for one that runs for the first time.

    Raises:
        RangeForgotten: it may have saved a range, and nothing is known of that any more.
    """
    receipt = history.batch_of_run(pipeline.name, run_id)
    if receipt is not None and receipt.load.seq <= cursor.seq:
        return saved_of(receipt, receipt.load.generation)
    if ran_at_ms is None or not cursor.seq:
        return None
    oldest = listing.ranges[0] if listing.ranges else None
    # Ranges are pruned from the oldest on: one that this run had saved would be among those that are kept.
    if oldest is not None and (oldest.seq == 1 or ledger.saved_range(oldest.key).planned_at_ms <= ran_at_ms):
        return None
    raise RangeForgotten(
        f"run {run_id} of {pipeline.name} ran before, and its range is not known any more: its Variable was pruned "
        f"(`keep_ranges: {pipeline.keep_ranges}`), and no snapshot of {pipeline.sink.table} carries its receipt",
        fix="Nothing was planned. Load its records by time or offsets: "
        f"`tidegate replay {pipeline.name} --since TIME --until TIME`",
        run_id=run_id,
    )


def landed(pipeline: Pipeline, saved: SavedRange, receipts: Sequence[Receipt]) -> Receipt | None:
    """The newest of the receipts that tells that the table holds all of the saved range."""
    task = task_properties(pipeline.name, saved.seq)
    return next((r for r in reversed(receipts) if r.load.task == task and r.covers(saved.to_load)), None)

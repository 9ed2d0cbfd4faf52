"""Which saved state a plan goes on from, and why.

Airflow Variables have no compare-and-set and no fencing token, so a task that was given up may still write one, and people
edit them. No saved value is believed alone: a cursor is checked against its last batch and the table's own commits, a pending
range against the cursor, and a range that is to be loaded again against the ids of its topics. docs/exactly-once.md has what
remains open.

Pure: functions of `Evidence`. The plan calls `believe`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal

from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import (
    CommitConflict,
    CursorLost,
    OffsetsExpired,
    RangeForgotten,
    SinkMisfit,
    StateCorrupt,
    StateNewer,
    some,
)
from tidegate.core.model.ranges import OffsetRange, merged
from tidegate.core.model.watermarks import Watermarks, check_same_topics, deleted_of, other_topics
from tidegate.core.planning.admission import check_origins
from tidegate.core.planning.commit import faults, moved, other_ids, other_offsets
from tidegate.core.planning.evidence import Evidence, read_evidence
from tidegate.core.planning.rebuild import saved_of
from tidegate.core.state.cursor import REPAIR, Accepted, Cursor, Position
from tidegate.core.state.history import GONE, Missing, find_missing
from tidegate.core.state.ledger import cursor_key, range_key
from tidegate.core.state.ports import SinkReader, StateStore
from tidegate.core.state.receipt import Receipt, covering, task_properties
from tidegate.core.state.saved_range import SavedRange

KEEP_ROWS = "The rows stay as the old topic's records made them"


@dataclass(frozen=True)
class Belief:
    """What a plan goes on from.

    `cursor` is how far the schedule is, and `caught_up_from` the batch of a saved cursor that something had put back: `cursor`
    has to be written then. `accepted` is what an operator accepted for the batch after it. `saved` is the range that this run
    has to read, if one is known already, with this run's `run_id`: its `own` from an earlier try, or `adopted` from the run
    that planned it. `key` is that of the range as it is saved, or, where it was `pruned`, as it has to be saved again. `redo`:
    the batch of an own range is committed, and this run loads it again. `needs_log`: the log has to hold `saved`; not so where
    the table holds it already, and it is not loaded again. `create`: the load may create the table, since no batch has written
    to it, or an operator has accepted that it is gone.
    """

    cursor: Cursor
    caught_up_from: int | None = None
    _: KW_ONLY
    accepted: Accepted | None = None
    saved: SavedRange | None = None
    origin: Literal["own", "adopted"] = "own"
    key: str = ""
    redo: bool = False
    pruned: bool = False
    needs_log: bool = False
    create: bool = True


def believe(evidence: Evidence, run_id: str, ran_at_ms: int | None = None) -> Belief:
    """What the plan of a run goes on from.

    The evidence has the run's own range, and for a cleared run the oldest one. `ran_at_ms` is when the run was created (epoch
    ms), if it was cleared since; None for one that runs for the first time. Raises StateError: what is saved contradicts itself
    or the table (`CommitConflict` where the pending range does not start at the cursor, `RangeForgotten` where nothing is known
    any more of what a cleared run has loaded). SinkMisfit: rows of the table have no origin, and nobody has accepted that.
    TableLost: the table does not hold what the cursor has committed.
    """
    pipeline, saved_cursor = evidence.pipeline, evidence.cursor
    own = evidence.listing.of_run(run_id)
    # a batch that the cursor has passed is loaded again wherever the schedule is
    cursor = saved_cursor if own is not None and own.seq <= saved_cursor.seq else caught_up(evidence)
    caught_up_from = saved_cursor.seq if cursor.seq > saved_cursor.seq else None
    accepted = evidence.accepted(cursor)
    check_table(evidence)
    missing = missing_in_table(evidence, cursor, accepted)
    if missing is not None:
        raise missing.lost_by(pipeline.name, pipeline.sink.table)
    create = cursor.receipt is None or bool(accepted and accepted.creates)
    if own is not None:
        saved, redo = evidence.range_at(own.key), own.seq <= cursor.seq
        known = Belief(cursor, caught_up_from, accepted=accepted, create=create)
        return replace(known, saved=saved, key=own.key, redo=redo, needs_log=_needs_log(evidence, saved, redo=redo))
    forgotten = forgotten_range(evidence, cursor, run_id, ran_at_ms)
    if forgotten is not None:
        key = range_key(pipeline.name, forgotten.load.seq, run_id)
        needs_log = bool(forgotten.load.nonempty)
        return Belief(cursor, saved=forgotten, key=key, redo=True, pruned=True, needs_log=needs_log, create=False)
    check_cursor(evidence)
    pending = pending_range(evidence, cursor)
    check_not_passed(evidence, cursor, pending)
    if pending is None:
        return Belief(cursor, caught_up_from, accepted=accepted, create=create)
    return Belief(
        cursor,
        caught_up_from,
        accepted=with_earlier(evidence, cursor, accepted),
        saved=pending.adopted_by(run_id),
        origin="adopted",
        key=range_key(pipeline.name, pending.load.seq, pending.load.run_id),
        needs_log=_needs_log(evidence, pending),
        create=create,
    )


def check_table(evidence: Evidence) -> None:
    """Refuse a table whose rows have no origin; see `tidegate.core.planning.admission`.

    Raises SinkMisfit: it is refused. StateCorrupt: as `caught_up`, where rows have no origin.
    """
    accepted = evidence.without_origin is not None and foreign_accepted(evidence)
    check_origins(evidence.pipeline, evidence.history, accepted=accepted, without_origin=evidence.without_origin)


def foreign_accepted(evidence: Evidence) -> bool:
    """Whether rows of the pipeline's table have no origin, and an operator has accepted that. Raises StateCorrupt."""
    table = evidence.pipeline.sink.table
    if evidence.cursor.at.foreign == table or evidence.without_origin is None:
        return evidence.cursor.at.foreign == table
    cursor = caught_up(evidence)
    accepted = with_earlier(evidence, cursor, evidence.accepted(cursor))
    return table in (cursor.at.foreign, accepted.foreign if accepted else "")


def misfit_of(pipeline: Pipeline, store: StateStore, sink: SinkReader) -> SinkMisfit | StateNewer | None:
    """Why the pipeline must not load into its table from here; None where it may, or its ledger cannot be believed.

    Raises StateUnavailable, SinkUnavailable: the store or the sink cannot be read.
    """
    try:
        check_table(read_evidence(pipeline, store, sink))
    except (SinkMisfit, StateNewer) as error:
        return error
    except (CursorLost, StateCorrupt):
        pass  # the next plan names it
    return None


def missing_in_table(evidence: Evidence, cursor: Cursor, accepted: Accepted | None = None) -> Missing | None:
    """What the table does not hold of the committed batches and is not accepted (`tidegate.core.state.history.find_missing`).

    A table that is gone is missing as a whole. Raises StateCorrupt: something is missing, and a saved range cannot be read.
    """

    def find(accepted: Accepted | None) -> Missing | None:
        absent = accepted.absent if accepted else ()
        return find_missing(cursor, evidence.history, lambda: evidence.committed(cursor.seq), accepted=absent)

    missing = find(accepted)
    if missing is not None and (earlier := with_earlier(evidence, cursor, accepted)) is not accepted:
        missing = find(earlier)
    gone = not evidence.history.exists and cursor.receipt is not None and not (accepted and accepted.creates)
    return GONE if missing is None and gone else missing


def with_earlier(evidence: Evidence, cursor: Cursor, accepted: Accepted | None) -> Accepted | None:
    """With what was accepted for the next batch when it was committed before, and the cursor was put back since.

    The acceptance was deleted then; the batch's saved range leads to where partitions begin anew. A range that has not landed
    proves nothing: what was accepted for it counts only as long as the acceptance is there.
    """
    for saved in evidence.ranges_of(cursor.seq + 1):
        other, after = other_topics(cursor.at.topic_ids, saved.load.topic_ids), saved.after
        anew = [
            OffsetRange(tp.topic, tp.partition, cursor.at.starts.get(tp, 0), until)
            for tp, until in cursor.at.offsets.items()
            if cursor.at.starts.get(tp, 0) < min(until, after.starts.get(tp, 0)) and tp.topic not in other
        ]
        news = anew or after.foreign != cursor.at.foreign
        if news and saved.load.generation == cursor.generation and landed(evidence.pipeline, saved, evidence.receipts):
            known = accepted or Accepted(seq=cursor.seq + 1)
            accepted = replace(known, absent=merged([*known.absent, *anew]), foreign=known.foreign or after.foreign)
    return accepted


def check_cursor(evidence: Evidence) -> None:
    """The saved cursor is where its last batch leads: by the saved range, or, where that was overwritten, by the receipt.

    Raises StateCorrupt: it is elsewhere.
    """
    cursor = evidence.cursor
    plans = evidence.ranges_of(cursor.seq)
    if not plans or any(_is_at(cursor, plan.after) for plan in plans):
        return
    task = task_properties(cursor.pipeline, cursor.seq)
    if any(r.load.after and _is_at(cursor, r.load.after) for r in evidence.receipts if r.load.task == task):
        return
    differs = some(_differences(cursor, plans[0].after))
    fault = f"the cursor does not match the end of batch {cursor.seq}, so records would be skipped or read twice: {differs}"
    raise _unbelievable(cursor, fault)


def _is_at(cursor: Cursor, position: Position) -> bool:
    """Whether the cursor is at a position, apart from what an operator accepted after that was planned."""
    starts = {tp: max(at, cursor.at.starts.get(tp, at)) for tp, at in position.starts.items()}
    return cursor.at == replace(position, starts=starts, foreign=cursor.at.foreign)


def _differences(cursor: Cursor, position: Position) -> Iterator[str]:
    yield from other_offsets(cursor, {**dict.fromkeys(cursor.at.offsets), **position.offsets})
    yield from other_ids(cursor, position.topic_ids)
    for name in ("topic_ids", "starts", "former"):
        if getattr(cursor.at, name) != getattr(position, name):
            yield f"its {name} differ"


def check_not_passed(evidence: Evidence, cursor: Cursor, pending: SavedRange | None) -> None:
    """The sink's commits are the truth: a cursor that they have passed was overwritten, or comes from a backup.

    Raises StateCorrupt: the table holds a later batch than the cursor and the pending range.
    """
    reached = evidence.history.reached(cursor.pipeline)
    last = cursor.seq if pending is None else pending.load.seq
    if reached is not None and (reached[0] > cursor.generation or reached[1] > last):
        raise _unbelievable(
            cursor,
            f"the cursor is at batch {cursor.seq} (generation {cursor.generation}), but the table holds batch {reached[1]} "
            f"(generation {reached[0]}), for which there is no pending range",
        )


def _unbelievable(cursor: Cursor, fault: str, key: str | None = None) -> StateCorrupt:
    """The error of what is saved at a key; None: at the cursor's."""
    key = key or cursor_key(cursor.pipeline)
    return StateCorrupt(f"{key}: {fault}", fix=REPAIR.format(pipeline=cursor.pipeline), key=key)


def caught_up(evidence: Evidence) -> Cursor:
    """The cursor after the last batch but one that is saved: a range is saved only after the one before was committed.

    So an earlier cursor was put back: by a backup, or by a commit that was suspended between its check and its write. The
    commits are repeated, as far as the table holds them. Any other cursor is returned as it is. Raises StateCorrupt: the table
    does not hold the batches, so nobody knows how far the schedule is; or the cursor was never there.
    """
    cursor = evidence.cursor
    if not any(r.seq > cursor.seq + 1 for r in evidence.listing.ranges):
        return cursor
    receipts, last = evidence.receipts, evidence.listing.ranges[-1]
    for seq in range(cursor.seq + 1, last.seq):
        # the copy of a run that adopted the range has what was accepted since
        for saved in sorted(evidence.ranges_of(seq), key=lambda saved: sum(saved.after.starts.values()), reverse=True):
            receipt = landed(evidence.pipeline, saved, receipts)
            if (receipt or not saved.load.nonempty) and not list(faults(cursor, saved)):
                cursor = moved(cursor, saved, receipt)
                break
        else:
            check_cursor(evidence)
            at = f"the cursor is at batch {cursor.seq}, and the table's commits do not continue from that batch"
            raise _unbelievable(cursor, f"batch {last.seq} is saved, but {at}", last.key)
    return cursor


def pending_range(evidence: Evidence, cursor: Cursor) -> SavedRange | None:
    """The saved range of the batch after the cursor, by whoever planned it first; None where nobody has.

    Raises CommitConflict: it does not start at the cursor.
    """
    candidates = evidence.ranges_of(cursor.seq + 1)
    if not candidates:
        return None
    first = min(candidates, key=lambda saved: (saved.planned_at_ms, saved.load.run_id))
    differs = some(faults(cursor, first))
    if differs:
        key = range_key(evidence.pipeline.name, first.load.seq, first.load.run_id)
        raise CommitConflict(
            f"{key}: the range of batch {first.load.seq} does not start at the cursor, so records would be skipped or "
            f"read twice: {differs}",
            fix=f"Run `tidegate ledger drop {evidence.pipeline.name} {key}`: the next run plans the batch anew",
            key=key,
        )
    return first


def check_loadable(pipeline: Pipeline, saved: SavedRange, key: str, watermarks: Watermarks, *, redo: bool) -> None:
    """A range that was saved before is loaded only from the topics that it was planned for, and while these hold its records.

    `redo`: its batch is committed. Raises TopicRecreated: a topic was deleted and created again. OffsetsExpired: retention has
    passed the range, or a topic of it is gone.
    """
    drop = f"Run `tidegate ledger drop {pipeline.name} {key}`: the error of the next run names how to start the topic anew"
    check_same_topics(
        ids_of(saved.load.nonempty, saved.load.topic_ids),
        watermarks.topic_ids,
        since=f"batch {saved.load.seq} was planned",
        fix=KEEP_ROWS if redo else drop,
    )
    expired = deleted_of(saved.load.nonempty, watermarks)
    if expired:
        lost = some(f"{r} = {r.count} offsets" for r in expired)
        raise OffsetsExpired(
            f"records of batch {saved.load.seq} of {pipeline.name} were deleted after it was planned: {lost}",
            fix="The rows of this batch stay as they are; what is still retained of it can be replayed by offsets"
            if redo
            else f"Nothing was skipped. To record the loss and go on, run `tidegate accept loss {pipeline.name}`",
            lost=lost,
        )


def ids_of(ranges: Iterable[OffsetRange], topic_ids: Mapping[str, str]) -> dict[str, str]:
    """The ids of the topics of the ranges, as far as they are known."""
    return {topic: topic_ids[topic] for topic in sorted({r.topic for r in ranges}) if topic in topic_ids}


def forgotten_range(evidence: Evidence, cursor: Cursor, run_id: str, ran_at_ms: int | None) -> SavedRange | None:
    """The committed range of a run whose Variable was pruned, by the run's receipt; None for a run that never saved a range.

    The listing holds no range of the run. `ran_at_ms` is as in `believe`. Raises RangeForgotten: it may have saved a range, and
    nothing is known of that any more.
    """
    pipeline, listing = evidence.pipeline, evidence.listing
    receipt = evidence.history.batch_of_run(pipeline.name, run_id)
    if receipt is not None and receipt.load.seq <= cursor.seq:
        return saved_of(receipt, receipt.load.generation)
    if ran_at_ms is None or not cursor.seq:
        return None
    oldest = listing.ranges[0] if listing.ranges else None
    # The oldest ranges are pruned first: if this run had saved a range after the oldest one that is kept, it would be kept too.
    if oldest is not None and (oldest.seq == 1 or evidence.range_at(oldest.key).planned_at_ms <= ran_at_ms):
        return None
    raise RangeForgotten(
        f"run {run_id} of {pipeline.name} ran before, and its range is no longer known: its Variable was pruned "
        f"(`keep_ranges: {pipeline.keep_ranges}`), and no snapshot of {pipeline.sink.table} carries its receipt",
        fix="Nothing was planned. Load its records by time or offsets: "
        f"`tidegate replay {pipeline.name} --since TIME --until TIME`",
        run_id=run_id,
    )


def _needs_log(evidence: Evidence, saved: SavedRange, *, redo: bool = False) -> bool:
    """As of a `Belief`; of a range without offsets, and of one that is loaded again, no receipt is read."""
    return bool(saved.load.nonempty) and (redo or landed(evidence.pipeline, saved, evidence.receipts) is None)


def landed(pipeline: Pipeline, saved: SavedRange, receipts: Sequence[Receipt]) -> Receipt | None:
    """The newest of the receipts that covers all of the saved range."""
    return next(covering(receipts, task_properties(pipeline.name, saved.load.seq), saved.load.nonempty), None)

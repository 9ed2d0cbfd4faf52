"""A schedule restored from the table's own commits, and what of a table's missing batches can be loaded again from the log.

A schedule is rebuilt, compared with the table and the log, and only then written. Nothing is written where the table lacks
offsets before the rebuilt cursor: a person decides that. On ports, as `tidegate.core.planning.run`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from tidegate.core.audit.readable import Readable
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.config.values import StartGroup
from tidegate.core.model.errors import RequestError, StateError, some
from tidegate.core.model.ranges import OffsetRange, selection_to_json, without
from tidegate.core.planning.commit import faults, moved
from tidegate.core.planning.rebuild import Rebuilt, rebuild
from tidegate.core.state.cursor import Accepted, Cursor
from tidegate.core.state.history import Missing, TableHistory, find_missing, loadable
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.ports import Brokers, SinkReader, StateStore
from tidegate.core.state.saved_range import SavedRange


def offsets_to_reload(
    pipeline: Pipeline,
    cursor: Cursor,
    missing: Missing,
    *,
    store: StateStore,
    brokers: Callable[[], Brokers],
    accept_loss: bool,
) -> tuple[OffsetRange, ...]:
    """The missing offsets that the log still holds.

    The saved ranges are read where rows are known by their batch, and the log is opened only where the cursor names what is
    missing. `accept_loss` leaves out what the log no longer holds. Raises RequestError: nothing can be loaded again, or not all
    of it and that is not accepted; the message names what. StateUnavailable: the store does not answer. KafkaError: the brokers
    do not answer.
    """
    table, accept_table = pipeline.sink.table, f"`tidegate accept table {pipeline.name}`"
    if not missing.ranges:
        raise RequestError(
            f"{table} is gone, and the cursor names none of the offsets that it held",
            fix=f"Restore it, or run {accept_table} to let the next load create it",
        )
    retained = _retained(pipeline, cursor, missing, store, brokers())
    if not retained or (retained != missing.ranges and not accept_loss):
        lost = some(map(str, without(missing.ranges, retained)))
        raise RequestError(
            f"{table} lacks offsets that cannot be loaded again ({lost}): retention deleted them, their "
            "topic is gone or was created again, or they are a part of a batch of aggregates",
            fix=("Give --accept-loss to load the rest, then run " if retained else "To go on without them, run ")
            + accept_table,
        )
    return retained


def _retained(
    pipeline: Pipeline, cursor: Cursor, missing: Missing, store: StateStore, brokers: Brokers
) -> tuple[OffsetRange, ...]:
    topics = brokers.match_topics("|".join(sorted({re.escape(r.topic) for r in missing.ranges})))
    watermarks = brokers.watermarks(topics, isolation_level=pipeline.source.isolation_level)
    if not missing.by_batch:
        return loadable(missing, cursor, watermarks)
    ledger = Ledger(store, pipeline.name)
    return loadable(missing, cursor, watermarks, map(ledger.saved_range, ledger.listing().committed(cursor.seq)))


@dataclass(frozen=True)
class Restored:
    """What was rebuilt, or would be.

    `batches` is how many saved ranges were made, `notes` are what the receipts leave open, `gaps` the offsets before the cursor
    that no receipt covers: their partitions begin where the cursor is. `refused` is why this is not written without a person's
    decision, None where it is. `written` is whether it was saved, `deleted` are the keys that were deleted with it.
    """

    pipeline: str
    _: KW_ONLY
    cursor: Cursor
    batches: int
    notes: tuple[str, ...] = ()
    gaps: tuple[OffsetRange, ...] = ()
    refused: StateError | None = None
    written: bool = False
    deleted: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; without the refusal, which is the error that follows."""
        shown = {name: value for name, value in vars(self).items() if name != "refused"}
        return {**shown, "cursor": self.cursor.to_json(), "gaps": selection_to_json(self.gaps)}


def restore(
    pipeline: Pipeline, *, store: StateStore, sink: SinkReader, accept_gaps: bool = False, save: bool = True
) -> Restored:
    """Cursor and saved ranges from the table's receipts, saved in place of those that are there.

    None of the pipeline's runs may be active. What can be read of the saved state completes the receipts. `accept_gaps` lets
    partitions that the table is not proved to hold all offsets of begin anew, where the cursor is, and topics that no batch is
    known of where `source.start` says. Without `save` nothing is written, and the refusal is returned instead of raised. Raises
    StateError: the table holds no receipt of a batch, or there is what has to be accepted. StateNewer: a newer version has
    saved something. StateUnavailable: the store does not answer. SinkError: the table's history cannot be read.
    """
    ledger = Ledger(store, pipeline.name)
    before = Readable(ledger)
    history = sink.history(pipeline.sink.table, expired=True)
    rebuilt = rebuild(
        pipeline.name,
        history.receipts(pipeline.name),
        generation=max([before.cursor.generation, *(plan.load.generation for plan in before.all_ranges)]),
        before=before.cursor,
    )
    rebuilt = _with_empty(rebuilt, before.all_ranges)
    if before.newer is not None:
        raise before.newer
    gaps = _gaps(rebuilt, history, before)
    # batches before the first one of the table's whole history, of which no saved range is left either
    first, saved = rebuilt.ranges[0].load.seq if history.complete else 1, {plan.load.seq for plan in before.all_ranges}
    forgotten = [seq for seq in range(1, first) if seq not in saved]
    refused = None if accept_gaps else _refusal(pipeline, gaps, forgotten, _begins_now(pipeline, rebuilt.cursor))
    cursor = replace(Accepted(seq=rebuilt.cursor.seq, absent=gaps).applied_to(rebuilt.cursor), head=history.head)
    view = Restored(pipeline.name, cursor=cursor, batches=len(rebuilt.ranges), notes=rebuilt.notes, gaps=gaps, refused=refused)
    if not save:
        return view
    if refused is not None:
        raise refused
    deleted = ledger.replace(before.listing, cursor, rebuilt.ranges, keep=pipeline.keep_ranges)
    return replace(view, written=True, deleted=tuple(deleted))


def _with_empty(rebuilt: Rebuilt, saved: Sequence[SavedRange]) -> Rebuilt:
    """With the batches after the newest receipt that hold no records: they fix where partitions begin, and leave no receipt."""
    for plan in sorted(saved, key=lambda plan: plan.load.seq):
        empty, cursor = replace(plan, load=replace(plan.load, generation=rebuilt.cursor.generation)), rebuilt.cursor
        if not plan.load.nonempty and next(faults(cursor, empty), None) is None:
            rebuilt = replace(rebuilt, cursor=moved(cursor, empty, None), ranges=(*rebuilt.ranges, empty))
    return rebuilt


def _gaps(rebuilt: Rebuilt, history: TableHistory, before: Readable) -> tuple[OffsetRange, ...]:
    """Offsets before the rebuilt cursor that no receipt proves the table to hold."""

    def committed() -> list[SavedRange]:
        newest = {plan.load.seq: plan for plan in [*rebuilt.ranges, *before.all_ranges] if plan.load.seq <= rebuilt.cursor.seq}
        return list(newest.values())

    missing = find_missing(rebuilt.cursor, history, committed, lineage=False)
    return () if missing is None else missing.ranges


def _begins_now(pipeline: Pipeline, cursor: Cursor) -> list[str]:
    """Topics of which no batch is known, and which would begin elsewhere now than they did, if one has read them."""
    moves = pipeline.source.start == "latest" or isinstance(pipeline.source.start, StartGroup)
    return sorted({*pipeline.source.named} - {tp.topic for tp in cursor.at.offsets}) if moves else []


def _refusal(
    pipeline: Pipeline, gaps: Sequence[OffsetRange], forgotten: Sequence[int], begins_now: Sequence[str]
) -> StateError | None:
    """What a person has to accept."""
    if gaps:
        return StateError(
            f"no receipt in {pipeline.sink.table} covers offsets before the rebuilt cursor of {pipeline.name}: "
            f"{some(map(str, gaps))}",
            fix="Nothing was written. Give --accept-gaps to go on as the table is; `tidegate replay` loads them afterwards",
        )
    if forgotten:
        return StateError(
            f"nothing is left of batch {some(map(str, forgotten))} of {pipeline.name}: no receipt in {pipeline.sink.table} and "
            "no saved range. It held no records, or is lost",
            fix="Nothing was written. Give --accept-gaps to go on without them; `tidegate replay` loads offsets afterwards",
        )
    if begins_now:
        return StateError(
            f"no receipt in {pipeline.sink.table} and no saved range names {some(begins_now)}, and by `source.start` of "
            f"{pipeline.name} it would begin where it is now: records that came meanwhile would be skipped",
            fix="Nothing was written. Set `start: {offsets: ...}` to where it began, or give --accept-gaps",
        )
    return None

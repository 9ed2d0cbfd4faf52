"""A schedule restored from the table's own commits: rebuilt, compared with the table and the log, and only then written.

Nothing is written where the table lacks offsets before the rebuilt cursor, or where the position of a partition is unknown: a
person decides that. On ports, as `tidegate.core.schedule.run`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tidegate.core.audit.readable import ReadableState, read_state
from tidegate.core.audit.rebuild import Rebuilt, rebuild
from tidegate.core.audit.table import TableHistory, find_missing
from tidegate.core.audit.views.rebuilt import RebuildView
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.errors import StateError, some
from tidegate.core.load.boxes import Box
from tidegate.core.offsets.algebra import merged
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition
from tidegate.core.ports import Brokers, SinkReader, StateStore
from tidegate.core.schedule.topics import read_watermarks
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.saved_range import SavedRange


def restore(
    pipeline: Pipeline,
    positions: Mapping[TopicPartition, int],
    *,
    store: StateStore,
    brokers: Callable[[], Brokers],
    sink: SinkReader,
    accept_gaps: bool = False,
    save: bool = True,
) -> RebuildView:
    """Cursor and saved ranges from the table's receipts, saved in place of those that are there.

    Args:
        pipeline: whose schedule; none of its runs may be active.
        positions: next offsets of partitions that neither a receipt nor a saved range names, from an operator.
        store: the saved state; what can be read of it completes the receipts.
        brokers: opens the log; called only where the position of a partition may be unknown.
        sink: the table.
        accept_gaps: record offsets that the table lacks as absent, and go on behind them.
        save: False for a dry run, which writes nothing and returns the refusal instead of raising it.

    Raises:
        StateError: the table holds no receipt of a batch, the position of a partition is unknown, or there are gaps that
            are not accepted. Nothing was written.
        StateUnavailable: the store does not answer.
        SinkError: the table's history cannot be read.
        KafkaError: the brokers do not answer.
    """
    ledger = Ledger(store, pipeline.name)
    before = read_state(ledger)
    history = sink.history(pipeline.sink.table)
    rebuilt = rebuild(
        pipeline.name,
        sink.receipts(pipeline.sink.table, pipeline.name),
        generation=before.cursor.generation,
        saved=before.ranges,
        positions=positions,
        before=before.cursor,
    )
    unknown = [] if rebuilt.whole else _unknown(pipeline, rebuilt.cursor, brokers())
    gaps = _gaps(pipeline, rebuilt, history, before, sink)
    forgotten = _forgotten(rebuilt, history, before)
    refused = _refusal(pipeline, unknown, gaps, forgotten, begun=rebuilt.begun, accept_gaps=accept_gaps)
    cursor = replace(rebuilt.cursor, absent=merged([*rebuilt.cursor.absent, *gaps])) if gaps else rebuilt.cursor
    view = RebuildView(pipeline.name, cursor, len(rebuilt.ranges), rebuilt.notes, gaps, tuple(unknown), refused)
    if not save:
        return view
    if refused is not None:
        raise refused
    deleted = ledger.replace(before.listing, cursor, rebuilt.ranges, keep=pipeline.keep_ranges)
    return replace(view, written=True, deleted=tuple(deleted))


def _unknown(pipeline: Pipeline, cursor: Cursor, brokers: Brokers) -> list[TopicPartition]:
    """Partitions of the log that the rebuilt cursor does not name: they may have been read, or may be new."""
    watermarks = read_watermarks(pipeline.source, cursor, brokers)
    return sorted(tp for tp in watermarks.latest if tp not in cursor.offsets)


def _gaps(
    pipeline: Pipeline, rebuilt: Rebuilt, history: TableHistory, before: ReadableState, sink: SinkReader
) -> tuple[OffsetRange, ...]:
    """Offsets before the rebuilt cursor that the table does not hold."""

    def committed() -> list[SavedRange]:
        newest = {plan.seq: plan for plan in [*rebuilt.ranges, *before.ranges] if plan.seq <= rebuilt.cursor.seq}
        return list(newest.values())

    def files() -> list[Box]:
        return sink.extents(pipeline.sink.table, by_batch=pipeline.identity == "batch")

    missing = find_missing(rebuilt.cursor, history, committed, files, lineage=False)
    return () if missing is None else missing.ranges


def _forgotten(rebuilt: Rebuilt, history: TableHistory, before: ReadableState) -> list[int]:
    """Batches before the first one of the table's whole history, of which no saved range is left either."""
    first = rebuilt.ranges[0].seq if history.complete else 1
    saved = {plan.seq for plan in before.ranges}
    return [seq for seq in range(1, first) if seq not in saved]


def _refusal(
    pipeline: Pipeline,
    unknown: Sequence[TopicPartition],
    gaps: Sequence[OffsetRange],
    forgotten: Sequence[int],
    *,
    begun: bool,
    accept_gaps: bool,
) -> StateError | None:
    if unknown:
        first = unknown[0]
        return StateError(
            f"the position of {pipeline.name} in {some(map(str, unknown))} is unknown: no receipt and no saved range names it",
            fix=f"Nothing was written. Give the next offset of each, such as --position {first.topic}:{first.partition}:0",
        )
    if gaps and not accept_gaps:
        return StateError(
            f"{pipeline.sink.table} lacks offsets before the rebuilt cursor of {pipeline.name}: {some(map(str, gaps))}",
            fix="Nothing was written. Give --accept-gaps to record them as absent; `tidegate replay` loads them afterwards",
        )
    if forgotten and not accept_gaps:
        return StateError(
            f"nothing is known of batch {some(map(str, forgotten))} of {pipeline.name}: {pipeline.sink.table} has no receipt "
            "of it, and no saved range is left. It held no records, or is lost",
            fix="Nothing was written. Give --accept-gaps to go on without them; `tidegate replay` loads offsets afterwards",
        )
    if not begun and not accept_gaps:
        return StateError(
            f"it is unknown where {pipeline.name} began: the receipts of its first batches have expired, and neither a cursor "
            "nor a saved range of them is left",
            fix="Nothing was written. Give --accept-gaps to let it begin where the oldest receipt does: rows before that stay "
            "in the table, and are neither verified nor reloaded",
        )
    return None

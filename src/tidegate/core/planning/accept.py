"""What an operator accepts for the next batch alone: lost offsets, topics that start anew, a table that lacks rows.

Rows without origin are accepted for the table, and stay accepted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import RequestError
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.model.watermarks import deleted_of
from tidegate.core.planning.admission import check_origins
from tidegate.core.planning.evidence import Evidence, read_evidence
from tidegate.core.planning.plan import expired_ranges
from tidegate.core.planning.topics import left_out, read_unread, read_watermarks, watermarks_of
from tidegate.core.planning.trust import caught_up, foreign_accepted, landed, missing_in_table
from tidegate.core.state.cursor import Accepted, Cursor
from tidegate.core.state.history import Missing
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.ports import Brokers, SinkReader, StateStore
from tidegate.core.state.saved_range import SavedRange


def missing_now(pipeline: Pipeline, *, store: StateStore, sink: SinkReader) -> tuple[Cursor, Missing | None]:
    """The cursor as the next plan will believe it, and what the table lacks of its batches that nobody has accepted."""
    return missing_by(read_evidence(pipeline, store, sink))


def missing_by(evidence: Evidence) -> tuple[Cursor, Missing | None]:
    """As `missing_now`, by what was read already. Raises StateError."""
    cursor = caught_up(evidence)
    return cursor, missing_in_table(evidence, cursor, evidence.accepted(cursor))


def accept_loss(
    pipeline: Pipeline, *, store: StateStore, brokers: Brokers, sink: SinkReader
) -> tuple[Accepted, tuple[SavedRange, ...]]:
    """Record that the next batch may go on after what retention has deleted by now; no other batch, and no later loss.

    Unread records of partitions that the pipeline's file does not name any more are accepted as well.

    A range that was planned before, and never loaded, cannot be loaded any more, as where its topic is gone: its Variables are
    deleted, and the next run plans the batch anew; what is lost of partitions that it was the first to read is accepted too.
    Returns what was accepted, and these ranges. Raises RequestError: nothing is lost.
    """
    evidence = read_evidence(pipeline, store, sink)
    cursor, receipts = caught_up(evidence), evidence.receipts
    watermarks = read_watermarks(pipeline.source, cursor, brokers)
    useless: dict[str, SavedRange] = {}
    begun: dict[TopicPartition, OffsetRange] = {}
    for r in evidence.listing.of_seq(cursor.seq + 1):
        saved = evidence.range_at(r.key)
        deleted = deleted_of(saved.load.nonempty, watermarks_of(pipeline, saved, brokers))
        if deleted and not landed(pipeline, saved, receipts):
            useless[r.key] = saved
            begun |= {d.topic_partition: d for d in deleted if d.topic_partition not in cursor.at.offsets}
    unread = read_unread(pipeline.source, cursor, left_out(pipeline.source, cursor), brokers)
    lost = (*expired_ranges(cursor, watermarks), *unread, *begun.values())
    if not lost and not useless:
        raise RequestError(f"{pipeline.name} has lost nothing: every offset after its cursor is retained, and will be read")
    accepted = _accept(store, evidence, cursor, loss=lost)
    for key in useless:
        store.delete(key)
    return accepted, tuple(useless.values())


def accept_table(pipeline: Pipeline, *, store: StateStore, sink: SinkReader) -> Accepted:
    """Record that the schedule may go on though the table does not hold all that is committed; no later loss is accepted.

    What is missing by now is kept in the cursor as absent once the next batch is committed. Raises RequestError: nothing is
    missing.
    """
    evidence = read_evidence(pipeline, store, sink)
    cursor = caught_up(evidence)
    missing = missing_in_table(evidence, cursor)
    if missing is None:
        raise RequestError(
            f"table {pipeline.sink.table} holds all that {pipeline.name} has committed: there is nothing to accept"
        )
    gone: dict[str, Any] = {} if evidence.history.exists else {"gone": True}
    return _accept(store, evidence, cursor, absent=missing.ranges, **gone)


def accept_foreign(pipeline: Pipeline, *, store: StateStore, sink: SinkReader) -> Accepted:
    """Record that the pipeline may load beside rows without origin, in the table that it has now.

    The next batch keeps it in the cursor. The rows stay, and nothing before the pipeline's start is replayed from then on.
    Raises RequestError: every row has an origin. SinkMisfit: the rows have lost their origin; the fix gives it back.
    """
    evidence = read_evidence(pipeline, store, sink)
    if not evidence.without_origin and not foreign_accepted(evidence):
        raise RequestError(f"every row of {pipeline.sink.table} has an origin: there is nothing to accept")
    if evidence.without_origin == "lost":
        check_origins(pipeline, evidence.history, accepted=True, without_origin=evidence.without_origin)
    return _accept(store, evidence, caught_up(evidence), foreign=pipeline.sink.table)


def accept_recreated(pipeline: Pipeline, topic: str, *, store: StateStore, brokers: Brokers, sink: SinkReader) -> Accepted:
    """Record that the next batch may start `topic` anew, under the id that it has now.

    The new topic's records have the origins of the old one's: loading them replaces the old rows with the same offsets. Raises
    RequestError: the topic is not the pipeline's, or has not been created again.
    """
    evidence = read_evidence(pipeline, store, sink)
    cursor = caught_up(evidence)
    if topic not in cursor.at.topic_ids:
        raise RequestError(
            f"{pipeline.name} has read no topic {topic}",
            fix=f"It has read {', '.join(sorted(cursor.at.topic_ids)) or 'nothing yet'}",
        )
    topic_id = brokers.watermarks([topic], isolation_level=pipeline.source.isolation_level).topic_ids[topic]
    if topic_id == cursor.at.topic_ids[topic]:
        raise RequestError(f"topic {topic} is the one that {pipeline.name} has read: it was not created again")
    return _accept(store, evidence, cursor, recreated={topic: topic_id})


def _accept(
    store: StateStore, evidence: Evidence, cursor: Cursor, *, recreated: dict[str, str] | None = None, **what: Any
) -> Accepted:
    """With what was accepted for the batch before."""
    before = evidence.accepted(cursor) or Accepted(seq=cursor.seq + 1)
    accepted = replace(before, recreated={**before.recreated, **(recreated or {})}, after=cursor.last, **what)
    Ledger(store, evidence.pipeline.name).save_accepted(accepted)
    return accepted

"""What of a table's missing batches can be loaded again."""

from __future__ import annotations

import re
from collections.abc import Callable

from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import RequestError, some
from tidegate.core.model.ranges import OffsetRange, without
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.history import Missing, loadable
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.ports import Brokers, StateStore


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

    Args:
        pipeline: whose table it is.
        cursor: which topics it was read from.
        missing: what the table does not hold.
        store: the saved ranges, which are read where rows are known by their batch.
        brokers: opens the log; called only where the cursor names what is missing.
        accept_loss: leave out what the log no longer holds.

    Raises:
        RequestError: nothing can be loaded again, or not all of it and that is not accepted; the message names what.
        StateUnavailable: the store does not answer.
        KafkaError: the brokers do not answer.
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

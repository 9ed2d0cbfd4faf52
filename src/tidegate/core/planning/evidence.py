"""What a plan decides on: all that the store and the sink hold of one pipeline, read once into one value.

`read_evidence` is the only place where a plan asks the store and the sink; `tidegate.core.planning.trust` decides on the value
what is believed. A saved value that cannot be read is kept as its error, which is raised where a decision needs the value:
a damaged range of one batch does not stop another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import CursorLost, StateCorrupt
from tidegate.core.planning.admission import check_owner
from tidegate.core.state.cursor import Accepted, Cursor
from tidegate.core.state.history import NoOrigin, TableHistory, is_doubted
from tidegate.core.state.ledger import Ledger, Listing, cursor_key
from tidegate.core.state.ports import SinkReader, StateStore
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.saved_range import SavedRange

K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the store and the sink hold of a pipeline.

    `ranges` are saved ranges by key: those of the cursor's batch and of all later ones, the run's own, and, where the table
    does not descend from the cursor's batches, one of each committed batch. `acceptances` are by batch. `cursor` is as it is
    saved, or at the beginning for a pipeline that never ran. `without_origin` is why the table may hold rows without an origin;
    it is not looked at where the cursor says that they are accepted. `current` is the history as the table alone tells it:
    `history` may also have what is kept of expired snapshots.
    """

    pipeline: Pipeline
    listing: Listing
    history: TableHistory
    current: TableHistory
    cursor: Cursor
    ranges: Mapping[str, SavedRange | StateCorrupt]
    acceptances: Mapping[int, Accepted | StateCorrupt]
    without_origin: NoOrigin | None = None

    @cached_property
    def receipts(self) -> list[Receipt]:
        """The pipeline's receipts, oldest commit first, replays too. Raises StateCorrupt: one cannot be read."""
        return self.history.receipts(self.pipeline.name)

    def range_at(self, key: str) -> SavedRange:
        """The saved range at a key. Raises StateCorrupt: it is not what was written."""
        return _readable(self.ranges[key])

    def ranges_of(self, seq: int) -> list[SavedRange]:
        """The saved ranges of a batch: the first plan, and the copies of runs that adopted it. Raises StateCorrupt."""
        return [self.range_at(r.key) for r in self.listing.of_seq(seq)]

    def committed(self, seq: int) -> list[SavedRange]:
        """One saved range of each batch up to `seq`. Raises StateCorrupt."""
        return [self.range_at(key) for key in self.listing.committed(seq)]

    def accepted(self, cursor: Cursor) -> Accepted | None:
        """What an operator accepted for the batch after the cursor. Raises StateCorrupt."""
        value = self.acceptances.get(cursor.seq + 1)
        return None if value is None or not _readable(value).follows(cursor) else _readable(value)


def read_evidence(
    pipeline: Pipeline, store: StateStore, sink: SinkReader, *, run_id: str | None = None, oldest: bool = False
) -> Evidence:
    """What the store and the sink hold of a pipeline now.

    One listing of keys, the cursor, the few saved ranges after it, and one look at the table's commits, however long the
    history is. What is kept of older batches is read where the table does not descend from the cursor's batches. The range of
    the run `run_id` is read too, and the `oldest` that is kept. Raises StateUnavailable, SinkUnavailable: the store or the sink
    cannot be read. SinkMisfit: the table is another pipeline's, or belongs to it under another name. CursorLost: there is no
    cursor, although the pipeline has run before. StateCorrupt: the cursor is not what was written.
    """
    ledger = Ledger(store, pipeline.name)
    listing = ledger.listing()
    table = pipeline.sink.table
    history = current = sink.history(table)
    check_owner(pipeline.name, table, history, shared_with=pipeline.sink.shared_with, by_batch=pipeline.identity == "batch")
    if listing.has_cursor:
        cursor = ledger.cursor()
    else:
        _check_never_ran(pipeline, listing, history)
        cursor = Cursor(pipeline=pipeline.name, seq=0)
    own = None if run_id is None else listing.of_run(run_id)
    near = [r for r in listing.ranges if r.seq >= cursor.seq or r == own or (oldest and r == listing.ranges[0])]
    keys = {r.key for r in near}
    if is_doubted(cursor, history) and not history.complete:
        history = sink.history(table, expired=True)
    if is_doubted(cursor, history):
        keys.update(listing.committed(cursor.seq))
    evidence = Evidence(
        pipeline=pipeline,
        listing=listing,
        history=history,
        current=current,
        cursor=cursor,
        ranges=_kept(sorted(keys), ledger.saved_range),
        acceptances=_kept((n for n in listing.accepted if n > cursor.seq), ledger.accepted_for),
    )
    asks = history.origins.unproved and pipeline.identity == "origin" and (history.origins.moved or cursor.at.foreign != table)
    return replace(evidence, without_origin=sink.without_origin(table)) if asks else evidence


def _check_never_ran(pipeline: Pipeline, listing: Listing, history: TableHistory) -> None:
    """A pipeline without a cursor begins only where nothing is left of a load.

    Where receipts have expired, that is a table with rows that names it as an owner. Its first load may have failed after it
    was named so; what an operator has accepted for the first batch says that none was committed. Raises CursorLost: it has run
    before.
    """
    name, table = pipeline.name, pipeline.sink.table
    later = [r for r in listing.ranges if r.seq > 1]
    expired = not history.complete and history.has_rows and name in history.owners and 1 not in listing.accepted
    if later or (not listing.ranges and (history.loads(name) or expired)):
        remains = f"there is a saved range of batch {later[-1].seq}" if later else f"{table} holds rows of it"
        raise CursorLost(
            f"pipeline {name} has no cursor ({cursor_key(name)}), but {remains}: "
            "it has run before, and must not start again from the beginning",
            fix=f"Run `tidegate ledger rebuild {name}` to restore the cursor from the table's own history",
            key=cursor_key(name),
        )


def _kept(keys: Iterable[K], read: Callable[[K], T]) -> dict[K, T | StateCorrupt]:
    """The value of each key, or the error of reading it."""
    values: dict[K, T | StateCorrupt] = {}
    for key in keys:
        try:
            values[key] = read(key)
        except StateCorrupt as error:
            values[key] = error
    return values


def _readable(value: T | StateCorrupt) -> T:
    if isinstance(value, StateCorrupt):
        raise value
    return value

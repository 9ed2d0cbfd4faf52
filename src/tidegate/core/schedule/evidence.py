"""What a plan decides on: all that the store and the sink hold of one pipeline, read once into one value.

`read_evidence` is the only place where a plan asks the store and the sink; `tidegate.core.schedule.trust` decides on the value
what is believed. A saved value that cannot be read is kept as its error, which is raised where a decision needs the value:
a damaged range of one batch does not stop another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tidegate.core.audit.table import TableHistory, is_doubted
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.errors import CursorLost, StateCorrupt
from tidegate.core.load.boxes import Box
from tidegate.core.load.receipt import Receipt
from tidegate.core.ports import SinkReader, StateStore
from tidegate.core.state.accepted import Accepted
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger, Listing, cursor_key
from tidegate.core.state.saved_range import SavedRange

K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True)
class Evidence:
    """What the store and the sink hold of a pipeline.

    `ranges` are saved ranges by key: those of the cursor's batch and of all later ones, the run's own, and, where the table
    does not descend from the cursor's batches, one of each committed batch; `extents` are read in that case only. `acceptances`
    are by batch. `cursor` is as it is saved, or at the beginning for a pipeline that never ran.
    """

    pipeline: Pipeline
    listing: Listing
    history: TableHistory
    cursor: Cursor
    ranges: Mapping[str, SavedRange | StateCorrupt]
    acceptances: Mapping[int, Accepted | StateCorrupt]
    extents: tuple[Box, ...] = ()

    @property
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

    def accepted(self, seq: int) -> Accepted | None:
        """What an operator accepted for batch `seq`. Raises StateCorrupt."""
        value = self.acceptances.get(seq)
        return None if value is None else _readable(value)


def read_evidence(
    pipeline: Pipeline, store: StateStore, sink: SinkReader, *, run_id: str | None = None, oldest: bool = False
) -> Evidence:
    """What the store and the sink hold of a pipeline now.

    One listing of keys, the cursor, the few saved ranges after it, and one look at the table's commits, however long the
    history is. What is kept of older batches is read where the table does not descend from the cursor's batches.

    Args:
        pipeline: whose.
        store: the schedule.
        sink: the table.
        run_id: the run whose own range is read too.
        oldest: whether the oldest range that is kept is read too.

    Raises:
        StateUnavailable, SinkUnavailable: the store or the sink cannot be read.
        CursorLost: there is no cursor, although the pipeline has run before.
        StateCorrupt: the cursor is not what was written.
    """
    ledger = Ledger(store, pipeline.name)
    listing = ledger.listing()
    history = sink.history(pipeline.sink.table)
    if listing.has_cursor:
        cursor = ledger.cursor()
    else:
        _check_never_ran(pipeline, listing, history)
        cursor = Cursor(pipeline.name)
    own = None if run_id is None else listing.of_run(run_id)
    near = [r for r in listing.ranges if r.seq >= cursor.seq or r == own or (oldest and r == listing.ranges[0])]
    keys = {r.key for r in near}
    extents: list[Box] = []
    if is_doubted(cursor, history):
        keys.update(listing.committed(cursor.seq))
        extents = sink.extents(pipeline.sink.table, by_batch=pipeline.identity == "batch") if history.commits else []
    return Evidence(
        pipeline,
        listing,
        history,
        cursor,
        _kept(sorted(keys), ledger.saved_range),
        _kept((n for n in listing.accepted if n > cursor.seq), ledger.accepted_for),
        tuple(extents),
    )


def _check_never_ran(pipeline: Pipeline, listing: Listing, history: TableHistory) -> None:
    """A pipeline without a cursor begins only where nothing is left of a batch.

    Raises:
        CursorLost: it has run before.
    """
    name, table = pipeline.name, pipeline.sink.table
    later = [r for r in listing.ranges if r.seq > 1]
    if later or (not listing.ranges and history.was_loaded_by(name)):
        remains = f"a saved range of batch {later[-1].seq}" if later else f"rows of it in {table}"
        raise CursorLost(
            f"pipeline {name} has no cursor ({cursor_key(name)}), but there is {remains}: "
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

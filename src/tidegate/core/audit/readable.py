"""The saved state of a pipeline as far as it can be read: each part that is broken becomes a fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, partial
from typing import TypeVar

from tidegate.core.model.errors import StateCorrupt, StateNewer
from tidegate.core.state.cursor import Accepted, Cursor
from tidegate.core.state.ledger import Ledger, RangeKey
from tidegate.core.state.saved_range import SavedRange

T = TypeVar("T")


class Readable:
    """What can be read now of a pipeline's saved state. `faults` has a message for each part that was read and is broken.

    `newer` is why a part that was read is not known to this version, and has to stay as it is.

    Raises StateUnavailable: the store does not answer; also when a part is read.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.listing = ledger.listing()
        self.faults: list[str] = []
        self.newer: StateNewer | None = None

    @cached_property
    def known_cursor(self) -> Cursor | None:
        """The cursor; None where there is none, and where it cannot be read."""
        return self._read(self.ledger.cursor) if self.listing.has_cursor else None

    @property
    def cursor(self) -> Cursor:
        """The cursor; an empty one where there is none, and where it cannot be read."""
        return self.known_cursor or Cursor(pipeline=self.ledger.pipeline, seq=0)

    @cached_property
    def pending(self) -> SavedRange | None:
        """A saved range of the batch after the cursor's; copies of one that was adopted are the same."""
        if self.listing.has_cursor and self.known_cursor is None:
            return None
        return next(iter(self.ranges(self.listing.of_seq(self.cursor.seq + 1)[:1])), None)

    @cached_property
    def accepted(self) -> Accepted | None:
        """What an operator accepted for the batch after the cursor's; None where there is nothing, or it cannot be read."""
        return self._read(lambda: self.ledger.accepted(self.listing, self.cursor))

    @cached_property
    def all_ranges(self) -> list[SavedRange]:
        """The saved ranges, in the order of their keys."""
        return self.ranges(self.listing.ranges)

    def ranges(self, keys: Iterable[RangeKey], held: Ledger | None = None) -> list[SavedRange]:
        """The saved ranges of these keys, which `held` may have read already."""
        ledger = held or self.ledger
        found = (self._read(partial(ledger.saved_range, key.key)) for key in keys)
        return [saved for saved in found if saved is not None]

    def _read(self, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except (StateCorrupt, StateNewer) as error:
            self.faults.append(str(error))
            self.newer = error if isinstance(error, StateNewer) else self.newer
            return None

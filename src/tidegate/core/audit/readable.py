"""The saved state of a pipeline as far as it can be read: each part that is broken becomes a fault."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.core.errors import StateCorrupt
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger, Listing
from tidegate.core.state.saved_range import SavedRange


@dataclass(frozen=True)
class ReadableState:
    """Cursor and saved ranges, in the order of their keys, and one message for each part that cannot be read.

    The cursor is an empty one where there is none, and where it cannot be read.
    """

    listing: Listing
    cursor: Cursor
    ranges: tuple[SavedRange, ...]
    faults: tuple[str, ...]


def read_state(ledger: Ledger) -> ReadableState:
    """What can be read now.

    Raises:
        StateUnavailable: the store does not answer.
    """
    listing = ledger.listing()
    cursor, ranges, faults = Cursor(ledger.pipeline), list[SavedRange](), list[str]()
    if listing.has_cursor:
        try:
            cursor = ledger.cursor()
        except StateCorrupt as error:
            faults.append(str(error))
    for key in listing.ranges:
        try:
            ranges.append(ledger.saved_range(key.key))
        except StateCorrupt as error:
            faults.append(str(error))
    return ReadableState(listing, cursor, tuple(ranges), tuple(faults))

"""What is kept of saved ranges and receipts in the API server.

They never change, and those of thousands of partitions decode slowly. So each is decoded once, and one request decodes for
`BUDGET_S` at most: the rest comes with the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from threading import Lock

from tidegate.airflow.database_store import DatabaseStore, Held
from tidegate.core.model.errors import StateCorrupt
from tidegate.core.state.ledger import Ledger, Listing
from tidegate.core.state.receipt import offsets_of
from tidegate.views.entries import Loads
from tidegate.views.history import Point

STEP = 20
"""Ranges that are read at once."""
BUDGET_S = 0.3
MOST_KNOWN = 100_000
"""Receipts of which is kept how many offsets they have; beyond it, all are counted anew."""


class Plans:
    """The saved ranges of each pipeline in short, decoded once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[str, dict[str, Point]] = {}

    def of(self, pipeline: str, listing: Listing, *, most: int | None = None, from_ms: int = 0) -> tuple[list[Point], bool]:
        """Saved ranges of a pipeline, the newest batch first, and whether these are all that were asked for.

        One that cannot be read is left out. Ranges that are gone are forgotten.

        Args:
            pipeline: whose.
            listing: of its keys.
            most: how many batches.
            from_ms: the first time that a plan is asked for of (epoch ms); plans come in the order of their batches.
        """
        keys = [key.key for key in reversed(listing.ranges)]
        with self._lock:
            held = self._known.get(pipeline, {})
            known = self._known[pipeline] = {key: held[key] for key in keys if key in held}
        until = time.monotonic() + BUDGET_S
        found: list[Point] = []
        for at in range(0, len(keys[:most]), STEP):
            page = keys[:most][at : at + STEP]
            missing = [key for key in page if key not in known]
            if missing and time.monotonic() > until:
                return found, False
            known.update(_read(pipeline, missing))
            found += [known[key] for key in page if key in known]
            if found and found[-1].at_ms < from_ms:
                break
        return found, True


class Landings:
    """The receipts of batches in short: how many offsets each load read, by its snapshot. `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._offsets: dict[int, int] = {}

    def of(self, loads: Loads | None, planned: Collection[int], *, from_ms: int) -> tuple[list[Point], bool]:
        """The loads of batches, the oldest first, and whether these are all that were asked for.

        Args:
            loads: of a pipeline; None where they are not known.
            planned: the batches whose saved ranges are known: how many offsets they have need not be read again.
            from_ms: the first time that a commit is asked for of (epoch ms), where its batch is not one of these.
        """
        until, complete = self._clock() + BUDGET_S, True
        found: list[Point] = []
        for commit, seq in reversed(() if loads is None else loads.commits):
            known = 0 if seq in planned else self._offsets.get(commit.snapshot)
            if seq is None or (seq not in planned and commit.committed_at_ms < from_ms):
                continue
            if known is None:
                if self._clock() > until:
                    complete = False
                    continue
                if len(self._offsets) >= MOST_KNOWN:
                    self._offsets.clear()
                known = self._offsets[commit.snapshot] = offsets_of(commit.properties, snapshot=commit.snapshot)
            found.append(Point(commit.committed_at_ms, seq, 1, lag=None, records=known, rows=commit.rows))
        return found[::-1], complete


def _read(pipeline: str, keys: Sequence[str]) -> dict[str, Point]:
    ledger = Ledger(Held(DatabaseStore().values(keys)), pipeline)
    read: dict[str, Point] = {}
    for key in keys:
        try:
            read[key] = Point.of(ledger.saved_range(key))
        except (StateCorrupt, KeyError):
            continue  # it may be repaired, or was deleted meanwhile
    return read

"""The schedule as saved state: which keys hold it, and nothing about how a store keeps them.

    tidegate.<pipeline>.cursor
    tidegate.<pipeline>.range.<seq, 10 digits>.<run key>
    tidegate.<pipeline>.accepted.<seq, 10 digits>           what an operator accepted for that batch, and no other
    tidegate.<pipeline>.replay.<planned at, epoch s, 10 digits>.<request, 8 hex digits>.<run key>     all chunks of a replay

A run key is a readable part of the run id and 12 hex digits of its SHA-256: run ids are whatever a user types, keys have to
survive URLs, logs that mask words, and stores that compare without regard to case. The true run id is in the value.

One listing finds everything, by batch or by run. What the listing names must be readable: missing is never taken for empty.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar

from tidegate.core.config.names import MASKED_WORDS
from tidegate.core.model.errors import RequestError, StateCorrupt
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.codec import decode, encode
from tidegate.core.state.cursor import REPAIR, Accepted, Cursor
from tidegate.core.state.ports import StateStore
from tidegate.core.state.saved_range import SavedRange
from tidegate.core.state.saved_replay import SavedReplay

T = TypeVar("T")
RANGE_KEY = re.compile(r"range\.(?P<seq>\d{10})\.(?P<run>.+)")
ACCEPTED_KEY = re.compile(r"accepted\.(?P<seq>\d{10})")
REPLAY_KEY = re.compile(r"replay\.(?P<at>\d{10})\.(?P<request>[0-9a-f]{8})\.(?P<run>.+)")
MASKED = re.compile("|".join(word.replace("_", "-") for word in MASKED_WORDS))
RUNNING_S = 7 * 86_400
"""A replay that was planned longer ago does not run any more."""
MOST_BYTES = 1_000_000
"""Of one saved value: what a row of Airflow's database and an answer of its API take without pain."""


def run_key(run_id: str) -> str:
    """The part of a key that names a DAG run: readable where possible, unique always."""
    # no masked word holds a digit, so none can arise around one
    readable = MASKED.sub("0", re.sub(r"[^a-z0-9]+", "-", run_id.lower()).strip("-"))
    return f"{readable[:60]}-{_digest(run_id)}".lstrip("-")


def is_of_run(key: str, run_id: str) -> bool:
    """Whether a key, or its part for the run, is the run's.

    Only the digest is compared: keys stay, while the words that the readable part leaves out may change.
    """
    return _digest_in(key) == _digest(run_id)


def _digest_in(key: str) -> str:
    return re.split(r"[.-]", key)[-1]


def _digest(run_id: str) -> str:
    return hashlib.sha256(run_id.encode()).hexdigest()[:12]


def cursor_key(pipeline: str) -> str:
    """The key of a pipeline's cursor."""
    return f"tidegate.{pipeline}.cursor"


def range_key(pipeline: str, seq: int, run_id: str) -> str:
    """The key of the range that a run saves for batch `seq` of a pipeline."""
    return f"tidegate.{pipeline}.range.{seq:010d}.{run_key(run_id)}"


def cursor_from(text: str, pipeline: str) -> Cursor:
    """The cursor that a pipeline's cursor key holds as `text`. Raises StateCorrupt: it is not what was written."""
    key, repair = cursor_key(pipeline), REPAIR.format(pipeline=pipeline)
    cursor = _parsed("cursor", text, key, repair, Cursor.from_json)
    if cursor.pipeline != pipeline:
        raise StateCorrupt(f"{key}: is the cursor of {cursor.pipeline}", fix=repair, key=key)
    return cursor


def _parsed(kind: str, text: str, key: str, repair: str, parse: Callable[[dict[str, Any]], T]) -> T:
    body = decode(kind, text, key=key, repair=repair)
    try:
        return parse(body)
    except StateCorrupt as error:
        raise StateCorrupt(f"{key}: {error.message}", fix=repair, key=key) from error


@dataclass(frozen=True, order=True)
class RangeKey:
    """Where one run's saved range is."""

    seq: int
    run: str
    key: str


@dataclass(frozen=True, order=True, kw_only=True)
class ReplayKey:
    """Where a saved replay is: planned at `at_s` (epoch s), for the request with this digest, by this run."""

    at_s: int
    request: str
    run: str
    key: str


@dataclass(frozen=True)
class Listing:
    """What one listing of a pipeline's keys found."""

    has_cursor: bool
    ranges: tuple[RangeKey, ...]
    _: KW_ONLY
    accepted: tuple[int, ...] = ()
    replays: tuple[ReplayKey, ...] = ()

    def of_run(self, run_id: str) -> RangeKey | None:
        """The saved range of a DAG run."""
        return self.of_runs([run_id]).get(run_id)

    def of_runs(self, run_ids: Iterable[str]) -> dict[str, RangeKey]:
        """The saved ranges of some DAG runs, by run id: the first of each."""
        digests = {_digest(run_id): run_id for run_id in run_ids}
        found = ((digests.get(_digest_in(r.run)), r) for r in reversed(self.ranges))
        return {run_id: r for run_id, r in found if run_id is not None}

    def replay_of_run(self, run_id: str) -> ReplayKey | None:
        """The saved replay of a DAG run: the first, where two tries of its plan raced."""
        return next((r for r in self.replays if is_of_run(r.run, run_id)), None)

    def committed(self, seq: int) -> list[str]:
        """The keys of the batches up to `seq`, one for each batch."""
        return list({r.seq: r.key for r in self.ranges if r.seq <= seq}.values())

    def of_seq(self, seq: int) -> list[RangeKey]:
        """The saved ranges of a batch: the first plan, and the copies of runs that adopted it."""
        return [r for r in self.ranges if r.seq == seq]


class Ledger:
    """Reads and writes one pipeline's schedule through a `StateStore`.

    Each question raises StateUnavailable where the store does not answer, and StateCorrupt where what it holds is not what was
    written.
    """

    def __init__(self, store: StateStore, pipeline: str) -> None:
        self._store = store
        self.pipeline = pipeline
        self._prefix = f"tidegate.{pipeline}."

    def listing(self) -> Listing:
        """All that is saved of the pipeline, by one listing of keys."""
        ranges, accepted, replays, has_cursor = [], [], [], False
        for key in self._store.keys(self._prefix):
            rest = key.removeprefix(self._prefix)
            if rest == "cursor":
                has_cursor = True
            elif match := RANGE_KEY.fullmatch(rest):
                ranges.append(RangeKey(int(match["seq"]), match["run"], key))
            elif match := ACCEPTED_KEY.fullmatch(rest):
                accepted.append(int(match["seq"]))
            elif match := REPLAY_KEY.fullmatch(rest):
                replays.append(ReplayKey(at_s=int(match["at"]), request=match["request"], run=match["run"], key=key))
        return Listing(has_cursor, tuple(sorted(ranges)), accepted=tuple(sorted(accepted)), replays=tuple(sorted(replays)))

    def cursor(self) -> Cursor:
        """The saved cursor; ask `listing` first whether there is one."""
        return cursor_from(self._store.get(cursor_key(self.pipeline)), self.pipeline)

    def save_cursor(self, cursor: Cursor) -> None:
        """Write the cursor."""
        said = f"Tidegate: how far {self.pipeline} has come"
        self._store.put(cursor_key(self.pipeline), encode("cursor", cursor.to_json()), said)

    def saved_range(self, key: str) -> SavedRange:
        """The saved range at a key."""
        repair = (
            f"Run `tidegate ledger rebuild {self.pipeline}` if its batch was loaded: the table's history restores it. "
            f"If not, run `tidegate ledger drop {self.pipeline} {key}`, and the next run plans it anew"
        )
        saved = _parsed("range", self._store.get(key), key, repair, SavedRange.from_json)
        if not key.startswith(f"{self._prefix}range.{saved.load.seq:010d}.") or not is_of_run(key, saved.load.run_id):
            fault = f"{key}: holds batch {saved.load.seq} of {saved.load.pipeline} by run {saved.load.run_id}"
            raise StateCorrupt(fault, fix=repair, key=key)
        return saved

    def save_range(self, saved: SavedRange) -> str:
        """Write a range, before any work on it; returns its key."""
        key = range_key(self.pipeline, saved.load.seq, saved.load.run_id)
        said = f"Tidegate: batch {saved.load.seq} of {self.pipeline}, run {saved.load.run_id}"[:500]
        self._store.put(key, encode("range", saved.to_json()), said)
        return key

    def delete(self, key: str) -> None:
        """Remove one key."""
        self._store.delete(key)

    def accepted_key(self, seq: int) -> str:
        """The key of what an operator accepted for batch `seq`."""
        return f"{self._prefix}accepted.{seq:010d}"

    def accepted(self, listing: Listing, cursor: Cursor) -> Accepted | None:
        """What an operator accepted for the batch after the cursor; None where the listing has nothing of it."""
        accepted = self.accepted_for(cursor.seq + 1) if cursor.seq + 1 in listing.accepted else None
        return accepted if accepted and accepted.follows(cursor) else None

    def accepted_for(self, seq: int) -> Accepted:
        """What an operator accepted for batch `seq`, which the listing has."""
        key = self.accepted_key(seq)
        repair = f"Delete the Variable {key} and accept again"
        accepted = _parsed("accepted", self._store.get(key), key, repair, Accepted.from_json)
        if accepted.seq != seq:
            raise StateCorrupt(f"{key}: holds what was accepted for batch {accepted.seq}", fix=repair, key=key)
        return accepted

    def save_accepted(self, accepted: Accepted) -> str:
        """Write what an operator accepts; returns its key."""
        key, said = self.accepted_key(accepted.seq), f"Tidegate: accepted for batch {accepted.seq} of {self.pipeline}"
        self._store.put(key, encode("accepted", accepted.to_json()), said)
        return key

    def replay_key(self, saved: SavedReplay, request: str) -> str:
        """The key of a saved replay, whose request has this digest."""
        return f"{self._prefix}replay.{saved.planned_at_ms // 1000:010d}.{request}.{run_key(saved.load.run_id)}"

    def saved_replay(self, key: str) -> SavedReplay:
        """The saved replay at a key."""
        repair = f"Delete the Variable {key} and trigger the replay again"
        saved = _parsed("replay", self._store.get(key), key, repair, SavedReplay.from_json)
        if saved.load.pipeline != self.pipeline or not is_of_run(key, saved.load.run_id):
            fault = f"{key}: holds a replay of {saved.load.pipeline} by run {saved.load.run_id}"
            raise StateCorrupt(fault, fix=repair, key=key)
        return saved

    def save_replay(self, saved: SavedReplay, request: str, listing: Listing, *, keep: int) -> str:
        """Write a replay, before any work on it, and delete the oldest until `keep` are left; returns its key.

        One that was planned within a week may still run, and stays. Raises RequestError: the value is larger than a Variable
        should be; nothing is written.
        """
        value = encode("replay", saved.to_json())
        if len(value) > MOST_BYTES:
            raise RequestError(
                f"the plan of this replay has {len(value):,} bytes ({len(saved.chunks)} chunks), and at most {MOST_BYTES:,} "
                "are saved as one Variable",
                fix="Choose larger chunks, or replay fewer partitions at a time",
            )
        key = self.replay_key(saved, request)
        said = f"Tidegate: replay of {self.pipeline}, {len(saved.chunks)} chunks, run {saved.load.run_id}"[:500]
        self._store.put(key, value, said)
        finished_s = saved.planned_at_ms // 1000 - RUNNING_S
        for old in listing.replays[: max(0, len(listing.replays) + 1 - keep)]:
            if old.at_s < finished_s:
                self._store.delete(old.key)
        return key

    def replace(self, listing: Listing, cursor: Cursor, ranges: Sequence[SavedRange], *, keep: int) -> list[str]:
        """Let the schedule be this cursor and its newest `keep` ranges; returns the keys that went.

        The cursor is written first: what is planned by its generation is the only thing that can be committed from then on. A
        range that is there already stays, since its run owns it, unless another one is given for its batch: it is of an older
        numbering. What the cursor has not committed goes, and what was accepted. It can be done again.
        """
        self.save_cursor(cursor)
        given = {saved.load.seq: set(saved.load.nonempty) for saved in ranges}
        readable = [r for r in listing.ranges if self._holds(r.key, given.get(r.seq))]
        owned = {r.seq for r in readable}
        written = {self.save_range(saved) for saved in ranges[-keep:] if saved.load.seq not in owned}
        kept = written | {r.key for r in readable if r.seq <= cursor.seq}
        gone = sorted({*(r.key for r in listing.ranges), *map(self.accepted_key, listing.accepted)} - kept)
        for key in gone:
            self._store.delete(key)
        return gone

    def _holds(self, key: str, ranges: set[OffsetRange] | None) -> bool:
        """Whether what is at a key can be read, and is of these ranges; None: of any."""
        try:
            held = self.saved_range(key).load.nonempty
        except StateCorrupt:
            return False
        return ranges is None or ranges == set(held)

    def prune(self, listing: Listing, *, committed: int, keep: int) -> int:
        """Delete the oldest committed ranges until `keep` are left, and what was accepted for them; returns how many ranges."""
        for seq in listing.accepted:
            if seq <= committed:
                self._store.delete(self.accepted_key(seq))
        old = [r for r in listing.ranges if r.seq <= committed]
        surplus = old[: max(0, len(listing.ranges) - keep)]
        for r in surplus:
            self._store.delete(r.key)
        return len(surplus)

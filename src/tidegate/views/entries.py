"""What a pipeline has run: one entry for each batch and each chunk of a replay, from saved ranges and the table's receipts.

A receipt of a thousand partitions takes milliseconds to parse, and a table may hold thousands of them: each is parsed when it
is asked for (`Loads`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from tidegate.core.config.names import CATCH_UP_RUN
from tidegate.core.model.errors import TidegateError
from tidegate.core.model.ranges import OffsetRange, TopicPartition, merged
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.history import TableCommit, TableHistory
from tidegate.core.state.receipt import Load, Receipt, batch_of, replay_of
from tidegate.core.state.saved_range import SavedRange, Why
from tidegate.core.state.saved_replay import live


class BatchState(StrEnum):
    """How far a batch is; each state is what anybody can read, from Variables and the table."""

    NEW = "new"
    PLANNED = "planned"
    LOADED = "loaded"
    COMMITTED = "committed"


def state_of(*, saved: bool, landed: bool, committed: bool) -> BatchState:
    """Of a batch whose range a Variable holds, whose receipt the table holds, and past which the cursor has moved."""
    if committed:
        return BatchState.COMMITTED
    if landed:
        return BatchState.LOADED
    return BatchState.PLANNED if saved else BatchState.NEW


@dataclass(frozen=True)
class Loads:
    """The commits of a pipeline's loads, the oldest first, each with the number of its batch; None for a replay's.

    `refusal` is why the table will refuse the next plan, as far as is known.
    """

    commits: tuple[tuple[TableCommit, int | None], ...]
    refusal: TidegateError | None = None

    @staticmethod
    def of(history: TableHistory, pipeline: str) -> Loads:
        """The loads of a pipeline in a table's history. Raises StateCorrupt: the number of a batch cannot be read."""
        found = []
        for commit in reversed(history.loads(pipeline)):
            batch = batch_of(commit.properties, snapshot=commit.snapshot)
            found.append((commit, None if batch is None else batch[1]))
        return Loads(tuple(found))

    @cached_property
    def batches(self) -> frozenset[int]:
        """The numbers of the batches."""
        return frozenset(seq for _, seq in self.commits if seq is not None)

    def of_batches(self, seqs: Collection[int], partitions: Collection[TopicPartition] | None = None) -> list[Receipt]:
        """The receipts of some batches, and of all replays since the first of them, the oldest first.

        Where a batch has none, since its snapshot has expired, replays of it may be older than all others. The receipts have
        the ranges of `partitions`; None: all. Raises StateCorrupt: a receipt cannot be read.
        """
        first = next((n for n, (_, seq) in enumerate(self.commits) if seq in seqs), -1) if self.batches.issuperset(seqs) else -1
        wanted = (commit for n, (commit, seq) in enumerate(self.commits) if seq in seqs or (seq is None and n > first))
        return [commit.receipt(partitions) for commit in wanted]

    def of_replay(self, name: str) -> list[Receipt]:
        """The receipts of one replay, the oldest first. Raises StateCorrupt: a receipt cannot be read."""
        of = (commit for commit, seq in self.commits if seq is None and replay_of(commit.properties) == name)
        return [commit.receipt() for commit in of]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One batch, or one chunk of a replay: its plan and its loads, of which at least one is known.

    `saved` is the range of the run that loaded it, else of the one that planned it last; None where it is no longer kept, and
    for a chunk. `receipts` are those of its loads, the oldest first. `who` triggered the run, or is the kind of the run; None
    where that is no longer known.
    """

    seq: int
    state: BatchState
    saved: SavedRange | None
    receipts: tuple[Receipt, ...] = ()
    who: str | None = None

    @property
    def load(self) -> Load:
        """What it loads, as it was planned, or else as it was loaded last."""
        return self.receipts[-1].load if self.saved is None else self.saved.load

    @property
    def newest(self) -> Receipt | None:
        """The receipt of its newest load; None where it is not loaded."""
        return self.receipts[-1] if self.receipts else None

    @property
    def planned_at_ms(self) -> int | None:
        """When it was planned (epoch ms)."""
        return None if self.saved is None else self.saved.planned_at_ms

    @property
    def loaded_at_ms(self) -> int | None:
        """When its first load was committed (epoch ms)."""
        return self.receipts[0].committed_at_ms if self.receipts else None

    @property
    def seconds(self) -> float | None:
        """From its plan to the commit of its first load; None where one of the two is not known."""
        if self.planned_at_ms is None or self.loaded_at_ms is None:
            return None
        return max(0, self.loaded_at_ms - self.planned_at_ms) / 1000

    @property
    def why(self) -> Why:
        """Why it is what it is; nothing where that is no longer known."""
        return Why() if self.saved is None else self.saved.why

    @cached_property
    def recreated(self) -> frozenset[str]:
        """The topics that it is the first to read anew, since they were deleted and created again."""
        return frozenset(d.topic_partition.topic for d in self.why.decisions if d.from_reason == "recreated")

    @property
    def reasons(self) -> list[str]:
        """The reasons of its ranges' bounds, each once."""
        return sorted({f"{d.from_reason} to {d.until_reason}" for d in self.why.decisions})


@dataclass(frozen=True, kw_only=True)
class LoadRow:
    """A commit of the table: of a batch, or of a chunk of a replay.

    Attributes:
        snapshot: its id, as text: it is larger than the whole numbers that JavaScript has.
        kept: older rows of the same data files, which were written again as they were.
        columns: what it changed of the table's columns, each in words.
        quarantined: records that it has rejected; None where the pipeline had no quarantine.
    """

    run_id: str
    rows: int
    kept: int
    snapshot: str
    committed_at_ms: int
    transform: str
    columns: tuple[str, ...]
    quarantined: int | None

    @staticmethod
    def of(receipt: Receipt) -> LoadRow:
        """By its receipt."""
        return LoadRow(
            run_id=receipt.load.run_id,
            rows=receipt.rows,
            kept=receipt.kept,
            snapshot=str(receipt.snapshot),
            committed_at_ms=receipt.committed_at_ms,
            transform=receipt.write.transform,
            columns=tuple(map(str, receipt.write.columns)),
            quarantined=receipt.write.quarantined,
        )


@dataclass(frozen=True, kw_only=True)
class BatchRow:
    """A batch, or a chunk of a replay, in short.

    Attributes:
        rows: of the newest load; None where it is not loaded, as `transform` and `committed_at_ms`.
        seconds: from its plan to the commit of its first load; None where one of the two is not known.
        loads: the oldest first.
        why: the reasons of its ranges' bounds, each once.
        who: who triggered the run, or its kind; None where that is no longer known.
    """

    seq: int
    replay: str | None
    state: BatchState
    run_id: str
    rows: int | None
    seconds: float | None
    transform: str | None
    loads: tuple[LoadRow, ...]
    committed_at_ms: int | None
    adopted_from: str | None
    why: tuple[str, ...]
    who: str | None
    planned_at_ms: int | None

    @staticmethod
    def of(entry: Entry) -> BatchRow:
        """In short."""
        newest = entry.newest
        return BatchRow(
            seq=entry.seq,
            replay=entry.load.replay,
            state=entry.state,
            run_id=entry.load.run_id,
            rows=None if newest is None else newest.rows,
            seconds=entry.seconds,
            transform=None if newest is None else newest.write.transform,
            loads=tuple(map(LoadRow.of, entry.receipts)),
            committed_at_ms=None if newest is None else newest.committed_at_ms,
            adopted_from=entry.why.adopted_from,
            why=tuple(entry.reasons),
            who=entry.who,
            planned_at_ms=entry.planned_at_ms,
        )


def entries(
    saved: Iterable[SavedRange], receipts: Iterable[Receipt], cursor: Cursor, who: Mapping[str, str] | None = None
) -> list[Entry]:
    """The batches in order, and after them the chunks of replays in the order of their commits.

    `receipts` come oldest commit first, saved ranges in any order. `who` says who or what triggered each run.
    """
    who = who or {}
    plans: dict[int, list[SavedRange]] = {}
    for plan in saved:
        plans.setdefault(plan.load.seq, []).append(plan)
    loads: dict[tuple[str | None, int], list[Receipt]] = {}
    for receipt in receipts:
        loads.setdefault((receipt.load.replay, receipt.load.seq), []).append(receipt)
    seqs = sorted(plans.keys() | {seq for replay, seq in loads if replay is None})
    batches = []
    for seq in seqs:
        planned, landed = plans.get(seq, []), loads.get((None, seq), [])
        state = state_of(saved=bool(planned), landed=bool(landed), committed=seq <= cursor.seq)
        batches.append(_entry(seq, planned, landed, state, who))
    chunks = [_entry(seq, [], of, BatchState.LOADED, who) for (replay, seq), of in loads.items() if replay is not None]
    return batches + chunks


def _entry(seq: int, plans: Sequence[SavedRange], loads: Sequence[Receipt], state: BatchState, who: Mapping[str, str]) -> Entry:
    by_run = {plan.load.run_id: plan for plan in sorted(plans, key=lambda p: (p.why.adopted_from is not None, p.load.run_id))}
    saved = by_run.get(loads[-1].load.run_id) if loads else None
    saved = saved or next(reversed(by_run.values()), None)
    entry = Entry(seq=seq, state=state, saved=saved, receipts=tuple(loads))
    return replace(entry, who=who.get(entry.load.run_id))


def versions(receipts: Sequence[Receipt]) -> dict[str, tuple[OffsetRange, ...]]:
    """Which ranges were loaded last by which version of a transform, sorted, disjoint, and in as few ranges as possible.

    The receipts, replays too, come oldest commit first.
    """
    by_version: dict[str, list[OffsetRange]] = {}
    for (version, _), ranges in loaded_last(receipts).items():
        by_version.setdefault(version, []).extend(ranges)
    return {version: merged(ranges) for version, ranges in by_version.items()}


def loaded_last(
    receipts: Sequence[Receipt], topic_ids: Mapping[str, str] | None = None
) -> dict[tuple[str, bool], tuple[OffsetRange, ...]]:
    """As `versions`, by version and by whether a replay loaded them; of topics of these ids, where they are given."""
    found: dict[tuple[str, bool], list[OffsetRange]] = {}
    for receipt, ranges in live(receipts, topic_ids):
        found.setdefault((receipt.write.transform, receipt.load.replay is not None), []).extend(ranges)
    return {by: merged(ranges) for by, ranges in found.items()}


def started_by(run: Mapping[str, Any]) -> str:
    """Who triggered a run, or the kind of it."""
    if str(run["dag_run_id"]).startswith(CATCH_UP_RUN):
        return "catch_up"
    return str(run.get("triggering_user_name") or run["run_type"])

"""What a pipeline has run: one entry for each batch and each chunk of a replay, from saved ranges and the table's receipts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate.core.audit.readable import read_state
from tidegate.core.config.names import CATCH_UP_RUN
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.load.receipt import Receipt
from tidegate.core.offsets.algebra import merged
from tidegate.core.offsets.ranges import OffsetRange, ranges_to_json, selection_to_json
from tidegate.core.ports import SinkReader, StateStore
from tidegate.core.replay.chunks import live
from tidegate.core.schedule.lifecycle import State, state_of
from tidegate.core.schedule.run_notes import failed_runs, since_success
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.saved_range import SavedRange


@dataclass(frozen=True)
class Entry:
    """One batch, or one chunk of the replay that `replay` names.

    `run_id` is the run that loaded it, else the one that planned it last; `rows` and `transform` are those of its newest load,
    `loads` is how many loads of it the table has a receipt of; `planned_at_ms` is when it was planned, `loaded_at_ms` and
    `committed_at_ms` when its first and its newest load were committed (epoch ms); `recreated` are the topics that it is the
    first to read anew, since they were deleted and created again, `topic_ids` the ids of its topics; `who` triggered the run,
    or the kind of the run. None: it is no longer known.
    """

    seq: int
    state: State
    run_id: str
    ranges: tuple[OffsetRange, ...]
    replay: str | None = None
    rows: int | None = None
    transform: str | None = None
    loads: int = 0
    committed_at_ms: int | None = None
    adopted_from: str | None = None
    why: tuple[str, ...] = ()
    who: str | None = None
    planned_at_ms: int | None = None
    recreated: frozenset[str] = frozenset()
    loaded_at_ms: int | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def seconds(self) -> float | None:
        """From its plan to the commit of its first load; None where one of the two is not known."""
        if self.planned_at_ms is None or self.loaded_at_ms is None:
            return None
        return max(0, self.loaded_at_ms - self.planned_at_ms) / 1000

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "seq": self.seq,
            "replay": self.replay,
            "state": str(self.state),
            "run_id": self.run_id,
            "ranges": ranges_to_json(self.ranges),
            "rows": self.rows,
            "seconds": self.seconds,
            "transform": self.transform,
            "loads": self.loads,
            "committed_at_ms": self.committed_at_ms,
            "adopted_from": self.adopted_from,
            "why": list(self.why),
            "who": self.who,
            "planned_at_ms": self.planned_at_ms,
        }


@dataclass(frozen=True)
class BatchesView:
    """What a pipeline has run.

    Attributes:
        pipeline: its name.
        entries: the batches in order, and after them the chunks of replays in the order of their commits.
        transforms: the offsets that each version of a transform has loaded last.
        failures: by run id, why the runs failed that followed the last success.
        faults: saved state that cannot be read, one message each.
    """

    pipeline: str
    entries: tuple[Entry, ...]
    transforms: Mapping[str, tuple[OffsetRange, ...]] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "pipeline": self.pipeline,
            "batches": [entry.to_json() for entry in self.entries],
            "transforms": {version: selection_to_json(ranges) for version, ranges in self.transforms.items()},
            "failures": dict(self.failures),
            "faults": list(self.faults),
        }


def read_batches(pipeline: Pipeline, *, store: StateStore, sink: SinkReader, runs: Sequence[Mapping[str, Any]]) -> BatchesView:
    """What the pipeline has run, as far as its saved state can be read.

    Args:
        pipeline: whose.
        store: its saved state.
        sink: its table.
        runs: the DAG runs that Airflow knows, as its REST API lists them, the oldest first.

    Raises:
        StateUnavailable: the store does not answer.
        SinkUnavailable: the table's history cannot be read.
        StateCorrupt: a receipt cannot be read.
    """
    state = read_state(Ledger(store, pipeline.name))
    receipts = sink.receipts(pipeline.sink.table, pipeline.name)
    who = {run["dag_run_id"]: started_by(run) for run in runs}
    return BatchesView(
        pipeline.name,
        tuple(entries(state.ranges, receipts, state.cursor, who)),
        versions(receipts),
        failed_runs(since_success(runs)),
        state.faults,
    )


def entries(
    saved: Iterable[SavedRange], receipts: Iterable[Receipt], cursor: Cursor, who: Mapping[str, str] | None = None
) -> list[Entry]:
    """The batches in order, and after them the chunks of replays in the order of their commits.

    Args:
        saved: saved ranges of the pipeline, in any order.
        receipts: its receipts, oldest commit first.
        cursor: how far it has come.
        who: who or what triggered each run, by run id.
    """
    who = who or {}
    plans: dict[int, list[SavedRange]] = {}
    for plan in saved:
        plans.setdefault(plan.load.seq, []).append(plan)
    loads: dict[tuple[str | None, int], list[Receipt]] = {}
    for receipt in receipts:
        loads.setdefault((receipt.load.replay, receipt.load.seq), []).append(receipt)
    seqs = sorted(plans.keys() | {seq for replay, seq in loads if replay is None})
    batches = [_batch(seq, plans.get(seq, []), loads.get((None, seq), []), cursor, who) for seq in seqs]
    chunks = [_loaded(of_chunk, State.LOADED, who) for (replay, _), of_chunk in loads.items() if replay is not None]
    return batches + chunks


def _batch(seq: int, plans: Sequence[SavedRange], loads: Sequence[Receipt], cursor: Cursor, who: Mapping[str, str]) -> Entry:
    state = state_of(saved=bool(plans), landed=bool(loads), committed=seq <= cursor.seq)
    if not plans:
        return _loaded(loads, state, who)
    by_run = {plan.load.run_id: plan for plan in sorted(plans, key=lambda p: (p.why.adopted_from is not None, p.load.run_id))}
    plan = by_run.get(loads[-1].load.run_id) if loads else None
    plan = plan or next(reversed(by_run.values()))
    return Entry(
        seq,
        state,
        plan.load.run_id,
        plan.load.ranges,
        rows=loads[-1].rows if loads else None,
        transform=loads[-1].write.transform if loads else None,
        loads=len(loads),
        committed_at_ms=loads[-1].committed_at_ms if loads else None,
        adopted_from=plan.why.adopted_from,
        why=tuple(sorted({f"{d.from_reason} to {d.until_reason}" for d in plan.why.decisions})),
        who=who.get(plan.load.run_id),
        planned_at_ms=plan.planned_at_ms,
        recreated=frozenset(d.topic_partition.topic for d in plan.why.decisions if d.from_reason == "recreated"),
        loaded_at_ms=loads[0].committed_at_ms if loads else None,
        topic_ids=plan.load.topic_ids,
    )


def _loaded(loads: Sequence[Receipt], state: State, who: Mapping[str, str]) -> Entry:
    newest = loads[-1]
    return Entry(
        newest.load.seq,
        state,
        newest.load.run_id,
        newest.load.ranges,
        replay=newest.load.replay,
        rows=newest.rows,
        transform=newest.write.transform,
        loads=len(loads),
        committed_at_ms=newest.committed_at_ms,
        who=who.get(newest.load.run_id),
        loaded_at_ms=loads[0].committed_at_ms,
        topic_ids=newest.load.topic_ids,
    )


def versions(receipts: Sequence[Receipt]) -> dict[str, tuple[OffsetRange, ...]]:
    """Which ranges were loaded last by which version of a transform, sorted, disjoint, and in as few ranges as possible.

    Args:
        receipts: oldest commit first, replays too.
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

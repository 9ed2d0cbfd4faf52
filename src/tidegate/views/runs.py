"""Runs of a pipeline's DAGs: one in full, which is a batch, a replay, or neither; and the last ones side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, Literal

from tidegate.core.config.names import BACKFILL
from tidegate.core.model.counts import is_whole
from tidegate.core.model.ranges import OffsetRange, total_count
from tidegate.core.rates.checks import is_number
from tidegate.core.replay.verdict import Replaced
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.saved_replay import SavedReplay

RunKind = Literal["batch", "nothing", "failed", "planning", "replay", "other"]
"""A batch is saved; there was nothing to read; it failed without having saved one; it has not planned yet; it replays, or would
have; it does something else, or Airflow does not know it."""
MarkKind = Literal["loaded", "nothing", "failed", "running", "queued", "replay"]
REPLACED = {field.name for field in fields(Replaced)}
WITHOUT_SUCCESS: dict[str, MarkKind] = {"failed": "failed", "running": "running", "queued": "queued"}


@dataclass(frozen=True, kw_only=True)
class ChunkRow:
    """A chunk of a replay, and the newest load of it: when it was committed (epoch ms), its rows; None where there is none."""

    chunk: int
    offsets: int
    rows: int | None
    committed_at_ms: int | None


@dataclass(frozen=True, kw_only=True)
class ReplayRun:
    """A run that replays, or a dry run; None is what is not known.

    Attributes:
        pipeline: whose.
        note: what Airflow has noted of the run.
        offsets: that it replays in all.
        request: what was asked for, by name.
        chunks: none where nothing is saved, as of a dry run.
        replaces: what it replaces, or would.
        lost: ranges that the log no longer holds.
        seconds: an estimate of what the loads take.
        verdict: what it found in the end.
    """

    run_id: str
    pipeline: str
    state: str
    note: str | None
    dry_run: bool
    table: str | None
    transform: str | None
    offsets: int | None
    request: Mapping[str, Any]
    chunks: tuple[ChunkRow, ...]
    replaces: tuple[Replaced, ...]
    lost: tuple[str, ...]
    seconds: float | None
    verdict: Mapping[str, Any] | None


def replay_run(
    run: Mapping[str, Any],
    pipeline: str,
    saved: SavedReplay | None = None,
    *,
    landed: Iterable[Receipt] = (),
    report: Mapping[str, Any] | None = None,
    verdict: Mapping[str, Any] | None = None,
    dry_run: bool = False,
) -> ReplayRun:
    """A run, as Airflow has it (`dag_run_id`, `state`, `note`), that replays what is saved of it.

    `landed` are the receipts of its chunks, the oldest first. `report` is what it does, or would do, as its plan handed on
    (`tidegate.core.replay.verdict`), and `verdict` what it found in the end; None where it did not come to that.
    """
    report = report or {}
    total, seconds, replaces = report.get("total"), report.get("seconds"), _listed(report, "replaces")
    newest = {receipt.load.seq: receipt for receipt in landed}
    return ReplayRun(
        run_id=run["dag_run_id"],
        pipeline=pipeline,
        state=run["state"],
        note=run["note"],
        dry_run=dry_run,
        table=report.get("table") if saved is None else saved.table,
        transform=report.get("transform") if saved is None else saved.transform,
        offsets=total_count(saved.selection) if saved is not None else total if is_whole(total) else None,
        request={} if saved is None else dict(saved.request),
        chunks=() if saved is None else tuple(_chunk(n, of, newest.get(n)) for n, of in enumerate(saved.chunks)),
        replaces=tuple(Replaced(**each) for each in replaces if isinstance(each, Mapping) and {*each} == REPLACED),
        lost=tuple(map(str, _listed(report, "lost"))),
        seconds=seconds if is_number(seconds) else None,
        verdict=verdict,
    )


def _chunk(number: int, ranges: Iterable[OffsetRange], receipt: Receipt | None) -> ChunkRow:
    return ChunkRow(
        chunk=number,
        offsets=total_count(ranges),
        rows=None if receipt is None else receipt.rows,
        committed_at_ms=None if receipt is None else receipt.committed_at_ms,
    )


def _listed(report: Mapping[str, Any], name: str) -> list[Any]:
    value = report.get(name)
    return list(value) if isinstance(value, list) else []


def without_a_batch(run: Mapping[str, Any] | None, plan_state: str | None) -> tuple[RunKind, str]:
    """What a run of the schedule is that has saved nothing, and why.

    Args:
        run: as Airflow has it; None where it does not know it.
        plan_state: of its plan task.
    """
    if run is None:
        return "other", "Airflow does not know this run."
    if plan_state == "skipped":
        return "nothing", run["note"] or "There was nothing to read."
    if run["state"] == "failed":
        return "failed", run["note"] or "It failed before it had saved a range; see the log of its plan task."
    if run["state"] in ("queued", "running"):
        return "planning", "It has not saved a range yet."
    return "other", "It has saved no range, or the range has been removed since."


@dataclass(frozen=True, slots=True)
class RunMark:
    """One run. `seq` and `records` are those of the batch that it saved, None where it saved none; `at_ms` is epoch ms."""

    run_id: str
    _: KW_ONLY
    dag_id: str
    kind: MarkKind
    at_ms: int
    seq: int | None = None
    records: int | None = None


def run_marks(
    runs: Mapping[str, Iterable[Mapping[str, Any]]],
    batches: Mapping[str, tuple[int, int | None]],
    *,
    pipeline: str,
    most: int,
) -> tuple[RunMark, ...]:
    """The newest runs of some DAGs, the oldest first.

    Args:
        runs: by DAG id, as Airflow's REST API lists them, with `since_ms`.
        batches: number and records of the batch that each run of the schedule saved, by run id; records are None where they
            are not known.
        pipeline: the id of the schedule's DAG; others replay.
        most: how many runs.
    """
    marks = [
        _mark(run, dag_id, batches.get(str(run["dag_run_id"])) if dag_id == pipeline else None, replays=dag_id != pipeline)
        for dag_id, of_dag in runs.items()
        for run in of_dag
    ]
    return tuple(sorted(marks, key=lambda mark: mark.at_ms)[-most:])


def _mark(run: Mapping[str, Any], dag_id: str, batch: tuple[int, int | None] | None, *, replays: bool) -> RunMark:
    state = str(run["state"])
    kind: MarkKind = "nothing" if batch is None else "loaded"
    if state in WITHOUT_SUCCESS:
        kind = WITHOUT_SUCCESS[state]
    elif replays or run["run_type"] == BACKFILL:
        kind = "replay"
    seq, records = (None, None) if batch is None else batch
    return RunMark(str(run["dag_run_id"]), dag_id=dag_id, kind=kind, at_ms=int(run["since_ms"]), seq=seq, records=records)

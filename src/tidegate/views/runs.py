"""Runs of a pipeline's DAGs: one in full, which is a batch, a replay, or neither; and the last ones side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from tidegate.core.config.names import BACKFILL
from tidegate.core.model.counts import is_whole
from tidegate.core.model.fields import View
from tidegate.core.model.ranges import total_count
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.saved_replay import SavedReplay
from tidegate.views.batch import BatchView

Kind = Literal["batch", "nothing", "failed", "planning", "replay", "other"]
"""A batch is saved; there was nothing to read; it failed without having saved one; it has not planned yet; it replays, or would
have; it does something else, or Airflow does not know it."""
MarkKind = Literal["loaded", "nothing", "failed", "running", "queued", "replay"]
WITHOUT_SUCCESS: dict[str, MarkKind] = {"failed": "failed", "running": "running", "queued": "queued"}


@dataclass(frozen=True)
class ReplayView:
    """A run that replays, or a dry run.

    Attributes:
        run: as Airflow has it: `dag_run_id`, `state`, `note`.
        pipeline: whose.
        saved: what it replays; None where nothing is saved, as of a dry run.
        landed: the receipts of its chunks, the oldest first.
        report: what it does, or would do, as its plan handed on (`tidegate.core.replay.verdict`); None where it did not.
        verdict: what it found in the end; None where it did not come to that.
    """

    run: Mapping[str, Any]
    pipeline: str
    saved: SavedReplay | None = None
    _: KW_ONLY
    landed: tuple[Receipt, ...] = ()
    report: Mapping[str, Any] | None = None
    verdict: Mapping[str, Any] | None = None
    dry_run: bool = False

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        saved, report = self.saved, self.report or {}
        total = report.get("total")
        return {
            "run_id": self.run["dag_run_id"],
            "pipeline": self.pipeline,
            "state": self.run["state"],
            "note": self.run["note"],
            "dry_run": self.dry_run,
            "table": report.get("table") if saved is None else saved.table,
            "transform": report.get("transform") if saved is None else saved.transform,
            "offsets": total_count(saved.selection) if saved is not None else total if is_whole(total) else None,
            "request": {} if saved is None else dict(saved.request),
            "chunks": [] if saved is None else self._chunks(saved),
            "replaces": _listed(report, "replaces"),
            "lost": _listed(report, "lost"),
            "seconds": report.get("seconds"),
            "verdict": None if self.verdict is None else dict(self.verdict),
        }

    def _chunks(self, saved: SavedReplay) -> list[dict[str, Any]]:
        newest = {receipt.load.seq: receipt for receipt in self.landed}
        return [
            {
                "chunk": number,
                "offsets": total_count(chunk),
                "landed": (receipt := newest.get(number)) is not None,
                "rows": None if receipt is None else receipt.rows,
                "committed_at_ms": None if receipt is None else receipt.committed_at_ms,
            }
            for number, chunk in enumerate(saved.chunks)
        ]


@dataclass(frozen=True)
class RunView(View):
    """One DAG run: exactly one of batch, replay and reason is there, by its kind; none where Airflow does not know it."""

    kind: Kind
    _: KW_ONLY
    batch: BatchView | None = None
    replay: ReplayView | None = None
    reason: str | None = None


def without_a_batch(run: Mapping[str, Any] | None, plan_state: str | None) -> RunView:
    """A run of the schedule that has saved nothing.

    Args:
        run: as Airflow has it; None where it does not know it.
        plan_state: of its plan task.
    """
    if run is None:
        return RunView("other", reason="Airflow does not know this run.")
    if plan_state == "skipped":
        return RunView("nothing", reason=run["note"] or "There was nothing to read.")
    if run["state"] == "failed":
        return RunView("failed", reason=run["note"] or "It failed before it had saved a range; see the log of its plan task.")
    if run["state"] in ("queued", "running"):
        return RunView("planning", reason="It has not saved a range yet.")
    return RunView("other", reason="It has saved no range, or the range has been removed since.")


def _listed(report: Mapping[str, Any], name: str) -> list[Any]:
    value = report.get(name)
    return list(value) if isinstance(value, list) else []


@dataclass(frozen=True, slots=True)
class RunMark(View):
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
) -> list[RunMark]:
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
    return sorted(marks, key=lambda mark: mark.at_ms)[-most:]


def _mark(run: Mapping[str, Any], dag_id: str, batch: tuple[int, int | None] | None, *, replays: bool) -> RunMark:
    state = str(run["state"])
    kind: MarkKind = "nothing" if batch is None else "loaded"
    if state in WITHOUT_SUCCESS:
        kind = WITHOUT_SUCCESS[state]
    elif replays or run["run_type"] == BACKFILL:
        kind = "replay"
    seq, records = (None, None) if batch is None else batch
    return RunMark(str(run["dag_run_id"]), dag_id=dag_id, kind=kind, at_ms=int(run["since_ms"]), seq=seq, records=records)

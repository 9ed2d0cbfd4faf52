"""The last runs of a pipeline side by side: those that loaded, those that found nothing, those that failed, and replays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tidegate.core.config.names import BACKFILL

Kind = Literal["loaded", "nothing", "failed", "running", "queued", "replay"]
WITHOUT_SUCCESS: dict[str, Kind] = {"failed": "failed", "running": "running", "queued": "queued"}


@dataclass(frozen=True, slots=True)
class RunMark:
    """One run. `seq` and `records` are those of the batch that it saved, None where it saved none; `at_ms` is epoch ms."""

    run_id: str
    dag_id: str
    kind: Kind
    at_ms: int
    seq: int | None = None
    records: int | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {name: getattr(self, name) for name in self.__slots__}


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
    kind: Kind = "nothing" if batch is None else "loaded"
    if state in WITHOUT_SUCCESS:
        kind = WITHOUT_SUCCESS[state]
    elif replays or run["run_type"] == BACKFILL:
        kind = "replay"
    seq, records = (None, None) if batch is None else batch
    return RunMark(str(run["dag_run_id"]), dag_id, kind, int(run["since_ms"]), seq, records)

"""What others are told of: a batch was committed, a replay was verified. Values that schedules of other DAGs may depend on.

An event travels as a row of Airflow's database, so its size is the same with 10,000 partitions as with one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tidegate.core.model.uris import ranges_page


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """What all events say.

    Args:
        pipeline: whose loads they were.
        offsets: how many offsets were loaded.
        rows: how many rows the loads made; 0 where there was nothing to load.
        transform: which version of the transform made them; None where there was nothing to load.
        table: the URI of the table.
        topics: the URIs of the topics that were read, as many as an event has room for (`tidegate.core.model.uris`).
        columns: what the loads changed of the table's columns, each in words.
    """

    pipeline: str
    offsets: int
    rows: int
    transform: str | None
    table: str
    topics: tuple[str, ...]
    columns: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, with the page of the pipeline in Airflow's UI."""
        lists = {"topics": list(self.topics), "columns": list(self.columns)}
        return {**asdict(self), **lists, "page": ranges_page(self.pipeline, batch=self._batch())}

    def _batch(self) -> int | None:
        """Which one the page opens."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(_Event):
    """The cursor moved past a batch, now or in an earlier try.

    `seq` is the batch's number, `key` the Variable that holds its saved range, and `snapshot` the sink's commit: None where
    there was nothing to load.
    """

    seq: int
    key: str
    snapshot: int | None

    def _batch(self) -> int:
        return self.seq


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed(_Event):
    """The table of a pipeline holds every chunk of a replay: its name, the run that planned it, and how many loads it took."""

    run_id: str
    replay: str
    chunks: int

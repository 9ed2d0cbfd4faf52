"""What others are told of: a batch was committed, a replay was verified. Values that schedules of other DAGs may depend on.

An event travels as a row of Airflow's database, so its size is the same with 10,000 partitions as with one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tidegate.core.model.uris import ranges_page


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The cursor moved past a batch, now or in an earlier try.

    Args:
        pipeline: whose batch it is.
        seq: the batch's number.
        key: the Variable that holds the batch's saved range.
        offsets: how many offsets the range holds.
        rows: how many rows the load made; 0 where there was nothing to load.
        transform: which version of the transform made them; None where there was nothing to load.
        snapshot: the sink's commit; None where there was nothing to load.
        table: the URI of the table.
        topics: the URIs of the topics that were read, as many as an event has room for (`tidegate.core.model.uris`).
        columns: what the load changed of the table's columns, each in words.
    """

    pipeline: str
    seq: int
    key: str
    offsets: int
    rows: int
    transform: str | None
    snapshot: int | None
    table: str
    topics: tuple[str, ...]
    columns: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, with the page of the batch in Airflow's UI."""
        return {
            **asdict(self),
            "topics": list(self.topics),
            "columns": list(self.columns),
            "page": ranges_page(self.pipeline, batch=self.seq),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The table of a pipeline holds every chunk of a replay.

    Args:
        pipeline: whose replay it is.
        run_id: the run that planned the replay.
        replay: the replay's name.
        chunks: how many loads it took.
        offsets: how many offsets were loaded again.
        rows: how many rows the loads made.
        transform: which version of the transform made them.
        table: the URI of the table.
        topics: the URIs of the topics that were read, as many as an event has room for.
        columns: what its loads changed of the table's columns, each in words.
    """

    pipeline: str
    run_id: str
    replay: str
    chunks: int
    offsets: int
    rows: int
    transform: str
    table: str
    topics: tuple[str, ...]
    columns: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, with the page of the pipeline in Airflow's UI."""
        return {**_listed(self), "page": ranges_page(self.pipeline)}


def _listed(event: Committed | Replayed) -> dict[str, Any]:
    return {**asdict(event), "topics": list(event.topics), "columns": list(event.columns)}

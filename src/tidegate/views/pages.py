"""What the routes of the pages answer: each answer is one record, whose fields are its JSON.

The pages' TypeScript types are made of these records (`docs.answers`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter

from tidegate.core.audit.lag import LagView
from tidegate.core.audit.quarantine import QuarantineView
from tidegate.views.broken import Broken
from tidegate.views.history import Forecast, Point
from tidegate.views.overview import PipelineRow
from tidegate.views.range_map import PartitionRow
from tidegate.views.runs import Batch, ReplayRun, RunKind, RunMark

adapter: Any = cache(TypeAdapter)
"""How records of a class become JSON; made when it is first needed."""


@dataclass(frozen=True, kw_only=True)
class PipelinesAnswer:
    """The pipelines that the user may see, those that need attention first, and what keeps Airflow from running tasks.

    `empty` is said where there are none.
    """

    at_ms: int
    pipelines: tuple[PipelineRow, ...]
    airflow: tuple[str, ...]
    empty: str = "No pipeline yet, or none that you may see. `tidegate init` writes a first one into a DAG folder."


@dataclass(frozen=True, kw_only=True)
class PageAnswer:
    """What each answer has that needs the brokers, or the table.

    Attributes:
        at_ms: when it was made, or brokers were asked for the lag (epoch ms).
        error: why there is nothing newer, and what to do about it.
        soon: whether a newer answer is on its way.
    """

    at_ms: int
    error: str | None = None
    soon: bool = False


@dataclass(frozen=True, kw_only=True)
class LagAnswer(PageAnswer):
    """The newest lag of a pipeline that is known; None where none is, as before the first batch."""

    lag: LagView | None = None


@dataclass(frozen=True, kw_only=True)
class MapAnswer(PageAnswer):
    """The range map of some batches and of a page of partitions, and the last runs, the oldest first.

    Attributes:
        span_ms: from when until when all rows are (epoch ms); None where time is not the axis.
        partitions: of all pages.
        rows: those that have lost the most first, then those that are the furthest behind.
        row: the pipeline at a glance, as in the list.
        quarantine: the table of rejected records; None where the pipeline has none.
        faults: saved state that cannot be read.
        error_at_ms: when what is shown of the log, or of the table, was answered that `error` is about (epoch ms); None where
            nothing is shown of it.
        waiting_for: what has not answered yet, of which nothing is known.
        airflow: what keeps Airflow from running tasks.
    """

    pipeline: str
    axis: Literal["offset", "time"]
    span_ms: tuple[int, int] | None
    partitions: int
    row: PipelineRow
    rows: tuple[PartitionRow, ...]
    first_seq: int | None
    last_seq: int | None
    transforms: tuple[str, ...]
    runs: tuple[RunMark, ...]
    quarantine: str | None
    faults: tuple[str, ...]
    error_at_ms: int | None
    waiting_for: tuple[str, ...]
    airflow: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class BatchAnswer(PageAnswer):
    """A batch; None where nothing is saved of it."""

    batch: Batch | None = None


@dataclass(frozen=True, kw_only=True)
class BrokenAnswer(PageAnswer):
    """The first broken records of a batch; None where they are not known, or rows are known by their batch."""

    broken: Broken | None = None


@dataclass(frozen=True, kw_only=True)
class RunAnswer(BatchAnswer):
    """One DAG run: its batch, its replay or a reason, by its kind; with a batch, the reason is why the run has failed."""

    kind: RunKind
    replay: ReplayRun | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class QuarantineAnswer(PageAnswer):
    """What is in the quarantine of a pipeline; None where that is not known, or it has none."""

    quarantine: QuarantineView | None = None


@dataclass(frozen=True, kw_only=True)
class HistoryAnswer(PageAnswer):
    """The batches of a span of time, in order, and what is to be expected.

    Attributes:
        until_ms: the end of the span (exclusive).
        lag: records that wait now; None where that is not known.
        complete: whether all batches of that time are in it; the rest is being read.
        faults: saved state that cannot be read.
    """

    from_ms: int
    until_ms: int
    points: tuple[Point, ...]
    forecast: Forecast
    lag: int | None
    complete: bool
    faults: tuple[str, ...]


ANSWERS = (PipelinesAnswer, LagAnswer, MapAnswer, BatchAnswer, BrokenAnswer, RunAnswer, HistoryAnswer, QuarantineAnswer)
"""One for each route."""


def encode(answer: object) -> bytes:
    """An answer as JSON."""
    encoded: bytes = adapter(type(answer)).dump_json(answer, by_alias=True)
    return encoded

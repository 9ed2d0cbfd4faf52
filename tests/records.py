"""The records of a batch, with the fields of what they hold given beside their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar
from unittest.mock import patch

from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.events import Committed, Replayed
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.state import codec, receipt
from tidegate.core.state.cursor import Cursor, LastCommit, Pace, Position
from tidegate.core.state.jobs import LoadJob, Reading
from tidegate.core.state.receipt import Load, Write
from tidegate.core.state.saved_range import Decision, SavedRange, Why
from tidegate.core.state.saved_replay import Chunk, SavedReplay

T = TypeVar("T")
Ranges = tuple[OffsetRange, ...]


def changed(record: T, **changes: Any) -> T:
    """The record with other fields, which may be fields of a record that it holds.

    Of a job, `identity` says whether its rows are known by their batch, which is then its `seq`, or the `batch` that is given.
    """
    whole: Any = record
    if isinstance(whole, LoadJob):
        by_batch = changes.pop("identity", "origin" if whole.load.batch is None else "batch") == "batch"
        follows = whole.load.replay is None and changes.get("replay") is None
        batch = changes.get("seq", whole.load.seq) if follows else whole.load.batch
        given = changes.pop("batch", None)
        changes["batch"] = (batch if given is None else given) if by_batch else None
    own = {f.name for f in fields(whole)}
    mine = {name: value for name, value in changes.items() if name in own}
    held = {name: value for name, value in changes.items() if name not in own}
    for name in own & {"load", "reading", "why", "write", "at", "pace"}:
        of = getattr(whole, name)
        known = {f.name for f in fields(of)} | ({f.name for f in fields(Load)} if name == "write" else set())
        some = {key: held.pop(key) for key in known & held.keys()} if is_dataclass(of) else {}
        mine |= {name: changed(of, **some)} if some else {}
    assert not held, f"{type(record).__name__} has no {', '.join(held)}"
    made: T = replace(whole, **mine)
    return made


def cursor_of(
    pipeline: str,
    seq: int = 0,
    offsets: Mapping[TopicPartition, int] | None = None,
    topic_ids: Mapping[str, str] | None = None,
    rate_state: Mapping[str, Any] | None = None,
    receipt: LastCommit | None = None,
    **changes: Any,
) -> Cursor:
    """How far a pipeline has come."""
    at, pace = Position(offsets=offsets or {}, topic_ids=topic_ids or {}), Pace(rate_state=rate_state or {})
    return changed(Cursor(pipeline=pipeline, seq=seq, at=at, receipt=receipt, pace=pace), **changes)


def write_of(
    pipeline: str,
    seq: int,
    run_id: str,
    ranges: Ranges,
    transform: str = "v",
    attempt: str = "a",
    topic_ids: Mapping[str, str] | None = None,
    generation: int = 0,
    **load: Any,
) -> Write:
    """What one write of a load promises."""
    return Write(
        Load(
            pipeline=pipeline, seq=seq, run_id=run_id, ranges=ranges, topic_ids=topic_ids or {}, generation=generation, **load
        ),
        transform,
        attempt,
    )


def write_of_load(load: Load, transform: str = "v", attempt: str = "a", **changes: Any) -> Write:
    """What a write of a planned load promises; only ranges that hold records are loaded."""
    return Write(replace(load, **{"ranges": load.nonempty, **changes}), transform, attempt)


def load_job(
    pipeline: str,
    seq: int,
    run_id: str,
    ranges: Ranges,
    transform: str,
    table: str,
    kafka_options: Mapping[str, str],
    **changes: Any,
) -> LoadJob:
    """A load's order."""
    job = LoadJob(
        load=Load(pipeline=pipeline, seq=seq, run_id=run_id, ranges=ranges),
        transform=transform,
        table=table,
        reading=Reading(kafka_options=kafka_options),
    )
    return changed(job, **changes)


def planned_job(pipeline: Pipeline, saved: SavedRange, kafka_options: Mapping[str, str]) -> LoadJob:
    """The order of a batch as its task would give it."""
    load, table = replace(saved.load, ranges=saved.load.nonempty), pipeline.sink.table
    job = LoadJob.of(pipeline, load, Reading(kafka_options=kafka_options), table=table, transform=pipeline.transform)
    return changed(job, identity=pipeline.identity)


def range_of(  # noqa: PLR0917 - in the order of a plan
    pipeline: str,
    seq: int,
    run_id: str,
    ranges: Ranges,
    decisions: tuple[Decision, ...] = (),
    topic_ids: Mapping[str, str] | None = None,
    limits: Mapping[str, Any] | None = None,
    planned_at_ms: int = 0,
    jumped: Mapping[TopicPartition, int] | None = None,
    retired: tuple[TopicPartition, ...] = (),
    adopted_from: str | None = None,
    **changes: Any,
) -> SavedRange:
    """What a run has planned."""
    load = Load(pipeline=pipeline, seq=seq, run_id=run_id, ranges=ranges, topic_ids=topic_ids or {})
    why = Why(decisions=decisions, limits=limits or {}, adopted_from=adopted_from)
    return changed(SavedRange(load=load, planned_at_ms=planned_at_ms, why=why, jumped=jumped or {}, retired=retired), **changes)


def replay_of(
    pipeline: str,
    run_id: str,
    replay: str,
    chunks: tuple[Chunk, ...],
    table: str,
    transform: str,
    topic_ids: Mapping[str, str],
    planned_at_ms: int,
    **changes: Any,
) -> SavedReplay:
    """What a run replays."""
    load = Load(pipeline=pipeline, seq=0, run_id=run_id, ranges=(), topic_ids=topic_ids, replay=replay)
    return changed(
        SavedReplay(load=load, chunks=chunks, table=table, transform=transform, planned_at_ms=planned_at_ms), **changes
    )


@contextmanager
def newer_version() -> Iterator[None]:
    """What is saved and read in here is of the next version, which has a format of its own."""
    with patch.object(codec, "FORMAT", codec.FORMAT + 1), patch.object(receipt, "FORMAT", codec.FORMAT):
        yield


COMMITTED = Committed(
    pipeline="p",
    seq=7,
    key="tidegate.p.range.0000000007.r",
    offsets=200,
    rows=190,
    transform="m:f@1",
    snapshot=2**62,
    table="iceberg://lake/a/b",
    topics=("kafka://kafka_default/t",),
)
"""What is told of a batch."""
REPLAYED = Replayed(
    pipeline="p",
    run_id="manual__1",
    replay="again",
    chunks=3,
    offsets=600,
    rows=590,
    transform="m:f@2",
    table="iceberg://lake/a/b",
    topics=("kafka://kafka_default/t",),
)
"""What is told of a replay."""

"""Replays: any past part of the stream once more, on purpose, while the schedule goes on.

    request    what is asked, in words: offsets, times, batches, a run, a transform's versions
    selection  the offsets that this means now, checked against the cursor, the log and the topics' ids
    chunks     the selection cut into loads, saved by one write before the first of them
    verdict    every chunk's receipt is in the table

A replay never moves the cursor and never goes past it. What it does to the table is the law's: a chunk's rows are replaced.
Each refusal is one `RequestError` that names the valid bounds, and comes before anything is written.

A DAG run owns its replay for ever, and a run id keeps the request that it was first used for. Another run with the same
request goes on where an unfinished one stopped: it plans anew, and leaves out what that one has landed. Pure: on ports, as
`tidegate.core.planning.run`.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import RequestError, some
from tidegate.core.model.ranges import OffsetRange, TopicPartition, common, merged, total_count, without
from tidegate.core.model.times import past as past_time
from tidegate.core.model.times import utc
from tidegate.core.planning.plan import Skip
from tidegate.core.planning.topics import check_topics
from tidegate.core.replay.request import ReplayRequest, check_permitted
from tidegate.core.replay.selection import Past, select
from tidegate.core.replay.verdict import PLANNED, ReplayReport, landed_chunks, report_on
from tidegate.core.state.ledger import run_key
from tidegate.core.state.ports import Brokers, SinkReader, StateStore
from tidegate.core.state.receipt import Load, Receipt
from tidegate.core.state.saved_replay import (
    MOST_CHUNKS,
    Chunk,
    SavedReplay,
    check_numbers,
    cut_chunks,
    live,
    smallest_size,
    whole_batches,
)

DEFAULT_CHUNK = 1_000_000
"""Offsets of a chunk where neither the request nor the pipeline's `max_records` sets it."""


@dataclass(frozen=True)
class PlannedReplay:
    """A saved replay: `planned` now, or this run's `own` from an earlier try.

    `todo` are the chunks to load now. `redo` is set where the table holds a receipt of one of them that does not count, or
    where all of them have landed, and somebody asks for them again. `formerly` are the names that the pipeline had when it
    loaded into the table.
    """

    saved: SavedReplay
    key: str
    _: KW_ONLY
    origin: Literal["planned", "own"]
    todo: tuple[int, ...]
    redo: bool = False
    report: ReplayReport | None = None
    formerly: tuple[str, ...] = ()


def plan_replay(
    pipeline: Pipeline,
    run_id: str,
    request: ReplayRequest,
    *,
    store: StateStore,
    brokers: Brokers,
    sink: SinkReader,
    now_ms: int,
    save: bool = True,
) -> PlannedReplay:
    """The chunks of this run's replay, saved. With `save=False` nothing is written: a dry run.

    Raises RequestError: what is asked for cannot be replayed, or the pipeline's file does not allow it; the message names what
    can be. StateError: the schedule cannot be read or believed. KafkaError: the brokers do not answer. SinkError: the table's
    history cannot be read.
    """
    check_permitted(pipeline, request.table, request.transform)
    trial = request.table not in (None, pipeline.sink.table)
    past = Past.read(pipeline, store, brokers, sink, trial=trial)
    own = _own(past, run_id)
    if own is not None:
        _check_same_request(own.saved, request, again="trigger it without a run id, or with another one")
        return own
    selection, lost, topic_ids = select(past, request)
    landed, resumes = _landed_before(past, request, sink, now_ms)
    left = without(selection, landed)
    if not left:  # all of it landed, if not by one run: whoever asks again wants it again
        left, landed, resumes = selection, (), ()
    whole = _check_whole(past, left) if pipeline.identity == "batch" else {}
    chunks = tuple(whole.values()) if whole else _chunks(past, request, left)
    if len(chunks) > MOST_CHUNKS:
        raise RequestError(
            f"these are {len(chunks):,} batches, and a replay has at most {MOST_CHUNKS:,} chunks",
            fix="Replay fewer batches at a time",
        )
    found = {"lost": lost, "resumes": resumes, "batches": tuple(whole), "planned_at_ms": now_ms}
    left_out = total_count(common(selection, landed))
    return _planned(past, run_id, request, chunks, topic_ids, landed=left_out, save=save, **found)


def plan_backfill(
    pipeline: Pipeline,
    run_id: str,
    interval_ms: tuple[int, int],
    *,
    scheduled: Sequence[str] = (),
    store: StateStore,
    brokers: Brokers,
    sink: SinkReader,
    now_ms: int,
) -> PlannedReplay | Skip:
    """The range of one run of Airflow's date backfill, saved as a replay of one chunk; or why the run is skipped.

    Its data interval covers `interval_ms` by the records' timestamps, `[from, until)`, epoch ms. `scheduled` are run ids that
    the schedule gave, or would have given, to this logical date: their saved range goes first.
    """
    past = Past.read(pipeline, store, brokers, sink)
    own = _own(past, run_id)
    if own is not None:
        if "run_id" not in own.saved.request:  # which has no interval: it was planned by the scheduled run of its date
            request = ReplayRequest(times=interval_ms)
            _check_same_request(own.saved, request, again=f"run `tidegate replay {pipeline.name} --since TIME --until TIME`")
        return own
    saved_by = next((run for run in (run_id, *scheduled) if past.batch_of_run(run) is not None), None)
    try:
        request = ReplayRequest(times=interval_ms) if saved_by is None else ReplayRequest(run_id=saved_by)
        selection, _, topic_ids = select(past, request)
        whole = _check_whole(past, selection) if pipeline.identity == "batch" else {}
    except RequestError as error:
        return Skip(str(error))
    if len(whole) > 1:
        several = f"{min(whole)}..{max(whole)}"
        return Skip(
            f"it covers batches {several}, and a backfill's run is one load: "
            f"run `tidegate replay {pipeline.name} --batch {several}`"
        )
    return _planned(past, run_id, request, (selection,), topic_ids, batches=tuple(whole), planned_at_ms=now_ms)


def _planned(
    past: Past,
    run_id: str,
    request: ReplayRequest,
    chunks: tuple[Chunk, ...],
    topic_ids: Mapping[str, str],
    *,
    landed: int = 0,
    save: bool = True,
    **found: Any,
) -> PlannedReplay:
    """The replay of some chunks; `landed` offsets are left out. `found` are more fields of `SavedReplay`."""
    pipeline = past.pipeline
    load = Load(
        pipeline=pipeline.name,
        seq=0,
        run_id=run_id,
        ranges=(),
        topic_ids=topic_ids,
        generation=past.cursor.generation,
        replay=run_key(run_id),
    )
    saved = SavedReplay(
        load=load,
        chunks=chunks,
        table=request.table or pipeline.sink.table,
        transform=request.transform or pipeline.transform,
        request=request.to_json(),
        parallel=request.parallel,
        **found,
    )
    receipts, todo = _receipts_of(past, saved.table), tuple(range(len(chunks)))
    report = report_on(past, saved, receipts, landed)
    key = past.ledger.replay_key(saved, request.digest)
    if save:
        past.ledger.save_replay(saved, request.digest, past.listing, keep=pipeline.keep_ranges)
    redo = _have_receipts(saved, todo, receipts)  # of a replay whose run had the same id, and whose Variable is gone
    return PlannedReplay(saved, key, origin="planned", todo=todo, redo=redo, report=report, formerly=past.formerly)


def _own(past: Past, run_id: str) -> PlannedReplay | None:
    key = past.listing.replay_of_run(run_id)
    if key is None:
        return None
    saved = past.ledger.saved_replay(key.key)
    check_permitted(past.pipeline, saved.table, saved.transform)
    check_numbers(saved, past.cursor.generation)
    receipts = _receipts_of(past, saved.table)
    landed = landed_chunks(saved, receipts)
    missing = tuple(n for n in range(len(saved.chunks)) if n not in landed)
    check_topics(saved.load.topic_ids, saved.selection, past.brokers, since=PLANNED)
    every = tuple(range(len(saved.chunks)))
    # a load that has landed counts the records of topics without gaps once more, and sweeps its quarantine
    todo = every if _looks_again(past.pipeline) else missing or every
    redo = _have_receipts(saved, missing or every, receipts)
    return PlannedReplay(saved, key.key, origin="own", todo=todo, redo=redo, formerly=past.formerly)


def _looks_again(pipeline: Pipeline) -> bool:
    """Whether a load that has landed has something left to do: to look for gaps, or to sweep a quarantine."""
    return pipeline.source.contiguous or pipeline.quarantine is not None


def _have_receipts(saved: SavedReplay, numbers: Sequence[int], receipts: Sequence[Receipt]) -> bool:
    """Whether the table holds receipts of chunks that are to be loaded: the loads would take them for landed."""
    wanted = {n: saved.chunks[n] for n in numbers}
    mine = (r for r in receipts if r.load.replay == saved.name and r.load.seq in wanted)
    return any(r.covers(wanted[r.load.seq]) for r in mine)


def _check_same_request(saved: SavedReplay, asked: ReplayRequest, *, again: str) -> None:
    """A run id that was used before keeps the request of then.

    Raises RequestError: something else is asked now; `again` is how to ask for that.
    """
    before, now = saved.request, asked.to_json()
    if before != now:
        raise RequestError(
            f"the run id {saved.load.run_id} was used before, for {_in_words(before)}, and now asks for {_in_words(now)}; "
            "nothing was changed",
            fix=f"To replay what is asked now, {again}",
            replay=saved.name,
        )


def _in_words(request: Mapping[str, Any]) -> str:
    """With times as a trigger gives them."""
    times = {"from_ms": "from_time", "until_ms": "until_time"}
    shown = {times.get(name, name): utc(value) if name in times else value for name, value in request.items()}
    return json.dumps(shown, sort_keys=True)


def _receipts_of(past: Past, table: str) -> list[Receipt]:
    own = table == past.pipeline.sink.table
    return past.receipts if own else past.sink.receipts(table, past.pipeline.name)


def _landed_before(
    past: Past, request: ReplayRequest, sink: SinkReader, now_ms: int
) -> tuple[tuple[OffsetRange, ...], tuple[str, ...]]:
    """What unfinished replays of the same request have landed since the last one that finished, and their names.

    Nothing, while the newest was planned by a clock that ran ahead: their order is not known. Nothing either where a load has
    something to do once its commit is in the table, and may have been killed before: a receipt does not tell.
    """
    landed_ranges: list[OffsetRange] = []
    resumes: list[str] = []
    if _looks_again(past.pipeline):
        return (), ()
    for key in (key for key in reversed(past.listing.replays) if key.request == request.digest):
        saved = past.ledger.saved_replay(key.key)
        if past_time(saved.planned_at_ms, now_ms) is None:
            break
        landed = landed_chunks(saved, sink.receipts(saved.table, past.pipeline.name))
        if len(landed) == len(saved.chunks):
            break
        if landed and past.same_topics(saved.load.topic_ids):
            landed_ranges += [r for number in landed for r in saved.chunks[number]]
            resumes.append(saved.name)
    return merged(landed_ranges), tuple(resumes)


def _chunks(past: Past, request: ReplayRequest, selection: tuple[OffsetRange, ...]) -> tuple[Chunk, ...]:
    batches = _in_order(past, _receipts_of(past, request.table or past.pipeline.sink.table))
    size = request.chunk_size or past.pipeline.limits.max_records or DEFAULT_CHUNK
    # cutting costs as much as the chunks that come of it: what is far too many is not cut to be counted
    chunks = cut_chunks(selection, batches, max(size, total_count(selection) // (20 * MOST_CHUNKS)))
    if len(chunks) <= MOST_CHUNKS:
        return chunks
    fitting = smallest_size(selection, batches, MOST_CHUNKS)
    if fitting is None:
        raise RequestError(
            f"the selection has more gaps than the {MOST_CHUNKS:,} chunks of a replay can step over",
            fix="Select less at a time",
        )
    if request.chunk_size is not None:
        raise RequestError(
            f"chunks of {size:,} offsets are about {max(len(chunks), total_count(selection) // size):,} chunks, "
            f"and a replay has at most {MOST_CHUNKS:,}",
            fix=f"The smallest chunk size that fits is {fitting}",
        )
    return cut_chunks(selection, batches, fitting)


def _in_order(past: Past, receipts: list[Receipt]) -> list[tuple[OffsetRange, ...]]:
    """What each live load has written, in the order of the stream: where a chunk may end without cutting files."""
    live_loads = live(receipts, past.cursor.at.topic_ids)
    begun: dict[TopicPartition, tuple[list[int], list[int]]] = {}
    for seq, receipt in past.batches().items():
        for r in receipt.load.ranges:
            starts, seqs = begun.setdefault(r.topic_partition, ([], []))
            starts.append(r.from_offset)
            seqs.append(seq)

    def batch_at(r: OffsetRange) -> int:
        starts, seqs = begun.get(r.topic_partition, ([], []))
        at = bisect_right(starts, r.from_offset)
        return seqs[at - 1] if at else 0

    return sorted((ranges for _, ranges in live_loads), key=lambda ranges: (min(map(batch_at, ranges)), ranges))


def _check_whole(past: Past, selection: tuple[OffsetRange, ...]) -> dict[int, Chunk]:
    """The batches that the selection is made of, by number; rows that aggregate have no other identity.

    Raises RequestError: it cuts through a batch, or holds offsets of none.
    """
    whole = whole_batches(selection, past.batch_ranges())
    bounds = merged(r for chunk in whole.values() for r in chunk)
    if bounds != selection:
        near = f"{min(whole)}..{max(whole)}" if whole else f"1..{past.cursor.seq}"
        raise RequestError(
            f"the rows of {past.pipeline.name} belong to whole batches (`identity: batch`), and this selection cuts "
            "through them",
            fix=f"Nearest are batches {near}" + (f": {some(map(str, bounds))}" if bounds else ""),
        )
    return whole

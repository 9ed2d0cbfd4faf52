"""Replays: any past part of the stream once more, on purpose, while the schedule goes on.

    request    what is asked, in words: offsets, times, batches, a run, a transform's versions
    selection  the offsets that this means now, checked against the cursor, the log and the topics' ids
    chunks     the selection cut into loads, saved by one write before the first of them
    verdict    every chunk's receipt is in the table

A replay never moves the cursor and never goes past it. What it does to the table is the law's: a chunk's rows are replaced.
Each refusal is one `RequestError` that names the valid bounds, and comes before anything is written.

A DAG run owns its replay for ever. Another run with the same request goes on where an unfinished one stopped: it plans anew,
and leaves out what that one has landed. Pure: on ports, as `tidegate.batch`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from tidegate.chunks import (
    MOST_CHUNKS,
    Chunk,
    SavedReplay,
    common,
    cut_chunks,
    live,
    merged,
    smallest_size,
    whole_batches,
    without,
)
from tidegate.config import Pipeline
from tidegate.cursor import Cursor
from tidegate.errors import ReceiptMismatch, RequestError, TopicRecreated
from tidegate.ledger import Ledger, Listing, run_key
from tidegate.planning import Skip, Watermarks
from tidegate.ports import Brokers, SinkHistory, StateStore
from tidegate.ranges import OffsetRange, TopicPartition, disjoint, offsets_to_json, total_count
from tidegate.receipts import Receipt
from tidegate.replay_request import Asked, ReplayRequest, wanted_versions

DEFAULT_CHUNK = 1_000_000
"""Offsets of a chunk where neither the request nor the pipeline's `max_records` says."""
LOOK_BACK = 5
"""Batches that the observed rate is taken from."""
TOLD = 5


@dataclass(frozen=True)
class Replaced:
    """What a replay replaces of one earlier load: offsets, and about so many rows."""

    load: str
    offsets: int
    rows: int
    transform: str


@dataclass(frozen=True)
class ReplayReport:
    """What a replay would do. `bytes` and `seconds` are estimates from what was observed; None where nothing was."""

    records: Mapping[TopicPartition, int]
    chunks: int
    bytes: int | None
    seconds: float | None
    lost: tuple[OffsetRange, ...] = ()
    replaces: tuple[Replaced, ...] = ()
    landed: int = 0

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "records": offsets_to_json(self.records),
            "total": sum(self.records.values()),
            "chunks": self.chunks,
            "bytes": self.bytes,
            "seconds": None if self.seconds is None else round(self.seconds, 1),
            "lost": [str(r) for r in self.lost],
            "replaces": [asdict(r) for r in self.replaces],
            "landed": self.landed,
        }

    def lines(self) -> list[str]:
        """The same for people."""
        told = [f"{tp}: {count:,} offsets" for tp, count in sorted(self.records.items())]
        size = "bytes unknown" if self.bytes is None else f"about {self.bytes:,} bytes"
        time = "time unknown: no rate was observed" if self.seconds is None else f"about {self.seconds:,.0f} s"
        told.append(f"in all {sum(self.records.values()):,} offsets, {size}, {self.chunks} chunks, {time}")
        told += [f"no longer retained, left out: {r} = {r.count:,} offsets" for r in self.lost]
        if self.landed:
            told.append(f"landed by an earlier run of the same replay, not repeated: {self.landed:,} offsets")
        told += [f"replaces {r.rows:,} rows of {r.load} ({r.offsets:,} offsets, by {r.transform})" for r in self.replaces]
        return told


@dataclass(frozen=True)
class PlannedReplay:
    """A saved replay: `planned` now, or this run's `own` from an earlier try.

    `todo` are the chunks to load now. `redo` says that they are all there already, and somebody asks for them again.
    """

    saved: SavedReplay
    key: str
    origin: Literal["planned", "own"]
    todo: tuple[int, ...]
    redo: bool = False
    report: ReplayReport | None = None


def plan_replay(
    pipeline: Pipeline,
    run_id: str,
    request: ReplayRequest,
    *,
    store: StateStore,
    brokers: Brokers,
    sink: SinkHistory,
    now_ms: int,
    save: bool = True,
) -> PlannedReplay:
    """The chunks of this run's replay, saved. With `save=False` nothing is written: a dry run.

    Raises:
        RequestError: what is asked for cannot be replayed; the message names what can.
        StateError: the schedule cannot be read or believed.
        KafkaError: the brokers cannot tell the watermarks.
        SinkError: the table's history cannot be read.
    """
    known = _Known.read(pipeline, store, brokers, sink)
    own = _own(known, run_id)
    if own is not None:
        return own
    table = request.table or pipeline.sink.table
    there = known.receipts if table == pipeline.sink.table else sink.receipts(table, pipeline.name)
    selection, lost, topic_ids = _select(known, request)
    landed, resumes = _landed_before(known, request, sink)
    left = without(selection, landed)
    if not left:  # all of it landed, if not by one run: whoever asks again wants it again
        left, landed, resumes = selection, (), ()
    chunks = _chunks(known, request, left, there)
    saved = SavedReplay(
        pipeline=pipeline.name,
        run_id=run_id,
        replay=run_key(run_id),
        chunks=chunks,
        table=table,
        transform=request.transform or pipeline.transform,
        topic_ids=topic_ids,
        planned_at_ms=now_ms,
        request=request.to_json(),
        lost=lost,
        resumes=resumes,
        parallel=request.parallel,
        generation=known.cursor.generation,
    )
    report = _report(known, saved, there, total_count(common(selection, landed)))
    key = known.ledger.replay_key(saved, request.digest)
    if save:
        known.ledger.save_replay(saved, request.digest, known.listing, keep=pipeline.keep_ranges)
    return PlannedReplay(saved, key, "planned", tuple(range(len(chunks))), report=report)


def plan_backfill(
    pipeline: Pipeline,
    run_id: str,
    interval_ms: tuple[int, int],
    *,
    scheduled: Sequence[str] = (),
    store: StateStore,
    brokers: Brokers,
    sink: SinkHistory,
    now_ms: int,
) -> PlannedReplay | Skip:
    """The range of one run of Airflow's date backfill, saved as a replay of one chunk; or why the run is skipped.

    Args:
        pipeline: what is filled.
        run_id: of the backfill's run.
        interval_ms: what its data interval covers by the records' timestamps, `[from, until)`, epoch ms.
        scheduled: run ids that the schedule gave, or would have given, to this logical date: their saved range goes first.
        store: the schedule.
        brokers: the log.
        sink: the table.
        now_ms: the time, epoch ms.

    Raises:
        StateError, KafkaError, SinkError: as `plan_replay`.
    """
    known = _Known.read(pipeline, store, brokers, sink)
    own = _own(known, run_id)
    if own is not None:
        return own
    saved_by = next((run for run in (run_id, *scheduled) if known.batch_of_run(run) is not None), None)
    try:
        if saved_by is not None:
            request = ReplayRequest(run_id=saved_by)
        else:
            request = ReplayRequest(from_ms=interval_ms[0], until_ms=interval_ms[1])
        selection, _, topic_ids = _select(known, request)
        if pipeline.identity == "batch":
            _check_whole(known, selection)
    except RequestError as error:
        return Skip(str(error))
    saved = SavedReplay(
        pipeline=pipeline.name,
        run_id=run_id,
        replay=run_key(run_id),
        chunks=(selection,),
        table=pipeline.sink.table,
        transform=pipeline.transform,
        topic_ids=topic_ids,
        planned_at_ms=now_ms,
        request=request.to_json(),
        generation=known.cursor.generation,
    )
    key = known.ledger.save_replay(saved, request.digest, known.listing, keep=pipeline.keep_ranges)
    return PlannedReplay(saved, key, "planned", (0,), report=_report(known, saved, known.receipts, 0))


@dataclass(frozen=True)
class _Known:
    """What the schedule and the table say of the past."""

    pipeline: Pipeline
    ledger: Ledger
    listing: Listing
    cursor: Cursor
    brokers: Brokers
    sink: SinkHistory
    receipts: list[Receipt] = field(default_factory=list)

    @staticmethod
    def read(pipeline: Pipeline, store: StateStore, brokers: Brokers, sink: SinkHistory) -> _Known:
        ledger = Ledger(store, pipeline.name)
        listing = ledger.listing()
        if not listing.has_cursor:
            raise RequestError(f"{pipeline.name} has no cursor: there is nothing to replay", fix="Let the pipeline run first")
        receipts = sink.receipts(pipeline.sink.table, pipeline.name)
        return _Known(pipeline, ledger, listing, ledger.cursor(), brokers, sink, receipts)

    def batches(self) -> dict[int, Receipt]:
        """The newest receipt of every committed batch whose topics are still the same ones, by number, in order."""
        found = {r.load.seq: r for r in self.receipts if r.load.replay is None and r.load.seq <= self.cursor.seq}
        return {seq: r for seq, r in sorted(found.items()) if self.same_topics(r.load.topic_ids)}

    def same_topics(self, topic_ids: Mapping[str, str]) -> bool:
        """Whether offsets under these topic ids mean the records that the cursor counts."""
        return all(self.cursor.topic_ids.get(topic, topic_id) == topic_id for topic, topic_id in topic_ids.items())

    def batch_of_run(self, run_id: str) -> tuple[int, tuple[OffsetRange, ...], Mapping[str, str]] | None:
        """Number, ranges and topic ids of a run's batch, by its Variable, or else by the table's history."""
        key = self.listing.of_run(run_id)
        if key is not None:
            saved = self.ledger.saved_range(key.key)
            return saved.seq, saved.to_load, saved.topic_ids
        loads = (r.load for r in reversed(self.receipts) if r.load.replay is None and r.load.run_id == run_id)
        found = next(loads, None)
        return None if found is None else (found.seq, found.ranges, found.topic_ids)


def _own(known: _Known, run_id: str) -> PlannedReplay | None:
    key = known.listing.replay_of_run(run_id)
    if key is None:
        return None
    saved = known.ledger.saved_replay(key.key)
    landed = landed_chunks(saved, _receipts_of(known, saved.table))
    missing = tuple(n for n in range(len(saved.chunks)) if n not in landed)
    return PlannedReplay(saved, key.key, "own", missing or tuple(range(len(saved.chunks))), redo=not missing)


def _receipts_of(known: _Known, table: str) -> list[Receipt]:
    own = table == known.pipeline.sink.table
    return known.receipts if own else known.sink.receipts(table, known.pipeline.name)


def landed_chunks(saved: SavedReplay, receipts: Iterable[Receipt]) -> dict[int, Receipt]:
    """The newest receipt of each chunk that the table holds, by the chunk's number."""
    found = {}
    for receipt in receipts:
        load = receipt.load
        ours = load.replay == saved.replay and 0 <= load.seq < len(saved.chunks)
        if ours and receipt.covers(saved.chunks[load.seq]):
            found[load.seq] = receipt
    return found


def _landed_before(known: _Known, request: ReplayRequest, sink: SinkHistory) -> tuple[tuple[OffsetRange, ...], tuple[str, ...]]:
    """What unfinished replays of the same request have landed since the last one that finished, and their names."""
    found: list[OffsetRange] = []
    resumes = []
    for key in known.listing.replays_of(request.digest):
        saved = known.ledger.saved_replay(key.key)
        landed = landed_chunks(saved, sink.receipts(saved.table, known.pipeline.name))
        if len(landed) == len(saved.chunks):
            break
        if landed and known.same_topics(saved.topic_ids):
            found += [r for number in landed for r in saved.chunks[number]]
            resumes.append(saved.replay)
    return merged(found), tuple(resumes)


def _select(known: _Known, request: ReplayRequest) -> tuple[tuple[OffsetRange, ...], tuple[OffsetRange, ...], dict[str, str]]:
    """The offsets that a request means now, what of them is no longer retained, and the ids of their topics."""
    if request.from_ms is not None or request.until_ms is not None:
        watermarks = _watermarks(known, {tp.topic for tp in known.cursor.offsets})
        asked = _by_time(known, request, watermarks)
    else:
        if request.offsets:
            asked = _by_offsets(known, request.offsets)
        elif request.batches is not None:
            asked = _exactly(_by_batches(known, *request.batches))
        elif request.run_id is not None:
            asked = _exactly(_by_run(known, request.run_id))
        else:
            asked = _exactly(_by_versions(known, str(request.versions)))
        watermarks = _watermarks(known, {str(a.topic) for a in asked})
    selection, lost = _checked(known, asked, watermarks, accept_loss=request.accept_loss)
    return selection, lost, {topic: watermarks.topic_ids[topic] for topic in sorted({r.topic for r in selection})}


def _watermarks(known: _Known, topics: set[str]) -> Watermarks:
    level = known.pipeline.source.isolation_level
    found = known.brokers.watermarks(sorted(topics), isolation_level=level)
    for topic, topic_id in found.topic_ids.items():
        if known.cursor.topic_ids.get(topic, topic_id) != topic_id:
            raise RequestError(
                f"topic {topic} was deleted and created again: its id is {topic_id}, "
                f"the cursor's {known.cursor.topic_ids[topic]}, and its offsets mean other records",
                fix=f"To start it anew, run `tidegate accept recreated {known.pipeline.name} {topic}`",
                topic=topic,
            )
    return found


def _exactly(ranges: Iterable[OffsetRange]) -> list[Asked]:
    return [Asked(r.topic, r.partition, r.from_offset, r.until_offset) for r in merged(ranges)]


def _by_offsets(known: _Known, asked: Sequence[Asked]) -> list[Asked]:
    """One range for each partition that is named, or meant."""
    found: list[Asked] = []
    for a in asked:
        meant = [
            tp for tp in sorted(known.cursor.offsets) if a.topic in (None, tp.topic) and a.partition in (None, tp.partition)
        ]
        if not meant:
            where = f"topic {a.topic}" if a.partition is None else f"{a.topic or 'partition'}-{a.partition}"
            raise RequestError(
                f"{known.pipeline.name} has read nothing of {where}",
                fix=f"It can replay {_told(_valid(known, _watermarks(known, {tp.topic for tp in known.cursor.offsets})))}",
            )
        found += [Asked(tp.topic, tp.partition, a.from_offset, a.until_offset) for tp in meant]
    return found


def _told(valid: Mapping[TopicPartition, tuple[int, int]]) -> str:
    return _some(f"{tp} [{low}, {high})" for tp, (low, high) in sorted(valid.items()))


def _by_time(known: _Known, request: ReplayRequest, watermarks: Watermarks) -> list[Asked]:
    """Between the first records at or after the two times; where no record is that late, the cursor."""
    valid = _valid(known, watermarks)

    def resolved(at_ms: int | None, side: int) -> dict[TopicPartition, int]:
        if at_ms is None:
            return {tp: bounds[side] for tp, bounds in valid.items()}
        found = known.brokers.offsets_at(dict.fromkeys(valid, at_ms))
        return {tp: high if found[tp] is None else min(found[tp] or 0, high) for tp, (_, high) in valid.items()}

    starts, ends = resolved(request.from_ms, 0), resolved(request.until_ms, 1)
    asked = [Asked(tp.topic, tp.partition, starts[tp], ends[tp]) for tp in sorted(valid) if starts[tp] < ends[tp]]
    if not asked:
        raise RequestError(
            f"{known.pipeline.name} has read no record with a time "
            f"from {_time(request.from_ms)} until {_time(request.until_ms)}",
            fix=f"It can replay {_told(valid)}",
        )
    return asked


def _time(at_ms: int | None) -> str:
    return "any" if at_ms is None else f"{at_ms} (epoch ms)"


def _by_batches(known: _Known, first: int, last: int) -> list[OffsetRange]:
    newest = known.cursor.seq
    if not 1 <= first <= last <= newest:
        fault = "is reversed" if last < first else "is not committed" if last > newest else "does not exist"
        raise RequestError(f"batches {first}..{last}: this {fault}", fix=f"Batches 1 to {newest} are committed")
    by_receipt = {r.load.seq: r.load for r in known.receipts if r.load.replay is None}
    by_variable = {key.seq: key.key for key in known.listing.ranges}
    found: list[OffsetRange] = []
    unknown = []
    for seq in range(first, last + 1):
        if seq in by_receipt:
            _check_topics(known, seq, by_receipt[seq].topic_ids)
            found += by_receipt[seq].ranges
        elif seq in by_variable:
            saved = known.ledger.saved_range(by_variable[seq])
            _check_topics(known, seq, saved.topic_ids)
            found += saved.to_load
        else:
            unknown.append(seq)
    if unknown:
        held = sorted(seq for seq in {*by_receipt, *by_variable} if seq <= newest)
        raise RequestError(
            f"nothing is known any more of batch {_some(map(str, unknown))}",
            fix=f"Batches that are known: {held[0]} to {held[-1]}" if held else "Ask by offsets instead",
        )
    if not total_count(found):
        raise RequestError(f"batches {first}..{last} hold no offsets", fix=f"Batches 1 to {newest} are committed")
    return found


def _check_topics(known: _Known, seq: int, topic_ids: Mapping[str, str]) -> None:
    if not known.same_topics(topic_ids):
        raise RequestError(
            f"batch {seq} was read from a topic that has been deleted and created again since: its offsets mean other records",
            fix=f"Batches that can be replayed: {_some(map(str, known.batches()))}",
        )


def _by_run(known: _Known, run_id: str) -> tuple[OffsetRange, ...]:
    found = known.batch_of_run(run_id)
    if found is None:
        raise RequestError(
            f"no batch of {known.pipeline.name} is known of run {run_id!r}",
            fix=f"Ask by batch: 1 to {known.cursor.seq} are committed",
        )
    seq, ranges, topic_ids = found
    if seq > known.cursor.seq:
        raise RequestError(
            f"batch {seq} of run {run_id} is not committed: the schedule loads it", fix=f"Batches 1 to {known.cursor.seq} are"
        )
    _check_topics(known, seq, topic_ids)
    if not ranges:
        raise RequestError(f"batch {seq} of run {run_id} holds no offsets")
    return ranges


def _by_versions(known: _Known, versions: str) -> list[OffsetRange]:
    wants = wanted_versions(versions)
    until = [OffsetRange(tp.topic, tp.partition, 0, offset) for tp, offset in known.cursor.offsets.items()]
    standing = live([r for r in known.receipts if known.same_topics(r.load.topic_ids)])
    found = [r for receipt, ranges in standing if wants(receipt.load.transform) for r in common(ranges, until)]
    if not found:
        there = sorted({receipt.load.transform for receipt, _ in standing})
        raise RequestError(
            f"no row of {known.pipeline.sink.table} was loaded by a version {versions}",
            fix=f"Its rows were loaded by {_some(there) or 'nothing that is still known'}",
        )
    return found


def _valid(known: _Known, watermarks: Watermarks) -> dict[TopicPartition, tuple[int, int]]:
    """What can be replayed of each partition that was read and still exists: retained, and before the cursor."""
    return {
        tp: (min(watermarks.earliest[tp], end), end)
        for tp, offset in known.cursor.offsets.items()
        if tp in watermarks.latest
        for end in [min(offset, watermarks.latest[tp])]
    }


def _checked(
    known: _Known, asked: Iterable[Asked], watermarks: Watermarks, *, accept_loss: bool
) -> tuple[tuple[OffsetRange, ...], tuple[OffsetRange, ...]]:
    """The selection, and what of it is lost; every fault of every partition in one refusal."""
    valid = _valid(known, watermarks)
    faults: list[str] = []
    bounds: dict[TopicPartition, tuple[int, int]] = {}
    found: list[OffsetRange] = []
    lost: list[OffsetRange] = []
    for a in asked:
        tp = TopicPartition(str(a.topic), a.partition or 0)
        if tp not in valid:
            faults.append(f"{tp} is gone from the brokers")
            continue
        low, high = valid[tp]
        start, end = (low if a.from_offset is None else a.from_offset), (high if a.until_offset is None else a.until_offset)
        fault = _fault(start, end, low, high, accept_loss=accept_loss)
        if fault is not None:
            faults.append(f"{tp} [{start}, {end}) {fault}")
            bounds[tp] = low, high
            continue
        kept = max(start, min(low, end))
        lost += [OffsetRange(tp.topic, tp.partition, start, kept)] if start < kept else []
        found += [OffsetRange(tp.topic, tp.partition, kept, end)] if kept < end else []
    if faults:
        accept = ", or accept the loss" if any("retained" in fault for fault in faults) else ""
        raise RequestError(
            f"this cannot be replayed: {_some(faults)}",
            fix=f"{known.pipeline.name} can replay {_told(bounds or valid)}{accept}",
        )
    selection = disjoint(found)
    if not selection:
        raise RequestError(
            f"nothing of it is retained: {_some(map(str, lost))}",
            fix=f"{known.pipeline.name} can replay {_told(valid)}",
        )
    return merged(selection), disjoint(lost)


def _fault(start: int, end: int, low: int, high: int, *, accept_loss: bool) -> str | None:
    if start < 0 or end < 0:
        return "is negative"
    if end < start:
        return "is reversed"
    if end == start:
        return "is empty"
    if end > high:
        return "goes past the cursor"
    if start < low and not accept_loss:
        return f"is retained from {low} on only"
    return None


def _chunks(
    known: _Known, request: ReplayRequest, selection: tuple[OffsetRange, ...], there: list[Receipt]
) -> tuple[Chunk, ...]:
    if known.pipeline.identity == "batch":
        chunks = _check_whole(known, selection)
        if len(chunks) > MOST_CHUNKS:
            raise RequestError(
                f"these are {len(chunks):,} batches, and a replay has at most {MOST_CHUNKS:,} chunks",
                fix="Replay fewer batches at a time",
            )
        return chunks
    batches = _in_order(known, there)
    size = request.chunk_size or known.pipeline.limits.max_records or DEFAULT_CHUNK
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


def _in_order(known: _Known, receipts: list[Receipt]) -> list[tuple[OffsetRange, ...]]:
    """What each load that still stands has written, in the order of the stream: where a chunk may end without cutting files."""
    standing = live([r for r in receipts if known.same_topics(r.load.topic_ids)])
    begun: dict[TopicPartition, tuple[list[int], list[int]]] = {}
    for seq, receipt in known.batches().items():
        for r in receipt.load.ranges:
            starts, seqs = begun.setdefault(r.topic_partition, ([], []))
            starts.append(r.from_offset)
            seqs.append(seq)

    def batch_at(r: OffsetRange) -> int:
        starts, seqs = begun.get(r.topic_partition, ([], []))
        at = bisect_right(starts, r.from_offset)
        return seqs[at - 1] if at else 0

    return sorted((ranges for _, ranges in standing), key=lambda ranges: (min(map(batch_at, ranges)), ranges))


def _check_whole(known: _Known, selection: tuple[OffsetRange, ...]) -> tuple[Chunk, ...]:
    """The batches that the selection is made of; rows that aggregate have no other identity.

    Raises:
        RequestError: it cuts through a batch, or holds offsets of none.
    """
    batches = known.batches()
    chunks = whole_batches(selection, [r.load.ranges for r in batches.values()])
    touched = [seq for seq, r in batches.items() if common(selection, r.load.ranges)]
    if merged(r for chunk in chunks for r in chunk) != selection:
        near = f"{touched[0]}..{touched[-1]}" if touched else f"1..{known.cursor.seq}"
        bounds = merged(r for chunk in chunks for r in chunk)
        raise RequestError(
            f"the rows of {known.pipeline.name} belong to whole batches (`identity: batch`), and this cuts through them",
            fix=f"Nearest are batches {near}" + (f": {_some(map(str, bounds))}" if bounds else ""),
        )
    return chunks


def _report(known: _Known, saved: SavedReplay, there: list[Receipt], landed: int) -> ReplayReport:
    records: dict[TopicPartition, int] = {}
    for r in saved.selection:
        records[r.topic_partition] = records.get(r.topic_partition, 0) + r.count
    total = sum(records.values())
    size = known.cursor.record_bytes
    rate = _observed_rate(known)
    replaces = []
    for receipt, standing in reversed(live(there)):
        hit = total_count(common(standing, saved.selection))
        if hit:
            load = receipt.load
            name = f"batch {load.seq}" if load.replay is None else f"replay {load.replay}, chunk {load.seq}"
            rows = round(receipt.rows * hit / total_count(load.ranges))
            replaces.append(Replaced(name, hit, rows, load.transform))
    return ReplayReport(
        records=records,
        chunks=len(saved.chunks),
        bytes=None if size is None else round(size * total),
        seconds=None if rate is None else total / rate,
        lost=saved.lost,
        replaces=tuple(replaces),
        landed=landed,
    )


def _observed_rate(known: _Known) -> float | None:
    """Offsets per second from planned to committed in the sink, over the newest batches; None where none can be told."""
    offsets = seconds = 0.0
    keys = {key.seq: key.key for key in known.listing.ranges}
    for seq, receipt in list(known.batches().items())[-LOOK_BACK:]:
        if seq in keys:
            passed_s = (receipt.committed_at_ms - known.ledger.saved_range(keys[seq]).planned_at_ms) / 1000
            offsets += total_count(receipt.load.ranges) if passed_s > 0 else 0
            seconds += max(passed_s, 0)
    return offsets / seconds if offsets else None


@dataclass(frozen=True)
class ReplayVerdict:
    """A replay that is whole: chunks, offsets, rows in its commits, the transform's version, and what a log no longer holds."""

    chunks: int
    offsets: int
    rows: int
    transform: str
    expired: tuple[OffsetRange, ...] = ()


def verify_replay(saved: SavedReplay, *, sink: SinkHistory, brokers: Brokers, level: Any = "read_committed") -> ReplayVerdict:
    """Compare the receipts in the table with what was planned, and with the log.

    Raises:
        ReceiptMismatch: chunks are missing, or were made by different versions of the transform; the message names them.
        TopicRecreated: a topic is not the one that the replay was planned for.
        SinkError, KafkaError: the table or the brokers cannot tell.
    """
    receipts = sink.receipts(saved.table, saved.pipeline)
    landed = landed_chunks(saved, receipts)
    missing = [f"chunk {n} ({_some(map(str, saved.chunks[n]), 2)})" for n in range(len(saved.chunks)) if n not in landed]
    if missing:
        raise ReceiptMismatch(
            f"{len(missing)} of {len(saved.chunks)} chunks of replay {saved.replay} are not in {saved.table}: {_some(missing)}",
            fix="Clear the failed load tasks, or trigger the same replay again: only what is missing is loaded",
            missing=len(missing),
        )
    made_by = {r.load.transform for r in landed.values()}
    before = {(r.load.replay, r.load.seq): r for r in receipts if r.load.replay in saved.resumes}
    made_by |= {r.load.transform for r in before.values()}
    if len(made_by) > 1:
        raise ReceiptMismatch(
            f"the chunks of replay {saved.replay} were made by different versions: {_some(sorted(made_by))}",
            fix="The transform changed meanwhile: replay once more",
        )
    watermarks = brokers.watermarks(sorted(saved.topic_ids), isolation_level=level)
    for topic, topic_id in saved.topic_ids.items():
        if watermarks.topic_ids[topic] != topic_id:
            raise TopicRecreated(
                f"topic {topic} was deleted and created again since this replay was planned",
                fix="Its offsets mean other records: the rows stay as the old topic's records made them",
                topic=topic,
            )
    retained = [OffsetRange(tp.topic, tp.partition, low, watermarks.latest[tp]) for tp, low in watermarks.earliest.items()]
    return ReplayVerdict(
        chunks=len(saved.chunks),
        offsets=total_count(saved.selection),
        rows=sum(r.rows for r in landed.values()),
        transform=min(made_by),
        expired=without(saved.selection, retained),
    )


def _some(told: Iterable[str], most: int = TOLD) -> str:
    words = list(told)
    return ", ".join([*words[:most], *([f"and {len(words) - most} more"] if len(words) > most else [])])

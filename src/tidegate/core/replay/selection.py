"""Which offsets a replay means: its request, resolved and checked against the schedule and the table.

One refusal names every fault of every partition, with the bounds of what can be replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import RequestError, some
from tidegate.core.model.ranges import OffsetRange, TopicPartition, common, disjoint, merged, total_count
from tidegate.core.model.times import utc
from tidegate.core.model.watermarks import Watermarks, other_topics
from tidegate.core.planning.evidence import read_evidence
from tidegate.core.planning.trust import check_table, foreign_accepted
from tidegate.core.replay.request import Asked, ReplayRequest, version_filter
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger, Listing
from tidegate.core.state.ports import Brokers, SinkReader, StateStore
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.saved_replay import live


@dataclass(frozen=True)
class Past:
    """The past of one pipeline: what is saved and committed, and its receipts, also the expired ones, oldest commit first.

    `formerly` are the names that the pipeline had when it loaded into the table. `floor` is where the pipeline began in each
    partition, where its table holds rows without origin: earlier records may be among these rows, and are not replayed.
    """

    pipeline: Pipeline
    ledger: Ledger
    _: KW_ONLY
    listing: Listing
    cursor: Cursor
    brokers: Brokers
    sink: SinkReader
    receipts: list[Receipt]
    formerly: tuple[str, ...]
    floor: Mapping[TopicPartition, int]

    @staticmethod
    def read(pipeline: Pipeline, store: StateStore, brokers: Brokers, sink: SinkReader, *, trial: bool = False) -> Past:
        """All of it, as it is now. A `trial` does not write into the pipeline's own table.

        Raises RequestError: the pipeline has no cursor. StateError, SinkError: the schedule or the table cannot be read or
        believed. SinkMisfit: its rows have no origin.
        """
        evidence = read_evidence(pipeline, store, sink)
        if not evidence.listing.has_cursor:
            raise RequestError(f"{pipeline.name} has no cursor: there is nothing to replay", fix="Let the pipeline run first")
        floor: Mapping[TopicPartition, int] = {}
        if not trial:
            check_table(evidence)
            floor = evidence.cursor.at.starts if evidence.history.origins.unproved and foreign_accepted(evidence) else {}
        return Past(
            pipeline,
            Ledger(store, pipeline.name),
            listing=evidence.listing,
            cursor=evidence.cursor,
            brokers=brokers,
            sink=sink,
            receipts=sink.receipts(pipeline.sink.table, pipeline.name),
            formerly=evidence.history.formerly(pipeline.name),
            floor=floor,
        )

    def batches(self) -> dict[int, Receipt]:
        """The newest receipt of every committed batch whose topics are still the same ones, by number, in order."""
        newest = {r.load.seq: r for r in self.receipts if r.load.replay is None and r.load.seq <= self.cursor.seq}
        return {seq: r for seq, r in sorted(newest.items()) if self.same_topics(r.load.topic_ids)}

    def batch_ranges(self) -> dict[int, tuple[OffsetRange, ...]]:
        """What every committed batch has read, by number, in order: by its receipt, or else by its Variable.

        Batches whose topics were created again since are left out.
        """
        ranges = {seq: receipt.load.ranges for seq, receipt in self.batches().items()}
        with_receipt = {r.load.seq for r in self.receipts if r.load.replay is None}
        for key in self.listing.ranges:
            if key.seq <= self.cursor.seq and key.seq not in with_receipt:
                saved = self.ledger.saved_range(key.key)
                if saved.load.nonempty and self.same_topics(saved.load.topic_ids):
                    ranges[key.seq] = saved.load.nonempty
        return dict(sorted(ranges.items()))

    def same_topics(self, topic_ids: Mapping[str, str]) -> bool:
        """Whether offsets under these topic ids mean the records that the cursor counts."""
        return not other_topics(topic_ids, self.cursor.at.topic_ids)

    def batch_of_run(self, run_id: str) -> tuple[int, tuple[OffsetRange, ...], Mapping[str, str]] | None:
        """Number, ranges and topic ids of a run's batch, by its Variable, or else by the table's history."""
        key = self.listing.of_run(run_id)
        if key is not None:
            saved = self.ledger.saved_range(key.key)
            return saved.load.seq, saved.load.nonempty, saved.load.topic_ids
        loads = (r.load for r in reversed(self.receipts) if r.load.replay is None and r.load.run_id == run_id)
        load = next(loads, None)
        return None if load is None else (load.seq, load.ranges, load.topic_ids)


def select(past: Past, request: ReplayRequest) -> tuple[tuple[OffsetRange, ...], tuple[OffsetRange, ...], dict[str, str]]:
    """The offsets that a request means now, what of them is no longer retained, and the ids of their topics.

    Raises RequestError: it means none, or some that cannot be replayed; the message names the valid bounds. StateError,
    KafkaError: the schedule or the brokers cannot be read.
    """
    if request.times is not None:
        watermarks = _watermarks(past)
        asked = _by_time(past, *request.times, watermarks)
    else:
        if request.offsets:
            asked = _by_offsets(past, request.offsets)
        elif request.batches is not None:
            asked = _exactly(_by_batches(past, *request.batches))
        elif request.run_id is not None:
            asked = _exactly(_by_run(past, request.run_id))
        else:
            asked = _exactly(_by_versions(past, str(request.versions)))
        watermarks = _watermarks(past, {str(a.topic) for a in asked})
    selection, lost = _checked(past, asked, watermarks, accept_loss=request.accept_loss)
    return selection, lost, {topic: watermarks.topic_ids[topic] for topic in sorted({r.topic for r in selection})}


def _watermarks(past: Past, topics: set[str] | None = None) -> Watermarks:
    """Of some topics; None: of all that were read."""
    asked = {tp.topic for tp in past.cursor.at.offsets} if topics is None else topics
    watermarks = past.brokers.watermarks(sorted(asked), isolation_level=past.pipeline.source.isolation_level)
    for topic, topic_id in other_topics(past.cursor.at.topic_ids, watermarks.topic_ids).items():
        raise RequestError(
            f"topic {topic} was deleted and created again: its id is {topic_id}, "
            f"the cursor's {past.cursor.at.topic_ids[topic]}, and its offsets mean other records",
            fix=f"To start it anew, run `tidegate accept recreated {past.pipeline.name} {topic}`",
            topic=topic,
        )
    return watermarks


def _exactly(ranges: Iterable[OffsetRange]) -> list[Asked]:
    return [Asked(r.topic, r.partition, r.from_offset, r.until_offset) for r in merged(ranges)]


def _by_offsets(past: Past, asked: Sequence[Asked]) -> list[Asked]:
    """One range for each partition that is named, or meant."""
    resolved: list[Asked] = []
    for a in asked:
        meant = [
            tp for tp in sorted(past.cursor.at.offsets) if a.topic in (None, tp.topic) and a.partition in (None, tp.partition)
        ]
        if not meant:
            where = f"topic {a.topic}" if a.partition is None else f"{a.topic or 'partition'}-{a.partition}"
            raise RequestError(
                f"{past.pipeline.name} has read nothing of {where}",
                fix=f"It can replay {_in_words(_valid(past, _watermarks(past)))}",
            )
        resolved += [Asked(tp.topic, tp.partition, a.from_offset, a.until_offset) for tp in meant]
    return resolved


def _in_words(valid: Mapping[TopicPartition, tuple[int, int]]) -> str:
    return some(f"{tp} [{low}, {high})" for tp, (low, high) in sorted(valid.items()))


def _by_time(past: Past, from_ms: int | None, until_ms: int | None, watermarks: Watermarks) -> list[Asked]:
    """Between the first records at or after the two times; where no record is that late, the cursor."""
    valid = _valid(past, watermarks)

    def resolved(at_ms: int | None, side: int) -> dict[TopicPartition, int]:
        if at_ms is None:
            return {tp: bounds[side] for tp, bounds in valid.items()}
        offsets = past.brokers.offsets_at(dict.fromkeys(valid, at_ms))
        return {tp: high if offsets[tp] is None else min(offsets[tp] or 0, high) for tp, (_, high) in valid.items()}

    starts, ends = resolved(from_ms, 0), resolved(until_ms, 1)
    asked = [Asked(tp.topic, tp.partition, starts[tp], ends[tp]) for tp in sorted(valid) if starts[tp] < ends[tp]]
    if not asked:
        since, until = ("any" if at_ms is None else utc(at_ms) for at_ms in (from_ms, until_ms))
        raise RequestError(
            f"{past.pipeline.name} has read no record with a time from {since} until {until}",
            fix=f"It can replay {_in_words(valid)}",
        )
    return asked


def _by_batches(past: Past, first: int, last: int) -> list[OffsetRange]:
    newest = past.cursor.seq
    if not 1 <= first <= last <= newest:
        fault = "is reversed" if last < first else "is not committed" if last > newest else "does not exist"
        raise RequestError(f"batches {first}..{last}: this {fault}", fix=f"Batches 1 to {newest} are committed")
    by_receipt = {r.load.seq: r.load for r in past.receipts if r.load.replay is None}
    by_variable = {key.seq: key.key for key in past.listing.ranges}
    ranges: list[OffsetRange] = []
    unknown = [seq for seq in range(first, last + 1) if seq not in by_receipt and seq not in by_variable]
    for seq in sorted({*range(first, last + 1)}.difference(unknown)):
        load = by_receipt[seq] if seq in by_receipt else past.ledger.saved_range(by_variable[seq]).load
        _check_topics(past, seq, load.topic_ids)
        ranges += load.nonempty
    if unknown:
        held = sorted(seq for seq in {*by_receipt, *by_variable} if seq <= newest)
        raise RequestError(
            f"the offsets of batch {some(map(str, unknown))} are no longer known",
            fix=f"Batches that are known: {held[0]} to {held[-1]}" if held else "Ask by offsets instead",
        )
    if not total_count(ranges):
        raise RequestError(f"batches {first}..{last} hold no offsets", fix=f"Batches 1 to {newest} are committed")
    return ranges


def _check_topics(past: Past, seq: int, topic_ids: Mapping[str, str]) -> None:
    if not past.same_topics(topic_ids):
        raise RequestError(
            f"batch {seq} was read from a topic that has been deleted and created again since: its offsets mean other records",
            fix=f"Batches that can be replayed: {some(map(str, past.batches()))}",
        )


def _by_run(past: Past, run_id: str) -> tuple[OffsetRange, ...]:
    batch = past.batch_of_run(run_id)
    if batch is None:
        raise RequestError(
            f"no batch of {past.pipeline.name} is known of run {run_id!r}",
            fix=f"Ask by batch: 1 to {past.cursor.seq} are committed",
        )
    seq, ranges, topic_ids = batch
    if seq > past.cursor.seq:
        raise RequestError(
            f"batch {seq} of run {run_id} is not committed: the schedule loads it", fix=f"Batches 1 to {past.cursor.seq} are"
        )
    _check_topics(past, seq, topic_ids)
    if not ranges:
        raise RequestError(f"batch {seq} of run {run_id} holds no offsets")
    return ranges


def _by_versions(past: Past, versions: str) -> list[OffsetRange]:
    matches = version_filter(versions)
    until = [OffsetRange(tp.topic, tp.partition, 0, offset) for tp, offset in past.cursor.at.offsets.items()]
    live_loads = live(past.receipts, past.cursor.at.topic_ids)
    ranges = [r for receipt, ranges in live_loads if matches(receipt.write.transform) for r in common(ranges, until)]
    if not ranges:
        loaded_by = sorted({receipt.write.transform for receipt, _ in live_loads})
        raise RequestError(
            f"no row of {past.pipeline.sink.table} was loaded by a version {versions}",
            fix=f"Its rows were loaded by {some(loaded_by) or 'nothing that is still known'}",
        )
    return ranges


def _valid(past: Past, watermarks: Watermarks) -> dict[TopicPartition, tuple[int, int]]:
    """What can be replayed of each partition that was read and still exists: retained, and before the cursor."""
    return {
        tp: (max(min(watermarks.earliest[tp], end), past.floor.get(tp, 0)), end)
        for tp, offset in past.cursor.at.offsets.items()
        if tp in watermarks.latest
        for end in [min(offset, watermarks.latest[tp])]
    }


def _checked(
    past: Past, asked: Iterable[Asked], watermarks: Watermarks, *, accept_loss: bool
) -> tuple[tuple[OffsetRange, ...], tuple[OffsetRange, ...]]:
    """The selection, and what of it is lost; every fault of every partition in one refusal."""
    valid = _valid(past, watermarks)
    faults: list[str] = []
    bounds: dict[TopicPartition, tuple[int, int]] = {}
    kept_ranges: list[OffsetRange] = []
    lost: list[OffsetRange] = []
    for a in asked:
        tp = TopicPartition(str(a.topic), a.partition or 0)
        if tp not in valid:
            faults.append(f"{tp} is gone from the brokers")
            continue
        low, high = valid[tp]
        start, end = (low if a.from_offset is None else a.from_offset), (high if a.until_offset is None else a.until_offset)
        fault = _fault(start, end, low, high, accept_loss=accept_loss)
        if 0 <= start < past.floor.get(tp, 0):
            table = past.pipeline.sink.table
            fault = f"begins before {past.floor[tp]}, the pipeline's start, and {table} holds rows without origin"
        if fault is not None:
            faults.append(f"{tp} [{start}, {end}) {fault}")
            bounds[tp] = low, high
            continue
        kept = max(start, min(low, end))
        lost += [OffsetRange(tp.topic, tp.partition, start, kept)] if start < kept else []
        kept_ranges += [OffsetRange(tp.topic, tp.partition, kept, end)] if kept < end else []
    if faults:
        accept = ", or accept the loss" if any("retained" in fault for fault in faults) else ""
        raise RequestError(
            f"this cannot be replayed: {some(faults)}",
            fix=f"{past.pipeline.name} can replay {_in_words(bounds or valid)}{accept}",
        )
    selection = disjoint(kept_ranges)
    if not selection:
        can = f"{past.pipeline.name} can replay {_in_words(valid)}"
        raise RequestError(f"nothing of it is retained: {some(map(str, lost))}", fix=can)
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

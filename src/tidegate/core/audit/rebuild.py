"""The schedule, rebuilt from receipts alone: a cursor and saved ranges, for a schedule whose Variables are lost or wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.core.errors import StateError
from tidegate.core.load.receipt import Receipt
from tidegate.core.offsets.ranges import TopicPartition, from_offsets
from tidegate.core.offsets.watermarks import other_topics
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.saved_range import Decision, SavedRange


@dataclass(frozen=True)
class Rebuilt:
    """A schedule made of receipts: the cursor, the saved ranges of its batches, and what the receipts leave open.

    `whole`: the positions of all partitions are known. A receipt of an older version names only the partitions that
    its batch has read, so a partition that was silent for as long as receipts are kept may be unknown. `begun`: it is known
    where each partition begins, by the newest receipt, by the receipt of the first batch, or by the cursor that was there.
    """

    cursor: Cursor
    ranges: tuple[SavedRange, ...]
    notes: tuple[str, ...] = field(default=())
    whole: bool = True
    begun: bool = True


def rebuild(
    pipeline: str,
    receipts: Sequence[Receipt],
    *,
    generation: int = 0,
    saved: Iterable[SavedRange] = (),
    positions: Mapping[TopicPartition, int] | None = None,
    before: Cursor | None = None,
) -> Rebuilt:
    """The schedule that the table's own commits lead to. Each batch counts as committed, since its rows are there.

    Args:
        pipeline: its name.
        receipts: its receipts, oldest commit first; replays are passed over.
        generation: of the current cursor, if it can be read; the rebuilt one is later than every known one.
        saved: saved ranges that can be read, in any order; they name positions that receipts do not.
        positions: of partitions that nothing else names, by an operator.
        before: the current cursor, if it can be read; it has what expired receipts do not: where partitions were begun, what
            is absent in the table, positions that nothing else names, and what earlier batches took.

    Raises:
        StateError: the table holds no receipt of a batch.
    """
    newest = {receipt.load.seq: receipt for receipt in receipts if receipt.load.replay is None}
    if not newest:
        raise StateError(
            f"the table holds no receipt of {pipeline}, and its cursor cannot be rebuilt",
            fix=f"To let it begin anew, give it a new table, and delete its Variables (tidegate.{pipeline}.*)",
        )
    batches = [newest[seq] for seq in sorted(newest)]
    position = _Position()
    for receipt in batches:
        position.follow(receipt)
    last = batches[-1]
    older = sorted((plan for plan in saved if plan.seq <= last.load.seq), key=lambda plan: (plan.seq, plan.run_id))
    before = before or Cursor(pipeline)
    position.fill(older, {**before.offsets, **(positions or {})})
    position.begin([*older, before])
    generation = max([generation, *(receipt.load.generation for receipt in batches)]) + 1
    cursor = Cursor(
        pipeline,
        last.load.seq,
        position.offsets,
        position.topic_ids,
        receipt=last.summary(),
        fired_at_ms=last.committed_at_ms,
        starts=position.starts,
        generation=generation,
        previous=batches[-2].summary() if len(batches) > 1 else None,
        absent=tuple(r for r in before.absent if r.topic_partition in position.offsets),
        former=before.former,
        resumed={
            tp: offset
            for tp, offset in before.resumed.items()
            if tp in position.offsets and before.topic_ids.get(tp.topic) == position.topic_ids.get(tp.topic)
        },
        rate_state=before.rate_state,
        record_bytes=before.record_bytes,
        timings=before.timings,
        cores=before.cores,
    )
    return Rebuilt(
        cursor,
        tuple(saved_of(receipt, generation) for receipt in batches),
        tuple(position.notes),
        position.whole,
        position.begun or batches[0].load.seq == 1 or bool(before.seq) or any(plan.seq == 1 for plan in older),
    )


class _Position:
    """The positions that the receipts of successive batches lead to."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        self.starts: dict[TopicPartition, int] = {}
        self.topic_ids: dict[str, str] = {}
        self.notes: list[str] = []
        self.whole = self.begun = False
        self._seq = 0

    def fill(self, saved: Sequence[SavedRange], positions: Mapping[TopicPartition, int]) -> None:
        """Partitions that no receipt names: from saved ranges in order, then from `positions`."""
        if self.whole:
            return
        silent, begun = dict(positions), dict[TopicPartition, int]()
        for plan in saved:
            for r in plan.ranges:
                silent[r.topic_partition] = r.until_offset
                begun.setdefault(r.topic_partition, r.from_offset)
            for tp in plan.retired:
                silent.pop(tp, None)
            self.topic_ids = {**plan.topic_ids, **self.topic_ids}
        for tp, offset in silent.items():
            if tp not in self.offsets:
                self.offsets[tp], self.starts[tp] = offset, begun.get(tp, offset)

    def begin(self, known: Iterable[SavedRange | Cursor]) -> None:
        """Partitions begin where the earliest of what is known of the same topics begins; receipts of that may have expired."""
        for state in () if self.begun else known:
            if other_topics(state.topic_ids, self.topic_ids):
                continue
            starts = state.starts if isinstance(state, Cursor) else from_offsets(state.ranges)
            for tp, start in starts.items():
                if tp in self.starts:
                    self.starts[tp] = min(start, self.starts[tp])

    def follow(self, receipt: Receipt) -> None:
        seq = receipt.load.seq
        if seq > self._seq + 1:
            self.notes.append(f"batches {self._seq + 1} to {seq - 1} have no receipt: they held no records, or it has expired")
        self._seq = seq
        for topic, topic_id in receipt.load.topic_ids.items():
            if self.topic_ids.get(topic, topic_id) != topic_id:
                self.notes.append(f"batch {seq}: topic {topic} starts anew with id {topic_id}")
                self._forget(topic)
            self.topic_ids[topic] = topic_id
        for r in receipt.load.ranges:
            tp = r.topic_partition
            at = self.offsets.get(tp, r.from_offset)
            if at != r.from_offset:
                gap = "lost, or without records" if at < r.from_offset else "loaded twice, the later load counts"
                self.notes.append(f"batch {seq}: {tp} goes on at {r.from_offset}, not at {at} ({gap})")
            self.starts.setdefault(tp, r.from_offset)
            self.offsets[tp] = max(at, r.until_offset)
        others = receipt.load.others
        self.whole, self.begun = others is not None, others is not None and others.starts is not None
        if others is not None:  # such a receipt has the whole cursor: what it does not name was retired
            named = others.offsets.keys() | {r.topic_partition for r in receipt.load.ranges}
            self.offsets = {tp: offset for tp, offset in {**self.offsets, **others.offsets}.items() if tp in named}
            if others.starts is None:
                self.starts = {**others.offsets, **{tp: start for tp, start in self.starts.items() if tp in named}}
            else:
                self.starts = {tp: others.starts.get(tp, 0) for tp in named}
            self.topic_ids = {
                **others.topic_ids,
                **{t: i for t, i in self.topic_ids.items() if t in {tp.topic for tp in named}},
            }

    def _forget(self, topic: str) -> None:
        for positions in (self.offsets, self.starts):
            for tp in [tp for tp in positions if tp.topic == topic]:
                del positions[tp]


def saved_of(receipt: Receipt, generation: int) -> SavedRange:
    """The saved range of a batch, made of its receipt."""
    load = receipt.load
    return SavedRange(
        pipeline=load.pipeline,
        seq=load.seq,
        run_id=load.run_id,
        ranges=load.ranges,
        decisions=tuple(Decision(r.topic_partition, "rebuilt", "rebuilt") for r in load.ranges),
        topic_ids=load.topic_ids,
        limits={},
        planned_at_ms=receipt.committed_at_ms,
        generation=generation,
        others=load.others,
    )

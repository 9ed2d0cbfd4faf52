"""A replay's chunks: how a selection is cut, and the plan that is saved of it.

A *selection* is any set of offsets, as disjoint sorted ranges, several of a partition where there are gaps. A *chunk* is what
one load takes, so it holds one range of a partition at most. Chunks partition the selection exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.core.model.errors import RequestError
from tidegate.core.model.fields import MAPPING, RANGES, SELECTION, TUPLE, Record, each, held
from tidegate.core.model.ranges import (
    OffsetRange,
    TopicPartition,
    by_partition,
    common,
    merged,
    near,
    one_of_a_partition,
    total_count,
    without,
)
from tidegate.core.model.splitting import split_ranges
from tidegate.core.model.watermarks import other_topics
from tidegate.core.state.receipt import Load, Receipt

Chunk = tuple[OffsetRange, ...]
MOST_CHUNKS = 1000
"""Airflow maps a task over 1,024 values at most."""
FEW, TURN_CHUNKS, TURN_OFFSETS = 20, 2, 50_000
"""So few chunks have a task each. Of more, one loads so many, of so many offsets at most: the schedule waits for its slot."""


def live(
    receipts: Sequence[Receipt], topic_ids: Mapping[str, str] | None = None
) -> list[tuple[Receipt, tuple[OffsetRange, ...]]]:
    """Which offsets of each receipt are live, the newest first: a later load has replaced what it loaded too.

    The receipts come oldest commit first. Offsets of topics that have another id in `topic_ids` mean other records, and are
    left out.
    """
    live_loads = []
    covered: dict[TopicPartition, list[OffsetRange]] = {}
    for receipt in reversed(receipts):
        left: list[OffsetRange] = []
        former = other_topics(receipt.load.topic_ids, topic_ids or {})
        for r in receipt.load.ranges:
            if r.count and r.topic not in former:
                known = covered.setdefault(r.topic_partition, [])
                at = near(known, r)
                left += without([r], known[at])
                known[at] = merged([*known[at], r])
        if left:
            live_loads.append((receipt, merged(left)))
    return live_loads


def cut_chunks(selection: Sequence[OffsetRange], batches: Iterable[Sequence[OffsetRange]], size: int) -> tuple[Chunk, ...]:
    """Chunks of about `size` offsets, which together are exactly the selection.

    They end where batches end wherever that is possible: such a chunk replaces whole data files, which is fast. Small
    neighbours are put together, and what is larger than `size` is cut evenly, in all its partitions at once. The selection is
    disjoint, and `batches` is what was loaded at once, the oldest first. Rounding may add an offset a partition.
    """
    return _cut(_layers(selection, batches), size)


def _cut(layers: Iterable[Chunk], size: int) -> tuple[Chunk, ...]:
    chunks: list[Chunk] = []
    for layer in layers:
        count = total_count(layer)
        joined = _joined(chunks[-1], layer) if chunks else None
        if joined is not None and total_count(joined) <= size:
            chunks[-1] = joined
        elif count <= size:
            chunks.append(layer)
        else:
            chunks.extend(_evenly(layer, -(-count // size)))
    return tuple(chunks)


def whole_batches(selection: Sequence[OffsetRange], batches: Mapping[int, Sequence[OffsetRange]]) -> dict[int, Chunk]:
    """One chunk for each batch, by number, that the selection touches; they may be more than the selection: compare them."""
    held = by_partition(merged(selection))
    return {
        seq: tuple(sorted(r for r in batch if r.count))
        for seq, batch in batches.items()
        if any(common([r], of[near(of, r)]) for r in batch if (of := held.get(r.topic_partition)))
    }


def smallest_size(selection: Sequence[OffsetRange], batches: Sequence[Sequence[OffsetRange]], most: int) -> int | None:
    """The smallest size of a chunk that makes `most` chunks at most; None where no size does (too many gaps)."""
    low, high = 1, max(1, total_count(selection))
    layers = _layers(selection, batches)
    if len(_cut(layers, high)) > most:
        return None
    while low < high:  # a larger size never makes more chunks
        middle = (low + high) // 2
        if len(_cut(layers, middle)) <= most:
            high = middle
        else:
            low = middle + 1
    return high


def turns(chunks: Sequence[Chunk], numbers: Sequence[int]) -> list[list[int]]:
    """The chunks by the task that loads them, one after the other. A task takes seconds to start, and a small chunk less."""
    most = 1 if len(numbers) <= FEW else TURN_CHUNKS
    found: list[list[int]] = []
    size = 0
    for number in numbers:
        size += total_count(chunks[number])
        if not found or len(found[-1]) == most or size > TURN_OFFSETS:
            found.append([])
            size = total_count(chunks[number])
        found[-1].append(number)
    return found


def _layers(selection: Sequence[OffsetRange], batches: Iterable[Sequence[OffsetRange]]) -> list[Chunk]:
    """What no batch is known of, then the parts of each batch; one range of a partition each."""
    rest = by_partition(merged(selection))
    layers: list[Chunk] = []
    for batch in batches:
        part: list[OffsetRange] = []
        for r in merged(batch):
            left = rest.get(r.topic_partition, [])
            at = near(left, r)
            part += common(left[at], [r])
            left[at] = without(left[at], [r])
        layers += one_of_a_partition(part)
    return [*one_of_a_partition([r for ranges in rest.values() for r in ranges]), *layers]


def _joined(before: Chunk, after: Chunk) -> Chunk | None:
    """Both as one chunk; None where a partition would have a gap."""
    joined = {r.topic_partition: r for r in before}
    for r in after:
        held = joined.get(r.topic_partition)
        if held is not None and held.until_offset != r.from_offset:
            return None
        joined[r.topic_partition] = OffsetRange(
            r.topic, r.partition, r.from_offset if held is None else held.from_offset, r.until_offset
        )
    return tuple(sorted(joined.values()))


def _evenly(layer: Chunk, parts: int) -> list[Chunk]:
    cut = [
        [piece for piece in split_ranges([r], min_partitions=parts, max_records_per_partition=None) if piece.count]
        for r in layer
    ]
    return [tuple(pieces[n] for pieces in cut if n < len(pieces)) for n in range(max(map(len, cut)))]


@dataclass(frozen=True, kw_only=True)
class SavedReplay(Record):
    """What one DAG run replays, made durable before any work: written once, never changed.

    `load` is what its loads have in common; the receipts of its chunks carry its `replay`. `request` is what was asked (JSON,
    for people), `lost` what was asked for and is no longer retained, `resumes` the replays whose landed chunks are left out,
    `parallel` the most chunks at once (None: the default of the DAG). `batches` are the batches that the chunks are, where rows
    are known by their batch.
    """

    UNREADABLE = ("a saved replay has the wrong shape", "It is written once by the plan task and never edited")

    load: Load = field(metadata=held(Load))
    chunks: tuple[Chunk, ...] = field(metadata=each(RANGES))
    table: str
    transform: str
    planned_at_ms: int
    request: Mapping[str, Any] = field(default_factory=dict, metadata=MAPPING)
    lost: tuple[OffsetRange, ...] = field(default=(), metadata=SELECTION)
    resumes: tuple[str, ...] = field(default=(), metadata=TUPLE)
    parallel: int | None = None
    batches: tuple[int, ...] = field(default=(), metadata=TUPLE)

    @property
    def name(self) -> str:
        """What the receipts of its chunks carry."""
        return str(self.load.replay)

    @property
    def selection(self) -> tuple[OffsetRange, ...]:
        """All chunks together."""
        return merged(r for chunk in self.chunks for r in chunk)

    def chunk(self, number: int) -> Load:
        """The load of one chunk. Raises RequestError: there is none of that number."""
        if not 0 <= number < len(self.chunks):
            raise RequestError(
                f"replay {self.name} has no chunk {number}", fix=f"Its chunks are 0 to {len(self.chunks) - 1}", chunk=number
            )
        batch = self.batches[number] if self.batches else None
        return replace(self.load, seq=number, ranges=self.chunks[number], batch=batch)


def check_numbers(saved: SavedReplay, generation: int) -> None:
    """Whole batches are loaded again only in the schedule that numbered them, by its `generation`.

    A rebuilt one may have given a number to other records, and a row that aggregates both would count some of them twice.
    Raises RequestError: the schedule was rebuilt since the replay was planned.
    """
    if saved.batches and saved.load.generation != generation:
        raise RequestError(
            f"replay {saved.name} was planned before the schedule of {saved.load.pipeline} was rebuilt: its batch numbers may "
            "mean other records now",
            fix="Nothing was loaded. Start a new replay of what is still needed",
            replay=saved.name,
        )

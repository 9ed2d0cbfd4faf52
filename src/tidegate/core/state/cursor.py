"""The cursor: which batches of a pipeline are committed, and at which offsets the next one starts.

It only moves forward, by one committed batch at a time (`tidegate.core.planning.commit`). `seq` counts committed batches, so
the next batch has `seq + 1`; `offsets` are the next offsets to read, one for each partition that the pipeline has ever read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Any

from tidegate.core.model.counts import is_whole
from tidegate.core.model.errors import StateCorrupt
from tidegate.core.model.fields import MAPPING, OFFSETS, RANGES, SELECTION, TUPLE, Record, form, held, nested, optional
from tidegate.core.model.hours import Span, span_from_json
from tidegate.core.model.ranges import OffsetRange, TopicPartition, until_offsets
from tidegate.core.rates import BatchTiming

REPAIR = "Run `tidegate ledger rebuild {pipeline}` to restore the cursor from the table's own history"
TIMING = optional(form(BatchTiming.to_json, BatchTiming.from_json))
ORDER = [f.name for f in fields(BatchTiming)]
TIMINGS = form(
    lambda timings: [list(timing.to_json().values()) for timing in timings],
    lambda rows: tuple(
        timing
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, list) and (timing := BatchTiming.from_json(dict(zip(ORDER, row, strict=False))))
    ),
)
COUNT = form(int, lambda value: value if is_whole(value) else 0)
"""A number that no batch depends on."""
COUNTS = form(list, lambda values: tuple(values) if isinstance(values, list) and all(map(is_whole, values)) else ())
"""Numbers that no batch depends on."""
SPAN = form(lambda span: None if span is None else list(span), span_from_json)
MOST_TIMINGS = 100
"""So many batches show what a batch costs, in about 5 kB of a cursor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """Which batch of a pipeline.

    `seq` is its number, and `generation` counts how often the cursor was rebuilt: a range that was saved under an older
    generation is never committed.
    """

    pipeline: str
    seq: int
    generation: int = 0


@dataclass(frozen=True, kw_only=True)
class Position:
    """Where a cursor is, and where a batch leads, as its saved range and the receipt of its load say.

    `offsets` are the next offsets to read, `topic_ids` the ids (KIP-516) of all topics that were read, so that a retired one is
    known when it is created again. `starts` are where the partitions begin: the first offset that was read, or where the
    pipeline went on after an operator accepted that records or rows before it are lost. `former` is, for each partition that
    was retired, or whose topic was created again, the next offset that it had: the table may hold rows of it below. `foreign`
    is the table whose rows without origin an operator has accepted.

    They hold it without what their own ranges say (`beside`): of thousands of partitions it would be as long again.
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict, metadata=OFFSETS)
    topic_ids: Mapping[str, str] = field(default_factory=dict, metadata=MAPPING)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict, metadata=OFFSETS)
    former: Mapping[TopicPartition, int] = field(default_factory=dict, metadata=OFFSETS)
    foreign: str = ""

    def beside(self, ranges: Iterable[OffsetRange], topic_ids: Mapping[str, str]) -> Position:
        """Without what follows from the ranges that lead here, from the ids of their topics, and from 0 as a beginning."""
        read = {r.topic_partition for r in ranges}
        return replace(
            self,
            offsets={tp: at for tp, at in self.offsets.items() if tp not in read},
            topic_ids={topic: topic_id for topic, topic_id in self.topic_ids.items() if topic not in topic_ids},
            starts={tp: at for tp, at in self.starts.items() if at},
        )

    def over(self, ranges: Iterable[OffsetRange], topic_ids: Mapping[str, str]) -> Position:
        """The inverse of `beside`."""
        offsets = {**self.offsets, **until_offsets(ranges)}
        starts = {tp: self.starts.get(tp, 0) for tp in offsets}
        return replace(self, offsets=offsets, topic_ids={**self.topic_ids, **topic_ids}, starts=starts)


POSITION = nested(Position)


@dataclass(frozen=True)
class LastCommit:
    """What a cursor keeps of its last batch's receipt: the commit, the one it was made on, its time (epoch ms), its batch.

    `batch` is the receipt's: None where rows are known by their origin.
    """

    snapshot: int
    _: KW_ONLY
    parent: int | None
    committed_at_ms: int
    batch: int | None = None


LAST_COMMIT = optional(nested(LastCommit))


@dataclass(frozen=True, kw_only=True)
class Pace:
    """What a pipeline has learned of its batches.

    `rate_state` is what the rate policy has learned (`tidegate.core.rates.control`), `record_bytes` the mean size of a record,
    `timing` what the last batch took. `timings` are those of the last batches that are known, at most `MOST_TIMINGS`, oldest
    first, and `cores` what each of these loads had (0: not known).
    """

    rate_state: Mapping[str, Any] = field(default_factory=dict, metadata=MAPPING)
    record_bytes: float | None = None
    timing: BatchTiming | None = field(default=None, metadata=TIMING)
    timings: tuple[BatchTiming, ...] = field(default=(), metadata=TIMINGS)
    cores: tuple[int, ...] = field(default=(), metadata=COUNTS)

    def after(self, timing: BatchTiming | None, cores: int) -> Pace:
        """With what a batch took that had so many cores (0: not known); None where that is not known."""
        if timing is None:
            return replace(self, timing=None)
        # one of the lists may not have been readable
        before = self.cores if len(self.cores) == len(self.timings) else (0,) * len(self.timings)
        timings, all_cores = (*self.timings, timing), (*before, cores)
        return replace(self, timing=timing, timings=timings[-MOST_TIMINGS:], cores=all_cores[-MOST_TIMINGS:])


@dataclass(frozen=True, kw_only=True)
class Cursor(Numbered, Record):
    """The state of a pipeline's schedule: `at` is where it is, after `seq` batches.

    Of the last batch, `receipt` is its commit, `head` the table's newest commit that its plan saw, `fired_at_ms` when it was
    planned (epoch ms). They are None where that is not known: the batch had nothing to load, or a retry found that its load had
    landed. `remaining` counts the records that it left behind. `announced` is from when until when (epoch ms) the hours were
    that it announced; None where none ever did.
    """

    UNREADABLE = ("a cursor has the wrong shape", REPAIR.format(pipeline="PIPELINE"))

    at: Position = field(default_factory=Position, metadata=held(Position))
    receipt: LastCommit | None = field(default=None, metadata=LAST_COMMIT)
    head: int | None = None
    fired_at_ms: int | None = None
    remaining: int = field(default=0, metadata=COUNT)
    announced: Span | None = field(default=None, metadata=SPAN)
    pace: Pace = field(default_factory=Pace, metadata=held(Pace))

    def __post_init__(self) -> None:
        fix = REPAIR.format(pipeline=self.pipeline)
        if not is_whole(self.seq):
            raise StateCorrupt(f"a cursor's seq is a whole number from 0, not {self.seq!r}", fix=fix)
        for tp, offset in self.at.offsets.items():
            if not is_whole(offset):
                raise StateCorrupt(f"the cursor of {tp} is {offset!r}, not an offset", fix=fix)

    @property
    def last(self) -> tuple[int | None, ...]:
        """What tells the last batch from any other one of its number: when it was planned, and the commit of its load."""
        return (self.fired_at_ms, self.receipt.snapshot if self.receipt else None)


@dataclass(frozen=True, kw_only=True)
class Accepted(Record):
    """What an operator has accepted for one batch, the one with sequence number `seq`, and for no other.

    `after` is the batch before it, as `Cursor.last` has it: an acceptance counts nothing after another batch of that number.
    `loss` are ranges that retention deleted unread; `recreated` are topics with the id under which they are to start anew;
    `absent` are committed ranges that the table does not hold any more, or that nothing proves it to hold; `gone` is set where
    there is no table any more. `foreign` is the table whose rows without origin are accepted.
    """

    UNREADABLE = ("an acceptance has the wrong shape", "Delete the Variable and accept again")

    seq: int
    loss: tuple[OffsetRange, ...] = field(default=(), metadata=RANGES)
    recreated: Mapping[str, str] = field(default_factory=dict, metadata=MAPPING)
    absent: tuple[OffsetRange, ...] = field(default=(), metadata=SELECTION)
    gone: bool = False
    foreign: str = ""
    after: tuple[int | None, ...] = field(default=(), metadata=TUPLE)

    @property
    def creates(self) -> bool:
        """Whether the batch may create the table."""
        return self.gone or bool(self.absent)

    def follows(self, cursor: Cursor) -> bool:
        """Whether it counts for the batch after the cursor."""
        return (self.seq, self.after) == (cursor.seq + 1, cursor.last)

    def applied_to(self, cursor: Cursor) -> Cursor:
        """The cursor of the batch before: a partition that the table lacks offsets of begins anew, where the cursor is."""
        at = cursor.at
        anew = {r.topic_partition: at.offsets[r.topic_partition] for r in self.absent if r.topic_partition in at.offsets}
        return replace(cursor, at=replace(at, starts={**at.starts, **anew}, foreign=self.foreign or at.foreign))

"""The cursor: which batches of a pipeline are committed, and at which offsets the next one starts.

It only moves forward, by one committed batch at a time (`tidegate.core.schedule.commit`). `seq` counts committed batches, so
the next batch has `seq + 1`; `offsets` are the next offsets to read, one for each partition that the pipeline has ever read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.core.announce.hours import Span, span_from_json
from tidegate.core.counts import is_whole
from tidegate.core.errors import StateCorrupt
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition
from tidegate.core.rates import BatchTiming
from tidegate.core.state.codec import Shape
from tidegate.core.state.fields import (
    LATER,
    MAPPING,
    OFFSETS,
    SELECTION,
    fields_from_json,
    fields_to_json,
    form,
    optional,
)

REPAIR = "Run `tidegate ledger rebuild {pipeline}` to restore the cursor from the table's own history"
TIMING = optional(form(BatchTiming.to_json, BatchTiming.from_json))
TIMINGS = form(
    lambda timings: [list(timing.to_json().values()) for timing in timings],
    lambda rows: tuple(t for row in rows if (t := BatchTiming.from_row(row)) is not None) if isinstance(rows, list) else (),
)
COUNT = form(int, lambda value: value if is_whole(value) else 0)
"""A number that no batch depends on."""
COUNTS = form(list, lambda values: tuple(values) if isinstance(values, list) and all(map(is_whole, values)) else ())
"""Numbers that no batch depends on."""
SPAN = form(lambda span: None if span is None else list(span), span_from_json)
MOST_TIMINGS = 100
"""So many batches show what a batch costs, in about 5 kB of a cursor."""


@dataclass(frozen=True)
class Positions:
    """What a batch leaves as it is in the cursor, and where the cursor's partitions begin once it is committed.

    `offsets` are the next offsets of the partitions that it does not read, and `topic_ids` the ids (KIP-516) of the topics that
    it does not read, retired ones too. `starts` are the first offsets of all partitions of the cursor, without those that
    begin at 0; None where they are not known.
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict, metadata=OFFSETS)
    topic_ids: Mapping[str, str] = field(default_factory=dict, metadata=MAPPING)
    starts: Mapping[TopicPartition, int] | None = field(default=None, metadata=optional(OFFSETS) | LATER)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return fields_to_json(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Positions:
        """The inverse of `to_json`.

        Raises:
            RequestError, KeyError, ValueError, TypeError, AttributeError: the value has another shape.
        """
        return fields_from_json(Positions, value)


POSITIONS = optional(form(Positions.to_json, Positions.from_json))


@dataclass(frozen=True)
class Cursor:
    """The state of a pipeline's schedule.

    `topic_ids` are the ids (KIP-516) of all topics that were read, so that a retired one is known when it is created again;
    `starts` are the first offsets that were read of the partitions. `generation` counts how often the cursor was rebuilt; a
    range that was saved under an older generation is never committed. Of the last batch, `receipt` is its commit
    (JSON-ready), `previous` the commit of the batch before it, `fired_at_ms` when it was planned (epoch ms), `record_bytes`
    the mean size of its records, `timing` its records and how long it took. They are None where that is not known: the batch
    had nothing to load, or a retry found that its load had landed. `absent` are committed ranges whose rows the table may
    lack, as an operator accepted. `former` is, for each partition that was retired, or whose topic was created again, the
    next offset that it had: the table may hold rows of it below. `rate_state` is what the rate policy has learned
    (`tidegate.core.rates.control`), `timings` are those of the last batches that are known, at most `MOST_TIMINGS`, oldest
    first, and `cores` what each of these loads had (0: not known). `remaining` counts the records that the last batch left
    behind. `resumed` is, for each partition that lost records to retention as an operator accepted, where it went on: nothing
    before that is in its log. `announced` is from when until when (epoch ms) the hours were that the last batch announced;
    None where none ever did.
    """

    pipeline: str
    seq: int = 0
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict, metadata=OFFSETS)
    topic_ids: Mapping[str, str] = field(default_factory=dict, metadata=MAPPING)
    rate_state: Mapping[str, Any] = field(default_factory=dict, metadata=MAPPING)
    receipt: Mapping[str, Any] | None = field(default=None, metadata=optional(MAPPING))
    fired_at_ms: int | None = None
    record_bytes: float | None = None
    starts: Mapping[TopicPartition, int] = field(default_factory=dict, metadata=OFFSETS | LATER)
    generation: int = field(default=0, metadata=LATER)
    absent: tuple[OffsetRange, ...] = field(default=(), metadata=SELECTION | LATER)
    former: Mapping[TopicPartition, int] = field(default_factory=dict, metadata=OFFSETS | LATER)
    previous: Mapping[str, Any] | None = field(default=None, metadata=optional(MAPPING) | LATER)
    timing: BatchTiming | None = field(default=None, metadata=TIMING | LATER)
    timings: tuple[BatchTiming, ...] = field(default=(), metadata=TIMINGS | LATER)
    cores: tuple[int, ...] = field(default=(), metadata=COUNTS | LATER)
    remaining: int = field(default=0, metadata=COUNT | LATER)
    resumed: Mapping[TopicPartition, int] = field(default_factory=dict, metadata=OFFSETS | LATER)
    announced: Span | None = field(default=None, metadata=SPAN | LATER)

    def __post_init__(self) -> None:
        if not is_whole(self.seq):
            raise StateCorrupt(
                f"a cursor's seq is a whole number from 0, not {self.seq!r}", fix=REPAIR.format(pipeline=self.pipeline)
            )
        for tp, offset in self.offsets.items():
            if not is_whole(offset):
                raise StateCorrupt(
                    f"the cursor of {tp} is {offset!r}, not an offset", fix=REPAIR.format(pipeline=self.pipeline)
                )

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return fields_to_json(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Cursor:
        """The inverse of `to_json`.

        Raises:
            StateCorrupt: the value is not what `to_json` makes.
        """
        with Shape("a cursor has the wrong shape", REPAIR.format(pipeline=value.get("pipeline", "PIPELINE"))):
            return fields_from_json(Cursor, value)

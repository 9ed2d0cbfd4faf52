"""The cursor: how far a pipeline has come.

It only ever moves forward, by one committed batch at a time (`tidegate.core.schedule.commit`). `seq` counts committed batches,
so the next batch has `seq + 1`; `offsets` are the next offsets to read, one for each partition the pipeline has ever met.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.core.errors import StateCorrupt
from tidegate.core.offsets.ranges import (
    OffsetRange,
    TopicPartition,
    offsets_from_json,
    offsets_to_json,
    selection_from_json,
    selection_to_json,
)
from tidegate.core.rates import BatchTiming
from tidegate.core.state.codec import Shape

REPAIR = "Run `tidegate ledger rebuild {pipeline}` to restore the cursor from the table's own history"


@dataclass(frozen=True)
class Positions:
    """The next offset of some partitions, and the ids (KIP-516) of their topics."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"offsets": offsets_to_json(self.offsets), "topic_ids": dict(self.topic_ids)}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Positions:
        """The inverse of `to_json`.

        Raises:
            RequestError, KeyError, ValueError, TypeError, AttributeError: the value has another shape.
        """
        return Positions(offsets_from_json(value["offsets"]), dict(value["topic_ids"]))


@dataclass(frozen=True)
class Cursor:
    """`topic_ids` are the ids (KIP-516) of the topics the offsets belong to, `starts` where each partition was begun.

    `generation` counts how often the cursor was rebuilt: what was saved under an older one is never committed.
    Of the last batch, `receipt` tells its commit (JSON-ready), `previous` the commit of the batch before it, `fired_at_ms` when
    it was planned (epoch ms), `record_bytes` the mean size of its records, `timing` what it took: None where that is not known,
    because it had nothing to load, or a later try found that its load had landed.
    `absent` are committed ranges that an operator accepted to be missing in the table. `former` is, for each partition of a
    topic that was deleted and created again, how far its former topic had been read: the table may hold rows of it up to there.
    """

    pipeline: str
    seq: int = 0
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    rate_state: Mapping[str, Any] = field(default_factory=dict)
    receipt: Mapping[str, Any] | None = None
    fired_at_ms: int | None = None
    record_bytes: float | None = None
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    generation: int = 0
    absent: tuple[OffsetRange, ...] = ()
    former: Mapping[TopicPartition, int] = field(default_factory=dict)
    previous: Mapping[str, Any] | None = None
    timing: BatchTiming | None = None

    def __post_init__(self) -> None:
        if isinstance(self.seq, bool) or not isinstance(self.seq, int) or self.seq < 0:
            raise StateCorrupt(
                f"a cursor's seq is a whole number from 0, not {self.seq!r}", fix=REPAIR.format(pipeline=self.pipeline)
            )
        for tp, offset in self.offsets.items():
            if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
                raise StateCorrupt(
                    f"the cursor of {tp} is {offset!r}, not an offset", fix=REPAIR.format(pipeline=self.pipeline)
                )

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "pipeline": self.pipeline,
            "seq": self.seq,
            "offsets": offsets_to_json(self.offsets),
            "topic_ids": dict(self.topic_ids),
            "rate_state": dict(self.rate_state),
            "receipt": None if self.receipt is None else dict(self.receipt),
            "fired_at_ms": self.fired_at_ms,
            "record_bytes": self.record_bytes,
            "starts": offsets_to_json(self.starts),
            "generation": self.generation,
            "absent": selection_to_json(self.absent),
            "former": offsets_to_json(self.former),
            "previous": None if self.previous is None else dict(self.previous),
            "timing": None if self.timing is None else self.timing.to_json(),
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Cursor:
        """The inverse of `to_json`.

        Raises:
            StateCorrupt: the value is not what `to_json` makes.
        """
        with Shape("a cursor has the wrong shape", REPAIR.format(pipeline=value.get("pipeline", "PIPELINE"))):
            return Cursor(
                value["pipeline"],
                value["seq"],
                offsets_from_json(value["offsets"]),
                dict(value["topic_ids"]),
                dict(value["rate_state"]),
                value["receipt"],
                value["fired_at_ms"],
                value["record_bytes"],
                offsets_from_json(value.get("starts", {})),
                value.get("generation", 0),
                selection_from_json(value.get("absent", {})),
                offsets_from_json(value.get("former", {})),
                value.get("previous"),
                BatchTiming.from_json(value.get("timing")),
            )

"""What a batch took, from which a rate policy learns."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from tidegate.core.model.counts import is_whole
from tidegate.core.model.errors import RequestError


@dataclass(frozen=True, slots=True)
class BatchTiming:
    """How many records a batch had, and how long it took.

    Args:
        records: offsets of the batch's ranges; the topic may hold fewer records, where it has gaps.
        bound: the most records that the policy allowed the batch; None where it did not limit the batch.
        run_ms: from the start of its run until it was committed, without the wait before; ms.
        load_ms: of the Spark job; ms.
        scheduling_delay_ms: from when the run was due until it started; ms.
        ended_at_ms: when it was committed; epoch ms.

    Raises:
        RequestError: a number is negative or not whole, or the bound is below 1.
    """

    records: int
    bound: int | None
    run_ms: int
    load_ms: int
    scheduling_delay_ms: int
    ended_at_ms: int

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            least = 1 if name == "bound" else 0
            if name == "bound" and value is None:
                continue
            if not is_whole(value, least):
                raise RequestError(f"{name}: expected a whole number from {least}, got {value!r}")

    @staticmethod
    def between(
        records: int, bound: int | None, *, due_ms: int, started_ms: int, ended_ms: int, load_s: float, idle_ms: int = 0
    ) -> BatchTiming:
        """The timing of a run between these times (epoch ms), which two clocks may have measured: no span is negative.

        `idle_ms` is how long it waited in between, which does not count.
        """
        return BatchTiming(
            records,
            bound,
            run_ms=max(0, ended_ms - started_ms - idle_ms),
            load_ms=max(0, round(load_s * 1000)),
            scheduling_delay_ms=max(0, started_ms - due_ms),
            ended_at_ms=ended_ms,
        )

    def waiting_for(self, before: BatchTiming | None) -> BatchTiming:
        """With the scheduling delay of a run that became due while the batch before was at work: until that ended. Else 0.

        A run that waits while its DAG is paused, or that somebody dates back, is late for no reason that a smaller batch mends.
        """
        waited_ms = 0
        started_ms = self.ended_at_ms - self.run_ms
        due_ms = started_ms - self.scheduling_delay_ms
        if before is not None and before.ended_at_ms - before.run_ms <= due_ms:
            waited_ms = min(started_ms, before.ended_at_ms) - due_ms
        return replace(self, scheduling_delay_ms=max(0, waited_ms))

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)

    @staticmethod
    def from_row(row: object) -> BatchTiming | None:
        """The timing whose `to_json` has these values, in order; None for anything else."""
        names = [f.name for f in fields(BatchTiming)]
        return BatchTiming.from_json(dict(zip(names, row, strict=False))) if isinstance(row, list) else None

    @staticmethod
    def from_json(value: object) -> BatchTiming | None:
        """The inverse of `to_json`; None for anything else, since no batch depends on what an earlier one took."""
        try:
            return BatchTiming(**{f.name: value[f.name] for f in fields(BatchTiming)})  # type: ignore[index]
        except (RequestError, LookupError, TypeError):
            return None

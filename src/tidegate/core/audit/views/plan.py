"""What the next run of a pipeline reads, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.core.config.pipeline import Pipeline
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition, total_count
from tidegate.core.ports import Brokers, SinkReader, StateStore
from tidegate.core.rates.advice import Advice
from tidegate.core.rates.control import RateBound
from tidegate.core.rates.resources import Resources
from tidegate.core.schedule.plan import Skip
from tidegate.core.schedule.run import Planned, Request, plan_batch


@dataclass(frozen=True)
class PartitionPlan:
    """What the batch reads of one partition, why it begins there, and why it ends there."""

    range: OffsetRange
    from_reason: str
    until_reason: str


@dataclass(frozen=True)
class PlanView:
    """A plan that was not saved, or why there is nothing to read."""

    pipeline: str
    plan: Planned | Skip

    @property
    def skip(self) -> str | None:
        """Why there is nothing to read; None where there is something."""
        return self.plan.reason if isinstance(self.plan, Skip) else None

    @property
    def seq(self) -> int | None:
        """The number of the batch."""
        return None if isinstance(self.plan, Skip) else self.plan.saved.seq

    @property
    def is_new(self) -> bool:
        """Whether the next run makes a new plan; False where it adopts a saved range, or skips."""
        return isinstance(self.plan, Planned) and self.plan.origin == "planned"

    @property
    def saved_by(self) -> str | None:
        """The run whose saved range the next run adopts; None where there is none."""
        return None if isinstance(self.plan, Skip) else self.plan.saved.adopted_from

    @property
    def partitions(self) -> tuple[PartitionPlan, ...]:
        """The ranges of the batch, sorted."""
        if isinstance(self.plan, Skip):
            return ()
        reasons = {d.topic_partition: d for d in self.plan.saved.decisions}
        return tuple(
            PartitionPlan(r, reasons[r.topic_partition].from_reason, reasons[r.topic_partition].until_reason)
            for r in self.plan.saved.ranges
        )

    @property
    def offsets(self) -> int:
        """How many offsets the batch reads."""
        return total_count(partition.range for partition in self.partitions)

    @property
    def rate(self) -> RateBound | None:
        """What the rate policy allows; None where none bounds the batch."""
        return None if isinstance(self.plan, Skip) else self.plan.saved.rate

    @property
    def remaining(self) -> int:
        """Records that wait beyond this batch, which it leaves to later ones."""
        return 0 if isinstance(self.plan, Skip) else self.plan.saved.remaining

    @property
    def resources(self) -> Resources | None:
        """What the load gets of Spark; None where that is left to Spark."""
        return None if isinstance(self.plan, Skip) else self.plan.saved.resources

    @property
    def advice(self) -> Advice | None:
        """On the pipeline's interval; None where too little is known."""
        return None if isinstance(self.plan, Skip) else self.plan.advice

    @property
    def maintenance(self) -> str | None:
        """Why the table needs maintenance; None where it does not."""
        return None if isinstance(self.plan, Skip) else self.plan.maintenance

    @property
    def retired(self) -> tuple[TopicPartition, ...]:
        """Partitions that the cursor drops with this batch."""
        return () if isinstance(self.plan, Skip) else self.plan.saved.retired

    def to_json(self) -> dict[str, Any]:
        """JSON-ready: the saved range and its origin, or the reason to skip."""
        if isinstance(self.plan, Skip):
            return {"skip": self.plan.reason}
        advice = None if self.plan.advice is None else self.plan.advice.to_json()
        return {"origin": self.plan.origin, **self.plan.saved.to_json(), "advice": advice, "maintenance": self.maintenance}


def read_plan(pipeline: Pipeline, *, store: StateStore, brokers: Brokers, sink: SinkReader, now_ms: int) -> PlanView:
    """What the next run would plan now. Nothing is saved.

    Raises:
        TidegateError: as `plan_batch`.
    """
    planned = plan_batch(pipeline, "dry-run", Request(), store=store, brokers=brokers, sink=sink, now_ms=now_ms, save=False)
    return PlanView(pipeline.name, planned)

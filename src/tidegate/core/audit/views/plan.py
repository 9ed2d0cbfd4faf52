"""What the next run of a pipeline reads, and why."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tidegate.core.config.pipeline import Pipeline
from tidegate.core.ports import Brokers, SinkReader, StateStore
from tidegate.core.schedule.plan import Skip
from tidegate.core.schedule.run import Planned, Request, plan_batch


def read_plan(pipeline: Pipeline, *, store: StateStore, brokers: Brokers, sink: SinkReader, now_ms: int) -> Planned | Skip:
    """What the next run would plan now, or why there is nothing to read. Nothing is saved.

    Raises:
        TidegateError: as `plan_batch`.
    """
    return plan_batch(pipeline, "dry-run", Request(), store=store, brokers=brokers, sink=sink, now_ms=now_ms, save=False)


def plan_to_json(plan: Planned | Skip) -> dict[str, Any]:
    """JSON-ready: the saved range with its origin and the remarks of its plan, or the reason to skip."""
    if isinstance(plan, Skip):
        return {"skip": plan.reason}
    advice = None if plan.remarks.advice is None else plan.remarks.advice.to_json()
    return {"origin": plan.origin, **plan.saved.to_json(), **asdict(plan.remarks), "advice": advice}

"""Conflicts between receiver and pipeline files: whether the pipeline that a receiver goes by loads what it lands.

A pipeline's file that is not valid is no fault of a receiver that names it: the receiver goes on, at its safe rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.core.config.lag_schedule import LagSchedule
from tidegate.core.config.pipeline import Pipeline
from tidegate_receivers.config.receiver import Receiver
from tidegate_receivers.rules.limits import LOW


def downstream_faults(receivers: Iterable[Receiver], pipelines: Mapping[str, Pipeline | None]) -> dict[str, list[str]]:
    """What is wrong with the pipelines that receivers go by, by the name of the receiver: the setting, and a sentence.

    Args:
        receivers: those whose files are valid.
        pipelines: each pipeline that has a file, by its name; None: the file is not valid.
    """
    faults = {}
    for receiver in receivers:
        name = receiver.backpressure.pipeline
        if name is not None and (fault := _fault(receiver, name, pipelines)) is not None:
            faults[receiver.name] = [f"backpressure.pipeline: {fault}"]
    return faults


def _fault(receiver: Receiver, name: str, pipelines: Mapping[str, Pipeline | None]) -> str | None:
    if name not in pipelines:
        known = f"name one of {', '.join(sorted(pipelines))}" if pipelines else f"write pipelines/{name}.yaml"
        return f"there is no pipeline {name}; {known}"
    pipeline = pipelines[name]
    if pipeline is None:
        return None
    if not pipeline.source.names(receiver.topic):
        return f"pipeline {name} reads {pipeline.source}, and not topic {receiver.topic}; name the pipeline that loads it"
    if receiver.backpressure.policy == "rate" and pipeline.rate_control is None and pipeline.limits.max_records is None:
        return (
            f"nothing bounds the batches of pipeline {name}, so no rate follows from them; set its backpressure or "
            "limits.max_records, or choose another policy"
        )
    return _waits_for_ever(receiver, pipeline)


def _waits_for_ever(receiver: Receiver, pipeline: Pipeline) -> str | None:
    """Where the receiver stops at a backlog at which no run starts, and nothing else brings the pipeline records."""
    stated = receiver.backpressure
    setting, least = _least_backlog(pipeline)
    if stated.max_backlog is None or least is None or len(pipeline.source.named) != 1:
        return None
    if stated.policy == "watermark":
        # a batch need not take all that waits, so the backlog may come to rest just above the low mark
        low = int((stated.low or LOW) * stated.max_backlog)
        full, stops = low + 1, f"once it has stopped, goes on at {low}"
    else:
        # under credit, places that are less than one for each instance stay free
        full = stated.max_backlog - receiver.instances + 1
        stops = f"stops at {full}"
    if least <= full:
        return None
    return (
        f"no run of pipeline {pipeline.name} starts below {least} unread records ({setting}), and the receiver {stops}; "
        f"raise max_backlog, lower {setting}, or bound the wait by its max_delay"
    )


def _least_backlog(pipeline: Pipeline) -> tuple[str, int | None]:
    """The setting that keeps runs from starting however long records wait, and below how many unread records."""
    if isinstance(pipeline.schedule, LagSchedule):
        return "schedule.lag", pipeline.schedule.lag if pipeline.schedule.max_delay is None else None
    return "limits.min_records", pipeline.limits.min_records if pipeline.limits.max_delay_s is None else None

"""Conflicts between receiver and pipeline files: whether the pipeline that a receiver goes by loads what it lands.

A pipeline's file that is not valid is no fault of a receiver that names it: the receiver goes on, at its safe rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.core.config.patterns import topic_filter
from tidegate.core.config.pipeline import Pipeline, Source
from tidegate.core.config.receiver import Receiver


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
    if not reads_topic(pipeline.source, receiver.topic):
        return f"pipeline {name} reads {pipeline.source}, and not topic {receiver.topic}; name the pipeline that loads it"
    if receiver.backpressure.policy == "rate" and pipeline.rate_control is None and pipeline.limits.max_records is None:
        return (
            f"nothing bounds the batches of pipeline {name}, so no rate follows from them; set its backpressure or "
            "limits.max_records, or choose another policy"
        )
    return None


def reads_topic(source: Source, topic: str) -> bool:
    """Whether a pipeline's source has the topic."""
    if source.pattern is not None:
        return bool(topic_filter(source.pattern, source.exclude)([topic]))
    return topic in (source.topics or source.assign or ())

"""Reading receiver files, which are in the folder `receivers` beside that of the pipelines, and conflicts between them.

Instances share a port, so that a run can take over from the last one. Two receivers that share one would each get a part of the
other's connections, and two that read one file would each land its lines. No error tells of either: so files that could meet on
a host are refused. A pipeline's file that is not valid is no fault of a receiver that names it: the receiver goes on, at its
safe rate.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from posixpath import normpath

from pydantic import TypeAdapter

from tidegate.beside import Kind, Pipelines
from tidegate.core.config.names import RECEIVE_DAG
from tidegate.core.config.parse import parse
from tidegate.core.config.pipeline import LagSchedule, Pipeline
from tidegate.core.model.errors import ConfigError
from tidegate.pipelines import conflicts, load_each, read
from tidegate_receivers.config.receiver import Listen, Receiver
from tidegate_receivers.rules.limits import LOW


def receiver_faults(receivers: Iterable[Receiver]) -> dict[str, list[str]]:
    """What is wrong with these receivers beside each other, by the name of the receiver: the setting, and a sentence."""
    faults: dict[str, list[str]] = {}
    for this, that in permutations(sorted(receivers, key=lambda receiver: receiver.name), 2):
        if this.listen is not None and that.listen is not None and _meet(this.listen, that.listen):
            fault = f"listen.port: {this.listen.port} is also the port of receiver {that.name}; choose another port"
            faults.setdefault(this.name, []).append(fault)
        if _lands(this) == _lands(that) is not None and not _apart(this, that):
            doubled = f"receiver {that.name} lands {that} in {that.topic} too, so that each would be there twice"
            fault = f"topic: {doubled}; remove one of the two, or let them run in different workers.queues"
            faults.setdefault(this.name, []).append(fault)
    return faults


def _lands(this: Receiver) -> tuple[object, ...] | None:
    """Which lines are landed, and where; None where other receivers get other records."""
    source = this.connect if this.file is None else normpath(this.file.path)
    return None if source is None else (source, this.topic, this.connection)


def _apart(this: Receiver, that: Receiver) -> bool:
    """Whether they are meant for different hosts, each of which has a file, or a server, of that name."""
    of_this, of_that = {*this.preferred_hosts}, {*that.preferred_hosts}
    hosts = of_this and of_that and of_this.isdisjoint(of_that)
    return bool(hosts) or {*this.workers.queues}.isdisjoint(that.workers.queues)


def _meet(this: Listen, that: Listen) -> bool:
    """Whether both listen at one address of a host that runs both. A name may be any address."""
    if this.port != that.port:
        return False
    one, other = _address(this.host), _address(that.host)
    return one is None or other is None or one == other or one.is_unspecified or other.is_unspecified


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


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


READER = TypeAdapter(Receiver)


def parse_receiver(name: str, settings: object, *, file: str, yaml_faults: Sequence[str] = ()) -> Receiver:
    """A validated receiver from a YAML mapping; arguments and errors are those of `parse_pipeline`."""
    return parse(Receiver, READER, name, settings, file, yaml_faults)


def load_receiver(file: Path) -> Receiver:
    """The receiver in a YAML file, named after the file; errors are those of `load_pipeline`."""
    return parse_receiver(file.stem, **read(file, required="kind and topic"))


def receivers_of(pipelines: Path) -> Path:
    """The folder of receiver files: `receivers`, beside the folder of pipeline files."""
    return pipelines.parent / "receivers"


def load_receivers(folder: Path, pipelines: Pipelines) -> dict[Path, Receiver | ConfigError]:
    """Every `*.yaml` in the folder, sorted by name: a receiver, or what is wrong with the file, alone or beside the others.

    A folder that does not exist holds none. A `*.yml` or `*.YAML` is a fault, since it would silently not be read.

    Args:
        folder: the files of receivers.
        pipelines: as `load_pipelines` has read them.
    """
    by_file = load_each(folder, load_receiver)
    behind = {file.stem: value if isinstance(value, Pipeline) else None for file, value in pipelines.items()}
    valid = [receiver for receiver in by_file.values() if isinstance(receiver, Receiver)]
    return by_file | conflicts(by_file, downstream_faults(valid, behind), receiver_faults(valid))


KIND = Kind("receiver", Receiver, RECEIVE_DAG, load=load_receivers)

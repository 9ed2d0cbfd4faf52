"""Reading receiver files, which are in the folder `receivers` beside that of the pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter

from tidegate.beside import Kind, Pipelines
from tidegate.core.config.names import RECEIVE_DAG
from tidegate.core.config.parse import parse
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import ConfigError
from tidegate.pipelines import conflicts, load_each, read
from tidegate_receivers.config.conflicts import downstream_faults, receiver_faults
from tidegate_receivers.config.receiver import Receiver

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

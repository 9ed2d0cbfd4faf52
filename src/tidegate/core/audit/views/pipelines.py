"""Whether pipelines and receivers can run: their files are valid, transforms can be found, and Airflow has the pools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.core.config.ineffective import ineffective
from tidegate.core.config.pipeline import Pipeline, pool_command
from tidegate.core.config.receiver import Receiver
from tidegate.core.errors import ConfigError


@dataclass(frozen=True)
class FileCheck:
    """One pipeline file: the pipeline, or the faults of the file, one message each; and settings of it without effect."""

    name: str
    pipeline: Pipeline | None
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether the pipeline can be run."""
        return self.pipeline is not None and not self.faults

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"pipeline": self.name, "valid": self.valid, "faults": list(self.faults), "warnings": list(self.warnings)}


def named_transforms(files: Iterable[Pipeline | ConfigError]) -> list[str]:
    """The transforms that valid files name, each once, sorted."""
    pipelines = [p for p in files if isinstance(p, Pipeline)]
    return sorted({name for p in pipelines for name in (p.transform, *p.replay.transforms)})


def check_files(
    files: Mapping[Path, Pipeline | ConfigError], broken: Mapping[str, str], *, shown_as: Callable[[Path], str]
) -> tuple[FileCheck, ...]:
    """Every pipeline file with its faults and warnings, in the order given.

    Args:
        files: the pipeline of each file, or what is wrong with the file.
        broken: what is wrong with each transform that cannot be imported or found.
        shown_as: how messages name a file.
    """
    checks = []
    for file, value in files.items():
        if isinstance(value, ConfigError):
            checks.append(FileCheck(file.stem, None, tuple(str(value).splitlines())))
            continue
        named = [("transform", value.transform), *(("replay.transforms", name) for name in value.replay.transforms)]
        faults = [
            f"{shown_as(file)}: {setting}: {broken[name].removeprefix('transform ')}"
            for setting, name in named
            if name in broken
        ]
        warnings = tuple(f"{shown_as(file)}: {warning}" for warning in ineffective(value))
        checks.append(FileCheck(file.stem, value, tuple(faults), warnings))
    return tuple(checks)


@dataclass(frozen=True)
class ReceiverCheck:
    """One receiver file: the receiver, or the faults of the file, one message each."""

    name: str
    receiver: Receiver | None
    faults: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether the receiver can be run."""
        return self.receiver is not None

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"receiver": self.name, "valid": self.valid, "faults": list(self.faults)}


def check_receivers(files: Mapping[Path, Receiver | ConfigError]) -> tuple[ReceiverCheck, ...]:
    """Every receiver file with its faults, in the order given."""
    return tuple(
        ReceiverCheck(file.stem, None, tuple(str(value).splitlines()))
        if isinstance(value, ConfigError)
        else ReceiverCheck(file.stem, value)
        for file, value in files.items()
    )


@dataclass(frozen=True)
class MissingPool:
    """A pool that Airflow lacks, or that has no slots: loads wait for it for ever, unless Tidegate's plugin makes it.

    Attributes:
        name: of the pool.
        slots: that it needs.
        made_by_plugin: whether it is made when a run starts.
        is_there: whether Airflow has it, without slots.
    """

    name: str
    slots: int
    made_by_plugin: bool
    is_there: bool = False

    @property
    def command(self) -> str:
        """The command that makes it."""
        return pool_command(self.name, self.slots)


def missing_pools(
    slots: Mapping[str, int], *, held: Callable[[str], int | None], has_plugin: Callable[[], bool]
) -> tuple[MissingPool, ...]:
    """The pools that Airflow lacks, or that have no slots.

    Args:
        slots: the slots of each pool that pipelines name.
        held: the slots that a pool has in Airflow; None: there is no such pool.
        has_plugin: whether Airflow has loaded the plugin; called only where a pool is missing.
    """
    lacking = {name: had for name in slots if not (had := held(name))}
    by_plugin = None in lacking.values() and has_plugin()
    return tuple(MissingPool(name, slots[name], had is None and by_plugin, had == 0) for name, had in lacking.items())

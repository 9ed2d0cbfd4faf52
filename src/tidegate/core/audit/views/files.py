"""Whether the files of pipelines and receivers are valid, and the transforms that they name can be found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tidegate.core.config.ineffective import ineffective
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.config.receiver import Receiver
from tidegate.core.errors import ConfigError


@dataclass(frozen=True)
class FileCheck:
    """One file of a `kind`: the pipeline or the receiver, or the faults of the file; and its settings without effect."""

    kind: str
    name: str
    stated: Pipeline | Receiver | None
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether it can be run."""
        return self.stated is not None and not self.faults

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {self.kind: self.name, "valid": self.valid, "faults": list(self.faults), "warnings": list(self.warnings)}


def named_transforms(files: Iterable[Pipeline | ConfigError]) -> list[str]:
    """The transforms that valid files name, each once, sorted."""
    return sorted({name for p in files if isinstance(p, Pipeline) for name in (p.transform, *p.replay.transforms)})


def check_files(
    pipelines: Mapping[Path, Pipeline | ConfigError],
    receivers: Mapping[Path, Receiver | ConfigError],
    broken: Mapping[str, str],
    *,
    shown_as: Callable[[Path], str],
) -> list[FileCheck]:
    """Every file with its faults and warnings: those of pipelines, then those of receivers, in the order given.

    Args:
        pipelines: the pipeline of each file, or what is wrong with the file.
        receivers: the same of receivers.
        broken: what is wrong with each transform that cannot be imported or found.
        shown_as: how messages name a file.
    """
    checks = []
    for kind, files in (("pipeline", pipelines), ("receiver", receivers)):
        for file, stated in files.items():
            if isinstance(stated, ConfigError):
                checks.append(FileCheck(kind, file.stem, None, tuple(str(stated).splitlines())))
                continue
            of_file = partial("{}: {}".format, shown_as(file))
            faults = _transform_faults(stated, broken) if isinstance(stated, Pipeline) else ()
            warnings = ineffective(stated) if isinstance(stated, Pipeline) else ()
            checks.append(FileCheck(kind, file.stem, stated, tuple(map(of_file, faults)), tuple(map(of_file, warnings))))
    return checks


def _transform_faults(pipeline: Pipeline, broken: Mapping[str, str]) -> Iterator[str]:
    named = [("transform", pipeline.transform), *(("replay.transforms", name) for name in pipeline.replay.transforms)]
    return (f"{setting}: {broken[name].removeprefix('transform ')}" for setting, name in named if name in broken)

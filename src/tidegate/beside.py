"""What the packages beside this one register by entry points, and the files that they know.

Group `tidegate.cli` adds commands, `tidegate.platform` is a project's own platform, `tidegate.config` a kind of files beside
those of pipelines, under the name of its folder, and `tidegate.dags` what makes the DAGs of such a file. A lookup reads the
metadata of every installed distribution, so nothing is looked up before it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Protocol

from tidegate.core.config.declared import Settings
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import ConfigError
from tidegate.pipelines import load_pipelines
from tidegate.views.waiting import Lasting

Pipelines = Mapping[Path, Pipeline | ConfigError]
"""What `load_pipelines` has read."""


class Stated(Lasting, Protocol):
    """What a file beside those of pipelines states."""

    @property
    def way(self) -> str:
        """From where to where it moves records."""
        ...


@dataclass(frozen=True)
class Kind:
    """A kind of files.

    Attributes:
        name: what one of them states, in a word.
        settings: what it may hold.
        suffix: of the id of its DAG, behind the file's name.
        load: reads a folder, beside the pipelines; a file that is not valid yields its error.
    """

    name: str
    settings: type[Settings]
    suffix: str
    load: Callable[[Path, Pipelines], Mapping[Path, Stated | ConfigError]]


@cache
def registered(group: str) -> Mapping[str, EntryPoint]:
    """The entry points of a group, by their names."""
    return {entry.name: entry for entry in entry_points(group=group)}


def load_beside(folder: Path, pipelines: Pipelines) -> Iterator[tuple[Kind, Path, Stated | ConfigError]]:
    """Every file of a registered kind, in the folders beside that of the pipelines."""
    others = {file.parent for file in folder.parent.glob("*/*.[yY]*")} - {folder}
    kinds = registered("tidegate.config") if others else {}
    for other in sorted(others):
        if other.name in kinds:
            kind: Kind = kinds[other.name].load()
            for file, stated in kind.load(other, pipelines).items():
                yield kind, file, stated


def valid_beside(folder: Path) -> list[Stated]:
    """What the valid files among them state."""
    found = load_beside(folder, load_pipelines(folder))
    return [stated for _, _, stated in found if not isinstance(stated, ConfigError)]

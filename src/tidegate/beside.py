"""What the packages beside this one register by entry points, and the files that they know.

Group `tidegate.cli` adds commands, `tidegate.platform` is a project's own platform, `tidegate.config` a kind of files beside
those of pipelines, under the name of its folder, and `tidegate.dags` what makes the DAGs of such a file. A lookup reads the
metadata of every installed distribution, so nothing is looked up before it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Protocol

from tidegate.core.config.declared import Settings
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import ConfigError
from tidegate.pipelines import load_pipelines
from tidegate.views.overview import Lasting

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
    """A kind of files, each of which states what `name` says in a word. `settings` is what one may hold.

    `suffix` is that of its DAG's id, behind the file's name. `load` reads a folder beside the pipelines; a file that is not
    valid yields its error.
    """

    name: str
    settings: type[Settings]
    suffix: str
    _: KW_ONLY
    load: Callable[[Path, Pipelines], Mapping[Path, Stated | ConfigError]]


@cache
def registered(group: str) -> Mapping[str, EntryPoint]:
    """The entry points of a group, by their names.

    Raises ConfigError: there are none, though this distribution has some in each group; or two packages share a name.
    """
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        if found.setdefault(entry.name, entry).value != entry.value:
            both = f"{found[entry.name].value} and {entry.value}"
            raise ConfigError(f"two packages register {entry.name} as {group}: {both}", fix="Uninstall one of them")
    if not found:
        raise ConfigError(f"no package registers {group}", fix="Install Tidegate again; in a checkout, run `make venv`")
    return found


def loaded(group: str, name: str) -> Any:
    """What is registered under a name. Raises ConfigError: as `registered`; nothing has that name, or it cannot be imported."""
    entry = registered(group).get(name)
    if entry is None:
        raise ConfigError(f"no package registers {name} as {group}", fix="Install the package that does")
    try:
        return entry.load()
    except Exception as error:
        raise ConfigError(
            f"{entry.value}, which is registered as {group}, cannot be imported: {type(error).__name__}: {error}",
            fix="Install what it needs, or uninstall the package that registers it",
        ) from error


def load_beside(folder: Path, pipelines: Pipelines) -> Iterator[tuple[Kind, Path, Stated | ConfigError]]:
    """Every file of a registered kind, in the folders beside that of the pipelines; what fails is the error of its files."""
    for other in sorted({file.parent for file in folder.parent.glob("*/*.[yY]*")} - {folder}):
        kind = Kind("file", Settings, "", load=lambda *_: {})
        try:
            if other.name not in registered("tidegate.config"):
                continue
            kind = loaded("tidegate.config", other.name)
            found = kind.load(other, pipelines)
        except Exception as error:  # noqa: BLE001 - of another package: pipelines go on
            why = error if isinstance(error, ConfigError) else ConfigError(f"{other} cannot be read: {error!r}")
            found = dict.fromkeys(sorted(other.glob("*.[yY]*")), why)
        for file, stated in found.items():
            yield kind, file, stated


def valid_beside(folder: Path) -> list[Stated]:
    """What the valid files among them state."""
    found = load_beside(folder, load_pipelines(folder))
    return [stated for _, _, stated in found if not isinstance(stated, ConfigError)]

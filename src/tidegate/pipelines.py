"""Reading the folder of pipeline files, and what reads others beside it.

A file that is not valid yields its error, so that one invalid file never hides the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tidegate.core.config.checks import group_faults, table_faults
from tidegate.core.config.names import PIPELINES
from tidegate.core.config.parse import parse_pipeline
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import ConfigError

T = TypeVar("T")

NEEDS_QUOTES = "*@%&!`"
"""Of what begins with one of these, YAML makes something else than a text, or nothing."""


class _Loader(yaml.SafeLoader):
    """Records the keys that a mapping repeats, of which PyYAML would silently take the last. A key `on` is a name, not true."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.repeated: list[tuple[int, str]] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's
        """The mapping; before merge keys (`<<`) bring in others, which a key of its own may replace."""
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                key.tag = key.tag.replace(":bool", ":str")
                if (key.tag, key.value) in seen:
                    self.repeated.append((key.start_mark.line + 1, key.value))
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep=deep)


def load_pipeline(file: Path) -> Pipeline:
    """The pipeline in a YAML file, named after the file.

    Raises ConfigError: not readable, not YAML, or not a valid pipeline; the message names file, setting and what would be
    valid.
    """
    return parse_pipeline(file.stem, **read(file, required="source, transform and sink"))


def read(file: Path, *, required: str) -> dict[str, Any]:
    """What a YAML file holds, as arguments of the functions that parse it."""
    shown = shown_as(file)
    try:
        loader = _Loader(file.read_text(encoding="utf-8"))
        settings = loader.get_single_data()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{shown}: cannot be read: {error}", file=shown) from error
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        place = f"line {at.line + 1}, column {at.column + 1}: " if at else ""
        hint = next((f"; quote the value that begins with {c}" for c in _begins(error) if c in NEEDS_QUOTES), "")
        raise ConfigError(f"{shown}: not valid YAML: {place}{error.problem or error.context}{hint}", file=shown) from error
    except Exception as error:  # a value that its YAML type does not take (2013-13-45) raises whatever Python does
        problem = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"{shown}: not valid YAML: {problem}", file=shown) from error
    if settings is None:
        raise ConfigError(f"{shown}: is empty; {required} are required", file=shown)
    repeated = [f'line {line}: the key "{key}" is repeated; keep one of the two' for line, key in loader.repeated]
    return {"settings": settings, "file": shown, "yaml_faults": repeated}


def _begins(error: yaml.MarkedYAMLError) -> list[str]:
    """The characters at which YAML found the fault, and at which it began to read what is at fault."""
    marks = (error.problem_mark, error.context_mark)
    return [mark.buffer[mark.pointer] for mark in marks if mark is not None and mark.buffer is not None]


def shown_as(file: Path) -> str:
    """How errors name a file of a pipeline or a receiver."""
    return f"{file.parent.name}/{file.name}"


def pipelines_of(project: Path) -> Path:
    """A project's folder of pipeline files: `dags/pipelines`, or `pipelines` where the project is a DAG folder itself."""
    usual, inside = project / "dags" / PIPELINES, project / PIPELINES
    return inside if inside.is_dir() and not usual.is_dir() else usual


def spark_jobs_of(project: Path) -> Path:
    """A project's folder of transforms: `spark_jobs`, or that of its DAG folder where it has none beside it.

    Raises ConfigError: it has both, of which its DAG file uses one.
    """
    usual, inside = project / "spark_jobs", project / "dags" / "spark_jobs"
    if usual.is_dir() and inside.is_dir():
        raise ConfigError(
            f"{project} has two folders of transforms, {usual} and {inside}, and its DAG file uses one of them",
            fix=f"Remove the other one, or run the command with `--project {project / 'dags'}`, which uses {inside}",
        )
    return inside if inside.is_dir() else usual


def load_pipelines(folder: Path) -> dict[Path, Pipeline | ConfigError]:
    """Every `*.yaml` in the folder, sorted by name: a pipeline, or what is wrong with the file, alone or beside the others.

    A `*.yml` or `*.YAML` is a fault, since it would silently not be read. Pipelines that share a pool all get the fewest slots
    that one of them gives it.
    """
    by_file = load_each(folder, load_pipeline)
    valid = {file: p for file, p in by_file.items() if isinstance(p, Pipeline)}
    slots: dict[str, int] = {}
    for pipeline in valid.values():
        slots[pipeline.pool] = min(pipeline.sink.slots, slots.get(pipeline.pool, pipeline.sink.slots))
    for file, pipeline in valid.items():
        by_file[file] = replace(pipeline, sink=replace(pipeline.sink, slots=slots[pipeline.pool]))
    of_tables = table_faults(valid.values(), [file.stem for file in by_file])
    return by_file | conflicts(by_file, of_tables, group_faults(valid.values()))


def digest(folder: Path) -> str:
    """What tells the files of pipelines in a folder from others: eight digits, of their names and contents."""
    read = hashlib.sha256()
    for file in sorted(folder.glob("*.yaml")):
        read.update(f"{file.name}\n".encode() + file.read_bytes())
    return read.hexdigest()[:8]


def load_each(folder: Path, load: Callable[[Path], T]) -> dict[Path, T | ConfigError]:
    """What `load` makes of each `*.yaml` in the folder, sorted by name, or what is wrong with the file."""
    by_file: dict[Path, T | ConfigError] = {}
    for file in sorted(folder.glob("*.yaml")):
        try:
            by_file[file] = load(file)
        except ConfigError as error:
            by_file[file] = error
    for file in sorted(f for f in folder.glob("*.*") if f.suffix != ".yaml" and f.suffix.lower() in (".yml", ".yaml")):
        by_file[file] = ConfigError(
            f"{shown_as(file)}: is not read: rename it to {file.stem}.yaml", file=shown_as(file), faults=1
        )
    return by_file


def conflicts(files: Iterable[Path], *faults_by_name: Mapping[str, list[str]]) -> dict[Path, ConfigError]:
    """The errors of files that are at fault beside others."""
    errors = {}
    for file in files:
        lines = [f"{shown_as(file)}: {fault}" for by_name in faults_by_name for fault in by_name.get(file.stem, ())]
        if lines:
            errors[file] = ConfigError("\n".join(lines), file=shown_as(file), faults=len(lines))
    return errors

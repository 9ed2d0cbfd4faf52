"""Validates the YAML of a pipeline, or of a file beside it, into its dataclasses.

Every fault of a file is reported at once, one a line, as `file: path.to.setting: expected …, got …`. Reading YAML is the
caller's (`tidegate.pipelines`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from tidegate.core.config import declared
from tidegate.core.config.declared import shown
from tidegate.core.config.names import name_faults
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import ConfigError, did_you_mean

T = TypeVar("T", bound=declared.Settings)

READER = TypeAdapter(Pipeline)
"""Made once, with its module: the processes that parse files are forked by one that has imported it."""
LONGEST_NAME = 80
"""Characters of an unknown setting's name that a message shows."""
MOST_NAMED = 5
"""Entries of one list or mapping that a message names."""


def parse_pipeline(name: str, settings: object, *, file: str, yaml_faults: Sequence[str] = ()) -> Pipeline:
    """A validated pipeline from the mapping that a YAML file holds; the pipeline is named as the file is.

    `yaml_faults` are what the reader of the YAML has found before, one sentence each; they are reported with the others.

    Raises ConfigError: with every fault, one a line; `fields["faults"]` counts them.
    """
    return parse(Pipeline, READER, name, settings, file, yaml_faults)


def parse(kind: type[T], reader: TypeAdapter[T], name: str, settings: object, file: str, yaml_faults: Sequence[str]) -> T:
    """A validated file of a kind, by its reader; other arguments and errors are those of `parse_pipeline`."""
    faults = [*yaml_faults, *name_faults(name)]
    parsed: T | None = None
    if isinstance(settings, Mapping):
        try:
            parsed = reader.validate_python({**settings, declared.NAME: name})
        except ValidationError as error:
            faults += _sentences(kind, error)
    else:
        faults.append(f"expected {declared.SETTINGS}, got {shown(settings)}")
    if faults or parsed is None:
        raise ConfigError("\n".join(f"{file}: {fault}" for fault in faults), file=file, faults=len(faults))
    return parsed


def _sentences(kind: Any, error: ValidationError) -> list[str]:
    """One for each fault; for the first entries of each list or mapping that are at fault, and how many more there are."""
    known = declared.members(kind)
    sentences: list[str] = []
    entries = Counter[str]()
    for fault in error.errors(include_url=False):
        loc = fault["loc"]
        if fault["type"] == "string_unicode":  # a key that UTF-8 cannot encode
            sentences.append(_unknown(_way(loc), fault["input"].encode(errors="backslashreplace").decode(), known))
            continue
        if fault["type"] in ("unexpected_keyword_argument", "invalid_key"):
            sentences.append(_unknown(_way(loc[:-1]), str(loc[-1]), known))
            continue
        way = _way(loc)
        *_, setting = (path for path in map(_path, accumulate([part] for part in way)) if path in known)
        if _path(way) != setting:
            entries[setting] += 1
        if entries[setting] <= MOST_NAMED:
            sentences.append(_sentence(fault, way, known[setting]))
    more = ((setting, count - MOST_NAMED) for setting, count in entries.items() if count > MOST_NAMED)
    return [*sentences, *(f"{setting}: entries that are not valid beside these: {count}" for setting, count in more)]


def _sentence(fault: ErrorDetails, way: Sequence[str | int], setting: declared.Member) -> str:
    place, words = _path(way), fault["msg"] if fault["type"] == declared.EXPECTED else setting.words
    if fault["type"] == declared.FAULT:
        return f"{place}: {fault['msg']}"
    if fault["type"] == "missing":
        purpose = f". {declared.summary(setting.section)}" if setting.section else ""
        return f"{place}: required, but missing; expected {words}{purpose}"
    if way[-1] == "[key]":
        return f"{_path(way[:-2])}: expected {words} as each key, got {shown(fault['input'])}"
    return f"{place}: expected {words}, got {shown(fault['input'])}"


def _path(way: Sequence[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in way).removeprefix(".")


def _way(loc: Sequence[str | int]) -> list[str | int]:
    return [part for part in loc if part not in (declared.AS_TEXT, declared.AS_MAPPING)]


def _unknown(way: Sequence[str | int], name: str, known: Iterable[str]) -> str:
    name, group = name[:LONGEST_NAME], "".join(f"{part}." for part in way)
    names = sorted(path.removeprefix(group) for path in known if f"{path.rpartition('.')[0]}.".lstrip(".") == group)
    elsewhere = " or ".join(path for path in known if path.rpartition(".")[2] == name)
    hint = f"; did you mean {elsewhere}?" if elsewhere else did_you_mean(name, names)
    return f"{group}{name}: not a setting, expected one of {', '.join(names)}{hint}"

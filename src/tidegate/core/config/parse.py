"""Validates the YAML of a pipeline or a receiver into its dataclasses.

Every fault of a file is reported at once, one a line, as `file: path.to.setting: expected …, got …`. Reading YAML is the
caller's (`tidegate.pipelines`).

Pure: the standard library only.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from tidegate.core.config.model import Section, Setting, members, relations
from tidegate.core.config.names import name_faults
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.config.receiver import Receiver
from tidegate.core.config.rules import refusal, shown
from tidegate.core.errors import ConfigError

T = TypeVar("T")

LONGEST_NAME = 80
"""Characters of an unknown setting's name that a message shows."""


def parse_pipeline(name: str, settings: object, *, file: str, yaml_faults: Sequence[str] = ()) -> Pipeline:
    """A validated pipeline from a YAML mapping.

    Args:
        name: the pipeline's name, taken from the file's name.
        settings: what the YAML holds.
        file: how errors name the file.
        yaml_faults: what the reader of the YAML has found before, one sentence each; reported with the others.

    Raises:
        ConfigError: with every fault, one a line; `fields["faults"]` counts them.
    """
    return _parse_file(Pipeline, name, settings, file, yaml_faults)


def parse_receiver(name: str, settings: object, *, file: str, yaml_faults: Sequence[str] = ()) -> Receiver:
    """A validated receiver from a YAML mapping; arguments and errors are those of `parse_pipeline`."""
    return _parse_file(Receiver, name, settings, file, yaml_faults)


def _parse_file(kind: type[T], name: str, settings: object, file: str, yaml_faults: Sequence[str]) -> T:
    faults = [*yaml_faults, *name_faults(name)]
    parsed = None
    if isinstance(settings, Mapping):
        parsed = _parse(kind, settings, "", faults, name=name)
    else:
        faults.append(f"expected a mapping of settings, got {shown(settings)}")
    if faults or parsed is None:
        raise ConfigError("\n".join(f"{file}: {fault}" for fault in faults), file=file, faults=len(faults))
    return parsed


def _parse(kind: type[T], settings: Mapping[Any, Any], path: str, faults: list[str], **given: Any) -> T | None:
    """The section's dataclass; None where there are faults, which are added to `faults`."""
    before = len(faults)
    stated = members(kind)
    faults += _unknown(settings, [member.name for member in stated], path)
    values: dict[str, Any] = dict(given)
    for member in stated:
        place = f"{path}{member.name}"
        if member.name not in settings:
            if member.required:
                faults.append(f"{place}: required, but missing; expected {_expected(member)}")
            continue
        value = settings[member.name]
        kind_of_mapping = member.mapping if isinstance(member, Setting) else member.kind
        if isinstance(value, Mapping) and kind_of_mapping is not None:
            values[member.name] = _parse(kind_of_mapping, value, f"{place}.", faults)
        elif isinstance(member, Setting):
            nothing = value is None and member.nullable
            refused = [] if nothing else member.rule.faults(place, value)
            faults += refused
            if not refused:
                values[member.name] = None if nothing else member.rule.convert(value)
        else:
            faults.append(refusal(place, "a mapping of settings", value))
    if len(faults) > before:
        return None
    parsed = kind(**values)
    for relation in relations(kind):
        faults += relation.faults(parsed, path)
    return parsed if len(faults) == before else None


def _unknown(settings: Mapping[Any, Any], known: list[str], path: str) -> list[str]:
    faults = []
    for key in settings:
        if key not in known:
            name = str(key)[:LONGEST_NAME]
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            faults.append(f"{path}{name}: not a setting, expected one of {', '.join(sorted(known))}{hint}")
    return faults


def _expected(member: Setting | Section) -> str:
    return member.rule.expected if isinstance(member, Setting) else f"a mapping of settings. {member.doc}"

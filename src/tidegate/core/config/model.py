"""How a dataclass states its settings: one field each, with type, default, rule and documentation.

Whatever needs to know the settings (the validation, the JSON Schema, the page in the docs) asks `members`, so the three
cannot disagree.

Pure: the standard library only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any, Protocol, cast

from tidegate.core.config.rules import Rule


@dataclass(frozen=True)
class Setting:
    """One setting of a section. A default of None means that the setting may be left out.

    `mapping` is the dataclass of the settings that may be given, as a mapping, in the place of a value.
    """

    name: str
    doc: str
    rule: Rule
    default: Any
    required: bool
    mapping: type | None = None

    @property
    def nullable(self) -> bool:
        """Whether null means what leaving the setting out means. A section with nothing in it would silently be none."""
        return self.default is None and self.rule.schema.get("type") != []


@dataclass(frozen=True)
class Section:
    """A group of settings: the dataclass that states them."""

    name: str
    doc: str
    kind: type
    required: bool


def setting(rule: Rule, doc: str, default: Any = MISSING, *, mapping: type | None = None) -> Any:
    """A dataclass field that is a setting; without a default it is required."""
    metadata = {"rule": rule, "doc": doc, "mapping": mapping}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


def section(kind: type, doc: str, *, required: bool = False) -> Any:
    """A dataclass field that is a group of settings."""
    metadata = {"section": kind, "doc": doc}
    return field(metadata=metadata) if required else field(default_factory=kind, metadata=metadata)


def members(kind: type) -> list[Setting | Section]:
    """The settings and sections of a dataclass, in its order."""
    stated: list[Setting | Section] = []
    for item in dataclasses.fields(cast("Any", kind)):
        required = item.default is MISSING and item.default_factory is MISSING
        if "section" in item.metadata:
            stated.append(Section(item.name, item.metadata["doc"], item.metadata["section"], required))
        elif "rule" in item.metadata:
            how = item.metadata
            stated.append(Setting(item.name, how["doc"], how["rule"], item.default, required, how["mapping"]))
    return stated


class Relation(Protocol):
    """What must hold between settings of a section; the section's dataclass states it in `RELATIONS`."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """As JSON Schema, as far as a schema can express it."""

    def faults(self, held: Any, path: str) -> list[str]:
        """One sentence for each fault.

        Args:
            held: the section's dataclass, of which each setting is valid by itself.
            path: the section's path with a dot at its end; empty for the whole file.
        """


@dataclass(frozen=True)
class ExactlyOne:
    """A section holds exactly one of these settings."""

    names: tuple[str, ...]

    @property
    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        return {"oneOf": [{"required": [name]} for name in self.names]}

    def faults(self, held: Any, path: str) -> list[str]:
        """One sentence, where none or several are set."""
        present = [name for name in self.names if _is_set(held, name)]
        if len(present) == 1:
            return []
        *others, last = self.names
        place = present[1] if present else self.names[0]
        holds = f" ({', '.join(present)})" if present else ""
        return [f"{path}{place}: expected exactly one of {', '.join(others)} and {last}, got {len(present)}{holds}"]


@dataclass(frozen=True)
class AtLeastOne:
    """A section holds one or more of these settings."""

    names: tuple[str, ...]

    @property
    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        return {"anyOf": [{"required": [name]} for name in self.names]}

    def faults(self, held: Any, path: str) -> list[str]:
        """One sentence, where none is set."""
        if any(_is_set(held, name) for name in self.names):
            return []
        return [f"{path}{self.names[0]}: expected at least one of {' and '.join(self.names)}, got none"]


@dataclass(frozen=True)
class Requires:
    """Each of these settings has a meaning only together with another one of the section."""

    other_by_name: Mapping[str, str]

    @property
    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        return {"dependentRequired": {name: [other] for name, other in self.other_by_name.items()}}

    def faults(self, held: Any, path: str) -> list[str]:
        """One sentence for each setting without the one that it requires."""
        return [
            f"{path}{name}: requires {path}{other}, which is not set; set it, or remove {name}"
            for name, other in self.other_by_name.items()
            if _is_set(held, name) and not _is_set(held, other)
        ]


@dataclass(frozen=True)
class NotAbove:
    """One setting is at most another one, where both are set."""

    less: str
    more: str

    @property
    def schema(self) -> dict[str, Any]:
        """As JSON Schema: nothing, since a schema cannot compare two settings."""
        return {}

    def faults(self, held: Any, path: str) -> list[str]:
        """One sentence, where it is above."""
        less, more = getattr(held, self.less), getattr(held, self.more)
        if less is None or more is None or less <= more:
            return []
        return [f"{path}{self.less}: {less} is above {path}{self.more} {more}; lower it, or raise the other"]


def relations(kind: type) -> tuple[Relation, ...]:
    """The relations that a section's dataclass states."""
    stated: tuple[Relation, ...] = getattr(kind, "RELATIONS", ())
    return stated


def _is_set(held: object, name: str) -> bool:
    return getattr(held, name) not in (None, ())

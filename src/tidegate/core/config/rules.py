"""Kinds of values: text, numbers, choices, lists, mappings.

A `Rule` states once what a setting accepts: in words for messages and docs, as a check that names the entry at fault, and as
JSON Schema for editors. `tidegate.core.config.values` makes the rules of a pipeline file from these.

Pure: the standard library only.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from tidegate.core.counts import is_whole
from tidegate.core.rates.checks import is_number

MOST_NAMED = 5
"""Entries of one list or mapping that a message names."""
LONGEST_SHOWN = 80
"""Characters of a value that a message shows."""


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Rule:
    """What one setting accepts.

    Args:
        expected: in words, for messages and docs.
        schema: as JSON Schema; it may accept more than the check, where a schema cannot express it.
        faults: takes the path of the setting and its value; one sentence for each fault, none for an accepted value.
        convert: makes of an accepted value what the pipeline holds.
    """

    expected: str
    schema: Mapping[str, Any]
    faults: Callable[[str, Any], list[str]]
    convert: Callable[[Any], Any] = _as_it_is


def rule(
    expected: str, schema: Mapping[str, Any], accepts: Callable[[Any], bool], convert: Callable[[Any], Any] = _as_it_is
) -> Rule:
    """The rule of a value that is accepted or refused as a whole."""
    return Rule(expected, schema, lambda path, value: [] if accepts(value) else [refusal(path, expected, value)], convert)


def refusal(path: str, expected: str, value: object) -> str:
    """The sentence for a value that a rule refuses."""
    return f"{path}: expected {expected}, got {shown(value)}"


def shown(value: object) -> str:
    """The value in short, whatever YAML made of it: keys of any type, lists that hold themselves, aliases of aliases."""
    text = ""
    try:
        for piece in json.JSONEncoder(default=str, ensure_ascii=False).iterencode(value):
            text += piece
            if len(text) > LONGEST_SHOWN:
                break
    except (TypeError, ValueError, RecursionError):
        text = reprlib.repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}..."


def is_finite_between(value: Any, least: float, most: float) -> bool:
    """Whether it is a number between the bounds, both included, and not NaN."""
    return is_number(value) and least <= value <= most


_STORABLE = re.compile("[^\x00\ud800-\udfff]*")


def is_text(value: Any, longest: int, shortest: int = 0) -> bool:
    """Whether it is a text that every database stores: no NUL, nothing that UTF-8 cannot encode. Blanks alone are empty."""
    return (
        isinstance(value, str)
        and shortest <= len(value.strip())
        and len(value) <= longest
        and _STORABLE.fullmatch(value) is not None
    )


def text(expected: str, longest: int, shortest: int = 0) -> Rule:
    """A text of so many characters."""
    schema = {"type": "string", **({"minLength": shortest} if shortest else {}), "maxLength": longest}
    return rule(expected, schema, lambda value: is_text(value, longest, shortest))


def matching(pattern: re.Pattern[str], expected: str, longest: int | None = None) -> Rule:
    """A text that matches the pattern as a whole."""
    schema = {"type": "string", **({} if longest is None else {"maxLength": longest}), "pattern": f"^{pattern.pattern}$"}
    return rule(
        expected,
        schema,
        lambda value: (
            isinstance(value, str) and (longest is None or len(value) <= longest) and pattern.fullmatch(value) is not None
        ),
    )


def whole(expected: str, least: int, most: int | None = None) -> Rule:
    """An integer between two bounds, both included."""
    schema = {"type": "integer", "minimum": least, **({} if most is None else {"maximum": most})}
    return rule(expected, schema, lambda value: is_whole(value, least, most))


def number(expected: str, least: float, most: float) -> Rule:
    """A finite number between two bounds, both included."""
    schema = {"type": "number", "minimum": least, "maximum": most}
    return rule(expected, schema, lambda value: is_finite_between(value, least, most))


def number_above(expected: str, least: float, most: float) -> Rule:
    """A finite number above `least`, and at most `most`."""
    schema = {"type": "number", "exclusiveMinimum": least, "maximum": most}
    return rule(expected, schema, lambda value: is_finite_between(value, least, most) and value > least)


def choice(words: Any) -> Rule:
    """One of the words of a `Literal`."""
    allowed = get_args(words)
    expected = " or ".join(f'"{word}"' for word in allowed)
    return rule(expected, {"enum": list(allowed)}, lambda value: isinstance(value, str) and value in allowed)


FLAG = rule("true or false", {"type": "boolean"}, lambda value: isinstance(value, bool))


def list_of(entry: Rule, expected: str, *, least: int = 0, different: bool = True) -> Rule:
    """A list, of which each entry follows the rule; it becomes a tuple.

    Args:
        entry: the rule of each entry.
        expected: the whole list in words.
        least: entries that the list has at least.
        different: whether an entry may be in the list only once.
    """
    schema = {
        "type": "array",
        "items": entry.schema,
        **({"minItems": least} if least else {}),
        **({"uniqueItems": True} if different else {}),
    }

    def faults(path: str, value: Any) -> list[str]:
        if not isinstance(value, list) or len(value) < least:
            return [refusal(path, expected, value)]
        of_entries: list[str] = []
        accepted = set()
        for index, item in enumerate(value):
            place = f"{path}[{index}]"
            of_entry = entry.faults(place, item)
            if not of_entry and different and item in accepted:
                of_entry = [f"{place}: {shown(item)} is in the list already; remove one of the two"]
            elif not of_entry:
                accepted.add(item)
            of_entries += of_entry
        return _first(of_entries, path)

    return Rule(expected, schema, faults, tuple)


def mapping_of(key: Rule, value_of_key: Rule, expected: str, convert: Callable[[Any], Any] = _as_it_is) -> Rule:
    """A mapping with one entry or more, of which each key and each value follows its rule."""
    schema = {
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"pattern": key.schema["pattern"]},
        "additionalProperties": value_of_key.schema,
    }

    def faults(path: str, value: Any) -> list[str]:
        if not isinstance(value, Mapping) or not value:
            return [refusal(path, expected, value)]
        of_entries: list[str] = []
        for name, entry in value.items():
            if key.faults(path, name):
                of_entries.append(refusal(path, f"{key.expected} as each key", name))
            else:
                of_entries += value_of_key.faults(f"{path}.{name}", entry)
        return _first(of_entries, path)

    return Rule(expected, schema, faults, convert)


def _first(faults: list[str], path: str) -> list[str]:
    """The first faults, and how many more there are."""
    more = len(faults) - MOST_NAMED
    return faults if more <= 0 else [*faults[:MOST_NAMED], f"{path}: entries that are not valid beside these: {more}"]

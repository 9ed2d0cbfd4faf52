"""The types of the pages' TypeScript, made of what the routes answer (`tidegate.views.pages`)."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any, get_args, get_type_hints

from tidegate.views.pages import ANSWERS, adapter

HEAD = "// Made from tidegate.views.pages by `make docs`; do not edit.\n"
PARAGRAPH = "\n\n"
PLAIN = {"integer": "number", "number": "number", "string": "string", "boolean": "boolean", "null": "null"}


def answers() -> str:
    """`answers.ts`: an interface for each record, with what its fields mean."""
    kinds = {kind.__name__: kind for kind in _records(*ANSWERS)}
    of = [(kind, "serialization", adapter(kind)) for kind in kinds.values()]
    schemas = adapter(int).json_schemas(of)[1]["$defs"]
    return HEAD + "".join(_declared(name, schema, kinds) for name, schema in sorted(schemas.items()))


def _records(*kinds: Any) -> Iterator[Any]:
    """The dataclasses among some types, and those that they hold; some more than once."""
    for kind in kinds:
        yield from [kind] if is_dataclass(kind) else []
        yield from _records(*(get_type_hints(kind).values() if is_dataclass(kind) else get_args(kind)))


def _declared(name: str, schema: Mapping[str, Any], kinds: Mapping[str, type]) -> str:
    summary = f"\n/** {_sentence(schema['description'].partition(PARAGRAPH)[0])} */"
    if name not in kinds:
        return f"{summary}\nexport type {name} = {_type(schema)};\n"
    docs = {name: text for base in reversed(kinds[name].__mro__) for name, text in _attributes(base)}
    lines = [summary, f"export interface {name} {{"]
    for field, of in schema["properties"].items():
        lines += [f"  /** {docs[field]} */"] if field in docs else []
        lines.append(f"  {field}: {_type(of)};")
    return "\n".join([*lines, "}", ""])


def _attributes(kind: type) -> list[tuple[str, str]]:
    listed = re.split("(?:Args|Attributes):\n", inspect.cleandoc(kind.__doc__ or "") + "\n")[-1]
    return [(name, _sentence(text)) for name, text in re.findall(r"^    (\w+): (.*\n(?:     .*\n)*)", listed, re.MULTILINE)]


def _sentence(text: str) -> str:
    words = re.sub(r"\bNone\b", "null", " ".join(text.split()))
    return words[:1].upper() + words[1:]


def _type(schema: Mapping[str, Any]) -> str:
    """A type by its schema."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if union := schema.get("anyOf") or schema.get("enum"):
        return " | ".join(_type(each) if "anyOf" in schema else json.dumps(each) for each in union)
    if "prefixItems" in schema:
        return f"[{', '.join(_type(each) for each in schema['prefixItems'])}]"
    if schema.get("type") == "array":
        item = _type(schema["items"])
        return f"({item})[]" if "|" in item else f"{item}[]"
    if schema.get("type") == "object":
        values = schema["additionalProperties"]
        return f"Record<string, {'unknown' if values is True else _type(values)}>"
    return PLAIN[schema["type"]]

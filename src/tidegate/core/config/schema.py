"""The JSON Schemas of pipeline and receiver files, made from the settings themselves, for editors."""

from __future__ import annotations

from typing import Any

from tidegate.core.config.model import Setting, members, relations
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.config.receiver import Receiver


def json_schema(kind: type[Pipeline | Receiver] = Pipeline) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a pipeline file, or of a receiver file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Tidegate {kind.__name__.lower()}",
        **_section(kind),
    }


def _section(kind: type) -> dict[str, Any]:
    stated = members(kind)
    schema: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            member.name: {
                **(_setting(member) if isinstance(member, Setting) else _section(member.kind)),
                "description": member.doc,
                **_default(member),
            }
            for member in stated
        },
        "required": sorted(member.name for member in stated if member.required),
    }
    for relation in relations(kind):
        schema |= relation.schema
    return schema


def _setting(setting: Setting) -> dict[str, Any]:
    schema = dict(setting.rule.schema)
    if "type" not in schema:
        return schema
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if setting.mapping is not None:  # what a schema says of objects holds for objects only, beside what it says of other types
        schema |= _section(setting.mapping)
        types = [*types, "object"]
    if setting.nullable and "null" not in types:
        types = [*types, "null"]
    schema["type"] = types if len(types) > 1 else types[0]
    return schema


def _default(member: object) -> dict[str, Any]:
    if not isinstance(member, Setting) or member.required or member.default is None:
        return {}
    return {"default": list(member.default) if isinstance(member.default, tuple) else member.default}

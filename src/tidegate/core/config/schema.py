"""The JSON Schema of a kind of files, made from the settings themselves, for editors."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from tidegate.core.config.declared import NAME, Settings, docs, summary
from tidegate.core.config.pipeline import Pipeline


class _Schema(GenerateJsonSchema):
    """Pydantic's, with what the dataclasses say in addition, and without what an editor would show for nothing."""

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> dict[str, Any]:
        """Of a group of settings."""
        group: Any = schema["cls"]
        made = {**super().dataclass_schema(schema), "description": summary(group), **group.SCHEMA}
        made["properties"].pop(NAME, None)
        made["required"] = sorted(set(made.get("required", ())) - {NAME})
        for name, doc in docs(group).items():
            made["properties"][name]["description"] = doc
        other = {"allOf": group.TAKEN.schema, "dependentRequired": {name: [other] for name, other in group.REQUIRES.items()}}
        return made | {name: said for name, said in other.items() if said}

    def nullable_schema(self, schema: core_schema.NullableSchema) -> dict[str, Any]:
        """A list of types, where that is all."""
        made = super().nullable_schema(schema)
        kind = made["anyOf"][0].get("type")
        return {**made["anyOf"][0], "type": [kind, "null"]} if isinstance(kind, str) else made

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        """No default that says that the setting may be left out."""
        made = super().default_schema(schema)
        return {name: value for name, value in made.items() if (name, value) != ("default", None)}

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's
        """A setting has its name."""
        return False


def json_schema(kind: type[Settings] = Pipeline) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a pipeline file, or of a file of another kind."""
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        **TypeAdapter(kind).json_schema(schema_generator=_Schema),
        "title": f"Tidegate {kind.__name__.lower()}",
    }

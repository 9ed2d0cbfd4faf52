"""The page of all settings of a pipeline file, made from the settings themselves."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any, cast

from tidegate.core.config.pipeline import Pipeline


def page() -> str:
    """`docs/settings.md`: each setting with what it does, what it accepts, and its default."""
    lines = [
        "# Settings of a pipeline file",
        "",
        "Made from `src/tidegate/core/config/pipeline.py` by `make docs`. `tidegate check` validates files; editors do so by",
        "`dags/pipelines/pipeline.schema.json`. A file has one of `source.topics`, `source.pattern` and `source.assign`.",
        "",
        "| setting | what it does | accepts | default |",
        "|---|---|---|---|",
        *(f"| `{path}` | {does} | {accepts} | {default} |" for path, does, accepts, default in _settings(Pipeline, "")),
        "",
    ]
    return "\n".join(lines)


def _settings(kind: type, path: str) -> Iterator[tuple[str, str, str, str]]:
    for known in dataclasses.fields(cast("Any", kind)):
        if "section" in known.metadata:
            yield from _settings(known.metadata["section"], f"{path}{known.name}.")
        elif known.metadata:
            accepts = known.metadata["rule"].expected.replace("|", "\\|").replace("*", "\\*")
            yield f"{path}{known.name}", known.metadata["doc"], accepts, _default(known)


def _default(known: dataclasses.Field[Any]) -> str:
    if known.default is dataclasses.MISSING:
        return "required"
    if known.default in (None, (), ""):
        return ""
    return f"`{json.dumps(known.default)}`"

"""The page of all settings of pipeline and receiver files, made from the settings themselves."""

from __future__ import annotations

import json
import re
from dataclasses import MISSING
from typing import Any

from tidegate.core.config.declared import members
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.config.receiver import Receiver


def page() -> str:
    """`docs/settings.md`: each setting with what it does, what it accepts, and its default."""
    lines = [
        "# Settings of a pipeline file",
        "",
        "Made from `src/tidegate/core/config/pipeline.py` by `make docs`. `tidegate check` validates files, and warns of",
        "settings that have no effect beside the others; editors validate by `dags/pipelines/pipeline.schema.json`. A file has",
        "one of `source.topics`, `source.pattern` and `source.assign`.",
        "",
        *_table(Pipeline),
        "# Settings of a receiver file",
        "",
        "Made from `src/tidegate/core/config/receiver.py`; editors validate by `dags/receivers/receiver.schema.json`.",
        "A receiver has the settings of its `kind`, and none of another's. What listens beyond loopback has `tls`, and",
        "`token` or `tls.ca`.",
        "",
        *_table(Receiver),
    ]
    return "\n".join(lines)


def _table(kind: Any) -> list[str]:
    return [
        "| setting | what it does | accepts | default |",
        "|---|---|---|---|",
        *(
            f"| `{path}` | {_cell(setting.doc)} | {_cell(setting.words)} | {_default(setting.field.default)} |"
            for path, setting in members(kind).items()
            if not setting.section or setting.field.default is None  # a section that may be left out has a row of its own
        ),
        "",
    ]


def _cell(text: str) -> str:
    """The text with what Markdown would read as markup escaped, outside of code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([|*<])", r"\\\1", part) for part in parts)


def _default(default: object) -> str:
    if default is MISSING:
        return "required"
    return "" if default in (None, (), "") else f"`{json.dumps(default)}`"

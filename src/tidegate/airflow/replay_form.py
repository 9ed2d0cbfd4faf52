"""The trigger form of a replay: typed parameters, which Airflow checks before a run exists; `ReplayRequest` reads them.

What Airflow's UI (3.3) makes of them: one section is open at a time, at first the one that is called `Run Parameters`. A field
has a star unless its type allows null, or it has no type. A `description` is shown as it is, a `description_md` as Markdown,
whose code covers the line above it: it is for texts of one line.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from tidegate.core.config.names import TABLE, TRANSFORM
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.replay.request import BATCHES, VERSIONS
from tidegate.core.replay.run import DEFAULT_CHUNK

WHAT = "Run Parameters"
"""The UI's own name of its first section: any other would be closed at first."""
HOW = "Options"
TIME = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})?)?$"
"""Beside the format, which makes the form show a calendar: whether a format is checked depends on what is installed."""
OFFSET: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
"""Kafka's offsets have 64 bits. Airflow's processes cannot pass a longer number to each other, and end of it."""
BOUND = {**OFFSET, "type": ["integer", "null"]}
PAIR = {"type": "array", "items": BOUND, "minItems": 2, "maxItems": 2}
PAIRS = {"anyOf": [PAIR, {"type": "array", "items": PAIR, "minItems": 1}]}
NUMBERED: dict[str, Any] = {"type": "object", "propertyNames": {"pattern": "^[0-9]+$"}}
"""By the number of a partition."""
BY_PARTITION = {**NUMBERED, "additionalProperties": PAIRS, "minProperties": 1}


def replay_params(pipeline: Pipeline, slots: int) -> dict[str, Param]:
    """The form's fields, in their order; `slots` is the most loads at the same time of all the pipeline's replays."""
    topics = pipeline.source.named or ("orders",)
    size = pipeline.limits.max_records or DEFAULT_CHUNK
    return {
        "offsets": Param(
            None,
            type=["null", "object", "array"],
            section=WHAT,
            title="Offsets",
            description="What to replay: fill in offsets, or times, or batches, or a DAG run, or transform versions. "
            "Offset ranges, the end exclusive, of each partition: "
            f'{{"{topics[0]}": {{"0": [1000, 2000]}}}}; of all partitions of a topic: {{"{topics[0]}": [1000, 2000]}}; '
            "of all partitions: [1000, 2000]. null as a bound means the first retained offset, or the cursor.",
            anyOf=[
                {"type": "null"},
                *PAIRS["anyOf"],
                {"type": "object", "additionalProperties": {"anyOf": [*PAIRS["anyOf"], BY_PARTITION]}},
            ],
        ),
        "from_time": _time("From time", "Replay from the first record with this timestamp or a later one."),
        "until_time": _time(
            "Until time", "Replay up to the first record (exclusive) with this timestamp or a later one. Empty: the cursor."
        ),
        "batches": _text("Batches", "One batch, `12`, or the first and the last, `12..18`.", f"^{BATCHES.pattern}$"),
        "run": _text("DAG run", f"The id of a run of `{pipeline.name}`. Its batch is replayed."),
        "versions": _text(
            "Transform versions",
            "Rows of versions below `<2`, of one version `=3f9a0c12b7de`, of all others `!=3f9a0c12b7de`.",
            f"^{VERSIONS.pattern.replace('?P<how>', '').replace('?P<version>', '')}$",
        ),
        "dry_run": flag("Dry run", "Change nothing. The run's log and note tell what would be read and replaced.", section=HOW),
        "chunk_size": count(
            "Chunk size",
            f"Offsets of one load (approximate). Empty: {size:,}, or more where that makes over 1,000 chunks.",
            section=HOW,
        ),
        "parallel": count(
            "Parallel chunks",
            f"The most loads of this replay at the same time. Empty: {slots}, which is "
            "also the most for all replays of this pipeline together.",
            section=HOW,
        ),
        "table": _text("Table", f"A table for a trial. Empty: `{pipeline.sink.table}`.", f"^{TABLE.pattern}$", section=HOW),
        "transform": _text(
            "Transform", f"A transform for a trial. Empty: `{pipeline.transform}`.", f"^{TRANSFORM.pattern}$", section=HOW
        ),
        "accept_loss": flag(
            "Accept loss",
            "Leave out records that Kafka no longer retains; their rows stay. Otherwise the replay is refused.",
            section=HOW,
        ),
    }


def flag(title: str, description: str, **more: Any) -> Param:
    """A switch, which is off; as strict as the type `boolean`, without a star."""
    return Param(False, enum=[True, False], title=title, description=description, **more)


def count(title: str, description: str, **more: Any) -> Param:
    """A whole number from 1, or none."""
    return Param(None, **{**OFFSET, "type": ["null", "integer"], "minimum": 1}, title=title, description=description, **more)


def _time(title: str, description: str) -> Param:
    kinds = ["null", "string"]
    return Param(None, type=kinds, format="date-time", pattern=TIME, section=WHAT, title=title, description=description)


def _text(title: str, description: str, pattern: str | None = None, section: str = WHAT) -> Param:
    rule: dict[str, Any] = {} if pattern is None else {"pattern": pattern}
    return Param(None, type=["null", "string"], minLength=1, section=section, title=title, description_md=description, **rule)

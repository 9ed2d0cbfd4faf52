"""The trigger form of a replay: typed parameters, which Airflow checks before a run exists; `ReplayRequest` reads them."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from tidegate.config import TABLE, TRANSFORM, Pipeline
from tidegate.replay import DEFAULT_CHUNK
from tidegate.replay_request import BATCHES, VERSIONS

WHAT = "What to replay (fill in one of these)"
HOW = "How"
TIME = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})?)?$"
"""Beside the format, which makes the form show a calendar: whether a format is checked depends on what is installed."""
BOUND = {"type": ["integer", "null"], "minimum": 0}
PAIR = {"type": "array", "items": BOUND, "minItems": 2, "maxItems": 2}
PAIRS = {"anyOf": [PAIR, {"type": "array", "items": PAIR, "minItems": 1}]}


def replay_params(pipeline: Pipeline) -> dict[str, Param]:
    """The form's fields, in their order."""
    topics = pipeline.source.topics or tuple(pipeline.source.assign or ("orders",))
    size = pipeline.limits.max_records or DEFAULT_CHUNK
    return {
        "offsets": Param(
            None,
            type=["null", "object", "array"],
            section=WHAT,
            title="Offsets",
            description_md="Ranges `[from, until)` of each partition, such as "
            f'`{{"{topics[0]}": {{"0": [1000, 2000]}}}}`; of all partitions of a topic, `{{"{topics[0]}": [1000, 2000]}}`; '
            "or of all there are, `[1000, 2000]`. An empty bound (`null`) is the first retained offset, or the cursor.",
            anyOf=[
                {"type": "null"},
                PAIR,
                {
                    "type": "object",
                    "additionalProperties": {
                        "anyOf": [
                            *PAIRS["anyOf"],
                            {
                                "type": "object",
                                "propertyNames": {"pattern": "^[0-9]+$"},
                                "additionalProperties": PAIRS,
                                "minProperties": 1,
                            },
                        ]
                    },
                },
            ],
        ),
        "from_time": Param(
            None,
            type=["null", "string"],
            format="date-time",
            pattern=TIME,
            section=WHAT,
            title="From time",
            description="Records from the first one with this timestamp, or a later one.",
        ),
        "until_time": Param(
            None,
            type=["null", "string"],
            format="date-time",
            pattern=TIME,
            section=WHAT,
            title="Until time",
            description="Up to the first record with this timestamp, or a later one. Empty: up to the cursor.",
        ),
        "batches": _text("Batches", "One batch, or the first and the last: `12` or `12..18`.", f"^{BATCHES.pattern}$"),
        "run": _text("DAG run", f"The id of a run of `{pipeline.name}`, whose batch is replayed."),
        "versions": _text(
            "Transform versions",
            "Rows that were loaded by a version of the transform below this one, by this one, or by any other: "
            "`<2`, `=3f9a0c12b7de`, `!=3f9a0c12b7de`.",
            f"^{VERSIONS.pattern.replace('?P<how>', '').replace('?P<version>', '')}$",
        ),
        "dry_run": Param(
            False,
            type="boolean",
            section=HOW,
            title="Dry run",
            description="Only tell, in the log and the note of the run, what would be read and replaced.",
        ),
        "chunk_size": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            section=HOW,
            title="Chunk size",
            description=f"Offsets of one load, about. Empty: {size:,}, or more where that makes too many chunks.",
        ),
        "parallel": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            section=HOW,
            title="Parallel chunks",
            description=f"Loads of this replay at the same time. Empty: {max(1, pipeline.sink.slots - 1)}, if the pool "
            f"{pipeline.pool} has room.",
        ),
        "table": _text("Table", f"Another table than {pipeline.sink.table}, for a trial.", f"^{TABLE.pattern}$", section=HOW),
        "transform": _text("Transform", f"Another transform than {pipeline.transform}.", f"^{TRANSFORM.pattern}$", section=HOW),
        "accept_loss": Param(
            False,
            type="boolean",
            section=HOW,
            title="Accept loss",
            description="Leave out what is no longer retained; its rows stay as they are. Otherwise the replay is refused.",
        ),
    }


def _text(title: str, description: str, pattern: str | None = None, section: str = WHAT) -> Param:
    rule: dict[str, Any] = {} if pattern is None else {"pattern": pattern}
    return Param(None, type=["null", "string"], minLength=1, section=section, title=title, description_md=description, **rule)

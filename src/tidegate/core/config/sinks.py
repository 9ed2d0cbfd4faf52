"""The kinds of sinks: how a table of each kind is named, what it can replace, and what a pipeline file may therefore ask of it.

A load replaces rows, so a sink has to declare which rows it can replace in one atomic commit. What it cannot do is refused when
the pipeline file is checked, not when a replay needs it a year later.
"""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass
from enum import Enum


class Replaces(Enum):
    """Which rows a sink replaces in one atomic commit."""

    ANY_RANGE = "any range of offsets, and whole batches"
    WHOLE_BATCHES = "whole batches only"
    NOTHING = "nothing: it appends"


@dataclass(frozen=True, slots=True)
class SinkKind:
    """One kind of sink.

    Args:
        name: as messages and logs name it.
        replaces: which rows one commit can replace.
        table: what the whole name of a table matches.
        table_form: the form of such a name, in words.
        reader: what makes the `SinkReader` of its tables, as `module:name`. It is imported when it is first called, as the two
            below: a reader needs no Spark.
        writer: what makes the `SinkWriter` of a table, of a Spark session and the table's name.
        maintain: what does a `MaintenanceJob`, with a Spark session.
    """

    name: str
    replaces: Replaces
    table: re.Pattern[str]
    _: KW_ONLY
    table_form: str
    reader: str
    writer: str
    maintain: str

    def fault(self, identity: str) -> str | None:
        """Why a pipeline whose rows have this identity (`origin` or `batch`) cannot use such a sink; None where it can."""
        if self.replaces is Replaces.NOTHING:
            return f"a sink of kind {self.name} only appends, so a load that is done again would leave two copies"
        if self.replaces is Replaces.WHOLE_BATCHES and identity == "origin":
            return f"a sink of kind {self.name} replaces whole batches only; expected `identity: batch`"
        return None


_PART_OF_A_TABLE = (
    r"branch_\w*|tag_\w*|snapshot_id_\d+|at_timestamp_\d+|changes|rewrite|entries|files|data_files|delete_files|history"
    r"|metadata_log_entries|snapshots|refs|manifests|partitions|position_deletes|all_\w+"
)
"""What Spark reads after a table's name: a branch, an older state, the table's metadata."""
ICEBERG_RESERVED = ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number")
"""Columns that Spark adds to every Iceberg table: it cannot read a table that has one of its own."""
_NAME = "[A-Za-z_][A-Za-z0-9_]*"

ICEBERG = SinkKind(
    "iceberg",
    Replaces.ANY_RANGE,
    # Three parts are a table, whatever it is called. A fourth one would make a namespace of what is meant as a table.
    re.compile(rf"(?!{_NAME}(\.{_NAME}){{2,}}\.({_PART_OF_A_TABLE})$){_NAME}(\.{_NAME}){{2,}}"),
    table_form="catalog.namespace.table",
    reader="tidegate.sinks.iceberg.history:IcebergReader",
    writer="tidegate.sinks.iceberg.table:IcebergTable",
    maintain="tidegate.sinks.iceberg.maintenance:maintain",
)

KINDS = {ICEBERG.name: ICEBERG}
"""Every kind, by the name that `sink.kind` of a pipeline file has. A test adds its own."""

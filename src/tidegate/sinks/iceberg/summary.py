"""How a snapshot's summary and a table's properties say what the core asks for. Both adapters of Iceberg use it, so no client.

A receipt is the `tidegate.*` part of a summary. Two more facts are Iceberg's: a snapshot counts all rows that it added, also
those that it only wrote again since they shared a data file with replaced rows, and a table names its owners in its properties.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.core.config.names import COMMITS_TABLE
from tidegate.core.state.receipt import PREFIX, Receipt

KEPT = f"{PREFIX}kept"
"""The key of a summary that says how many of the added rows are older ones, written again as they were."""
OWNED = f"{PREFIX}owned"
"""The key of a summary that says that its pipeline was an owner of the table by then."""
LAST = f"{PREFIX}last"
"""The key of a summary that says that the table holds no later rows in the places of those that the commit added."""
OWNER = f"{PREFIX}owner."
"""The prefix of a table property that names a pipeline that may write into the table."""
RENAMED = f"{PREFIX}renamed."
"""The prefix of a table property that names a pipeline of before; its value is the name that the pipeline has now."""

COMMITS_OF = f"{PREFIX}commits-of."
"""The prefix of a property of a table of commits that names the table whose expired commits it holds.

A key, as all names in properties: Spark hides the values of those that look to it like a secret, `lake.shop.orders_hourly` too.
"""
QUARANTINE_OF = f"{PREFIX}quarantine-of."
"""The prefix of a property of a quarantine that names its table."""
COMPACTED_FILES = f"{PREFIX}compacted-files"
COMPACTED_BYTES = f"{PREFIX}compacted-bytes"
"""The properties of a table that say how many data files a compaction left that merged all it could, and their bytes."""
LONGEST = 18
"""Digits of a number that is one: people may write anything there."""

ADDED_ROWS = "added-records"
TOTAL_ROWS = "total-records"
ADDED_FILES = "added-data-files"
CHANGES = (ADDED_FILES, "deleted-data-files", "added-delete-files", "removed-delete-files")
"""The counters of a commit that changes rows; the commit that creates a table has none of them."""


def row_counts(summary: Mapping[str, str]) -> tuple[int | None, int]:
    """The rows that a load made, and the older rows that its commit wrote again. None where the counters are no numbers."""
    try:
        added, kept = (int(summary.get(key, "0")) for key in (ADDED_ROWS, KEPT))
    except ValueError:
        return None, 0
    return added - kept, kept


def receipt_in(summary: Mapping[str, str], *, snapshot: int, committed_at_ms: int, parent: int | None = None) -> Receipt | None:
    """The receipt in a summary of a snapshot with this parent; None where the snapshot is no load of Tidegate.

    Raises StateCorrupt: the receipt is there, but broken.
    """
    rows, kept = row_counts(summary)
    return Receipt.from_properties(
        summary, snapshot=snapshot, committed_at_ms=committed_at_ms, rows=rows, kept=kept, parent=parent
    )


def holds_rows(summary: Mapping[str, str]) -> bool:
    """Whether the table holds rows in the state of this snapshot."""
    return summary.get(TOTAL_ROWS, "0") != "0"


def changes_rows(summary: Mapping[str, str]) -> bool:
    """Whether a snapshot added or removed data files."""
    return any(summary.get(counter, "0") != "0" for counter in CHANGES)


def owners_in(properties: Iterable[str]) -> set[str]:
    """The pipelines that the keys of a table's properties name as owners."""
    return {key.removeprefix(OWNER) for key in properties if key.startswith(OWNER)}


def quarantine_of(properties: Iterable[str]) -> list[str]:
    """The tables whose quarantine a table is, by the keys of its properties."""
    return [key.removeprefix(QUARANTINE_OF) for key in properties if key.startswith(QUARANTINE_OF)]


def renamed_in(properties: Mapping[str, str]) -> dict[str, str]:
    """The name that each renamed pipeline has now, by the names that it had."""
    return {key.removeprefix(RENAMED): name for key, name in properties.items() if key.startswith(RENAMED)}


def renaming(properties: Mapping[str, str], old: str, new: str) -> tuple[dict[str, str], list[str]]:
    """The properties to set and to remove for a pipeline that is renamed: each name that it had leads to the last one."""
    before = [name for name, now in renamed_in(properties).items() if now == old and name != new]
    changes = {f"{OWNER}{new}": "true", **{f"{RENAMED}{name}": new for name in (old, *before)}}
    return changes, [key for key in (f"{OWNER}{old}", f"{RENAMED}{new}") if key in properties]


def file_counts(summary: Mapping[str, str]) -> tuple[int | None, int | None]:
    """The data files of a state and their bytes; None where the counters are missing, or no numbers."""
    files, size = (summary.get(key, "") for key in ("total-data-files", "total-files-size"))
    return (int(files), int(size)) if files.isdecimal() and size.isdecimal() else (None, None)


def compacted(properties: Mapping[str, str]) -> tuple[int, int]:
    """The data files that the newest whole compaction left, and their bytes; none where there was none, or nothing to read."""
    files, size = (properties.get(key, "") for key in (COMPACTED_FILES, COMPACTED_BYTES))
    readable = all(text.isdecimal() and len(text) <= LONGEST for text in (files, size))
    return (int(files), int(size)) if readable else (0, 0)


def changed_partitions(summary: Mapping[str, str]) -> int:
    """The partitions of the table that a commit wrote into; 0 where it does not say."""
    said = summary.get("changed-partition-count", "")
    return int(said) if said.isdecimal() and len(said) <= LONGEST else 0


def commits_table(table: str) -> str:
    """The table that keeps the commits of a table when their snapshots expire."""
    return f"{table}{COMMITS_TABLE}"

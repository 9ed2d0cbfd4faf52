"""Receipts read from an Iceberg table's snapshots.

The catalog is PyIceberg's own (`.pyiceberg.yaml`, or `PYICEBERG_CATALOG__<NAME>__*` in the environment), under the name that
Spark gives it: the first part of `catalog.namespace.table`.

Only ancestors of the table's current state count: a commit that was rolled back holds no rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from tidegate.core.audit.table import TableCommit, TableHistory
from tidegate.core.config.times import EPOCH, MS, utc
from tidegate.core.errors import SinkUnavailable
from tidegate.core.load.boxes import Bounds, Box
from tidegate.core.load.columns import BATCH, ORIGIN_COLUMNS
from tidegate.core.load.receipt import PREFIX, Receipt
from tidegate.iceberg.summary import (
    COMMITS_OF,
    changed_partitions,
    changes_rows,
    commits_table,
    compacted,
    file_counts,
    holds_rows,
    owners_in,
    row_counts,
)

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.types import NestedField, PrimitiveType


class IcebergReader:
    """The `SinkReader` port over PyIceberg, which is slow to import: the first call does it."""

    def history(self, table: str) -> TableHistory:
        """The commits that the table's current state descends from, newest first, as far as they are kept.

        Raises:
            SinkUnavailable: the catalog is not configured here, or does not answer.
        """
        loaded = load_table(table)
        if loaded is None:
            return TableHistory(exists=False)
        lineage = list(_lineage(loaded))
        commits = tuple(map(_commit, lineage))
        files, size = file_counts(commits[0].properties) if commits else (0, 0)
        return TableHistory(
            commits,
            complete=not lineage or _is_first(lineage[-1]),
            has_rows=bool(commits) and holds_rows(commits[0].properties),
            owners=frozenset(owners_in(loaded.properties)),
            data_files=files,
            data_bytes=size,
            compacted=compacted(loaded.properties),
            partitions=max((changed_partitions(commit.properties) for commit in commits), default=0),
            may_expire=loaded.properties.get("gc.enabled") != "false",
        )

    def extents(self, table: str, *, by_batch: bool = False) -> list[Box]:
        """The bounds of each data file, over the origin columns or over the batch alone, read from the manifests.

        A bound that is not kept is None, also where the column holds nulls; a table without these columns has no files.

        Raises:
            SinkUnavailable: the catalog or the storage does not answer.
        """
        loaded = load_table(table)
        columns = (BATCH,) if by_batch else ORIGIN_COLUMNS
        if loaded is None or not {*columns} <= {*loaded.schema().column_names}:
            return []
        fields = [loaded.schema().find_field(name) for name in columns]
        with _answering(table):
            return [Box(tuple(_bounds(task.file, field) for field in fields)) for task in loaded.scan().plan_files()]

    def receipts(self, table: str, pipeline: str) -> list[Receipt]:
        """Every receipt of the pipeline that the table's state stands on, oldest commit first, replays too.

        Those of snapshots that maintenance has expired are read from the table of commits, which costs a scan of it where
        the oldest snapshot has a parent that is gone.

        Raises:
            SinkUnavailable: the catalog is not configured here, or does not answer.
            StateCorrupt: a receipt is there, but broken.
        """
        loaded = load_table(table)
        if loaded is None:
            return []
        return TableHistory(tuple(map(_commit, _all_lineage(loaded, table)))).receipts(pipeline)


def _commit(snapshot: Snapshot) -> TableCommit:
    summary = {} if snapshot.summary is None else {**snapshot.summary.additional_properties}
    return TableCommit(snapshot.snapshot_id, snapshot.timestamp_ms, summary, *row_counts(summary))


def _is_first(snapshot: Snapshot) -> bool:
    """Whether a commit is the first of its table. A commit without a parent may be a later one: PyIceberg's expiry removes it.

    Tables of format version 1 do not count their commits, so there the parent alone tells.
    """
    return snapshot.parent_snapshot_id is None and (snapshot.sequence_number or 0) <= 1


def _bounds(file: DataFile, field: NestedField) -> Bounds:
    """The least and the greatest value of a column in a data file; None where the file does not say."""
    from pyiceberg.conversions import from_bytes  # noqa: PLC0415 - slow to import

    bounds = [(side or {}).get(field.field_id) for side in (file.lower_bounds, file.upper_bounds)]
    if None in bounds or (file.null_value_counts or {}).get(field.field_id, 1):
        return None, None
    kind = cast("PrimitiveType", field.field_type)
    lower, upper = (from_bytes(kind, bound) for bound in bounds if bound is not None)
    return lower, upper


def strangers(table: str) -> list[dict[str, Any]]:
    """The commits that changed the table's rows and are no load of ours, newest first: `snapshot`, `operation`, `at` (UTC).

    Compaction replaces files without changing rows, and is left out.
    """
    from pyiceberg.table.snapshots import Operation  # noqa: PLC0415 - slow to import

    commits = []
    for snapshot in ancestors(table):
        summary = snapshot.summary
        if summary is None or summary.operation is Operation.REPLACE:
            continue
        properties = summary.additional_properties
        if f"{PREFIX}pipeline" in properties or not changes_rows(properties):
            continue
        commits.append(
            {"snapshot": snapshot.snapshot_id, "operation": summary.operation.value, "at": utc(snapshot.timestamp_ms)}
        )
    return commits


def changed_columns(table: str) -> list[str]:
    """How the table's columns differ from those of the newest load's commit, in words; none without a load."""
    loaded = load_table(table)
    if loaded is None:
        return []
    ours = (s for s in _lineage(loaded) if s.summary is not None and f"{PREFIX}pipeline" in s.summary.additional_properties)
    newest = next(ours, None)
    if newest is None or newest.schema_id is None:
        return []
    before = {field.field_id: field for field in loaded.schemas()[newest.schema_id].fields}
    now = {field.field_id: field for field in loaded.schema().fields}
    changes = [f"{before[number].name} was dropped" for number in before if number not in now]
    changes += [f"{field.name} ({field.field_type}) was added" for number, field in now.items() if number not in before]
    for number in before.keys() & now.keys():
        old, new = before[number], now[number]
        changes += [f"{old.name} is called {new.name}"] if old.name != new.name else []
        changes += [f"{new.name} is {new.field_type}, it was {old.field_type}"] if old.field_type != new.field_type else []
    return sorted(changes)


def ancestors(table: str) -> Iterator[Snapshot]:
    """The commits that the table's current state stands on, newest first, as far as they are kept; none without a table.

    Raises:
        SinkUnavailable: the catalog is not configured here, or does not answer.
    """
    loaded = load_table(table)
    if loaded is not None:
        yield from _lineage(loaded)


def _lineage(table: Table) -> Iterator[Snapshot]:
    snapshot = table.current_snapshot()
    by_id = {s.snapshot_id: s for s in table.metadata.snapshots}
    while snapshot is not None:
        yield snapshot
        snapshot = by_id.get(snapshot.parent_snapshot_id or -1)


def _all_lineage(table: Table, name: str) -> Iterator[Snapshot]:
    """The commits of `_lineage`, and then those that maintenance kept of expired snapshots, as far as their parents lead.

    Following the parents leaves out what is kept of a state that was rolled back, or of a table that had the name before.
    """
    parent: int | None = None
    for snapshot in _lineage(table):
        yield snapshot
        parent = snapshot.parent_snapshot_id
    kept = {} if parent is None else _kept(name)
    while parent in kept:
        yield kept[parent]
        parent = kept[parent].parent_snapshot_id


def _kept(name: str) -> dict[int | None, Snapshot]:
    from pyiceberg.table.snapshots import Operation, Snapshot, Summary  # noqa: PLC0415 - slow to import

    commits = load_table(commits_table(name))
    if commits is None or commits.properties.get(COMMITS_OF) != name:
        return {}
    with _answering(name):
        rows = commits.scan().to_arrow().to_pylist()
    return {
        row["snapshot_id"]: Snapshot(
            **{
                "snapshot-id": row["snapshot_id"],
                "parent-snapshot-id": row["parent_id"],
                "timestamp-ms": (row["committed_at"] - EPOCH) // MS,
                "manifest-list": "",
                "summary": Summary(Operation(row["operation"]), **dict(row["summary"])),
            }
        )
        for row in rows
    }


def load_table(name: str) -> Table | None:
    """The PyIceberg table of `catalog.namespace.table`; None when there is no such table.

    Raises:
        SinkUnavailable: the catalog is not configured here, or does not answer.
    """
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - slow to import, and most runs need none of it
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError  # noqa: PLC0415

    catalog, _, identifier = name.partition(".")
    with _answering(name):
        try:
            return load_catalog(catalog).load_table(identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None


@contextmanager
def _answering(name: str) -> Iterator[None]:
    """Whatever PyIceberg raises inside is a catalog or a storage that does not answer."""
    catalog = name.partition(".")[0]
    try:
        yield
    except Exception as error:
        raise SinkUnavailable(
            f"the catalog of {name} cannot be read: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
            fix=f"Configure it for PyIceberg under the name {catalog} (PYICEBERG_CATALOG__{catalog.upper()}__URI) and start it",
            table=name,
        ) from error

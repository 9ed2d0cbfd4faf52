"""What an Iceberg table holds, read through PyIceberg: receipts in its snapshots, and what identifies its rows.

Only ancestors of the table's current state count: a commit that was rolled back holds no rows. Whatever reads a table here
raises `SinkUnavailable` where its catalog is not configured here, or does not answer.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from tidegate.core.config.layout import OWN_FIELDS, PARTITION_FIELD, Layout, PartitionField, SortField
from tidegate.core.model.columns import BATCH, ERROR, OFFSET, ORIGIN_COLUMNS, PARTITION, TOPIC
from tidegate.core.model.counts import is_whole
from tidegate.core.model.errors import RequestError, SinkMisfit
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.model.times import EPOCH, MS, utc
from tidegate.core.state.history import DataFiles, NoOrigin, Origins, TableCommit, TableHistory
from tidegate.core.state.receipt import PIPELINE, Receipt
from tidegate.core.state.rejection import Rejection, check_quarantine
from tidegate.sinks.iceberg.catalog import answering, load_table
from tidegate.sinks.iceberg.summary import (
    ADDED_ROWS,
    COMMITS_OF,
    changed_partitions,
    changes_rows,
    commits_table,
    compacted,
    file_counts,
    holds_rows,
    owners_in,
    quarantine_of,
    renamed_in,
    row_counts,
)

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

REJECTED = ("rejected_by", "reason", "attempt")
"""What a quarantine says of a record, in the order of a `Rejection`, which goes on with the load."""
COLUMNS = "Name its columns of topic, partition and offset with --columns"


class IcebergReader:
    """The `SinkReader` port over PyIceberg, which is slow to import: the first call does it."""

    def history(self, table: str, *, expired: bool = False) -> TableHistory:
        """The commits that the table's current state descends from, newest first, as far as they are kept.

        Those of snapshots that maintenance has `expired` are read from the table of commits, which costs a scan of it where the
        oldest snapshot has a parent that is gone.
        """
        loaded = load_table(table)
        if loaded is None:
            return TableHistory(exists=False)
        lineage = list(_all_lineage(loaded, table) if expired else _lineage(loaded))
        renamed = renamed_in(loaded.properties)
        commits = tuple(_commit(snapshot, renamed) for snapshot in lineage)
        complete = not lineage or _is_first(lineage[-1])
        has_rows = bool(commits) and holds_rows(commits[0].properties)
        files, size = file_counts(commits[0].properties) if commits else (0, 0)
        return TableHistory(
            commits=commits,
            complete=complete,
            has_rows=has_rows,
            owners=frozenset(owners_in(loaded.properties)),
            renamed=renamed,
            files=DataFiles(
                count=files,
                size=size,
                compacted=compacted(loaded.properties),
                partitions=max((changed_partitions(commit.properties) for commit in commits), default=0),
                may_expire=loaded.properties.get("gc.enabled") != "false",
            ),
            origins=Origins(
                lacks=tuple(name for name in ORIGIN_COLUMNS if name not in loaded.schema().column_names),
                moved=_moved(loaded),
                unproved=has_rows and (not complete or bool(_moved(loaded)) or any(map(_adds_rows_of_others, lineage))),
            ),
        )

    def without_origin(self, table: str) -> NoOrigin | None:
        """Why a data file holds rows without an origin, or does not say, by its counts of nulls; no row is read.

        Of a table that is partitioned by topic and partition, the list of manifests says it, but for the commits of others.
        """
        loaded = load_table(table)
        snapshot = None if loaded is None else loaded.current_snapshot()
        if loaded is None or snapshot is None:
            return None
        others = [s.sequence_number or 0 for s in _lineage(loaded) if _adds_rows_of_others(s)]
        with answering(table):
            found = {
                _no_origin(entry.data_file, loaded)
                for manifest in snapshot.manifests(loaded.io)
                if not _has_origins(manifest, loaded, others)
                for entry in manifest.fetch_manifest_entry(loaded.io)
            }
        return "lost" if "lost" in found else "foreign" if "foreign" in found else None

    def layout(self, table: str) -> Layout | None:
        """By the fields of the current spec that a file can name, but for topic and partition, and of the current sort order.

        Raises SinkUnavailable: the catalog is not configured here, or does not answer.
        """
        loaded = load_table(table)
        if loaded is None:
            return None
        from pyiceberg.table.sorting import NullOrder, SortDirection  # noqa: PLC0415 - slow to import

        name = loaded.schema().find_column_name
        fields = [_partition_field(str(name(of.source_id)), str(of.transform)) for of in loaded.spec().fields]
        order = [
            SortField(str(name(of.source_id)), of.direction is SortDirection.DESC, of.null_order is NullOrder.NULLS_FIRST)
            for of in loaded.sort_order().fields
        ]
        return Layout(
            partition_by=tuple(str(of) for of in fields if of not in OWN_FIELDS and PARTITION_FIELD.fullmatch(str(of))),
            sort_by=tuple(map(str, order)),
            properties=loaded.properties,
            format_version=loaded.format_version,
        )

    def receipts(self, table: str, pipeline: str) -> list[Receipt]:
        """Every receipt of the pipeline that the table's state stands on, oldest commit first, replays too.

        Raises StateCorrupt: a receipt is there, but broken.
        """
        return self.history(table, expired=True).receipts(pipeline)

    def rejections(self, quarantine: str, *, most: int | None = None) -> list[Rejection]:
        """As the port."""
        loaded = load_table(quarantine)
        if loaded is None:
            return []
        check_quarantine(quarantine, quarantine_of(loaded.properties), loaded.schema().column_names)
        head = loaded.current_snapshot()
        held = 0 if head is None or head.summary is None else int(head.summary["total-records"] or 0)
        if most is not None and held > most:
            raise RequestError(
                f"{quarantine} holds {held:,} records, more than the {most:,} that a page reads",
                fix="Run `tidegate quarantine` with the pipeline's name",
            )
        names = (*ORIGIN_COLUMNS, *Rejection._fields[3:])
        rows = loaded.scan(selected_fields=names).to_arrow()
        return [Rejection(*row) for row in zip(*(rows[name].to_pylist() for name in names), strict=True)]

    def rejected_values(self, quarantine: str, rejections: Sequence[Rejection]) -> dict[Rejection, bytes | None]:
        """As the port."""
        loaded = load_table(quarantine)
        values: dict[Rejection, bytes | None] = {}
        if loaded is None:
            return values
        for one in rejections:
            of = f"{TOPIC} == '{one.topic}' and {PARTITION} == {one.partition} and {OFFSET} == {one.offset}"
            found = loaded.scan(row_filter=of, selected_fields=("value",)).to_arrow()["value"].to_pylist()
            values[one] = next(iter(found), None)
        return values

    def broken(self, table: str, ranges: Sequence[OffsetRange], *, most: int) -> list[Rejection]:
        """As the port. Data files whose bounds and counts of nulls rule such rows out are not read."""
        loaded = load_table(table)
        if loaded is None or not ranges:
            return []
        says = REJECTED if quarantine_of(loaded.properties) else (ERROR,)
        names = (*ORIGIN_COLUMNS, *says)
        if not {*names} <= {*loaded.schema().column_names}:
            return []
        topics = ", ".join(f"'{topic}'" for topic in sorted({r.topic for r in ranges}))
        first, until = min(r.from_offset for r in ranges), max(r.until_offset for r in ranges)
        # around all ranges: PyIceberg takes seconds for a condition of a thousand
        near = f"{says[0]} is not null and {TOPIC} in ({topics}) and {OFFSET} >= {first} and {OFFSET} < {until}"
        within = {r.topic_partition: r for r in ranges}
        with answering(table):
            batches = loaded.scan(near, selected_fields=names).to_arrow_batch_reader()
            rows = (row for each in batches for row in zip(*(each[name].to_pylist() for name in names), strict=True))
            found = (Rejection(*(row if says is REJECTED else (*row[:3], "decode", *row[3:], ""))) for row in rows)
            return list(islice((one for one in found if one.lies_in(within)), most))


def _partition_field(column: str, transform: str) -> PartitionField:
    """By the transform as PyIceberg writes it: identity, day, bucket[16]."""
    kind, _, width = transform.rstrip("]").partition("[")
    units = {"year", "month", "day", "hour"}
    return PartitionField(column, f"{kind}s" if kind in units else kind, int(width) if width else None)


def _commit(snapshot: Snapshot, renamed: Mapping[str, str]) -> TableCommit:
    """A commit; one of a pipeline that was renamed is that of its name now."""
    summary = {} if snapshot.summary is None else {**snapshot.summary.additional_properties}
    if (pipeline := summary.get(PIPELINE)) in renamed:
        summary[PIPELINE] = renamed[str(pipeline)]
    rows, kept = row_counts(summary)
    parent = snapshot.parent_snapshot_id
    return TableCommit(snapshot.snapshot_id, snapshot.timestamp_ms, summary, rows=rows, kept=kept, parent=parent)


def _adds_rows_of_others(snapshot: Snapshot) -> bool:
    """Whether a commit that is no load of ours added rows; a compaction only writes them again."""
    from pyiceberg.table.snapshots import Operation  # noqa: PLC0415 - slow to import

    summary = snapshot.summary
    if summary is None:
        return True
    properties = summary.additional_properties
    ours = PIPELINE in properties or summary.operation is Operation.REPLACE
    return not ours and properties.get(ADDED_ROWS, "0") != "0"


def _moved(table: Table) -> dict[str, str]:
    """The origin columns that were another column once, by the ids of columns, which names do not change: its name now."""
    moved: dict[str, str] = {}
    now = {field.name: field.field_id for field in table.schema().fields}
    for field in (f for schema in table.schemas().values() for f in schema.fields if f.name in ORIGIN_COLUMNS):
        if now.get(field.name) != field.field_id:
            moved[field.name] = moved.get(field.name) or table.schema().find_column_name(field.field_id) or ""
    return moved


def _partitioned_by(table: Table, spec_id: int) -> dict[int, int]:
    """The columns whose very values a spec partitions by, by their id, and their place in it."""
    from pyiceberg.transforms import IdentityTransform  # noqa: PLC0415 - slow to import

    fields = enumerate(table.specs()[spec_id].fields)
    return {field.source_id: at for at, field in fields if isinstance(field.transform, IdentityTransform)}


def _has_origins(manifest: ManifestFile, table: Table, others: Sequence[int]) -> bool:
    """Whether a manifest names no row without an origin: by its partitions, where no commit in `others` may be in it."""
    from pyiceberg.manifest import ManifestContent  # noqa: PLC0415 - slow to import

    if manifest.content is ManifestContent.DELETES:
        return True
    if not {*ORIGIN_COLUMNS} <= {*table.schema().column_names}:
        return False
    first, last = manifest.min_sequence_number or 0, manifest.sequence_number or 0
    if _moved(table) or any(first <= other <= last for other in others):
        return False
    places = _partitioned_by(table, manifest.partition_spec_id)
    ids = [table.schema().find_field(name).field_id for name in (TOPIC, PARTITION)]
    summaries = manifest.partitions or []
    return {*ids} <= places.keys() and not any(summaries[places[of]].contains_null for of in ids)


def _no_origin(file: DataFile, table: Table) -> NoOrigin | None:
    """Whether a data file holds nulls in a column of the origin, or neither counts them nor is partitioned by the column.

    It has lost the column where it holds what had that name before, or does not say what it holds.
    """
    places, counts = _partitioned_by(table, file.spec_id), file.null_value_counts or {}
    now = {field.name: field.field_id for field in table.schema().fields}
    for name in ORIGIN_COLUMNS:
        of = now.get(name, -1)
        nulls = counts.get(of)
        if nulls or (nulls is None and (of not in places or file.partition[places[of]] is None)):
            held = {field.field_id for schema in table.schemas().values() for field in schema.fields if field.name == name}
            return "lost" if name in _moved(table) and (not counts or held & (counts.keys() - {of})) else "foreign"
    return None


def _is_first(snapshot: Snapshot) -> bool:
    """Whether a commit is the first of its table. A commit without a parent may be a later one: PyIceberg's expiry removes it.

    Tables of format version 1 do not count their commits, so there the parent alone tells.
    """
    return snapshot.parent_snapshot_id is None and (snapshot.sequence_number or 0) <= 1


def strangers(table: str) -> list[dict[str, Any]]:
    """The commits that changed the table's rows and are no load of ours, newest first: `snapshot`, `operation`, `at` (UTC).

    Compaction replaces files without changing rows, and is left out.
    """
    from pyiceberg.table.snapshots import Operation  # noqa: PLC0415 - slow to import

    loaded = load_table(table)
    return [
        {"snapshot": snapshot.snapshot_id, "operation": summary.operation.value, "at": utc(snapshot.timestamp_ms)}
        for snapshot in (() if loaded is None else _lineage(loaded))
        if (summary := snapshot.summary) is not None
        and summary.operation is not Operation.REPLACE
        and PIPELINE not in summary.additional_properties
        and changes_rows(summary.additional_properties)
    ]


def changed_columns(table: str) -> list[str]:
    """How the table's columns differ from those of the newest load's commit, in words; none without a load."""
    loaded = load_table(table)
    if loaded is None:
        return []
    ours = (s for s in _lineage(loaded) if s.summary is not None and PIPELINE in s.summary.additional_properties)
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
    if commits is None or f"{COMMITS_OF}{name}" not in commits.properties:
        return {}
    with answering(name):
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


def read_origins(table: str) -> dict[TopicPartition, array[int]]:
    """The offset of every row that has an origin, for each partition; empty when there is no such table.

    Raises SinkMisfit: the table lacks an origin column.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    by_partition: dict[TopicPartition, array[int]] = {}
    loaded = load_table(table)
    if loaded is None:
        return by_partition
    missing = [name for name in ORIGIN_COLUMNS if name not in loaded.schema().column_names]
    if missing:
        raise SinkMisfit(
            f"table {table} has no column {' and no '.join(missing)}: the origin of its rows is unknown",
            fix="Run `tidegate plan` of the pipeline, which names the SQL that repairs it",
            table=table,
        )
    rows = loaded.scan(selected_fields=ORIGIN_COLUMNS).to_arrow().drop_null()
    for topic in pc.unique(rows[TOPIC]).to_pylist():
        of_topic = rows.filter(pc.equal(rows[TOPIC], topic))
        for partition in pc.unique(of_topic[PARTITION]).to_pylist():
            offsets = of_topic.filter(pc.equal(of_topic[PARTITION], partition))[OFFSET]
            by_partition[TopicPartition(topic, partition)] = array("q", offsets.to_numpy().astype("int64").tobytes())
    return by_partition


def last_offsets(table: str, columns: Sequence[str]) -> dict[TopicPartition, int]:
    """The largest offset of each partition in anybody's table, by its columns of topic, partition and offset.

    Raises RequestError: there is no such table, it lacks a column, or a column holds something else.
    """
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    loaded = load_table(table)
    lacking = [name for name in columns if loaded is not None and name not in loaded.schema().column_names]
    if loaded is None or lacking:
        raise RequestError(f"there is no {f'column {lacking[0]} in ' if lacking else ''}table {table}", fix=COLUMNS)
    topic, partition, offset = columns
    found: dict[TopicPartition, int] = {}
    for batch in loaded.scan(selected_fields=tuple(columns)).to_arrow_batch_reader():  # the table may be larger than the memory
        rows = pa.Table.from_batches([batch]).drop_null().group_by([topic, partition]).aggregate([(offset, "max")])
        for row in rows.to_pylist():
            tp = TopicPartition(row[topic], row[partition])
            found[tp] = max(row[f"{offset}_max"], found.get(tp, row[f"{offset}_max"]))
    if not all(isinstance(tp.topic, str) and is_whole(tp.partition) and is_whole(at) for tp, at in found.items()):
        raise RequestError(f"{', '.join(columns)} of {table} are no topics, partitions and offsets", fix=COLUMNS)
    return found


def rows_without_origin(table: str) -> int:
    """How many rows have no origin: another writer than Tidegate has added them."""
    loaded = load_table(table)
    return 0 if loaded is None else loaded.scan(row_filter=" or ".join(f"{name} is null" for name in ORIGIN_COLUMNS)).count()


def read_batches(table: str) -> dict[int | None, int]:
    """How many rows each batch has, in a table whose rows are known by their batch; empty when there is no such table.

    Raises SinkMisfit: they are not.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import

    loaded = load_table(table)
    if loaded is None:
        return {}
    if BATCH not in loaded.schema().column_names:
        raise SinkMisfit(
            f"the rows of table {table} are not identified by their batch",
            fix="The pipeline declares `identity: batch`: write to a new table, or set `identity: origin`",
            table=table,
        )
    counted = pc.value_counts(loaded.scan(selected_fields=(BATCH,)).to_arrow()[BATCH])
    return {each["values"]: each["counts"] for each in counted.to_pylist()}

"""Whether a pipeline may load into its table, by what the table itself says: before anything is planned or saved.

Rows without origin are refused until an operator accepts them, once, for the table; from then on nothing before the pipeline's
own start is replayed, since those records may be among them. Origin columns that the table has lost are given back, not added:
an added column is null in every older row. docs/adr/0027-rows-without-origin.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Collection

from tidegate.core.config.pipeline import Pipeline
from tidegate.core.load.lookup import refuse_strangers
from tidegate.core.model.columns import OFFSET, PARTITION, TOPIC
from tidegate.core.model.errors import SinkMisfit, StateCorrupt, StateNewer, TableLost
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.history import GONE, NoOrigin, TableHistory, find_missing

TYPES = {TOPIC: "string", PARTITION: "int", OFFSET: "bigint"}
"""The origin columns, as SQL adds them."""


def check_owner(pipeline: str, table: str, history: TableHistory, *, shared_with: Collection[str], by_batch: bool) -> None:
    """Refuse a table of other pipelines, as each load does, but before positions are saved: those of a new name may lie later.

    Raises SinkMisfit: the table belongs to pipelines with which this one does not share it.
    """
    if (now := history.renamed.get(pipeline)) is not None:
        raise SinkMisfit(
            f"in table {table}, the rows loaded by pipeline {pipeline} belong to {now}, which had that name before",
            fix=f"Give {pipeline} another name or another table; to rename {now} back, run `tidegate rename {now} {pipeline}`",
            table=table,
            pipeline=pipeline,
            owner=now,
        )
    loaders = history.loaders
    refuse_strangers(pipeline, table, history.owners or loaders, loaders, shared_with=shared_with, by_batch=by_batch)


def refused_by_table(
    cursor: Cursor, table: str, history: TableHistory, *, shared_with: Collection[str], by_batch: bool
) -> SinkMisfit | TableLost | None:
    """Why the next plan will refuse the table, as far as the cursor and the kept commits prove it.

    The cursor is one of before the history was read, or at the beginning where it is not known. What an operator has accepted
    does not count here.
    """
    try:
        check_owner(cursor.pipeline, table, history, shared_with=shared_with, by_batch=by_batch)
        if cursor.receipt is None or (history.exists and (by_batch or not history.complete)):
            return None  # more has to be read: saved ranges, or what is kept of expired snapshots
        missing = find_missing(cursor, history, tuple) or (None if history.exists else GONE)
    except SinkMisfit as error:
        return error
    except (StateCorrupt, StateNewer):
        return None  # a receipt cannot be read, which whoever shows it names
    return None if missing is None else missing.lost_by(cursor.pipeline, table)


def check_origins(pipeline: Pipeline, history: TableHistory, *, accepted: bool, without_origin: NoOrigin | None) -> None:
    """Refuse a table whose rows have lost their origin, or have none and nobody has accepted that.

    `accepted`: an operator has accepted rows without origin in this table; `without_origin` is why there may be some. Raises
    SinkMisfit: it is refused; the fix is a command, or SQL.
    """
    if pipeline.identity != "origin" or not history.exists:
        return
    table, named = pipeline.sink.table, " and ".join(history.origins.lacks or history.origins.moved)
    if without_origin == "lost":
        raise SinkMisfit(
            f"table {table} has lost {named}: the origin of its older rows is unknown",
            fix=_repair(table, history),
            table=table,
            columns=named,
        )
    add = f"ALTER TABLE {table} ADD COLUMNS ({', '.join(f'{name} {TYPES[name]}' for name in history.origins.lacks)})"
    if without_origin and not accepted:
        then = f", and then {add}" if history.origins.lacks else ""
        raise SinkMisfit(
            f"table {table} holds rows without origin (_kafka_* is null), which no load of {pipeline.name} can replace",
            fix=f"Write into a table of its own; or run `tidegate accept table {pipeline.name} --foreign`{then}: "
            "the rows stay as they are, and nothing before the pipeline's start can be replayed",
            table=table,
            pipeline=pipeline.name,
        )
    if history.origins.lacks:
        raise SinkMisfit(f"table {table} has no column {named}", fix=f"Run {add}", table=table, columns=named)


def _repair(table: str, history: TableHistory) -> str:
    """SQL that gives a table back what it has lost."""
    gone = [name for name in history.origins.moved if not history.origins.moved[name]]
    if gone:
        return (
            f"{' and '.join(gone)} was dropped, and no column holds it any more: "
            "name a new table in `sink.table`, and run `tidegate ledger reload`"
        )
    steps = []
    for name, now in history.origins.moved.items():
        if name in history.origins.lacks:
            steps.append(f"ALTER TABLE {table} RENAME COLUMN `{now}` TO {name}")
        else:
            fill = f"SET {name} = `{now}` WHERE {name} IS NULL"
            # a table that merges on read keeps the files without the column, beside files of deletes
            rewrite = f"rewrite_data_files(table => '{table}', options => map('delete-file-threshold', '1'))"
            steps += [f"UPDATE {table} {fill}", f"CALL {table.partition('.')[0]}.system.{rewrite}"]
            steps += [f"ALTER TABLE {table} DROP COLUMN `{now}`"]
    return f"Run {', then '.join(steps)}"

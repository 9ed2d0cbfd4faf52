"""The history of a pipeline: shown, verified against broker and table, and rebuilt from the table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from tidegate.cli.shared import HERE, AsJson, Name, Project, err, open_remote, out, print_table, show_progress, the_pipeline
from tidegate.config import Pipeline
from tidegate.cursor import Cursor
from tidegate.errors import RequestError, StateCorrupt
from tidegate.history import Entry, Rebuilt, entries, rebuild, versions
from tidegate.ledger import Ledger, Listing
from tidegate.planning import SavedRange
from tidegate.ranges import OffsetRange

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.oracle import BatchVerification, Miscount, Verification

app = typer.Typer()
ledger = typer.Typer(no_args_is_help=True, help="What a pipeline has run: show it, verify it, rebuild it.")
app.add_typer(ledger, name="ledger")

SHOWN = 20


@ledger.command()
def show(
    pipeline: Name,
    project: Project = HERE,
    last: Annotated[int, typer.Option(min=1, help="how many batches, the newest; --json prints all")] = SHOWN,
    *,
    as_json: AsJson = False,
) -> None:
    """Show what ran: batch, run, range, rows, seconds, who, why, and which version of the transform."""
    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        book = Ledger(remote.store, this.name)
        listing = book.listing()
        saved, faults = _readable(book, listing)
        try:
            cursor = book.cursor() if listing.has_cursor else Cursor(this.name)
        except StateCorrupt as error:
            cursor, faults = Cursor(this.name), [str(error), *faults]
        receipts = remote.sink.receipts(this.sink.table, this.name)
        who = remote.triggered_by(this.name)
    found = entries(saved, receipts, cursor)
    loaded_by = {version: _ranges_json(ranges) for version, ranges in versions(receipts).items()}
    if as_json:
        batches = [{**entry.to_json(), "who": who.get(entry.run_id)} for entry in found]
        out.print_json(json.dumps({"pipeline": this.name, "batches": batches, "transforms": loaded_by, "faults": faults}))
    else:
        _print_entries(found[-last:], who, len(found))
        for version, ranges in loaded_by.items():
            offsets = sum(until - start for parts in ranges.values() for bounds in parts.values() for start, until in bounds)
            out.print(f"transform {version}: {offsets:,} offsets", markup=False)
        for fault in faults:
            err.print(fault, markup=False, style="red")
    if faults:
        raise typer.Exit(1)


@ledger.command("verify")
def verify_command(pipeline: Name, project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Recompute, from broker and table, that every retained record before the cursor is there once; exit code 1 if not.

    With `identity: batch`: from the table alone, that every committed batch has the rows that its commit wrote.
    """
    from tidegate.iceberg.history import changed_columns, strangers  # noqa: PLC0415
    from tidegate.oracle import BatchVerification  # noqa: PLC0415

    this = the_pipeline(project, pipeline)
    found = _verify_batches(this, project) if this.identity == "batch" else _verify_records(this, project)
    others, columns = strangers(this.sink.table), changed_columns(this.sink.table)
    if as_json:
        told = {"other_commits": others, "changed_columns": columns}
        out.print_json(json.dumps({"pipeline": this.name, **found.to_json(), **told}))
    else:
        if isinstance(found, BatchVerification):
            _print_batches(found)
        else:
            _print_verification(found)
        _print_others(others, columns)
        _print_verdict(holds=found.holds)
    if not found.holds:
        raise typer.Exit(1)


def _verify_batches(this: Pipeline, project: Path) -> BatchVerification:
    from tidegate.iceberg.origins import read_batches  # noqa: PLC0415
    from tidegate.oracle import verify_batches  # noqa: PLC0415

    with open_remote(project) as remote:
        book = Ledger(remote.store, this.name)
        cursor, listing = remote.cursor(this), book.listing()
        receipts = remote.sink.receipts(this.sink.table, this.name)
        told = {r.load.batch for r in receipts}
        # Only a batch without a commit is asked whether it read anything at all.
        silent = {r.seq: r.key for r in listing.ranges if r.seq <= cursor.seq and r.seq not in told}
        loaded = [seq for seq, key in silent.items() if book.saved_range(key).to_load]
        waiting = bool(listing.of_seq(cursor.seq + 1))
        return verify_batches(cursor.seq, read_batches(this.sink.table), receipts, loaded, waiting=waiting)


def _verify_records(this: Pipeline, project: Path) -> Verification:
    from tidegate.iceberg.origins import read_origins, rows_without_origin  # noqa: PLC0415
    from tidegate.kafka.log import compacted_topics, read_offsets  # noqa: PLC0415
    from tidegate.oracle import committed_log, verify  # noqa: PLC0415

    level = this.source.isolation_level
    with open_remote(project) as remote, show_progress() as progress:
        book = Ledger(remote.store, this.name)
        cursor = remote.cursor(this)
        listing = book.listing()
        waiting = listing.of_seq(cursor.seq + 1)[:1]  # copies of a range that was adopted are the same
        in_flight = [r for copy in waiting for r in book.saved_range(copy.key).to_load]
        settings, topics = remote.kafka(this), sorted(cursor.topic_ids)
        committed = committed_log(cursor, remote.brokers(this).watermarks(topics, isolation_level=level))
        total = sum(committed.latest[tp] - committed.earliest[tp] for tp in committed.latest)
        log = read_offsets(
            settings, committed, isolation_level=level, progress=lambda done: progress("reading the log", done, total)
        )
        progress("reading the table", 0, None)
        return verify(
            committed,
            log,
            read_origins(this.sink.table),
            remote.sink.receipts(this.sink.table, this.name),
            in_flight=in_flight,
            compacted=compacted_topics(settings, topics),
            one_to_one=this.rows_per_record == "one",
            without_origin=rows_without_origin(this.sink.table),
        )


@ledger.command("rebuild")
def rebuild_command(
    pipeline: Name,
    project: Project = HERE,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print what would be written, and write nothing")] = False,
    as_json: AsJson = False,
) -> None:
    """Restore cursor and saved ranges from the table's own commits; for Variables that are lost, wrong or from a backup."""
    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        active = remote.active_runs(this.name)
        if active and not dry_run:
            raise RequestError(
                f"{this.name} is running ({', '.join(active)}): a schedule is rebuilt while nothing runs",
                fix="Pause the DAG, and wait for the run or mark it failed",
            )
        book = Ledger(remote.store, this.name)
        listing = book.listing()
        receipts = remote.sink.receipts(this.sink.table, this.name)
        made = rebuild(this.name, receipts, generation=_generation(book, listing))
        gone = [] if dry_run else book.replace(listing, made.cursor, made.ranges, keep=this.keep_ranges)
    if as_json:
        told = {"cursor": made.cursor.to_json(), "batches": len(made.ranges), "notes": list(made.notes), "deleted": gone}
        out.print_json(json.dumps({"pipeline": this.name, "written": not dry_run, **told}))
        return
    _print_rebuilt(this, made, gone, written=not dry_run)


def _ranges_json(ranges: Iterable[OffsetRange]) -> dict[str, dict[str, list[list[int]]]]:
    """By topic and partition, several ranges of each."""
    found: dict[str, dict[str, list[list[int]]]] = {}
    for r in ranges:
        found.setdefault(r.topic, {}).setdefault(str(r.partition), []).append([r.from_offset, r.until_offset])
    return found


def _readable(book: Ledger, listing: Listing) -> tuple[list[SavedRange], list[str]]:
    saved, faults = [], []
    for r in listing.ranges:
        try:
            saved.append(book.saved_range(r.key))
        except StateCorrupt as error:
            faults.append(str(error))
    return saved, faults


def _generation(book: Ledger, listing: Listing) -> int:
    """Of the cursor, where it can be read."""
    try:
        return book.cursor().generation if listing.has_cursor else 0
    except StateCorrupt:
        return 0


def _print_entries(found: list[Entry], who: dict[str, str], total: int) -> None:
    if not found:
        out.print("nothing has run yet")
        return
    table = Table(box=None, pad_edge=False)
    for column in ("batch", "state", "range", "rows", "s", "committed (UTC)", "who", "run", "why"):
        table.add_column(column, justify="right" if column in ("batch", "rows", "s") else "left")
    for entry in found:
        name = str(entry.seq) if entry.replay is None else f"replay {entry.replay}, chunk {entry.seq}"
        shown = [str(r) for r in entry.ranges[:4]] + ([f"and {len(entry.ranges) - 4} more"] if len(entry.ranges) > 4 else [])
        how = [*entry.why, *([f"adopted from {entry.adopted_from}"] if entry.adopted_from else [])]
        how += [f"loaded {entry.loads} times"] if entry.loads > 1 else []
        table.add_row(
            name,
            str(entry.state),
            "\n".join(shown).replace("[", r"\["),
            "" if entry.rows is None else f"{entry.rows:,}",
            "" if entry.seconds is None else f"{entry.seconds:.1f}",
            "" if entry.committed_at_ms is None else f"{datetime.fromtimestamp(entry.committed_at_ms / 1000, UTC):%F %T}",
            who.get(entry.run_id, ""),
            entry.run_id,
            "\n".join(how),
        )
    print_table(table)
    if len(found) < total:
        out.print(f"the newest {len(found)} of {total}", style="dim")


def _print_verification(found: Verification) -> None:
    table = Table(title="committed and retained (librdkafka read the log, PyIceberg the table)", title_justify="left")
    for column in ("partition", "records", "rows", "lost", "duplicated", "unknown"):
        table.add_column(column, justify="left" if column == "partition" else "right")
    for p in found.verdict.partitions:
        counts = (p.records, p.rows, len(p.lost), len(p.duplicated), len(p.unknown))
        table.add_row(str(p.topic_partition), *(f"{count:,}" for count in counts))
    print_table(table)
    _print_miscounts(found.miscounts)
    for tp, rows in found.ahead.items():
        out.print(f"{tp}: {rows:,} rows lie beyond the cursor, and no saved range waits for them", style="red", markup=False)
    if found.without_origin:
        out.print(f"{found.without_origin:,} rows say of no record that they came from it", style="red")
    for rows, what in ((found.in_flight, "a batch in flight"), (found.before_retention, "records that are gone from the log")):
        if rows:
            out.print(f"{rows:,} rows of {what} were not looked at one by one")


def _print_batches(found: BatchVerification) -> None:
    out.print(
        f"{found.batches:,} committed batches, {found.rows:,} rows (PyIceberg read the table; rows have no single record)"
    )
    _print_miscounts(found.miscounts)
    for batch in found.missing:
        out.print(f"batch {batch}: committed, and no commit of the table is its", style="red")
    for batch, rows in found.ahead.items():
        out.print(f"batch {batch}: {rows:,} rows lie beyond the cursor, and no saved range waits for them", style="red")
    if found.unknown:
        out.print(f"{found.unknown:,} rows are of no batch that the table has a commit of", style="red")
    for rows, what in ((found.in_flight, "a batch in flight"), (found.forgotten, "batches older than any receipt kept")):
        if rows:
            out.print(f"{rows:,} rows of {what} were not judged")


def _print_miscounts(miscounts: Iterable[Miscount]) -> None:
    for m in miscounts:
        what = f"batch {m.receipt.load.seq}" if m.receipt.load.replay is None else f"replay {m.receipt.load.replay}"
        told = f"{what}: snapshot {m.receipt.snapshot} wrote {m.receipt.rows:,} rows, {m.rows_now:,} are there now"
        out.print(told, style="red", markup=False)


def _print_others(commits: list[dict[str, Any]], columns: list[str]) -> None:
    for other in commits:
        out.print(f"commit {other['snapshot']} ({other['operation']}, {other['at']}) is not Tidegate's", style="yellow")
    for change in columns:
        out.print(f"since the last load, column {change}", style="yellow", markup=False)


def _print_verdict(*, holds: bool) -> None:
    if holds:
        out.print("[green]the table holds what was committed, exactly once[/]")
    else:
        out.print(
            "[red]the table does not hold what was committed[/]; clear the load tasks of the batches named, or replay them"
        )


def _print_rebuilt(this: Pipeline, made: Rebuilt, gone: list[str], *, written: bool) -> None:
    out.print(f"{this.name}: batch {made.cursor.seq}, generation {made.cursor.generation}, from {len(made.ranges)} receipts")
    for tp, offset in sorted(made.cursor.offsets.items())[:SHOWN]:
        out.print(f"  {tp}: next offset {offset:,}", markup=False)
    for note in made.notes:
        out.print(note, style="yellow", markup=False)
    for key in gone:
        out.print(f"deleted {key}", markup=False)
    out.print("written" if written else "nothing was written (--dry-run)")

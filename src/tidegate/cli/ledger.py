"""The history of a pipeline: shown, verified against broker and table, and rebuilt from the table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from tidegate.cli.shared import (
    HERE,
    AsJson,
    Name,
    Project,
    err,
    open_remote,
    out,
    print_table,
    refuse_while_running,
    show_progress,
    the_pipeline,
)
from tidegate.core.audit.history import Entry, Rebuilt, entries, rebuild, versions
from tidegate.core.audit.table import Missing, TableHistory, find_missing, loadable
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.errors import RequestError, StateCorrupt, StateError, some
from tidegate.core.load.cutting import Box
from tidegate.core.offsets.algebra import merged, without
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition, selection_to_json, total_count
from tidegate.core.schedule.accept import missing_now
from tidegate.core.schedule.run_notes import failed_runs, since_success
from tidegate.core.schedule.topics import read_watermarks
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger, Listing
from tidegate.core.state.saved_range import SavedRange

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.airflow.remote.schedule import Remote
    from tidegate.core.audit.oracle import BatchVerification, Miscount, Verification

app = typer.Typer()
ledger = typer.Typer(no_args_is_help=True, help="What a pipeline has run: show, verify, reload and rebuild it.")
app.add_typer(ledger, name="ledger")

SHOWN = 20
POSITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+):(?P<partition>\d+):(?P<offset>\d+)")


@ledger.command()
def show(
    pipeline: Name,
    project: Project = HERE,
    last: Annotated[int, typer.Option(min=1, help="show the newest N batches; --json shows all")] = SHOWN,
    *,
    as_json: AsJson = False,
) -> None:
    """Show what ran: batch, run, range, rows, seconds, who, why, and which version of the transform.

    Of runs that failed since the last success: what failed, the fix, and what the next run does.
    """
    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        book = Ledger(remote.store, this.name)
        listing = book.listing()
        saved, faults = _readable(book, listing)
        cursor, broken = _readable_cursor(book, listing)
        faults = [*broken, *faults]
        receipts = remote.sink.receipts(this.sink.table, this.name)
        runs = remote.runs(this.name)
    who = {run["dag_run_id"]: str(run.get("triggering_user_name") or run["run_type"]) for run in runs}
    failures = failed_runs(since_success(runs))
    found = entries(saved, receipts, cursor)
    loaded_by = versions(receipts)
    if as_json:
        batches = [{**entry.to_json(), "who": who.get(entry.run_id)} for entry in found]
        transforms = {version: selection_to_json(ranges) for version, ranges in loaded_by.items()}
        told = {"transforms": transforms, "failures": failures, "faults": faults}
        out.print_json(json.dumps({"pipeline": this.name, "batches": batches, **told}))
    else:
        _print_entries(found[-last:], who, len(found))
        for version, ranges in loaded_by.items():
            out.print(f"transform {version}: {total_count(ranges):,} offsets", markup=False)
        for run_id, why in failures.items():
            out.print(f"run {run_id}: {why}", markup=False, style="red")
        for fault in faults:
            err.print(fault, markup=False, style="red")
    if faults:
        raise typer.Exit(1)


@ledger.command("verify")
def verify_command(pipeline: Name, project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Recompute, from broker and table, that every retained record before the cursor is there once; exit code 1 if not.

    With `identity: batch`: from the table alone, that every committed batch has the rows that its commit wrote.
    """
    from tidegate.core.audit.oracle import BatchVerification  # noqa: PLC0415
    from tidegate.iceberg.history import changed_columns, strangers  # noqa: PLC0415

    this = the_pipeline(project, pipeline)
    found = _verify_batches(this, project) if this.identity == "batch" else _verify_records(this, project)
    others, columns = strangers(this.sink.table), changed_columns(this.sink.table)
    with open_remote(project) as remote:
        absent = remote.cursor(this).absent
    if as_json:
        told = {"other_commits": others, "changed_columns": columns, "absent": selection_to_json(absent)}
        out.print_json(json.dumps({"pipeline": this.name, **found.to_json(), **told}))
    else:
        if isinstance(found, BatchVerification):
            _print_batches(found)
        else:
            _print_verification(found)
        _print_others(others, columns)
        _print_verdict(this.name, absent, holds=found.holds)
    if not found.holds:
        raise typer.Exit(1)


def _verify_batches(this: Pipeline, project: Path) -> BatchVerification:
    from tidegate.core.audit.oracle import verify_batches  # noqa: PLC0415
    from tidegate.iceberg.origins import read_batches  # noqa: PLC0415

    with open_remote(project) as remote:
        book = Ledger(remote.store, this.name)
        cursor, listing = remote.cursor(this), book.listing()
        receipts = remote.sink.receipts(this.sink.table, this.name)
        told = {r.load.batch for r in receipts}
        # Only a batch without a commit is asked whether it read anything at all.
        silent = {r.seq: r.key for r in listing.ranges if r.seq <= cursor.seq and r.seq not in told}
        loaded = [seq for seq, key in silent.items() if without(book.saved_range(key).to_load, cursor.absent)]
        waiting = bool(listing.of_seq(cursor.seq + 1))
        return verify_batches(cursor.seq, read_batches(this.sink.table), receipts, loaded, waiting=waiting)


def _verify_records(this: Pipeline, project: Path) -> Verification:
    from tidegate.core.audit.oracle import committed_log, former_ranges, verify  # noqa: PLC0415
    from tidegate.iceberg.origins import read_origins, rows_without_origin  # noqa: PLC0415
    from tidegate.kafka.log import compacted_topics, read_offsets  # noqa: PLC0415

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
        receipts = remote.sink.receipts(this.sink.table, this.name)
        return verify(
            committed,
            log,
            read_origins(this.sink.table),
            receipts,
            in_flight=in_flight,
            compacted=compacted_topics(settings, topics),
            one_to_one=this.rows_per_record == "one",
            without_origin=rows_without_origin(this.sink.table),
            former=former_ranges(cursor, receipts),
            absent=cursor.absent,
        )


@ledger.command("reload")
def reload_command(
    pipeline: Name,
    project: Project = HERE,
    *,
    accept_loss: Annotated[bool, typer.Option("--accept-loss", help="leave out what is no longer retained")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print what is missing, and load nothing")] = False,
    as_json: AsJson = False,
) -> None:
    """Load again what the table does not hold of the committed batches, by a replay; exit code 0 when it holds all of it.

    For a table that was dropped, rolled back, restored, or that the pipeline's file has replaced by another one.
    """
    from tidegate.cli.replay import follow  # noqa: PLC0415

    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        remote.cursor(this)  # refused where the pipeline has not run yet
        cursor, missing = missing_now(this, store=remote.store, sink=remote.sink)
        before, replayed = missing, None
        if missing is not None and not as_json:
            _print_missing(this, missing)
        if missing is not None and not missing.ranges and not dry_run:
            raise RequestError(
                f"{this.sink.table} is gone, and the cursor names none of the offsets that it held",
                fix=f"Restore it, or run `tidegate accept table {this.name}` to let the next load create it",
            )
        if missing is not None and not dry_run:
            there = _loadable(this, cursor, missing, remote)
            if not there or (there != missing.ranges and not accept_loss):
                gone = some(map(str, without(missing.ranges, there)))
                raise RequestError(
                    f"{this.sink.table} lacks offsets that cannot be loaded again ({gone}): retention deleted them, their "
                    "topic is gone or was created again, or they are a part of a batch of aggregates",
                    fix=("Give --accept-loss to load the rest, then run " if there else "To go on without them, run ")
                    + f"`tidegate accept table {this.name}`",
                )
            params = {"offsets": selection_to_json(there)}
            replayed = follow(remote.api, this.replay_dag, remote.api.trigger(this.replay_dag, params))
            _, missing = missing_now(this, store=remote.store, sink=remote.sink)
    if as_json:
        told = {"missing": _missing_json(before), "left": _missing_json(missing), "replay": replayed}
        out.print_json(json.dumps({"pipeline": this.name, **told}))
    elif replayed is not None and replayed["state"] != "success":
        err.print(f"the replay {replayed['run_id']} ended as {replayed['state']}: {replayed['why']}", style="red", markup=False)
    elif replayed is not None and missing is not None:
        err.print(
            f"{this.sink.table} still lacks what is no longer retained; "
            f"to go on without it, run `tidegate accept table {this.name}`",
            style="yellow",
            markup=False,
        )
    elif missing is None:
        out.print(f"[green]{this.sink.table} holds all that {this.name} has committed[/]")
    if missing is not None:
        raise typer.Exit(1)


def _loadable(this: Pipeline, cursor: Cursor, missing: Missing, remote: Remote) -> tuple[OffsetRange, ...]:
    """What of it the log still holds."""
    book = Ledger(remote.store, this.name)
    topics = remote.brokers(this).match_topics("|".join(sorted({re.escape(r.topic) for r in missing.ranges})))
    watermarks = remote.brokers(this).watermarks(topics, isolation_level=this.source.isolation_level)
    whole = book.listing().committed(cursor.seq) if missing.by_batch else []
    return loadable(missing, cursor, watermarks, map(book.saved_range, whole))


def _missing_json(missing: Missing | None) -> dict[str, Any] | None:
    if missing is None:
        return None
    return {"ranges": selection_to_json(missing.ranges), "batches": list(missing.batches), "why": missing.why}


def _print_missing(this: Pipeline, missing: Missing) -> None:
    out.print(f"{this.sink.table} lacks {missing.named_batches} of {this.name}: {missing.why}", markup=False)
    for r in missing.ranges[:SHOWN]:
        out.print(f"  {r} = {r.count:,} offsets", markup=False)


@ledger.command("rebuild")
def rebuild_command(
    pipeline: Name,
    project: Project = HERE,
    *,
    position: Annotated[
        list[str] | None,
        typer.Option(help="next offset of a partition that the table's receipts do not give, such as orders:2:1000"),
    ] = None,
    accept_gaps: Annotated[
        bool, typer.Option("--accept-gaps", help="record offsets that the table lacks as absent, and go on behind them")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print what would be written, and write nothing")] = False,
    as_json: AsJson = False,
) -> None:
    """Restore cursor and saved ranges from the table's own commits; for Variables that are lost, wrong or from a backup.

    Nothing is written where the table lacks offsets before the rebuilt cursor, or where the position of a partition is unknown.
    """
    this = the_pipeline(project, pipeline)
    named = dict(_position(text) for text in position or [])
    with open_remote(project) as remote:
        if not dry_run:
            refuse_while_running(remote, this, "a schedule is rebuilt while nothing runs")
        book = Ledger(remote.store, this.name)
        listing = book.listing()
        history = remote.sink.history(this.sink.table)
        saved, _ = _readable(book, listing)
        there, _ = _readable_cursor(book, listing)
        made = rebuild(
            this.name,
            history.receipts(this.name),
            generation=there.generation,
            saved=saved,
            positions=named,
            before=there,
        )
        unknown = [] if made.whole else _unknown(this, made.cursor, remote)
        gaps = _gaps(this, made, history, saved, remote)
        forgotten = _forgotten_batches(made, history, saved)
        refused = _refusal(this, unknown, gaps, forgotten, accept_gaps=accept_gaps)
        if gaps:
            made = replace(made, cursor=replace(made.cursor, absent=merged([*made.cursor.absent, *gaps])))
        if refused is not None and not dry_run:
            raise refused
        gone = [] if dry_run else book.replace(listing, made.cursor, made.ranges, keep=this.keep_ranges)
    if as_json:
        told = {"cursor": made.cursor.to_json(), "batches": len(made.ranges), "notes": list(made.notes), "deleted": gone}
        left = {"gaps": selection_to_json(gaps), "unknown": [str(tp) for tp in unknown]}
        out.print_json(json.dumps({"pipeline": this.name, "written": not dry_run, **told, **left}))
    else:
        _print_rebuilt(this, made, gone, written=not dry_run)
    if refused is not None:
        raise refused


def _position(text: str) -> tuple[TopicPartition, int]:
    found = POSITION.fullmatch(text)
    if found is None:
        raise RequestError(f"{text!r} is not a position", fix="Write it like orders:2:1000: topic, partition, next offset")
    return TopicPartition(found["topic"], int(found["partition"])), int(found["offset"])


def _unknown(this: Pipeline, cursor: Cursor, remote: Remote) -> list[TopicPartition]:
    """Partitions of the log whose position nothing tells: they may have been read, or may be new."""
    watermarks = read_watermarks(this.source, cursor, remote.brokers(this))
    return sorted(tp for tp in watermarks.latest if tp not in cursor.offsets)


def _gaps(
    this: Pipeline, made: Rebuilt, history: TableHistory, saved: list[SavedRange], remote: Remote
) -> tuple[OffsetRange, ...]:
    """Offsets before the rebuilt cursor that the table does not hold."""

    def committed() -> list[SavedRange]:
        newest = {plan.seq: plan for plan in [*made.ranges, *saved] if plan.seq <= made.cursor.seq}
        return list(newest.values())

    def files() -> list[Box]:
        return remote.sink.extents(this.sink.table, by_batch=this.identity == "batch")

    missing = find_missing(made.cursor, history, committed, files, lineage=False)
    return () if missing is None else missing.ranges


def _forgotten_batches(made: Rebuilt, history: TableHistory, saved: list[SavedRange]) -> list[int]:
    """Batches before the first one of the table's whole history, of which no saved range is left either."""
    first = made.ranges[0].seq if history.complete else 1
    known = {plan.seq for plan in saved}
    return [seq for seq in range(1, first) if seq not in known]


def _refusal(
    this: Pipeline,
    unknown: list[TopicPartition],
    gaps: tuple[OffsetRange, ...],
    forgotten: list[int],
    *,
    accept_gaps: bool,
) -> StateError | None:
    if unknown:
        first = unknown[0]
        return StateError(
            f"nothing tells how far {this.name} has read {some(map(str, unknown))}: no receipt and no saved range names it",
            fix=f"Nothing was written. Give the next offset of each, such as --position {first.topic}:{first.partition}:0",
        )
    if gaps and not accept_gaps:
        return StateError(
            f"{this.sink.table} lacks offsets before the rebuilt cursor of {this.name}: {some(map(str, gaps))}",
            fix="Nothing was written. Give --accept-gaps to record them as absent; `tidegate replay` loads them afterwards",
        )
    if forgotten and not accept_gaps:
        return StateError(
            f"nothing is known of batch {some(map(str, forgotten))} of {this.name}: no commit of {this.sink.table} carries a "
            "receipt, and no saved range is left. They held no records, or are lost",
            fix="Nothing was written. Give --accept-gaps to go on without them; `tidegate replay` loads offsets afterwards",
        )
    return None


def _readable(book: Ledger, listing: Listing) -> tuple[list[SavedRange], list[str]]:
    saved, faults = [], []
    for r in listing.ranges:
        try:
            saved.append(book.saved_range(r.key))
        except StateCorrupt as error:
            faults.append(str(error))
    return saved, faults


def _readable_cursor(book: Ledger, listing: Listing) -> tuple[Cursor, list[str]]:
    """The cursor that is there, where it can be read; else an empty one, and why."""
    try:
        return book.cursor() if listing.has_cursor else Cursor(book.pipeline), []
    except StateCorrupt as error:
        return Cursor(book.pipeline), [str(error)]


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
        out.print(f"{found.without_origin:,} rows have no origin (_kafka_* is null)", style="red")
    unjudged = (
        (found.in_flight, "a pending batch"),
        (found.before_retention, "records that are gone from the log"),
        (found.former, "a topic that was deleted and created again"),
    )
    for rows, what in unjudged:
        if rows:
            out.print(f"{rows:,} rows of {what} were not judged")


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


def _print_verdict(pipeline: str, absent: Sequence[OffsetRange], *, holds: bool) -> None:
    if absent:
        named = some(map(str, absent))
        out.print(
            f"accepted to be absent, and not judged: {total_count(absent):,} offsets ({named})", style="yellow", markup=False
        )
        out.print(f"`tidegate replay {pipeline}` loads what is retained of them", style="yellow", markup=False)
    if holds:
        out.print("[green]the table holds what was committed, exactly once[/]")
    else:
        out.print(
            f"[red]the table does not hold what was committed[/]; run `tidegate ledger reload {pipeline}`, "
            "or clear the load tasks of the batches that are named"
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

"""What a pipeline has run, and the commands that compare its schedule with its table and repair it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from tidegate.cli.replay import Ended, follow
from tidegate.cli.shared import (
    HERE,
    AsJson,
    Name,
    Project,
    err,
    open_remote,
    out,
    print_json,
    print_table,
    refuse_while_running,
    show_page,
    the_pipeline,
)
from tidegate.cli.verify import verify_command
from tidegate.core.audit.readable import Readable
from tidegate.core.audit.restore import Restored, offsets_to_reload, restore
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import RequestError
from tidegate.core.model.ranges import ranges_to_json, selection_to_json, total_count
from tidegate.core.model.times import utc
from tidegate.core.model.uris import ranges_page
from tidegate.core.planning.accept import missing_now
from tidegate.core.planning.run_notes import failed_runs, since_success
from tidegate.core.state.history import Missing
from tidegate.core.state.ledger import Ledger, is_of_run
from tidegate.core.state.receipt import Receipt
from tidegate.views.entries import BatchRow, Entry, entries, started_by, versions

app = typer.Typer()
ledger = typer.Typer(no_args_is_help=True, help="Show what a pipeline has run; verify, reload and rebuild it.")
app.add_typer(ledger, name="ledger")

NEWEST = 20
RANGES = 4
"""Ranges of a batch that its row of the table names."""
SHOWN = 20
"""Ranges that are missing, or partitions that are rebuilt, of which each has a line."""


@ledger.command()
def show(
    pipeline: Name,
    project: Project = HERE,
    last: Annotated[int, typer.Option(min=1, help="show the newest N batches; --json shows all")] = NEWEST,
    *,
    as_json: AsJson = False,
) -> None:
    """Show what ran: batch, run, range, rows, seconds, who, why, and the version of the transform.

    For each run that failed since the last success: what failed, the fix, and what the next run does. Exit code 1 where a part
    of the saved state cannot be read.
    """
    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        state, runs = Readable(Ledger(remote.store, this.name)), remote.runs(this.name)
        receipts = remote.reader(this).receipts(this.sink.table, this.name)
        page = remote.api.page(ranges_page(this.name))
        ran = entries(state.all_ranges, receipts, state.cursor, {run["dag_run_id"]: started_by(run) for run in runs})
    transforms, failures = versions(receipts), failed_runs(since_success(runs))
    if as_json:
        said = {
            "pipeline": this.name,
            "batches": [{**asdict(BatchRow.of(entry)), "ranges": ranges_to_json(entry.load.ranges)} for entry in ran],
            "transforms": {version: selection_to_json(ranges) for version, ranges in transforms.items()},
            "failures": failures,
            "faults": state.faults,
        }
        print_json(said)
    else:
        _print_entries(ran[-last:], len(ran))
        for version, ranges in transforms.items():
            out.print(f"transform {version}: {total_count(ranges):,} offsets")
        for run_id, why in failures.items():
            out.print(f"run {run_id}: {why}", style="red")
        for fault in state.faults:
            err.print(fault, style="red")
    show_page(page)
    if state.faults:
        raise typer.Exit(1)


ledger.command("verify")(verify_command)


def _print_entries(last: Sequence[Entry], total: int) -> None:
    """Narrow columns, and one for all that is long: a range, a run id and the reasons fit into lines of their own."""
    if not last:
        out.print("nothing has run yet")
        return
    table = Table(box=None, pad_edge=False)
    for column in ("batch", "state", "rows", "s"):
        table.add_column(column, justify="left" if column == "state" else "right", no_wrap=True)
    table.add_column("range, run, why", overflow="fold")
    for entry in last:
        newest, replay = entry.newest, entry.load.replay
        state = [entry.state, *([] if newest is None else [utc(newest.committed_at_ms // 1000 * 1000)])]
        table.add_row(
            str(entry.seq) if replay is None else f"replay,\nchunk {entry.seq}",
            "\n".join(state),
            "" if newest is None else _rows(newest),
            "" if entry.seconds is None else f"{entry.seconds:.1f}",
            "\n".join(_details(entry)).replace("[", r"\["),
        )
    print_table(table, fold=True)
    if len(last) < total:
        out.print(f"the newest {len(last)} of {total}", style="dim")


def _rows(receipt: Receipt) -> str:
    """How many rows a load made, and how many records it rejected."""
    rejected = f"\n{receipt.write.quarantined:,} rejected" if receipt.write.quarantined else ""
    return f"{receipt.rows:,}{rejected}"


def _details(entry: Entry) -> Iterator[str]:
    """Its ranges, its run with who triggered it, and why it is what it is."""
    load = entry.load
    yield from map(str, load.ranges[:RANGES])
    if len(load.ranges) > RANGES:
        yield f"and {len(load.ranges) - RANGES} more"
    yield load.run_id if entry.who is None else f"{load.run_id} ({entry.who})"
    if entry.reasons:
        yield ", ".join(entry.reasons)
    if entry.why.adopted_from:
        yield f"adopted from {entry.why.adopted_from}"
    if len(entry.receipts) > 1:
        yield f"loaded {len(entry.receipts)} times"
    if load.replay is not None and not is_of_run(load.replay, load.run_id):  # it is named by the run that planned it
        yield f"of replay {load.replay}"


@ledger.command("reload")
def reload_command(
    pipeline: Name,
    project: Project = HERE,
    *,
    accept_loss: Annotated[bool, typer.Option("--accept-loss", help="leave out offsets that are no longer retained")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what is missing; load nothing")] = False,
    as_json: AsJson = False,
) -> None:
    """Load again, by a replay, the committed offsets that the table lacks. Exit code 0 when it succeeded, and none is left.

    For a table that was dropped, rolled back or restored, or that the pipeline's file has replaced by another one.
    """
    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        remote.cursor(this)  # refused where the pipeline has not run yet
        cursor, missing = missing_now(this, store=remote.store, sink=remote.reader(this))
        left, replayed = missing, None
        if missing is not None and not as_json:
            _print_missing(this, missing)
        if missing is not None and not dry_run:
            retained = offsets_to_reload(
                this, cursor, missing, store=remote.store, brokers=lambda: remote.brokers(this), accept_loss=accept_loss
            )
            params = {"offsets": selection_to_json(retained)}
            replayed = follow(remote.api, this.replay_dag, remote.api.trigger(this.replay_dag, params))
            _, left = missing_now(this, store=remote.store, sink=remote.reader(this))
    if as_json:
        replay = None if replayed is None else asdict(replayed)
        said = {"pipeline": this.name, "missing": _to_json(missing), "left": _to_json(left), "replay": replay}
        print_json(said)
    else:
        _print_reload(this, replayed, holds=left is None)
    # a load that has found a gap leaves a receipt
    if left is not None or (replayed is not None and not replayed.succeeded):
        raise typer.Exit(1)


def _to_json(missing: Missing | None) -> dict[str, Any] | None:
    if missing is None:
        return None
    return {"ranges": selection_to_json(missing.ranges), "batches": list(missing.batches), "why": missing.why}


def _print_missing(this: Pipeline, missing: Missing) -> None:
    out.print(f"{this.sink.table} lacks {missing.named_batches} of {this.name}: {missing.why}")
    for r in missing.ranges[:SHOWN]:
        out.print(f"  {r} = {r.count:,} offsets")


def _print_reload(this: Pipeline, replay: Ended | None, *, holds: bool) -> None:
    if replay is not None and not replay.succeeded:
        err.print(f"the replay {replay.run_id} ended as {replay.state}: {replay.why}", style="red")
    elif holds:
        done = (
            f"{this.sink.table} has the commits of all batches of {this.name}, but for what was accepted as lost. "
            f"`tidegate ledger verify {this.name}` also sees rows that are gone from it"
        )
        out.print(done, style="green")
    elif replay is not None:
        err.print(
            f"{this.sink.table} still lacks what is no longer retained; "
            f"to go on without it, run `tidegate accept table {this.name}`",
            style="yellow",
        )


@ledger.command()
def drop(
    pipeline: Name,
    key: Annotated[str, typer.Argument(help="Airflow Variable of the range, as an error names it", metavar="KEY")],
    project: Project = HERE,
    *,
    as_json: AsJson = False,
) -> None:
    """Remove a saved range of a batch that is not committed: the next run plans the batch anew."""
    with open_remote(project) as remote:
        refuse_while_running(remote, pipeline, "a range that a run is loading cannot be dropped")
        saved = Ledger(remote.store, pipeline)
        listing = saved.listing()
        found = next((each for each in listing.ranges if each.key == key), None)
        if found is None:
            raise RequestError(f"{pipeline} has no saved range {key}", fix="Name the Variable that an error names")
        if listing.has_cursor and found.seq <= saved.cursor().seq:
            again = f"If it cannot be read, `tidegate ledger rebuild {pipeline}` restores it"
            raise RequestError(f"{key} is the range of a batch that is committed", fix=again)
        remote.store.delete(key)
    if as_json:
        print_json({"pipeline": pipeline, "dropped": key})
    else:
        out.print(f"dropped {key}")


@ledger.command("rebuild")
def rebuild_command(
    pipeline: Name,
    project: Project = HERE,
    *,
    accept_gaps: Annotated[
        bool, typer.Option("--accept-gaps", help="let partitions begin anew where no receipt covers all their offsets")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what would be written; write nothing")] = False,
    as_json: AsJson = False,
) -> None:
    """Restore cursor and saved ranges from the table's own commits, for Variables that are lost, wrong or from a backup.

    Nothing is written where no receipt covers offsets before the rebuilt cursor.
    """
    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        if not dry_run:
            refuse_while_running(remote, this.name, "a schedule is rebuilt only while nothing runs")
        view = restore(this, store=remote.store, sink=remote.reader(this), accept_gaps=accept_gaps, save=not dry_run)
    if as_json:
        print_json(view.to_json())
    else:
        _print_rebuilt(view)
    if view.refused is not None:
        raise view.refused


def _print_rebuilt(view: Restored) -> None:
    cursor = view.cursor
    out.print(f"{view.pipeline}: batch {cursor.seq}, generation {cursor.generation}, from {view.batches} receipts")
    for tp, offset in sorted(cursor.at.offsets.items())[:SHOWN]:
        out.print(f"  {tp}: next offset {offset:,}")
    for note in view.notes:
        out.print(note, style="yellow")
    for key in view.deleted:
        out.print(f"deleted {key}")
    out.print("written" if view.written else "nothing was written (--dry-run)")

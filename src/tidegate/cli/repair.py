"""`tidegate ledger reload` and `rebuild`: repair a table from the log, and a schedule from its table."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from tidegate.cli.replay import Ended, follow
from tidegate.cli.shared import (
    HERE,
    AsJson,
    Name,
    Project,
    err,
    open_remote,
    out,
    refuse_while_running,
    the_pipeline,
)
from tidegate.core.audit.restore import Restored, offsets_to_reload, restore
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.ranges import selection_to_json
from tidegate.core.planning.accept import missing_now
from tidegate.core.state.history import Missing

SHOWN = 20


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
        out.print_json(json.dumps(said))
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
    out.print(f"{this.sink.table} lacks {missing.named_batches} of {this.name}: {missing.why}", markup=False)
    for r in missing.ranges[:SHOWN]:
        out.print(f"  {r} = {r.count:,} offsets", markup=False)


def _print_reload(this: Pipeline, replay: Ended | None, *, holds: bool) -> None:
    if replay is not None and not replay.succeeded:
        err.print(f"the replay {replay.run_id} ended as {replay.state}: {replay.why}", style="red", markup=False)
    elif holds:
        out.print(
            f"[green]{this.sink.table} lacks nothing of {this.name} but what was accepted as lost; a replay loads that again[/]"
        )
    elif replay is not None:
        err.print(
            f"{this.sink.table} still lacks what is no longer retained; "
            f"to go on without it, run `tidegate accept table {this.name}`",
            style="yellow",
            markup=False,
        )


def rebuild_command(
    pipeline: Name,
    project: Project = HERE,
    *,
    accept_gaps: Annotated[
        bool,
        typer.Option("--accept-gaps", help="let partitions begin anew where no receipt covers all their offsets"),
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
            refuse_while_running(remote, this, "a schedule is rebuilt only while nothing runs")
        view = restore(
            this,
            store=remote.store,
            sink=remote.reader(this),
            accept_gaps=accept_gaps,
            save=not dry_run,
        )
    if as_json:
        out.print_json(json.dumps(view.to_json()))
    else:
        _print_rebuilt(view)
    if view.refused is not None:
        raise view.refused


def _print_rebuilt(view: Restored) -> None:
    cursor = view.cursor
    out.print(f"{view.pipeline}: batch {cursor.seq}, generation {cursor.generation}, from {view.batches} receipts")
    for tp, offset in sorted(cursor.at.offsets.items())[:SHOWN]:
        out.print(f"  {tp}: next offset {offset:,}", markup=False)
    for note in view.notes:
        out.print(note, style="yellow", markup=False)
    for key in view.deleted:
        out.print(f"deleted {key}", markup=False)
    out.print("written" if view.written else "nothing was written (--dry-run)")

"""What a pipeline has run, and the commands that compare its schedule with its table and repair it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from tidegate.cli.repair import rebuild_command, reload_command
from tidegate.cli.shared import HERE, AsJson, Name, Project, err, open_remote, out, print_table, show_page, the_pipeline
from tidegate.cli.verify import verify_command
from tidegate.core.audit.readable import Readable
from tidegate.core.model.ranges import ranges_to_json, selection_to_json, total_count
from tidegate.core.model.times import utc
from tidegate.core.model.uris import ranges_page
from tidegate.core.planning.run_notes import failed_runs, since_success
from tidegate.core.state.ledger import Ledger, is_of_run
from tidegate.views.entries import BatchRow, Entry, entries, started_by, versions

app = typer.Typer()
ledger = typer.Typer(no_args_is_help=True, help="Show what a pipeline has run; verify, reload and rebuild it.")
app.add_typer(ledger, name="ledger")

NEWEST = 20
RANGES = 4
"""Ranges of a batch that its row of the table names."""


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
        page = remote.page(ranges_page(this.name))
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
        out.print_json(json.dumps(said))
    else:
        _print_entries(ran[-last:], len(ran))
        for version, ranges in transforms.items():
            out.print(f"transform {version}: {total_count(ranges):,} offsets", markup=False)
        for run_id, why in failures.items():
            out.print(f"run {run_id}: {why}", markup=False, style="red")
        for fault in state.faults:
            err.print(fault, markup=False, style="red")
    show_page(page)
    if state.faults:
        raise typer.Exit(1)


ledger.command("verify")(verify_command)
ledger.command("reload")(reload_command)
ledger.command("rebuild")(rebuild_command)


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
            "" if newest is None else f"{newest.rows:,}",
            "" if entry.seconds is None else f"{entry.seconds:.1f}",
            "\n".join(_details(entry)).replace("[", r"\["),
        )
    print_table(table, fold=True)
    if len(last) < total:
        out.print(f"the newest {len(last)} of {total}", style="dim")


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

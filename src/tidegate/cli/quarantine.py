"""`tidegate quarantine`: which records a pipeline has rejected, why, and the replay that would empty its quarantine."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from tidegate.cli.shared import (
    HERE,
    AsJson,
    Name,
    Project,
    open_remote,
    out,
    print_json,
    print_table,
    show_progress,
    the_pipeline,
)
from tidegate.core.audit.quarantine import QuarantineView, held_of, view_quarantine
from tidegate.core.model.errors import RequestError
from tidegate.core.state.ledger import Ledger

app = typer.Typer()


@app.command()
def quarantine(
    pipeline: Name,
    project: Project = HERE,
    most: Annotated[int, typer.Option("--reasons", help="the commonest reasons to show, each with a sample", min=1)] = 10,
    *,
    as_json: AsJson = False,
) -> None:
    """Show the records that loads have rejected: reasons, counts, the first and last of each, samples, and a replay.

    The replay loads them again, after the transform or the sender has been corrected: what it accepts moves into the table.
    """
    this = the_pipeline(project, pipeline)
    if this.quarantine_table is None:
        raise RequestError(f"{this.name} has no quarantine", fix="Add `quarantine: {}` to its file")
    with open_remote(project) as remote, show_progress() as progress:
        progress("reading the quarantine", 0, None)
        held = partial(held_of, brokers=remote.brokers(this), isolation_level=this.source.isolation_level)
        ledger, sink = Ledger(remote.store, this.name), remote.reader(this)
        committed = ledger.cursor().at.offsets if ledger.listing().has_cursor else {}
        view = view_quarantine(this.name, this.sink.table, this.quarantine_table, sink, held, committed=committed, reasons=most)
    if as_json:
        print_json(asdict(view))
        return
    out.print(f"{view.records:,} records are in {view.table}", markup=False)
    if view.gone:
        out.print(f"{view.gone:,} of them are not in the log any more: no replay reads them, only {view.table}", markup=False)
    if view.left:
        out.print(f"{view.left:,} more do not count: their loads were killed, have yet to commit, or were replaced since")
    if view.reasons:
        _print_reasons(view)
    if view.more:
        out.print(f"{view.more:,} more reasons are not shown")
    if view.replay is not None:
        out.print(f"once they can be loaded: {view.replay}", markup=False)


def _print_reasons(view: QuarantineView) -> None:
    rows = Table("reason", "by", "records", "first", "last", "the first one")
    for each in view.reasons:
        row = (each.reason, each.rejected_by, f"{each.records:,}", each.first, each.last, each.sample)
        rows.add_row(*map(Text, row))  # anybody's text, which is no markup
    print_table(rows, fold=True)

"""The plan of the next run, the lag, and what an operator accepts."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from typing import Annotated

import typer
from rich.table import Table

from tidegate.cli.check import tell_pool
from tidegate.cli.shared import (
    HERE,
    AsJson,
    Name,
    Project,
    now_ms,
    open_remote,
    out,
    print_table,
    refuse_while_running,
    show_page,
    the_pipeline,
)
from tidegate.core.audit.views.lag import LagView, PartitionLag, TotalLag, measure_lag
from tidegate.core.audit.views.plan import PlanView, read_plan
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.errors import SinkUnavailable
from tidegate.core.maintenance.advice import advice
from tidegate.core.pages import ranges_page
from tidegate.core.ports import SinkReader
from tidegate.core.schedule.accept import accept_loss, accept_recreated, accept_table

Topic = Annotated[str, typer.Argument(help="name of the topic", metavar="TOPIC")]

TABLE_S = 10.0
"""Seconds that `tidegate lag` waits for the table: some clients of catalogs wait for ever."""

app = typer.Typer()
accept = typer.Typer(
    no_args_is_help=True, help="Let a pipeline continue after a loss, a recreated topic or a lost table; this is recorded."
)
app.add_typer(accept, name="accept")


@app.command()
def plan(pipeline: Name, project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Show what the next run reads, and why. Nothing is changed."""
    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        view = read_plan(this, store=remote.store, brokers=remote.brokers(this), sink=remote.sink, now_ms=now_ms())
        tell_pool(remote.api, this)
        page = remote.page(ranges_page(this.name))
    if as_json:
        out.print_json(json.dumps(view.to_json()))
    else:
        _print_plan(view)
    show_page(page)


def _print_plan(view: PlanView) -> None:
    if view.skip is not None:
        out.print(f"nothing to read: {view.skip}")
        return
    how = "would be planned" if view.is_new else f"is saved by run {view.saved_by}, and would be adopted"
    out.print(f"batch {view.seq} of {view.pipeline} {how}: {view.offsets:,} offsets")
    table = Table(box=None, pad_edge=False)
    for column in ("partition", "from", "until", "offsets", "from is", "until is"):
        table.add_column(column, justify="right" if column in ("from", "until", "offsets") else "left")
    for p in view.partitions:
        positions = (f"{p.range.from_offset}", f"{p.range.until_offset}", f"{p.range.count:,}")
        table.add_row(str(p.range.topic_partition), *positions, p.from_reason, p.until_reason)
    print_table(table)
    if view.rate is not None:
        out.print(f"backpressure: {view.rate}", markup=False)
    if view.remaining:
        out.print(f"{view.remaining:,} records wait beyond this batch")
    if view.resources is not None:
        out.print(f"Spark: {view.resources}", markup=False)
    if view.advice is not None and not view.advice.holds:
        out.print(view.advice.verdict, style="yellow", markup=False)
    if view.maintenance is not None:
        out.print(view.maintenance, style="yellow", markup=False)
    if view.retired:
        out.print(f"retired: {', '.join(map(str, view.retired))}", markup=False)


@app.command()
def lag(pipeline: Name, project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Show the lag of a pipeline: records, seconds, and the time left until retention deletes unread records.

    It also says when the table needs maintenance, if the table can be read from here.
    """
    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        partitions = measure_lag(
            remote.brokers(this),
            remote.cursor(this).offsets,
            now_ms=now_ms(),
            isolation_level=this.source.isolation_level,
            assign=this.source.assign,
        )
        maintenance = _maintenance(this, remote.sink)
        tell_pool(remote.api, this)
        page = remote.page(ranges_page(this.name))
    view = LagView(this.name, tuple(partitions), maintenance)
    if as_json:
        out.print_json(json.dumps(view.to_json()))
    else:
        _print_lag(view)
    show_page(page)


def _maintenance(pipeline: Pipeline, sink: SinkReader) -> str | None:
    """Why the table needs maintenance. One that cannot be read, or not in time, is no reason not to show the lag."""
    answers: list[str | None] = []

    def ask() -> None:
        with suppress(SinkUnavailable):
            answers.append(advice(pipeline, sink.history(pipeline.sink.table), now_ms=now_ms()))

    asking = threading.Thread(target=ask, daemon=True)  # which the end of the command does not wait for
    asking.start()
    asking.join(TABLE_S)
    return answers[0] if answers else None


def _print_lag(view: LagView) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("partition", "next", "log end", "records behind", "s behind", "s until retention"):
        table.add_column(column, justify="left" if column == "partition" else "right")
    for p in view.partitions:
        _add_row(table, str(p.topic_partition), p.next_offset, p.latest, p)
    _add_row(table, "total", None, None, view.total)
    print_table(table)
    if view.maintenance is not None:
        out.print(view.maintenance, style="yellow", markup=False)


def _add_row(table: Table, name: str, at: int | None, latest: int | None, lag: PartitionLag | TotalLag) -> None:
    cells = (at, latest, lag.records_behind, lag.seconds_behind, lag.retention_left_s)
    table.add_row(name, *("" if cell is None else f"{cell:,.0f}" for cell in cells))


@accept.command("loss")
def accept_loss_command(pipeline: Name, project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Let the next run continue after records that retention deleted before they were read. The loss is recorded."""
    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        refuse_while_running(remote, this, "a range that a run is loading cannot be dropped")
        accepted, dropped = accept_loss(this, store=remote.store, brokers=remote.brokers(this), sink=remote.sink)
    if as_json:
        out.print_json(json.dumps({**accepted.to_json(), "dropped": [saved.run_id for saved in dropped]}))
        return
    out.print(f"accepted for batch {accepted.seq} of {this.name}; lost:")
    for r in accepted.loss:
        out.print(f"  {r} = {r.count:,} offsets", markup=False)
    for saved in dropped:
        out.print(
            f"the range that run {saved.run_id} planned cannot be loaded any more: the next run plans batch {saved.seq} anew"
        )


@accept.command("table")
def accept_table_command(pipeline: Name, project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Let the schedule continue with a table that lacks committed offsets. They are recorded as absent."""
    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        accepted = accept_table(this, store=remote.store, sink=remote.sink)
    if as_json:
        out.print_json(json.dumps(accepted.to_json()))
        return
    out.print(f"accepted for batch {accepted.seq} of {this.name}; {this.sink.table} stays without:")
    for r in accepted.absent:
        out.print(f"  {r} = {r.count:,} offsets", markup=False)


@accept.command("recreated")
def accept_recreated_command(pipeline: Name, topic: Topic, project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Let the next run start a topic anew that was deleted and created again. Rows with the same offsets are replaced."""
    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        accepted = accept_recreated(this, topic, store=remote.store, brokers=remote.brokers(this), sink=remote.sink)
    if as_json:
        out.print_json(json.dumps(accepted.to_json()))
        return
    out.print(
        f"accepted for batch {accepted.seq} of {this.name}: topic {topic} starts anew, with id {accepted.recreated[topic]}"
    )
    out.print("rows of the old topic are replaced where the new one has the same offsets", style="yellow")

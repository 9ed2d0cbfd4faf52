"""What a pipeline would read next, how far it is behind, and what an operator accepts."""

from __future__ import annotations

import json

import typer
from rich.table import Table

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
    the_pipeline,
)

app = typer.Typer()
accept = typer.Typer(
    no_args_is_help=True, help="Record that a pipeline may go on: after a loss, a recreated topic, a lost table."
)
app.add_typer(accept, name="accept")


@app.command()
def plan(pipeline: Name, project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Show what the next run would read, and why; changes nothing."""
    from tidegate.core.schedule.plan import Skip  # noqa: PLC0415
    from tidegate.core.schedule.run import Request, plan_batch  # noqa: PLC0415

    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        found = plan_batch(
            this,
            "dry-run",
            Request(),
            store=remote.store,
            brokers=remote.brokers(this),
            sink=remote.sink,
            now_ms=now_ms(),
            save=False,
        )
    if isinstance(found, Skip):
        out.print_json(json.dumps({"skip": found.reason})) if as_json else out.print(f"nothing to read: {found.reason}")
        return
    if as_json:
        out.print_json(json.dumps({"origin": found.origin, **found.saved.to_json()}))
        return
    saved = found.saved
    how = "would be planned" if found.origin == "planned" else f"is saved by run {saved.adopted_from}, and would be adopted"
    out.print(f"batch {saved.seq} of {saved.pipeline} {how}: {sum(r.count for r in saved.ranges):,} offsets")
    table = Table(box=None, pad_edge=False)
    for column in ("partition", "from", "until", "offsets", "from is", "until is"):
        table.add_column(column, justify="right" if column in ("from", "until", "offsets") else "left")
    reasons = {d.topic_partition: d for d in saved.decisions}
    for r in saved.ranges:
        why = reasons[r.topic_partition]
        table.add_row(
            str(r.topic_partition), f"{r.from_offset}", f"{r.until_offset}", f"{r.count:,}", why.from_reason, why.until_reason
        )
    print_table(table)
    if saved.retired:
        out.print(f"retired: {', '.join(map(str, saved.retired))}", markup=False)


@app.command()
def lag(pipeline: Name, project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Show how far a pipeline is behind: records, seconds, and the time left until retention deletes what is unread."""
    from tidegate.kafka.lag import measure_lag, total_lag  # noqa: PLC0415

    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        cursor = remote.cursor(this)
        found = measure_lag(
            remote.kafka(this),
            cursor.offsets,
            now_ms=now_ms(),
            isolation_level=this.source.isolation_level,
            brokers=remote.brokers(this),
        )
    total = total_lag(found)
    if as_json:
        out.print_json(
            json.dumps({"pipeline": this.name, "total": total.to_json(), "partitions": [p.to_json() for p in found]})
        )
        return
    table = Table(box=None, pad_edge=False)
    for column in ("partition", "next", "log end", "records behind", "s behind", "s until retention"):
        table.add_column(column, justify="left" if column == "partition" else "right")
    for p in found:
        cells = (p.next_offset, p.latest, p.records_behind, p.seconds_behind, p.retention_left_s)
        table.add_row(str(p.topic_partition), *("" if c is None else f"{c:,.0f}" for c in cells))
    totals = (total.records_behind, total.seconds_behind, total.retention_left_s)
    table.add_row("total", "", "", *("" if c is None else f"{c:,.0f}" for c in totals))
    print_table(table)


@accept.command("loss")
def accept_loss_command(pipeline: Name, project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Let the next run go on after records that retention deleted unread; the loss is recorded."""
    from tidegate.core.schedule.accept import accept_loss  # noqa: PLC0415

    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        refuse_while_running(remote, this, "a range that a run is loading cannot be dropped")
        found, dropped = accept_loss(this, store=remote.store, brokers=remote.brokers(this), sink=remote.sink)
    if as_json:
        out.print_json(json.dumps({**found.to_json(), "dropped": [saved.run_id for saved in dropped]}))
        return
    out.print(f"accepted for batch {found.seq} of {this.name}; lost:")
    for r in found.loss:
        out.print(f"  {r} = {r.count:,} offsets", markup=False)
    for saved in dropped:
        out.print(
            f"the range that run {saved.run_id} planned cannot be loaded any more: the next run plans batch {saved.seq} anew"
        )


@accept.command("table")
def accept_table_command(pipeline: Name, project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Let the schedule go on though the table does not hold all that is committed; what is missing is recorded as absent."""
    from tidegate.core.schedule.accept import accept_table  # noqa: PLC0415

    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        found = accept_table(this, store=remote.store, sink=remote.sink)
    if as_json:
        out.print_json(json.dumps(found.to_json()))
        return
    out.print(f"accepted for batch {found.seq} of {this.name}; {this.sink.table} stays without:")
    for r in found.absent:
        out.print(f"  {r} = {r.count:,} offsets", markup=False)


@accept.command("recreated")
def accept_recreated_command(pipeline: Name, topic: str, project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Let the next run start a topic anew that was deleted and created again; rows with the same offsets are replaced."""
    from tidegate.core.schedule.accept import accept_recreated  # noqa: PLC0415

    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        found = accept_recreated(this, topic, store=remote.store, brokers=remote.brokers(this), sink=remote.sink)
    if as_json:
        out.print_json(json.dumps(found.to_json()))
        return
    out.print(f"accepted for batch {found.seq} of {this.name}: topic {topic} starts anew, with id {found.recreated[topic]}")
    out.print("rows of the old topic are replaced where the new one has the same offsets", style="yellow")

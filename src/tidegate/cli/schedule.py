"""The plan of the next run, the lag, and what an operator does to a schedule: start, accept, announce, rename."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from tidegate.cli.check import tell_airflow
from tidegate.cli.shared import (
    HERE,
    AsJson,
    Name,
    Project,
    err,
    in_time,
    open_remote,
    out,
    print_json,
    print_table,
    refuse_active,
    refuse_while_running,
    show_page,
    show_progress,
    the_pipeline,
    time_of,
)
from tidegate.core.audit.lag import LagView, PartitionLag, TotalLag, measure_lag, total_lag
from tidegate.core.config.names import MAINTAIN_DAG, REPLAY_DAG
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.maintenance.advice import advice
from tidegate.core.model.errors import ConfigError, RequestError, TidegateError
from tidegate.core.model.hours import floored, key_of
from tidegate.core.model.ranges import TopicPartition, total_count
from tidegate.core.model.uris import ranges_page
from tidegate.core.planning.accept import accept_foreign, accept_loss, accept_recreated, accept_table, missing_by
from tidegate.core.planning.evidence import read_evidence
from tidegate.core.planning.plan import Skip
from tidegate.core.planning.rename import rename
from tidegate.core.planning.run import Planned, Request, plan_batch
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.pipelines import load_pipelines, pipelines_of
from tidegate.waiting import now_ms

if TYPE_CHECKING:
    from tidegate.airflow.remote.schedule import Remote

Topic = Annotated[str, typer.Argument(help="name of the topic", metavar="TOPIC")]
MOST_HOURS = 24 * 366
"""Hours of one announcement: each is an event, and with it a run of every DAG that listens."""
AT_REST = "a pipeline is renamed only at rest"

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
        planned = next_plan(this, remote)
        tell_airflow(remote.api, this, project)
        page = remote.api.page(ranges_page(this.name))
    if as_json:
        print_json(_plan_to_json(planned))
    elif isinstance(planned, Skip):
        out.print(f"nothing to read: {planned.reason}")
    else:
        _print_plan(planned)
    show_page(page)


def next_plan(pipeline: Pipeline, remote: Remote) -> Planned | Skip:
    """What the next run would read, or why nothing. Raises what would stop that run (`plan_batch`)."""
    return plan_batch(
        pipeline,
        "dry-run",
        Request(),
        store=remote.store,
        brokers=remote.brokers(pipeline),
        sink=remote.reader(pipeline),
        now_ms=now_ms(),
        save=False,
    )


def _plan_to_json(plan: Planned | Skip) -> dict[str, Any]:
    """The saved range with its origin and the remarks of its plan, or the reason to skip."""
    if isinstance(plan, Skip):
        return {"skip": plan.reason}
    remarks = {"advice": plan.advice and plan.advice.to_json(), "maintenance": plan.maintenance, "held_back": plan.held_back}
    return {"origin": plan.origin, **plan.saved.to_json(), **remarks}


def _print_plan(planned: Planned) -> None:
    load, why = planned.saved.load, planned.saved.why
    adopted = f"is saved by run {why.adopted_from}, and would be adopted"
    how = "would be planned" if planned.origin == "planned" else adopted
    out.print(f"batch {load.seq} of {load.pipeline} {how}: {total_count(load.ranges):,} offsets")
    table = Table(box=None, pad_edge=False)
    for column in ("partition", "from", "until", "offsets", "from is", "until is"):
        table.add_column(column, justify="right" if column in ("from", "until", "offsets") else "left")
    reasons = {d.topic_partition: d for d in why.decisions}
    for r in load.ranges:
        positions, of = (f"{r.from_offset}", f"{r.until_offset}", f"{r.count:,}"), reasons[r.topic_partition]
        table.add_row(str(r.topic_partition), *positions, of.from_reason, of.until_reason)
    print_table(table)
    if why.rate is not None:
        out.print(f"backpressure: {why.rate}")
    if planned.saved.remaining:
        out.print(f"{planned.saved.remaining:,} records wait beyond this batch")
    if planned.saved.resources is not None:
        out.print(f"Spark: {planned.saved.resources}")
    if planned.advice is not None and not planned.advice.holds:
        out.print(planned.advice.verdict, style="yellow")
    for line in filter(None, (planned.maintenance, planned.held_back)):
        out.print(line, style="yellow")
    if planned.saved.retired:
        out.print(f"retired: {', '.join(map(str, planned.saved.retired))}")


@app.command()
def start(pipeline: Name, project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Let the runs of a pipeline start (its DAG may be paused), and start one now where none is queued or running."""
    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        remote.api.unpause(this.name)
        active = remote.active_runs(this.name)
        run_id = active[0] if active else remote.api.trigger(this.name)
    if as_json:
        print_json({"pipeline": this.name, "run_id": run_id, "started": not active})
    else:
        out.print(f"run {run_id} {'is under way' if active else 'started'}")


@app.command()
def lag(pipeline: Name, project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Show the lag of a pipeline: records, seconds, and the time left until retention deletes unread records.

    It also says when the table needs maintenance, or lacks what was committed, if the table can be read from here.
    """
    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        partitions = measure_lag(
            remote.brokers(this),
            remote.cursor(this).at.offsets,
            now_ms=now_ms(),
            isolation_level=this.source.isolation_level,
            assign=this.source.assign,
        )
        due, lost = in_time(lambda: _of_table(this, remote)) or (None, None)  # to show the lag, nobody waits for a table
        tell_airflow(remote.api, this, project)
        page = remote.api.page(ranges_page(this.name))
    view = LagView(pipeline=this.name, partitions=tuple(partitions), total=total_lag(partitions), maintenance=due, lost=lost)
    if as_json:
        print_json(asdict(view))
    else:
        _print_lag(view)
    show_page(page)


def _of_table(pipeline: Pipeline, remote: Remote) -> tuple[str | None, str | None]:
    """Why the table needs maintenance, and that it is lost."""
    evidence = read_evidence(pipeline, remote.store, remote.reader(pipeline))
    due = advice(pipeline, evidence.current, now_ms=now_ms())
    _, missing = missing_by(evidence)
    return due, None if missing is None else missing.lost_by(pipeline.name, pipeline.sink.table).message


def _print_lag(view: LagView) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("partition", "next", "log end", "records behind", "s behind", "s until retention"):
        table.add_column(column, justify="left" if column == "partition" else "right")
    for p in view.partitions:
        _add_row(table, str(TopicPartition(p.topic, p.partition)), p.next_offset, p.latest, p)
    _add_row(table, "total", None, None, view.total)
    print_table(table)
    for line in filter(None, (view.total.open_transaction, view.maintenance, view.lost)):
        out.print(line, style="yellow")


def _add_row(table: Table, name: str, at: int | None, latest: int | None, lag: PartitionLag | TotalLag) -> None:
    cells = (at, latest, lag.records_behind, lag.seconds_behind, lag.retention_left_s)
    table.add_row(name, *("" if cell is None else f"{cell:,.0f}" for cell in cells))


@accept.command("loss")
def accept_loss_command(pipeline: Name, project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Let the next run continue after records that retention deleted before they were read. The loss is recorded."""
    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        refuse_while_running(remote, this.name, "a range that a run is loading cannot be dropped")
        accepted, dropped = accept_loss(this, store=remote.store, brokers=remote.brokers(this), sink=remote.reader(this))
    if as_json:
        print_json({**accepted.to_json(), "dropped": [saved.load.run_id for saved in dropped]})
        return
    out.print(f"accepted for batch {accepted.seq} of {this.name}; lost:")
    for r in accepted.loss:
        out.print(f"  {r} = {r.count:,} offsets")
    for saved in dropped:
        out.print(
            f"the range that run {saved.load.run_id} planned cannot be loaded any more: "
            f"the next run plans batch {saved.load.seq} anew"
        )


@accept.command("table")
def accept_table_command(
    pipeline: Name,
    project: Project = HERE,
    *,
    foreign: Annotated[
        bool, typer.Option("--foreign", help="accept rows without origin instead, which another writer made")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Let the schedule continue with a table that lacks committed offsets, or is not proved to hold them.

    Each partition that has some begins anew where the cursor is: what lies before is not judged, and not loaded again, any
    more.

    With --foreign, let it load beside rows without origin. They stay as they are, and since they may be of the same records,
    nothing before the pipeline's start can be replayed into the table.
    """
    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        accepted = (accept_foreign if foreign else accept_table)(this, store=remote.store, sink=remote.reader(this))
    if as_json:
        print_json(accepted.to_json())
        return
    if foreign:
        rows = f"rows without origin stay in {this.sink.table}, and nothing before its start is replayed"
        out.print(f"accepted for batch {accepted.seq} of {this.name} and from then on: {rows}")
        return
    out.print(f"accepted for batch {accepted.seq} of {this.name}; {this.sink.table} stays as it is, without proof of:")
    for r in accepted.absent:
        out.print(f"  {r} = {r.count:,} offsets")


@accept.command("recreated")
def accept_recreated_command(pipeline: Name, topic: Topic, project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Let the next run start a topic anew that was deleted and created again. Rows with the same offsets are replaced."""
    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        accepted = accept_recreated(this, topic, store=remote.store, brokers=remote.brokers(this), sink=remote.reader(this))
    if as_json:
        print_json(accepted.to_json())
        return
    out.print(
        f"accepted for batch {accepted.seq} of {this.name}: topic {topic} starts anew, with id {accepted.recreated[topic]}"
    )
    out.print("rows of the old topic are replaced where the new one has the same offsets", style="yellow")


@app.command()
def announce(
    pipeline: Name,
    project: Project = HERE,
    *,
    since: Annotated[str, typer.Option(help="the first hour, or day: such as 2013-03-01 or 2013-03-01T12:00Z")],
    until: Annotated[str, typer.Option(help="the time at which the last one has ended; at most now")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what would be announced; announce nothing")] = False,
    as_json: AsJson = False,
) -> None:
    """Announce hours (or days) of a pipeline, whose file has `announce`: the DAGs that are scheduled on them run for each.

    For hours that a task has left out, since they were too many or too old. The pipeline's own state does not change.
    """
    this = the_pipeline(project, pipeline)
    if this.announce is None:
        raise RequestError(f"{this.name} announces no hours", fix="Set `announce: {}` in the pipeline's file")
    period_ms = this.announce.period_ms
    begin, end = floored(time_of(since), period_ms), floored(time_of(until), period_ms)
    if not begin < end <= now_ms():
        raise RequestError(
            f"no whole {this.announce.every} lies between {since} and {until}, or it has not ended",
            fix="Give --since an earlier time than --until, and --until one that has passed",
        )
    periods = range(begin, end, period_ms)
    if len(periods) > MOST_HOURS:
        raise RequestError(
            f"{len(periods):,} {this.announce.every}s are too many at once", fix=f"Announce at most {MOST_HOURS:,}"
        )
    keys = [key_of(at) for at in periods]
    if not dry_run:
        with open_remote(project) as remote, show_progress() as progress:
            for done, _ in enumerate(remote.api.announce(this.hours_asset, keys, {"pipeline": this.name}), 1):
                progress("announcing", done, len(keys))
    if as_json:
        print_json({"pipeline": this.name, "asset": this.hours_asset, "keys": keys, "dry_run": dry_run})
    else:
        what = f"{len(keys)} {this.announce.every}{'s' if len(keys) > 1 else ''}: {keys[0]} to {keys[-1]}"
        out.print(f"{'would announce' if dry_run else 'announced'} {what}")


@app.command("rename")
def rename_command(
    old: Annotated[str, typer.Argument(help="name that the pipeline had", metavar="OLD")],
    new: Annotated[str, typer.Argument(help="name that its file has now", metavar="NEW")],
    project: Project = HERE,
    *,
    as_json: AsJson = False,
) -> None:
    """Let a pipeline whose file was renamed go on where it was: its saved state, its part of the table and its group move.

    Rename the file first. A rename that was interrupted is finished by running the command again.
    """
    from tidegate.sinks.iceberg.catalog import move_owner  # noqa: PLC0415

    folder = pipelines_of(project)
    if (folder / f"{old}.yaml").exists():
        taken = (folder / f"{new}.yaml").exists()
        fix = f"{new} is a pipeline too: choose another name" if taken else f"Rename the file to {new}.yaml first"
        raise RequestError(f"{old}.yaml is still there, so {old} is a pipeline", fix=fix)
    this = the_pipeline(project, new)
    beside = load_pipelines(folder)[folder / f"{new}.yaml"]
    if isinstance(beside, ConfigError):
        raise beside
    with open_remote(project) as remote:
        refuse_active(remote, old, AT_REST, REPLAY_DAG, MAINTAIN_DAG)
        for dag in (this.name, this.replay_dag, this.maintain_dag):
            refuse_while_running(remote, dag, AT_REST)
        moved = rename(old, this, store=remote.store, sink=remote.reader(this), move_owner=move_owner)
        saved = Ledger(remote.store, new)
        cursor = saved.cursor() if saved.listing().has_cursor else Cursor(pipeline=new, seq=0)
        if this.group is None and cursor.at.offsets:
            try:
                from tidegate.kafka.brokers import commit_offsets  # noqa: PLC0415

                commit_offsets(remote.kafka(this), this.consumer_group, cursor.at.offsets)
            except TidegateError as error:
                err.print(f"group {this.consumer_group} shows the next commit only: {error}", style="yellow")
    if as_json:
        print_json({"old": old, "new": new, "moved": moved, "seq": cursor.seq})
        return
    done = f"{moved} saved values moved" if moved else "it was done before"
    out.print(f"{old} is {new} now ({done}): its next batch is {cursor.seq + 1}")
    out.print(f"Its DAG is a new one, which Airflow creates paused: `tidegate start {new}` starts its schedule")
    out.print(
        f"Airflow keeps the runs of {old} until its DAG is deleted; `tidegate check` names the files that still name {old}"
    )

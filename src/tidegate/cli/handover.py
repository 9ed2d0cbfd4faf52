"""`tidegate import`, `export` and `remove`: a pipeline takes over from a stream, hands over to one, or ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli.check import valid_pipelines
from tidegate.cli.shared import (
    HERE,
    AsJson,
    Name,
    Project,
    err,
    open_remote,
    out,
    print_json,
    refuse_while_running,
    show_progress,
    the_pipeline,
)
from tidegate.core.config.names import MAINTAIN_DAG, REPLAY_DAG
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import RequestError, TidegateError, some
from tidegate.core.model.ranges import offsets_to_json
from tidegate.core.planning.evidence import read_evidence
from tidegate.core.planning.handover import checkpoint_offsets, handed_over, remove, starting_offsets, table_offsets
from tidegate.core.planning.rename import saved_keys
from tidegate.core.planning.topics import read_watermarks

if TYPE_CHECKING:
    from tidegate.airflow.remote.schedule import Remote

app = typer.Typer()


@app.command("import")
def import_command(
    pipeline: Name,
    project: Project = HERE,
    *,
    checkpoint: Annotated[
        str | None, typer.Option(help="checkpointLocation of a Structured Streaming query: a folder, or a URI such as s3://…")
    ] = None,
    table: Annotated[str | None, typer.Option(help="a table that the stream has loaded")] = None,
    columns: Annotated[
        str, typer.Option(help="that table's columns of topic, partition and offset")
    ] = "_kafka_topic,_kafka_partition,_kafka_offset",
    as_json: AsJson = False,
) -> None:
    """Print the `start` of a pipeline that goes on where a stream stopped, by its checkpoint or by the table that it loaded.

    Stop the stream first. For a consumer group, no command is needed: write `start: {group: NAME}`.
    """
    this = the_pipeline(project, pipeline)
    if (checkpoint is None) == (table is None):
        raise RequestError("one of --checkpoint and --table is needed", fix="Name where the stream has left its offsets")
    begun = None
    if table is not None:
        from tidegate.sinks.iceberg.history import last_offsets  # noqa: PLC0415

        if len(named := columns.split(",")) != 3:
            raise RequestError(f"--columns names three columns, not {columns!r}", fix="Write topic,partition,offset")
        offsets, where = table_offsets(last_offsets(table, named), this.source), f"by the last rows of {table}"
    else:
        from tidegate.spark.checkpoint import read_checkpoint  # noqa: PLC0415

        batch, begun, text = read_checkpoint(str(checkpoint))
        offsets, where = checkpoint_offsets(text, this.source), f"after batch {batch} of {checkpoint}"
    start = {"offsets": offsets_to_json(offsets)}
    if as_json:
        print_json({"pipeline": this.name, "start": start, "begun": begun})
        return
    err.print(f"{where}; put this under `source` in {this.name}.yaml, before its first run:", markup=False)
    out.print(f"start: {json.dumps(start)}", markup=False)
    if begun is not None:
        again = "records from these offsets on may be in its sink, and are loaded again"
        err.print(f"batch {begun} was begun and not committed: {again}", style="yellow")


@app.command("export")
def export_command(
    pipeline: Name,
    project: Project = HERE,
    *,
    group: Annotated[
        str | None, typer.Option(help="set the committed offsets of this consumer group, which nobody has joined")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print where a stream goes on after the last batch, as `startingOffsets` of Structured Streaming.

    Pause the DAG first. Partitions that no batch has read begin at their earliest offset.
    """
    from tidegate.kafka.brokers import commit_offsets  # noqa: PLC0415

    this = the_pipeline(project, pipeline)
    with open_remote(project) as remote:
        _refuse_active(remote, this.name, "the batch of a run is not committed yet")
        cursor = handed_over(read_evidence(this, remote.store, remote.reader(this)))
        log = read_watermarks(this.source, cursor, remote.brokers(this))
        offsets = starting_offsets(cursor, log)
        if group is not None:
            commit_offsets(remote.kafka(this), group, {tp: max(at, log.earliest[tp]) for tp, at in offsets.items()})
    starting = offsets_to_json(offsets)
    if as_json:
        print_json({"pipeline": this.name, "seq": cursor.seq, "startingOffsets": starting, "group": group})
        return
    err.print(f"after batch {cursor.seq} of {this.name}{f'; group {group} is there now' if group else ''}:", markup=False)
    out.print(json.dumps(starting), markup=False)


@app.command("remove")
def remove_command(
    pipeline: Name,
    project: Project = HERE,
    *,
    drop_table: Annotated[
        bool, typer.Option("--drop-table", help="drop its table too, with its quarantine and the commits that are kept of it")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove what a pipeline has saved: its Variables, its pool and its consumer group. Its table stays.

    Pause its DAG first, and delete its file afterwards: without the file, only its Variables are known. A removal that was
    interrupted is finished by running it again.
    """
    try:
        this: Pipeline | None = the_pipeline(project, pipeline)
    except RequestError:
        this = None
    beside = [each for each in valid_pipelines(project) if each.name != pipeline]
    with open_remote(project) as remote:
        _refuse_active(remote, pipeline, "a pipeline is removed only at rest", REPLAY_DAG, MAINTAIN_DAG)
        if this is None and not saved_keys(pipeline, remote.store):
            raise RequestError(f"there is no pipeline {pipeline}, and nothing is saved of it", fix="Correct the name")
        tables = _tables(this, remote, beside) if drop_table and this is not None else ()
        with show_progress() as progress:
            saved = remove(pipeline, remote.store, lambda done, total: progress("removing Variables", done, total))
            dropped = [table for table in tables if _dropped(table, progress)]
        pool = this is not None and this.pool not in {each.pool for each in beside} and remote.api.delete_pool(this.pool)
        group = this is not None and this.group is None and _removed_group(remote, this)
    if as_json:
        print_json({"pipeline": pipeline, "saved": saved, "pool": pool, "group": group, "dropped": dropped})
        return
    out.print(f"removed of {pipeline}: {saved} saved values{', its pool' if pool else ''}{', its group' if group else ''}")
    for table in dropped:
        out.print(f"dropped {table}", markup=False)
    first = "" if this is None else f"Delete {pipeline}.yaml, then run "
    out.print(f"{first or 'Run '}`airflow dags delete {pipeline}`, which removes its runs from Airflow", markup=False)
    if this is not None and not drop_table:
        stays = f"{this.sink.table} stays: with the file there, `tidegate ledger rebuild {pipeline}` lets it go on"
        out.print(stays, markup=False)


def _tables(this: Pipeline, remote: Remote, beside: list[Pipeline]) -> tuple[str, ...]:
    """The tables that are dropped with the pipeline. Raises RequestError: they are not its alone."""
    from tidegate.sinks.iceberg.summary import commits_table  # noqa: PLC0415

    history = remote.reader(this).history(this.sink.table)
    others = sorted((history.owners | history.loaders) - {this.name} | {p.name for p in beside if p.writes(this.sink.table)})
    if others:
        raise RequestError(f"{this.sink.table} is also a table of {some(others)}", fix="Remove without --drop-table")
    return tuple(filter(None, (this.sink.table, this.quarantine_table, commits_table(this.sink.table))))


def _dropped(table: str, progress: Any) -> bool:
    from tidegate.sinks.iceberg.catalog import purge  # noqa: PLC0415

    progress(f"dropping {table}", 0, None)
    return purge(table)


def _removed_group(remote: Remote, this: Pipeline) -> bool:
    from tidegate.kafka.brokers import delete_group  # noqa: PLC0415

    try:
        return delete_group(remote.kafka(this), this.consumer_group)
    except TidegateError as error:  # lag tools may show it for a while: Kafka removes a group whose offsets expire
        err.print(f"group {this.consumer_group} stays: {error}", style="yellow", markup=False)
        return False


def _refuse_active(remote: Remote, pipeline: str, why: str, *others: str) -> None:
    """Raises RequestError: the pipeline's DAG is not paused, or a run of it or of one of its `others` is active."""
    dag = remote.api.dag(pipeline)
    if dag is not None and not (dag["is_paused"] or dag["is_stale"]):
        raise RequestError(f"DAG {pipeline} is not paused: {why}", fix=f"Run `airflow dags pause {pipeline}`")
    for suffix in ("", *others):
        refuse_while_running(remote, f"{pipeline}{suffix}", why)

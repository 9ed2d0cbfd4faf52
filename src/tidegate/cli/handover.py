"""`tidegate import`, `export` and `remove`: a pipeline takes over from a stream, hands over to one, or ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.schedule import next_plan
from tidegate.cli.shared import (
    HERE,
    AsJson,
    Name,
    Project,
    err,
    open_remote,
    out,
    platform_of,
    print_json,
    refuse_active,
    show_progress,
    the_pipeline,
)
from tidegate.core.config.names import MAINTAIN_DAG, REPLAY_DAG
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import RequestError, TidegateError
from tidegate.core.model.ranges import offsets_to_json
from tidegate.core.planning.handover import checkpoint_offsets, handed_over, remove, table_offsets
from tidegate.core.planning.rename import saved_keys
from tidegate.pipelines import load_pipelines, pipelines_of

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

        if (platform := platform_of(project)).is_up:
            platform.use_catalog()
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
    err.print(f"{where}; put this under `source` in {this.name}.yaml, before its first run:")
    out.print(f"start: {json.dumps(start)}")
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

    Wait until no run is active, and pause the DAG first. What stops the next run stops the command, too.
    """
    from tidegate.kafka.brokers import commit_offsets  # noqa: PLC0415

    this = the_pipeline(project, pipeline)
    # whatever the next run may read, and however little
    limits = replace(this.limits, min_records=None, max_delay_s=None)
    with open_remote(project) as remote:
        refuse_active(remote, this.name, "the batch of a run is not committed yet")
        seq, offsets = handed_over(this.name, next_plan(replace(this, limits=limits), remote))
        if group is not None:
            commit_offsets(remote.kafka(this), group, offsets)
    starting = offsets_to_json(offsets)
    if as_json:
        print_json({"pipeline": this.name, "seq": seq, "startingOffsets": starting, "group": group})
        return
    err.print(f"after batch {seq} of {this.name}{f'; group {group} is there now' if group else ''}:")
    out.print(json.dumps(starting))


@app.command("remove")
def remove_command(pipeline: Name, project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Remove what a pipeline has saved: its Variables, its pool and its consumer group. Its table stays.

    Wait until no run is active, and pause its DAG first; delete its file afterwards: without the file, only its Variables are
    known. A removal that was interrupted is finished by running it again.
    """
    try:
        this: Pipeline | None = the_pipeline(project, pipeline)
    except RequestError:
        this = None
    with open_remote(project) as remote:
        dag = refuse_active(remote, pipeline, "a pipeline is removed only at rest", REPLAY_DAG, MAINTAIN_DAG)
        if this is None and dag is not None and not dag["is_stale"]:
            raise RequestError(f"Airflow reads a file of {pipeline} elsewhere", fix="Name its project with --project")
        if this is None and not saved_keys(pipeline, remote.store):
            raise RequestError(f"there is no pipeline {pipeline}, and nothing is saved of it", fix="Correct the name")
        with show_progress() as progress:
            saved = remove(pipeline, remote.store, lambda done, total: progress("removing Variables", done, total))
        pool = this is not None and _only_pool(this, project) and _done("its pool", lambda: remote.api.delete_pool(this.pool))
        group = this is not None and this.group is None and _done("its group", lambda: _delete_group(remote, this))
    if as_json:
        print_json({"pipeline": pipeline, "saved": saved, "pool": pool, "group": group})
        return
    out.print(f"removed of {pipeline}: {saved} saved values{', its pool' if pool else ''}{', its group' if group else ''}")
    first = "" if this is None else f"Delete {pipeline}.yaml. "
    dags = f"{pipeline}, {pipeline}{REPLAY_DAG} and {pipeline}{MAINTAIN_DAG}"
    out.print(f"{first}`airflow dags delete` removes the runs of a DAG: {dags}")
    if this is not None:
        table = this.sink.table
        out.print(f"{table} stays. With the file there, `tidegate ledger rebuild {pipeline}` goes on by it")


def _only_pool(this: Pipeline, project: Path) -> bool:
    """Whether its pool is named after its table, and no other file may name it."""
    beside = [stated for file, stated in load_pipelines(pipelines_of(project)).items() if file.stem != this.name]
    return this.sink.pool is None and all(isinstance(each, Pipeline) and each.pool != this.pool for each in beside)


def _delete_group(remote: Remote, this: Pipeline) -> bool:
    from tidegate.kafka.brokers import delete_group  # noqa: PLC0415

    return delete_group(remote.kafka(this), this.consumer_group)


def _done(what: str, delete: Callable[[], bool]) -> bool:
    try:
        return delete()
    except TidegateError as error:  # it does no harm, and Kafka itself removes a group whose offsets expire
        err.print(f"{what} stays: {error}", style="yellow")
        return False

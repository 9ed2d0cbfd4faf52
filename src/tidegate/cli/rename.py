"""`tidegate rename`: a pipeline whose file has another name now goes on where it was."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated

import typer

from tidegate.cli.shared import HERE, AsJson, Project, err, open_remote, out, refuse_while_running, the_pipeline
from tidegate.core.model.errors import ConfigError, RequestError, TidegateError
from tidegate.core.planning.rename import rename
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.pipelines import load_pipelines, pipelines_of

app = typer.Typer()


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
        for pipeline in (replace(this, name=old), this):
            for dag in (pipeline.name, pipeline.replay_dag, pipeline.maintain_dag):
                refuse_while_running(remote, replace(this, name=dag), "a pipeline is renamed only while nothing runs")
        moved = rename(old, this, store=remote.store, sink=remote.reader(this), move_owner=move_owner)
        saved = Ledger(remote.store, new)
        cursor = saved.cursor() if saved.listing().has_cursor else Cursor(pipeline=new, seq=0)
        if this.group is None and cursor.at.offsets:
            try:
                from tidegate.kafka.groups import commit_offsets  # noqa: PLC0415

                commit_offsets(remote.kafka(this), this.consumer_group, cursor.at.offsets)
            except TidegateError as error:
                err.print(f"group {this.consumer_group} shows the next commit only: {error}", style="yellow", markup=False)
    if as_json:
        out.print_json(json.dumps({"old": old, "new": new, "moved": moved, "seq": cursor.seq}))
        return
    done = f"{moved} saved values moved" if moved else "it was done before"
    out.print(f"{old} is {new} now ({done}): its next batch is {cursor.seq + 1}", markup=False)
    out.print(
        f"Its DAG is a new one, which Airflow creates paused: `airflow dags unpause {new}` starts its schedule", markup=False
    )
    out.print(
        f"Airflow keeps the runs of {old} until its DAG is deleted; `tidegate check` names the files that still name {old}"
    )

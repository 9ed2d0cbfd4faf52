"""`tidegate announce`: announce hours of a pipeline to the DAGs that are scheduled on them."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tidegate.cli.shared import HERE, AsJson, Name, Project, now_ms, open_remote, out, show_progress, the_pipeline, time_of
from tidegate.core.model.errors import RequestError
from tidegate.core.model.hours import floored, key_of

app = typer.Typer()
MOST = 24 * 366
"""Hours of one command: each is an event, and with it a run of every DAG that listens."""


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
    if len(periods) > MOST:
        raise RequestError(f"{len(periods):,} {this.announce.every}s are too many at once", fix=f"Announce at most {MOST:,}")
    keys = [key_of(at) for at in periods]
    if not dry_run:
        with open_remote(project) as remote, show_progress() as progress:
            for done, _ in enumerate(remote.api.announce(this.hours_asset, keys, {"pipeline": this.name}), 1):
                progress("announcing", done, len(keys))
    if as_json:
        out.print_json(json.dumps({"pipeline": this.name, "asset": this.hours_asset, "keys": keys, "dry_run": dry_run}))
    else:
        what = f"{len(keys)} {this.announce.every}{'s' if len(keys) > 1 else ''}: {keys[0]} to {keys[-1]}"
        out.print(f"{'would announce' if dry_run else 'announced'} {what}", markup=False)

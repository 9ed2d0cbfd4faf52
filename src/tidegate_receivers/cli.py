"""The command `tidegate receivers`: how receivers do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from tidegate.cli.check import receivers_fit
from tidegate.cli.shared import HERE, AsJson, Project, err, open_remote, out, print_table
from tidegate.core.model.errors import ConfigError, PlatformError
from tidegate.pipelines import load_pipelines, pipelines_of
from tidegate_receivers.config.files import load_receivers, receivers_of
from tidegate_receivers.config.receiver import Receiver

if TYPE_CHECKING:
    from tidegate_receivers.airflow.remote import InstanceView, ReceiverView

app = typer.Typer()
Names = Annotated[list[str] | None, typer.Argument(help="names of receivers; all, if none is given", metavar="RECEIVER")]


@app.command()
def receivers(names: Names = None, project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Show the instances of receivers: where they run, what they have landed, and what holds them back."""
    from tidegate.views.pages import adapter  # noqa: PLC0415
    from tidegate_receivers.airflow.remote import ReceiverView, read_receiver  # noqa: PLC0415

    stated = _stated(project, names or [])
    with open_remote(project) as remote:
        views = [read_receiver(remote.api, receiver) for receiver in stated.values() if isinstance(receiver, Receiver)]
        with suppress(PlatformError):  # not everybody may see pools
            receivers_fit(remote.api, project)
    if as_json:
        out.print_json(adapter(list[ReceiverView]).dump_json(views).decode())
    else:
        print_table(_table(views), fold=True)
    broken = [error for error in stated.values() if isinstance(error, ConfigError)]
    for error in broken:
        err.print(str(error), style="red")
    if broken:
        raise typer.Exit(1)


def add_to(app_of_all: typer.Typer) -> None:
    """Add it to the command `tidegate`."""
    app_of_all.add_typer(app)


def _stated(project: Path, names: list[str]) -> dict[str, Receiver | ConfigError]:
    """The receivers that were named, or all."""
    pipelines = pipelines_of(project)
    folder = receivers_of(pipelines)
    stated = {file.stem: value for file, value in load_receivers(folder, load_pipelines(pipelines)).items()}
    if not stated:
        raise ConfigError(
            f"no receiver in {folder}", fix="Write one as <name>.yaml, or name the project's folder with --project"
        )
    if missing := [name for name in names if name not in stated]:
        raise ConfigError(f"no receiver {missing[0]} in {folder}", fix=f"Use one of {', '.join(stated)}")
    return {name: stated[name] for name in names or stated}


def _table(views: list[ReceiverView]) -> Table:
    """A row for each instance, or one that says why there is none."""
    table = Table(box=None, pad_edge=False)
    for column in ("receiver", "on", "state", "records", "buffer"):
        table.add_column(column, justify="right" if column in ("records", "buffer") else "left", no_wrap=True)
    table.add_column("lease until, back-pressure, trouble", overflow="fold")
    for view in views:
        if not view.instances:
            why = "not known to Airflow yet" if view.paused is None else "paused" if view.paused else "starting"
            table.add_row(view.receiver, "", why)
        for each in view.instances:
            table.add_row(f"{view.receiver}\\[{each.instance}]", each.host, each.state, *_figures(each))
    return table


def _figures(each: InstanceView) -> tuple[str, str, str]:
    said, until = each.status, each.until
    if not said:
        return "", "", until
    trouble = [
        *_backpressure(said),
        f"throttled: {said['throttled_s']:.1f} s" if said["throttled_s"] else "",
        f"restarts: {said['restarts']}" if said["restarts"] else "",
        f"records refused: {said['refused']:,}" if said["refused"] else "",
        said["last_error"] or "",
    ]
    return f"{said['records']:,}", f"{said['buffer']:.0%}", "\n".join([until, *filter(None, trouble)]).replace("[", r"\[")


def _backpressure(said: Mapping[str, Any]) -> Iterator[str]:
    """What holds an instance back, as far as it says: one that never served says nothing."""
    if (rate := said.get("rate")) is not None:
        yield f"rate: {rate:,.0f} records/s"
    if (room := said.get("room")) is not None:
        yield f"room: {room:,} records"
    if (lag := said.get("lag")) is not None:
        yield f"backlog: {lag:,} records"
    if said.get("deaf"):
        yield "it does not know how its pipeline does: the safe rate holds"

"""What all commands share: consoles, options, progress, and the way to a project's Airflow, brokers and table."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.table import Table

from tidegate.beside import loaded
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import RequestError, TidegateError
from tidegate.core.model.times import epoch_ms
from tidegate.pipelines import load_pipeline, pipelines_of

if TYPE_CHECKING:
    from tidegate.airflow.remote.api import AirflowApi
    from tidegate.airflow.remote.schedule import Remote

T = TypeVar("T")

out = Console(highlight=False, markup=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)

Project = Annotated[
    Path, typer.Option("--project", help="the folder with dags/ and spark_jobs/, or a DAG folder", envvar="TIDEGATE_PROJECT")
]
AsJson = Annotated[bool, typer.Option("--json", help="print data as JSON")]
Name = Annotated[str, typer.Argument(help="name of the pipeline", metavar="PIPELINE")]
HERE = Path()
TABLE_S = 10.0
"""Seconds that a command waits for a table which it can do without."""
MOST_COLUMNS = 1000


class ProjectServers(Protocol):
    """A project's own servers, which commands ask where the environment names no Airflow."""

    @property
    def is_up(self) -> bool:
        """Whether its Airflow answers, without starting or waiting for anything."""
        ...

    @property
    def spark_remote(self) -> str:
        """The URL of its Spark Connect server, which may hold a token."""
        ...

    def api(self, tell: Callable[[str], object] = ...) -> AirflowApi:
        """A client of its Airflow. `tell` is called with what takes long."""
        ...

    def use_catalog(self) -> None:
        """Let PyIceberg find its catalog in this process."""
        ...


def print_json(value: object) -> None:
    """A value as JSON, for `--json`."""
    out.print_json(json.dumps(value))


def print_table(table: Table, *, fold: bool = False) -> None:
    """A table in its natural width: paths and ranges stay whole, and a narrow terminal wraps the lines.

    With `fold`, it is no wider than the terminal: its widest cells are folded.
    """
    natural = Measurement.get(out, out.options.update(max_width=MOST_COLUMNS), table).maximum
    width = min(natural, out.width) if fold else natural
    Console(file=out.file, width=width, force_terminal=out.is_terminal, highlight=False).print(table)


def time_of(text: str) -> int:
    """A time that somebody wrote, epoch ms. Raises RequestError where it is none."""
    try:
        return epoch_ms(text)
    except (ValueError, TypeError) as error:
        raise RequestError(f"{text!r} is not a valid time", fix="Write 2013-03-01, or 2013-03-01T12:00:00Z") from error


def the_pipeline(project: Path, name: str) -> Pipeline:
    """The pipeline of that name. Raises RequestError where there is none, ConfigError where its file is not valid."""
    folder = pipelines_of(project)
    files = {file.stem: file for file in sorted(folder.glob("*.yaml"))}
    if name not in files:  # so no name leads out of the folder
        raise RequestError(f"there is no pipeline {name} in {folder}", fix=f"The pipelines are: {', '.join(files) or 'none'}")
    return load_pipeline(files[name])


def refuse_while_running(remote: Remote, dag_id: str, why: str) -> None:
    """Raises RequestError where a run of the DAG is queued or running."""
    active = remote.active_runs(dag_id)
    if active:
        raise RequestError(
            f"{dag_id} is running ({', '.join(active)}): {why}",
            fix="Wait until it has ended, and pause the DAG then: Airflow starts no task of a run whose DAG is paused",
        )


def refuse_active(remote: Remote, pipeline: str, why: str, *others: str) -> dict[str, Any] | None:
    """The pipeline's DAG. Raises RequestError: it is not paused, or a run of it or of `others` is active."""
    for suffix in ("", *others):
        refuse_while_running(remote, f"{pipeline}{suffix}", why)
    dag = remote.api.dag(pipeline)
    if dag is not None and not (dag["is_paused"] or dag["is_stale"]):
        raise RequestError(f"DAG {pipeline} is not paused: {why}", fix=f"Run `airflow dags pause {pipeline}`")
    return dag


@contextmanager
def open_remote(project: Path) -> Iterator[Remote]:
    """The project's Airflow from outside, with brokers and catalog."""
    from tidegate.airflow.remote.schedule import Remote, named_api  # noqa: PLC0415

    def show(text: str) -> None:
        err.print(text)

    api = named_api(show)
    if api is None:
        platform = platform_of(project)
        api = platform.api(show)  # the first to say that no platform was started
        platform.use_catalog()
    with api:
        yield Remote(api, show)


def in_time(ask: Callable[[], T]) -> T | None:
    """What a table says; None where it cannot be asked, or does not answer within `TABLE_S`: some clients wait for ever."""
    answers: list[T] = []

    def answer() -> None:
        with suppress(TidegateError):
            answers.append(ask())

    asking = threading.Thread(target=answer, daemon=True)  # which the end of the command does not wait for
    asking.start()
    asking.join(TABLE_S)
    return answers[0] if answers else None


def show_page(address: str | None) -> None:
    """Where Airflow's UI shows the same; nothing where it has no pages of Tidegate."""
    if address is not None:
        err.print(f"page: {address}")


def platform_of(project: Path) -> ProjectServers:
    """The project's own platform, which a package beside this one registers as `tidegate.platform`."""
    platform: ProjectServers = loaded("tidegate.platform", "local")(project)
    return platform


@contextmanager
def show_report() -> Iterator[Any]:
    """Phases and their states: a live line on a terminal, plain lines elsewhere."""
    states: dict[str, str] = {}
    with err.status("") as line:

        def report(phase: str, state: str) -> None:
            states[phase] = state
            if err.is_terminal:
                line.update("  ".join(f"{p}: {s}" for p, s in states.items()))
            else:
                err.print(f"{phase}: {state}")

        yield report


@contextmanager
def show_progress() -> Iterator[Any]:
    """One bar at a time, on stderr; a line for each step where that is no terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with RichProgress(*columns, console=err, transient=True) as bars:
        tasks: dict[str, Any] = {}

        def progress(step: str, done: int, total: int | None) -> None:
            if step not in tasks:
                if not err.is_terminal:
                    err.print(step)
                for task in tasks.values():
                    bars.update(task, visible=False)
                tasks[step] = bars.add_task(step, total=total)
            bars.update(tasks[step], completed=done, total=total)

        yield progress

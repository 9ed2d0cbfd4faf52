"""`tidegate …`: the embedded platform, the demo, and checks of pipeline files.

Every command that prints data takes `--json`; exit code 0 only when what was asked holds. Heavy clients are imported by the
command that needs them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.table import Table

from tidegate.config import Pipeline, json_schema
from tidegate.errors import ConfigError, RequestError, TidegateError
from tidegate.pipelines import load_pipeline, load_pipelines

if TYPE_CHECKING:
    from tidegate.local.demo import Run
    from tidegate.local.platform import Platform, ServerStatus
    from tidegate.local.remote import Remote
    from tidegate.oracle import Verdict

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help=__doc__.splitlines()[0] if __doc__ else None,
)
out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)
accept = typer.Typer(no_args_is_help=True, help="Record that a pipeline may go on after a loss or a recreated topic.")
app.add_typer(accept, name="accept")

Project = Annotated[Path, typer.Option("--project", help="folder that holds dags/ and spark_jobs/", envvar="TIDEGATE_PROJECT")]
AsJson = Annotated[bool, typer.Option("--json", help="print data as JSON")]
Name = Annotated[str, typer.Argument(help="name of the pipeline", metavar="PIPELINE")]
HERE = Path()


def main() -> None:
    """Run a command; an error a user can cause is one message and exit code 1, never a traceback."""
    try:
        app()
    except TidegateError as error:
        if "--json" in sys.argv:
            out.print_json(json.dumps(error.to_dict()))
        err.print(f"[red]{type(error).__name__}[/]: ", end="")
        err.print(str(error), markup=False)
        raise SystemExit(1) from error
    except KeyboardInterrupt as error:
        err.print("stopped")
        raise SystemExit(130) from error


@app.command()
def jars() -> None:
    """Fetch the jars of Spark and of the embedded broker into the cache."""
    from tidegate.local.jars import ensure_jars  # noqa: PLC0415

    with _reporting() as report:
        found = ensure_jars(report)
    err.print(f"jars: {found.spark.parent}")


@app.command()
def up(
    project: Project = HERE,
    kafka_port: Annotated[int | None, typer.Option(help="port of the broker; free by default")] = None,
    spark_port: Annotated[int | None, typer.Option(help="port of the Spark Connect server")] = None,
    airflow_port: Annotated[int | None, typer.Option(help="port of Airflow's UI and API")] = None,
) -> None:
    """Start the embedded platform: Kafka, Spark Connect and Airflow. What runs already is left alone."""
    ports = {"kafka": kafka_port, "spark": spark_port, "airflow": airflow_port}
    platform = _platform(project, {name: port for name, port in ports.items() if port is not None})
    with _reporting() as report:
        _up(platform, project, report)
    _print_status(platform.status())
    _print_login(platform)


@app.command()
def down(project: Project = HERE) -> None:
    """Stop the embedded platform; its data stays."""
    with _reporting() as report:
        _platform(project).down(report=report)


@app.command()
def status(project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Show the platform's servers; exit code 1 unless all run."""
    servers = _platform(project).status()
    if as_json:
        out.print_json(json.dumps([s.to_dict() for s in servers]))
    else:
        _print_status(servers)
    if any(s.state != "running" for s in servers):
        raise typer.Exit(1)


@app.command()
def check(
    project: Project = HERE,
    *,
    as_json: AsJson = False,
    schema: Annotated[bool, typer.Option("--schema", help="print the JSON Schema of pipeline files instead")] = False,
) -> None:
    """Validate every pipeline file; exit code 1 when one is not valid."""
    if schema:
        sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
        return
    folder = project / "dags" / "pipelines"
    found = load_pipelines(folder)
    if not found:
        raise ConfigError(
            f"no pipeline in {folder}", fix="Write one as <name>.yaml, or name the project's folder with --project"
        )
    faults = {file: value for file, value in found.items() if isinstance(value, ConfigError)}
    if as_json:
        out.print_json(
            json.dumps(
                [{"pipeline": f.stem, "valid": f not in faults, "faults": str(faults.get(f, "")).splitlines()} for f in found]
            )
        )
    else:
        for file, value in found.items():
            if isinstance(value, Pipeline):
                out.print(f"[green]valid[/]  {file.stem}: {value.source} -> {value.sink.table}")
            else:
                out.print(f"[red]broken[/] {file.stem}")
                out.print(str(value), markup=False)
    if faults:
        raise typer.Exit(1)


@app.command()
def pools(project: Project = HERE) -> None:
    """Print the Airflow pools of all sinks, as `airflow pools import` reads them."""
    found = {name: {"slots": slots, "description": POOL, "include_deferred": False} for name, slots in _pools(project).items()}
    out.print_json(json.dumps(found))


@app.command()
def demo(
    project: Project = HERE,
    records: Annotated[int | None, typer.Option(min=0, help="flights to produce; all of them the first time")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Run the main job end to end: real flights, real runs, and a verdict that does not trust Spark."""
    from tidegate.local.demo import Demo  # noqa: PLC0415

    platform = _platform(project)
    with _reporting() as report:
        _up(platform, project, report)
    runs = []
    with platform.api() as api, _progress() as progress:
        this = Demo(platform, api, progress)
        produced = this.produce(records)
        err.print(f"produced {produced:,} flights")
        for run in this.runs():
            runs.append(run)
            err.print(f"run {run.seq}: {run.state}, {run.rows or 0:,} rows in {run.seconds:.1f} s")
        verdict = this.verdict()
    if as_json:
        out.print_json(json.dumps({"produced": produced, "runs": [r.to_json() for r in runs], "verdict": verdict.to_json()}))
    else:
        _print_runs(runs)
        _print_verdict(verdict)
        _print_login(platform)
        _print_queries(platform)
    if not verdict.holds:
        raise typer.Exit(1)


@app.command()
def plan(pipeline: Name, project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Show what the next run would read, and why; changes nothing."""
    from tidegate.batch import Request, plan_batch  # noqa: PLC0415
    from tidegate.planning import Skip  # noqa: PLC0415

    this = _pipeline(project, pipeline)
    with _remote(project) as remote:
        found = plan_batch(
            this,
            "dry-run",
            Request(),
            store=remote.store,
            brokers=remote.brokers(this),
            sink=remote.sink,
            now_ms=_now_ms(),
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
    out.print(table)
    if saved.retired:
        out.print(f"retired: {', '.join(map(str, saved.retired))}", markup=False)


@app.command()
def lag(pipeline: Name, project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Show how far a pipeline is behind: records, seconds, and the time left until retention deletes what is unread."""
    from tidegate.kafka.lag import measure_lag, total_lag  # noqa: PLC0415

    this = _pipeline(project, pipeline)
    with _remote(project) as remote:
        cursor = remote.cursor(this)
        found = measure_lag(remote.kafka(this), cursor.offsets, now_ms=_now_ms(), isolation_level=this.source.isolation_level)
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
    out.print(table)


@accept.command("loss")
def accept_loss_command(pipeline: Name, project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Let the next run go on after records that retention deleted unread; the loss is recorded."""
    from tidegate.batch import accept_loss  # noqa: PLC0415

    this = _pipeline(project, pipeline)
    with _remote(project) as remote:
        found = accept_loss(this, store=remote.store, brokers=remote.brokers(this), sink=remote.sink)
    if as_json:
        out.print_json(json.dumps(found.to_json()))
        return
    out.print(f"accepted for batch {found.seq} of {this.name}; lost:")
    for r in found.loss:
        out.print(f"  {r} = {r.count:,} offsets", markup=False)


@accept.command("recreated")
def accept_recreated_command(pipeline: Name, topic: str, project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Let the next run start a topic anew that was deleted and created again; rows with the same offsets are replaced."""
    from tidegate.batch import accept_recreated  # noqa: PLC0415

    this = _pipeline(project, pipeline)
    with _remote(project) as remote:
        found = accept_recreated(this, topic, store=remote.store, brokers=remote.brokers(this), sink=remote.sink)
    if as_json:
        out.print_json(json.dumps(found.to_json()))
        return
    out.print(f"accepted for batch {found.seq} of {this.name}: topic {topic} starts anew, with id {found.recreated[topic]}")
    out.print("rows of the old topic are replaced where the new one has the same offsets", style="yellow")


POOL = "Loads into one Tidegate sink at the same time"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _pipeline(project: Path, name: str) -> Pipeline:
    file = project / "dags" / "pipelines" / f"{name}.yaml"
    if not file.is_file():
        known = ", ".join(sorted(f.stem for f in file.parent.glob("*.yaml"))) or "none"
        raise RequestError(f"there is no pipeline {name} in {file.parent}", fix=f"The pipelines are: {known}")
    return load_pipeline(file)


@contextmanager
def _remote(project: Path) -> Iterator[Remote]:
    from tidegate.local.remote import Remote  # noqa: PLC0415

    with Remote.connect(_platform(project)) as remote:
        yield remote


def _pools(project: Path) -> dict[str, int]:
    pipelines = [p for p in load_pipelines(project / "dags" / "pipelines").values() if isinstance(p, Pipeline)]
    return {p.pool: p.sink.slots for p in pipelines}


def _platform(project: Path, ports: dict[str, int] | None = None) -> Platform:
    from tidegate.local.platform import Platform  # noqa: PLC0415

    root = project.resolve()
    return Platform(root / ".tidegate", root, ports=ports or {})


def _up(platform: Platform, project: Path, report: Any) -> None:
    platform.up(report=report)
    platform.sync_pools(_pools(project))


def _print_status(servers: list[ServerStatus]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("server", "state", "pid", "address", "log"):
        table.add_column(column)
    colours = {"running": "green", "stopped": "dim"}
    for s in servers:
        state = f"[{colours.get(s.state, 'red')}]{s.state}[/]"
        table.add_row(s.name, state, str(s.pid or ""), str(s.url or s.port or ""), str(s.log))
    out.print(table)


def _print_login(platform: Platform) -> None:
    user, password = platform.airflow_login
    out.print(f"\nAirflow: {platform.airflow_url}  user {user}  password {password}", markup=False)


def _print_runs(runs: list[Run]) -> None:
    if not runs:
        return
    table = Table(title="runs", title_justify="left")
    for column in ("seq", "state", "range of each partition", "rows", "s, queued to success", "s by task"):
        table.add_column(column, justify="right" if column in ("seq", "rows", "s, queued to success") else "left")
    for run in runs:
        tasks = "  ".join(f"{task} {seconds:.1f}" for task, seconds in run.task_seconds.items())
        ranges = "\n".join(str(r) for r in run.ranges)
        table.add_row(
            str(run.seq or ""), run.state, ranges.replace("[", r"\["), f"{run.rows or 0:,}", f"{run.seconds:.1f}", tasks
        )
    out.print(table)


def _print_verdict(verdict: Verdict) -> None:
    table = Table(title="verdict (librdkafka read the log, PyIceberg the table)", title_justify="left")
    for column in ("partition", "records in the log", "rows in the table", "lost", "duplicated", "unknown"):
        table.add_column(column, justify="left" if column == "partition" else "right")
    for p in verdict.partitions:
        counts = (p.records, p.rows, len(p.lost), len(p.duplicated), len(p.unknown))
        table.add_row(str(p.topic_partition), *(f"{count:,}" for count in counts))
    out.print(table)
    if verdict.holds:
        out.print(f"[green]every one of {verdict.total('records'):,} records is in the table exactly once[/]")
    else:
        out.print("[red]the table does not hold every record exactly once[/]")


def _print_queries(platform: Platform) -> None:
    settings = platform.catalog_properties
    out.print(
        f"""
Query the table from Python (PyIceberg):

  from pyiceberg.catalog import load_catalog
  table = load_catalog("lake", **{json.dumps(dict(settings))}).load_table("demo.flights")
  table.scan(row_filter="carrier = 'AA'").to_pandas()

and with DuckDB, on the same table:

  import duckdb
  flights = table.scan().to_arrow()
  duckdb.sql("select carrier, count(*), avg(dep_delay) from flights group by carrier order by 2 desc")
""",
        markup=False,
    )


@contextmanager
def _reporting() -> Iterator[Any]:
    """Phases and their states: a live line on a terminal, plain lines elsewhere."""
    states: dict[str, str] = {}
    with err.status("") as line:

        def report(phase: str, state: str) -> None:
            states[phase] = state
            if err.is_terminal:
                line.update("  ".join(f"{p}: {s}" for p, s in states.items()))
            else:
                err.print(f"{phase}: {state}", markup=False)

        yield report


@contextmanager
def _progress() -> Iterator[Any]:
    """One bar at a time, on stderr."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with RichProgress(*columns, console=err, transient=True) as bars:
        tasks: dict[str, Any] = {}

        def progress(step: str, done: int, total: int | None) -> None:
            if step not in tasks:
                for task in tasks.values():
                    bars.update(task, visible=False)
                tasks[step] = bars.add_task(step, total=total)
            bars.update(tasks[step], completed=done, total=total)

        yield progress

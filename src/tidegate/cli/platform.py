"""The embedded platform, the demo, and checks of pipeline files."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from tidegate.cli.shared import (
    HERE,
    AsJson,
    Project,
    err,
    open_platform,
    open_remote,
    out,
    print_table,
    show_progress,
    show_report,
)
from tidegate.core.config.pipeline import POOL_DESCRIPTION, Pipeline, json_schema, pool_command
from tidegate.core.errors import ConfigError, PlatformError
from tidegate.pipelines import load_pipelines, pipelines_of, spark_jobs_of

if TYPE_CHECKING:
    from tidegate.airflow.remote.api import AirflowApi
    from tidegate.core.audit.oracle import Verdict
    from tidegate.local.demo import Run
    from tidegate.local.platform import Platform, ServerStatus

app = typer.Typer()


@app.command()
def jars(
    *,
    update: Annotated[bool, typer.Option("--update", help="write jars.sha256 from what Ivy resolves now")] = False,
) -> None:
    """Fetch the jars of Spark and of the embedded broker into the cache; check those that are there by SHA-256."""
    from tidegate.local.jars import ensure_jars, update_sums  # noqa: PLC0415

    if update:
        with show_report() as report:
            changed = update_sums(report)
        err.print("\n".join(changed) or "every jar is as before", markup=False)
        return
    with show_report() as report:
        found = ensure_jars(report)
    err.print(f"jars: {found.spark.parent}")


@app.command()
def up(
    project: Project = HERE,
    kafka_port: Annotated[
        int | None, typer.Option(help="port of the broker; by default a free port, chosen at the first start and kept")
    ] = None,
    spark_port: Annotated[int | None, typer.Option(help="port of the Spark Connect server")] = None,
    airflow_port: Annotated[int | None, typer.Option(help="port of Airflow's UI and API")] = None,
) -> None:
    """Start the embedded platform: Kafka, Spark Connect and Airflow. What runs already is left alone."""
    ports = {"kafka": kafka_port, "spark": spark_port, "airflow": airflow_port}
    platform = open_platform(project, {name: port for name, port in ports.items() if port is not None})
    with show_report() as report:
        _up(platform, project, report)
    _print_status(platform.status())
    _print_login(platform)


@app.command()
def down(project: Project = HERE) -> None:
    """Stop the embedded platform; its data stays."""
    with show_report() as report:
        open_platform(project).down(report=report)


@app.command()
def status(project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Show the platform's servers, and name the pools that Airflow lacks.

    Exit code 1 where a server does not run, or a pool is missing that nothing makes.
    """
    platform = open_platform(project)
    servers = platform.status()
    if as_json:
        out.print_json(json.dumps([s.to_dict() for s in servers]))
    else:
        _print_status(servers)
    if any(s.state != "running" for s in servers):
        raise typer.Exit(1)
    with platform.api() as api:
        if not _loads_can_run(api, _pools(project)):
            raise typer.Exit(1)


@app.command()
def check(
    project: Project = HERE,
    *,
    as_json: AsJson = False,
    schema: Annotated[bool, typer.Option("--schema", help="print the JSON Schema of pipeline files instead")] = False,
) -> None:
    """Validate every pipeline file; exit code 1 where one is not valid, or loads would wait for ever for a missing pool.

    Where pyspark is installed, transforms are imported in their own process. Where Airflow answers, missing pools are named.
    """
    if schema:
        sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
        return
    folder = pipelines_of(project)
    found = load_pipelines(folder)
    if not found:
        raise ConfigError(
            f"no pipeline in {folder}", fix="Write one as <name>.yaml, or name the project's folder with --project"
        )
    faults = {file: str(value).splitlines() for file, value in found.items() if isinstance(value, ConfigError)}
    faults |= _broken_transforms(project, found)
    if as_json:
        out.print_json(json.dumps([{"pipeline": f.stem, "valid": f not in faults, "faults": faults.get(f, [])} for f in found]))
    else:
        for file, value in found.items():
            if isinstance(value, Pipeline) and file not in faults:
                out.print(f"[green]valid[/]  {file.stem}: {value.source} -> {value.sink.table}")
            else:
                out.print(f"[red]broken[/] {file.stem}")
                out.print("\n".join(faults[file]), markup=False)
    if not _is_ready(project) or faults:
        raise typer.Exit(1)


@app.command()
def pools(project: Project = HERE) -> None:
    """Print the Airflow pools of all sinks, as `airflow pools import` reads them."""
    found = {
        name: {"slots": slots, "description": POOL_DESCRIPTION, "include_deferred": False}
        for name, slots in _pools(project).items()
    }
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

    platform = open_platform(project)
    with show_report() as report:
        _up(platform, project, report)
    runs = []
    with platform.api() as api, show_progress() as progress:
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


def _broken_transforms(project: Path, found: dict[Path, Pipeline | ConfigError]) -> dict[Path, list[str]]:
    """The transforms that cannot be imported or found, by the file that names them; none where pyspark is not installed."""
    from tidegate.local.transforms import broken_transforms  # noqa: PLC0415
    from tidegate.pipelines import shown_as  # noqa: PLC0415

    pipelines = {file: value for file, value in found.items() if isinstance(value, Pipeline)}
    named = [(file, "transform", p.transform) for file, p in pipelines.items()]
    named += [(file, "replay.transforms", name) for file, p in pipelines.items() for name in p.replay.transforms]
    broken = broken_transforms(sorted({name for _, _, name in named}), spark_jobs_of(project))
    faults: dict[Path, list[str]] = {}
    for file, setting, name in named:
        if name in broken:
            faults.setdefault(file, []).append(f"{shown_as(file)}: {setting}: {broken[name].removeprefix('transform ')}")
    return faults


def _is_ready(project: Path) -> bool:
    """Whether loads can run in the Airflow that the environment names, or in the platform's; true where neither answers."""
    from tidegate.airflow.remote.api import URL  # noqa: PLC0415

    if URL not in os.environ and not open_platform(project).is_up:
        return True
    try:
        with open_remote(project) as remote:
            return _loads_can_run(remote.api, _pools(project))
    except PlatformError as error:
        err.print(f"the pools were not looked at: {error}", style="yellow", markup=False)
        return True


def _loads_can_run(api: AirflowApi, wanted: dict[str, int]) -> bool:
    """Names the pools that Airflow lacks. With the plugin they are made when a run starts; without it, loads wait for ever."""
    missing = {name: slots for name, slots in wanted.items() if not api.has_pool(name)}
    by_plugin = not missing or api.has_plugin("tidegate")
    for name, slots in missing.items():
        if by_plugin:
            err.print(f"pool {name}: not there yet, made when the next run starts", style="dim", markup=False)
        else:
            fix = f"Run `{pool_command(name, slots)}`"
            err.print(f"pool {name}: missing, and its loads wait for ever. {fix}", style="red", markup=False)
    return by_plugin


def _pools(project: Path) -> dict[str, int]:
    pipelines = [p for p in load_pipelines(pipelines_of(project)).values() if isinstance(p, Pipeline)]
    return {p.pool: p.sink.slots for p in pipelines}


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
    print_table(table)


def _print_login(platform: Platform) -> None:
    # never the password itself: what this prints ends up in the logs of CI and in terminals that others look at
    user, _ = platform.airflow_login
    out.print(f"\nAirflow: {platform.airflow_url}  user {user}  password: run `tidegate login`", markup=False)


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
    print_table(table)


def _print_verdict(verdict: Verdict) -> None:
    table = Table(title="verdict (librdkafka read the log, PyIceberg the table)", title_justify="left")
    for column in ("partition", "records in the log", "rows in the table", "lost", "duplicated", "unknown"):
        table.add_column(column, justify="left" if column == "partition" else "right")
    for p in verdict.partitions:
        counts = (p.records, p.rows, len(p.lost), len(p.duplicated), len(p.unknown))
        table.add_row(str(p.topic_partition), *(f"{count:,}" for count in counts))
    print_table(table)
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

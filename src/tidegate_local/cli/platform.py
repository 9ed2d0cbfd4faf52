"""The embedded platform and the demo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from tidegate.cli.check import loads_can_run, pool_slots, receiver_pools, receivers_fit, tell_servers
from tidegate.cli.shared import (
    HERE,
    AsJson,
    Project,
    err,
    out,
    print_table,
    show_page,
    show_progress,
    show_report,
)
from tidegate.core.model.errors import PlatformError
from tidegate.core.model.uris import PIPELINES, ranges_page
from tidegate.pipelines import pipelines_of
from tidegate_local.cli.shared import open_platform

if TYPE_CHECKING:
    from tidegate.airflow.remote.api import AirflowApi
    from tidegate.core.audit.oracle import Verdict
    from tidegate_local.demo import Run
    from tidegate_local.platform import Platform, ServerStatus

app = typer.Typer()


@app.command()
def jars(
    *,
    update: Annotated[
        bool, typer.Option("--update", help="write the SHA-256 of what Ivy resolves now into jars.sha256")
    ] = False,
) -> None:
    """Download the jars of Spark and of the embedded broker into the cache, or check those in the cache by SHA-256."""
    from tidegate_local.jars import ensure_jars, update_sums  # noqa: PLC0415

    if update:
        with show_report() as report:
            changed = update_sums(report)
        err.print("\n".join(changed) or "no jar has changed")
        return
    with show_report() as report:
        cached = ensure_jars(report)
    err.print(f"jars: {cached.spark.parent}")


@app.command()
def up(
    project: Project = HERE,
    kafka_port: Annotated[
        int | None, typer.Option(help="port of the broker; by default a free port, chosen at the first start and kept")
    ] = None,
    spark_port: Annotated[int | None, typer.Option(help="port of the Spark Connect server")] = None,
    airflow_port: Annotated[int | None, typer.Option(help="port of Airflow's UI and API")] = None,
    *,
    warm_up: Annotated[bool, typer.Option(help="let Spark do some small loads, so that the first run is not slow")] = True,
) -> None:
    """Start the embedded platform: Kafka, Spark Connect and Airflow. Servers that run already are left alone."""
    root = project.resolve()
    if pipelines_of(root).parent == root:
        raise PlatformError(
            f"{root} is a DAG folder, and the embedded Airflow reads the folder dags of a project",
            fix="Rename it to dags, and run `tidegate up` in the folder above",
        )
    ports = {"kafka": kafka_port, "spark": spark_port, "airflow": airflow_port}
    platform = open_platform(project, {name: port for name, port in ports.items() if port is not None})
    with show_report() as report:
        _up(platform, project, report, warm=warm_up)
    with platform.api() as api:
        page = api.page(PIPELINES)
    _print_status(platform.status())
    _print_login(platform)
    show_page(page)


@app.command()
def down(project: Project = HERE) -> None:
    """Stop the embedded platform. Its data is kept."""
    with show_report() as report:
        open_platform(project).down(report=report)


@app.command()
def status(project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Show the servers of the embedded platform, and the pools that Airflow lacks.

    Of the Airflow that TIDEGATE_AIRFLOW_URL names, where there is no platform, the servers that do not run. Exit code 1 where a
    server does not run, or where a pool is missing that the plugin does not make.
    """
    from tidegate.airflow.remote.schedule import named_api  # noqa: PLC0415

    platform = open_platform(project)
    if not platform.is_up and (named := named_api()) is not None:
        with named as api:
            if as_json:
                out.print_json(json.dumps(api.health()))
            _tell_airflow(api, project)
        return
    servers = platform.status()
    if as_json:
        out.print_json(json.dumps([s.to_dict() for s in servers]))
    else:
        _print_status(servers)
    if any(s.state != "running" for s in servers):
        raise typer.Exit(1)
    with platform.api() as api:
        _tell_airflow(api, project)


@app.command()
def demo(
    project: Project = HERE,
    records: Annotated[
        int | None, typer.Option(min=0, help="number of flights to produce; by default all of them the first time")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Produce real flights, load them by real runs, and compare log and table without Spark."""
    from tidegate_local.demo import PIPELINE, Demo  # noqa: PLC0415

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
        page = api.page(ranges_page(PIPELINE))
    if as_json:
        out.print_json(json.dumps({"produced": produced, "runs": [r.to_json() for r in runs], "verdict": verdict.to_json()}))
    else:
        _print_runs(runs)
        _print_verdict(verdict)
        _print_login(platform)
        _print_queries(platform)
    show_page(page)
    if not verdict.holds:
        raise typer.Exit(1)


def _up(platform: Platform, project: Path, report: Any, *, warm: bool = False) -> None:
    platform.up(report=report, warm=warm)
    platform.sync_pools(receiver_pools(project) | pool_slots(project))


def _tell_airflow(api: AirflowApi, project: Path) -> None:
    """What keeps Airflow from running tasks; exit code 1 where something does."""
    if not all([tell_servers(api), receivers_fit(api, project), loads_can_run(api, pool_slots(project))]):
        raise typer.Exit(1)


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
    out.print(f"\nAirflow: {platform.airflow_url}  user {user}  password: run `tidegate login`")


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
        out.print(f"every one of {verdict.total('records'):,} records is in the table exactly once", style="green")
    else:
        out.print("the table does not hold every record exactly once", style="red")


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
"""
    )

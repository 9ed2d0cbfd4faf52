"""Whether the pipelines and receivers of a project can run: their files, transforms, and the pools that Airflow must have."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.beside import Stated, load_beside, loaded, valid_beside
from tidegate.cli.shared import HERE, AsJson, Project, err, in_time, open_remote, out, platform_of, print_json, show_progress
from tidegate.core.audit.findings import Finding, broken, is_broken, unknown
from tidegate.core.audit.quarantine import judge_quarantine, not_found, replay_command
from tidegate.core.config.checks import ineffective
from tidegate.core.config.declared import json_schema
from tidegate.core.config.names import DEFAULT_POOL
from tidegate.core.config.pipeline import POOL_DESCRIPTION, Pipeline, pool_command
from tidegate.core.model.errors import ConfigError, PlatformError
from tidegate.core.model.ranges import OffsetRange, one_of_a_partition
from tidegate.core.planning.run_notes import failed_runs
from tidegate.core.planning.trust import misfit_of
from tidegate.pipelines import load_pipelines, pipelines_of, shown_as, spark_jobs_of
from tidegate.spark.table_check import REMOTE, column_changes
from tidegate.spark.transform_check import broken_transforms
from tidegate.views.overview import RECEIVERS, crowding, dead_servers, receiver_slots

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tidegate.airflow.remote.api import AirflowApi
    from tidegate.airflow.remote.schedule import Remote

UNCHECKED = "pools, tables and columns were not checked"
app = typer.Typer()


@dataclass(frozen=True, kw_only=True)
class Checked:
    """One file of a `kind`: what it states, or the faults of the file; and its settings without effect."""

    kind: str
    name: str
    stated: Pipeline | Stated | None
    faults: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @staticmethod
    def of(kind: str, file: Path, stated: Pipeline | Stated | ConfigError, broken: Mapping[str, str]) -> Checked:
        """A file by what it states, or what is wrong with it, and by what is wrong with each transform."""
        if isinstance(stated, ConfigError):
            return Checked(kind=kind, name=file.stem, stated=None, faults=str(stated).splitlines())
        if not isinstance(stated, Pipeline):
            return Checked(kind=kind, name=file.stem, stated=stated)
        named = [("transform", stated.transform), *(("replay.transforms", name) for name in stated.replay.transforms)]
        faults = [f"{setting}: {broken[name].removeprefix('transform ')}" for setting, name in named if name in broken]
        faults, warnings = ([f"{shown_as(file)}: {each}" for each in said] for said in (faults, ineffective(stated)))
        return Checked(kind=kind, name=file.stem, stated=stated, faults=faults, warnings=warnings)

    @property
    def valid(self) -> bool:
        """Whether it can be run."""
        return self.stated is not None and not self.faults

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {self.kind: self.name, "valid": self.valid, "faults": self.faults, "warnings": self.warnings}


@app.command()
def check(
    project: Project = HERE,
    *,
    as_json: AsJson = False,
    schema: Annotated[bool, typer.Option("--schema", help="print the JSON Schema of pipeline files instead")] = False,
    receiver_schema: Annotated[
        bool, typer.Option("--receiver-schema", help="print the JSON Schema of receiver files instead")
    ] = False,
) -> None:
    """Validate every pipeline and receiver file.

    Exit code 1 where one is not valid, where loads would wait for ever for a pool that is missing or has no slots, where
    receivers take the slots that pipelines need, or where a table belongs to another pipeline, holds rows without origin, or
    does not take the columns of the transform.

    Settings that have no effect beside the others are warned of.
    Transforms are imported in a process of their own, where pyspark is installed. Where Airflow answers, missing pools,
    and those without slots, are named, and tables that can be read from here are looked at.
    """
    if schema or receiver_schema:
        kind = loaded("tidegate.config", "receivers").settings if receiver_schema else Pipeline
        sys.stdout.write(json.dumps(json_schema(kind), indent=2) + "\n")
        return
    folder = pipelines_of(project)
    files = load_pipelines(folder)
    others = list(load_beside(folder, files))
    if not files and not others:
        raise ConfigError(
            f"no pipeline in {folder}", fix="Write one as <name>.yaml, or name the project's folder with --project"
        )
    named = {name for p in files.values() if isinstance(p, Pipeline) for name in (p.transform, *p.replay.transforms)}
    broken = broken_transforms(sorted(named), spark_jobs_of(project))
    checks = [Checked.of("pipeline", *each, broken) for each in files.items()]
    checks += [Checked.of(kind.name, file, stated, {}) for kind, file, stated in others]
    if as_json:
        print_json([each.to_json() for each in checks])
    else:
        for each in checks:
            _print_check(each)
    if not _is_ready(project) or not all(each.valid for each in checks):
        raise typer.Exit(1)


@app.command()
def pools(project: Project = HERE) -> None:
    """Print the Airflow pools of all sinks and receivers as JSON that `airflow pools import` reads."""
    described = {
        name: {"slots": slots, "description": description, "include_deferred": False}
        for pools, description in ((receiver_pools(project), RECEIVERS), (pool_slots(project), POOL_DESCRIPTION))
        for name, slots in pools.items()
    }
    print_json(described)


def pool_slots(project: Path) -> dict[str, int]:
    """The slots of each pool that the project's valid pipelines name."""
    return {p.pool: p.sink.slots for p in valid_pipelines(project)}


def valid_pipelines(project: Path) -> list[Pipeline]:
    """The project's pipelines whose files are valid."""
    return [p for p in load_pipelines(pipelines_of(project)).values() if isinstance(p, Pipeline)]


def receiver_pools(project: Path) -> dict[str, int]:
    """The slots of each pool that receivers of the project need, other than Airflow's own."""
    return {pool: slots for pool, slots in receiver_slots(valid_beside(pipelines_of(project))).items() if pool != DEFAULT_POOL}


def loads_can_run(api: AirflowApi, slots: dict[str, int]) -> bool:
    """Whether no load waits for ever for a pool; prints the pools that Airflow lacks, or that have no slots."""
    lacking = pools_found(api, slots)
    for each in lacking:
        style = "red" if each.state == "broken" else "dim"
        err.print(f"pool {each.of}: {each.says}{'. ' if each.fix else ''}{each.fix}", style=style)
    return not is_broken(lacking)


def pools_found(api: AirflowApi, slots: dict[str, int]) -> list[Finding]:
    """The pools that Airflow lacks, or that have no slots."""
    lacking = {name: held for name in slots if not (held := api.pool_slots(name))}
    by_plugin = None in lacking.values() and api.has_plugin("tidegate")
    found = []
    for name, held in lacking.items():
        if held is None and by_plugin:
            says = "not there yet, made when the next run starts"
            found.append(unknown("pools", name, says))
        else:
            says = f"{'missing' if held is None else 'has no slots'}, and its loads wait for ever"
            fix = f"Run `{pool_command(name, slots[name])}`"
            found.append(broken("pools", name, says, fix))
    return found


def tables_take(remote: Remote, pipelines: Iterable[Pipeline]) -> bool:
    """Whether each table that can be read from here takes the rows of its pipeline; prints why one does not."""
    takes = True
    for pipeline in pipelines:
        fault = in_time(partial(_table_fault, pipeline, remote))
        if fault is None:
            says = "was not checked: it cannot be read from here, or not soon"
            err.print(f"{pipeline.name}: table {pipeline.sink.table} {says}", style="dim")
        elif fault:
            takes = False
            err.print(f"{pipeline.name}: {fault}", style="red")
        else:
            tell_layout(pipeline, remote)
            tell_quarantine(pipeline, remote)
    return takes


def tell_layout(pipeline: Pipeline, remote: Remote) -> None:
    """Print how the table differs from the layout of the file, each time with the SQL that changes it."""
    table = pipeline.sink.table
    held = in_time(lambda: remote.reader(pipeline).layout(table))
    for change in [] if held is None else pipeline.sink.layout.changes(held, table):
        text = f"table {table} is laid out otherwise than the file says; for files that are written later, run {change}"
        err.print(f"{pipeline.name}: {text}", style="yellow")


def tell_quarantine(pipeline: Pipeline, remote: Remote) -> None:
    """Print that loads have rejected records which the quarantine of the file does not hold."""
    reader, named = remote.reader(pipeline), pipeline.quarantine_table

    def left() -> tuple[OffsetRange, ...]:
        receipts = reader.history(pipeline.sink.table).receipts(pipeline.name)
        there = reader.rejections(named) if named and any(r.write.quarantined for r in receipts) else ()
        return not_found(receipts, judge_quarantine(there, receipts).records)

    if ranges := in_time(left):
        where = f"{named} does not hold" if named else "its file has no quarantine for"
        replays = "`, then `".join(str(replay_command(pipeline.name, part)) for part in one_of_a_partition(ranges))
        text = f"its loads have rejected records that {where}: name the one that holds them, or run `{replays}`"
        err.print(f"{pipeline.name}: {text}", style="yellow")


def columns_fit(project: Path) -> bool:
    """Whether each table takes the columns that its transform makes; prints what the next load changes of them, and what not.

    Spark is asked where the environment names a Spark Connect server, or the project has one.
    """
    from tidegate.airflow.remote.client import URL  # noqa: PLC0415

    url = os.environ.get(REMOTE) or (platform_of(project).spark_remote if URL not in os.environ else None)
    if url is None:
        err.print(f"columns were not checked: no Spark is known; set {REMOTE}", style="dim")
        return True
    pipelines = valid_pipelines(project)
    with show_progress() as progress:
        progress("asking Spark for the columns of each transform", 0, None)
        said = column_changes(pipelines, spark_jobs_of(project), url)
    for pipeline in pipelines:
        answer = said.get(pipeline.name)
        if answer is None:
            err.print(f"{pipeline.name}: columns were not checked: Spark does not say what its transform makes", style="dim")
        elif isinstance(answer, str):
            err.print(f"{pipeline.name}: {answer}", style="red")
        for statement in answer if isinstance(answer, list) else ():
            err.print(f"{pipeline.name}: the next load will run {statement}", style="yellow")
    return not any(isinstance(answer, str) for answer in said.values())


def _table_fault(pipeline: Pipeline, remote: Remote) -> str:
    return str(misfit_of(pipeline, remote.store, remote.reader(pipeline)) or "")


def tell_servers(api: AirflowApi) -> bool:
    """Print which of Airflow's servers do not run; whether all do."""
    dead = dead_servers(api.health())
    for line in dead:
        err.print(line, style="red")
    return not dead


def receivers_fit(api: AirflowApi, project: Path) -> bool:
    """Whether receivers have their slots, and leave some to pipelines; prints where they do not."""
    said = crowding(receiver_slots(valid_beside(pipelines_of(project))), held=api.pool_slots, parallelism=api.parallelism)
    for line in said:
        err.print(line, style="red")
    return not said


def tell_airflow(api: AirflowApi, pipeline: Pipeline, project: Path) -> None:
    """Print what keeps a pipeline from going on: why its last run failed, servers of Airflow, slots that its tasks wait for.

    Who may not see pools is told so.
    """
    try:
        tell_servers(api)
        receivers_fit(api, project)
        newest = [] if api.dag(pipeline.name) is None else api.newest_runs(pipeline.name, 1)
        for run_id, why in failed_runs(newest).items():
            err.print(f"run {run_id}: {why}", style="red")
        loads_can_run(api, {pipeline.pool: pipeline.sink.slots})
    except PlatformError as error:
        err.print(f"the pool was not checked: {error}", style="yellow")


def _print_check(check: Checked) -> None:
    if not check.valid:
        out.print("broken", style="red", end=" ")
        out.print(check.name)
        out.print("\n".join(check.faults))
    elif check.stated is not None:
        of = check.stated
        way = f"{of.source} -> {of.sink.table}" if isinstance(of, Pipeline) else of.way
        out.print("valid", style="green", end="  ")
        out.print(f"{check.name}: {way}")
    for warning in check.warnings:
        out.print(warning, style="yellow")


def _is_ready(project: Path) -> bool:
    """Whether loads can run in the Airflow that the environment names, or in the platform's, and tables take their rows.

    True where neither answers.
    """
    from tidegate.airflow.remote.client import URL  # noqa: PLC0415

    if URL not in os.environ and not platform_of(project).is_up:
        err.print(f"{UNCHECKED}: no Airflow is known; set {URL}, or run `tidegate up`", style="dim")
        return True
    try:
        with open_remote(project) as remote:
            ready = [
                receivers_fit(remote.api, project),
                loads_can_run(remote.api, pool_slots(project)),
                tables_take(remote, valid_pipelines(project)),
                columns_fit(project),
            ]
            return all(ready)
    except PlatformError as error:
        err.print(f"{UNCHECKED}: {error}", style="yellow")
        return True

"""`tidegate doctor`: what an installation lacks, as Airflow's servers say it, and as tasks find it where they run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate import __version__
from tidegate.beside import valid_beside
from tidegate.cli.check import pool_slots, pools_found, valid_pipelines
from tidegate.cli.shared import HERE, AsJson, Project, err, open_remote, out, print_json
from tidegate.core.audit.findings import (
    DEPLOYED,
    FINDINGS,
    Finding,
    State,
    broken,
    doubtful,
    is_broken,
    looked,
    of_error,
    sound,
    unknown,
)
from tidegate.core.config.names import DOCTOR_DAG, PARSED
from tidegate.core.config.pipeline import LagSchedule
from tidegate.core.model.errors import PlatformError, some
from tidegate.core.model.times import CLOCKS_APART_MS, epoch_ms
from tidegate.pipelines import digest, pipelines_of, shown_as
from tidegate.views.overview import crowding, dead_servers, receiver_slots

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.airflow.remote.api import AirflowApi

app = typer.Typer()
TASKS, AIRFLOW, TRIGGERER = "tasks", "Airflow", "triggerer"
REDACTED = "REDACTED"
"""How Airflow begins what it does not say to who may not see all DAGs of a file."""
STYLES = {"broken": "red", "doubtful": "yellow", "unknown": "dim"}


@app.command()
def doctor(
    project: Project = HERE,
    timeout_s: Annotated[float, typer.Option(min=1, help="seconds that the DAG may take")] = 600.0,
    *,
    as_json: AsJson = False,
) -> None:
    """Examine an installation: Airflow's servers, and by a run of a DAG what its tasks need.

    The run asks the brokers for rights, and Spark for what it has, and loads the newest records of a topic into a table of its
    own, which it drops. Exit code 1 where something is broken.
    """
    with open_remote(project) as remote:
        found = [*_asked(remote.api, project), *looked("files", TASKS, lambda: _examined(remote.api, project, timeout_s))]
    count = sum(each.state == "sound" for each in found)
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        for each in found:
            if each.state != "sound":
                out.print(f"{each.state:8} {each.check} of {each.of}: {each.says}", style=STYLES[each.state])
                out.print(f"{'':8} {each.fix}" if each.fix else "", end="\n" if each.fix else "")
        others = (f"{n} {state}" for state in STYLES if (n := sum(each.state == state for each in found)))
        out.print(", ".join((f"{count} sound", *others)))
    if is_broken(found):
        raise typer.Exit(1)


def _asked(api: AirflowApi, project: Path) -> Iterator[Finding]:
    """What Airflow's servers say, and what they do not."""
    for look in (_servers, _plugin, _pools, _files):
        try:
            yield from look(api, project)
        except PlatformError as error:
            yield of_error(look.__name__.strip("_"), AIRFLOW, error, "unknown")


def _servers(api: AirflowApi, project: Path) -> Iterator[Finding]:
    lag_driven = [pipeline.name for pipeline in valid_pipelines(project) if isinstance(pipeline.schedule, LagSchedule)]
    health, found = api.health(), list[Finding]()
    for name, about in health.items():
        state: State = "broken" if name != TRIGGERER or lag_driven else "doubtful"
        found += (Finding(check="servers", of=name, state=state, says=line) for line in dead_servers({name: about}))
    if lag_driven and not (health.get(TRIGGERER) or {}).get("status"):
        says = f"Airflow has never had a triggerer, which starts the runs of {some(lag_driven)}"
        found.append(broken("servers", TRIGGERER, says, "Start one: `airflow triggerer`"))
    yield from found or [sound("servers", AIRFLOW)]


def _pools(api: AirflowApi, project: Path) -> Iterator[Finding]:
    taken = receiver_slots(valid_beside(pipelines_of(project)))
    crowded = crowding(taken, held=api.pool_slots, parallelism=api.parallelism)
    found = [
        *pools_found(api, pool_slots(project)),
        *(broken("pools", "receivers", line) for line in crowded),
    ]
    yield from found or [sound("pools", AIRFLOW)]


def _files(api: AirflowApi, project: Path) -> Iterator[Finding]:
    here = {shown_as(file) for file in pipelines_of(project).parent.glob("*/*.y*ml")}
    errors, found = api.import_errors(), list[Finding]()
    hidden = [str(error["filename"]) for error in errors if error["stack_trace"].startswith(REDACTED)]
    for error in errors:
        if "tidegate" in error["stack_trace"]:  # a company's Airflow reads other people's files too
            said = [line for line in error["stack_trace"].splitlines() if line.strip()][-1:]
            name, fix = str(error["filename"]), "Correct the file; `tidegate check` names each fault"
            state: State = "broken" if name in here else "doubtful"
            says = f"Airflow does not read it: {''.join(said)}"
            found.append(Finding(check="files", of=name, state=state, says=says, fix=fix))
    if hidden:
        says, fix = f"Airflow does not say what is wrong with {some(hidden)}", "Log in as somebody who may see all DAGs"
        found.append(unknown("files", AIRFLOW, says, fix))
    yield from found or [sound("files", AIRFLOW)]


def _plugin(api: AirflowApi, _project: Path) -> Iterator[Finding]:
    plugin = api.plugin("tidegate")
    if plugin is None:
        yield broken(
            "plugin",
            "API server",
            "Airflow has not loaded the plugin, which makes pools and writes the notes of runs",
            "Install the package where each of Airflow's servers runs, and restart them",
        )
    elif not plugin.get("react_apps"):
        yield doubtful(
            "plugin",
            "API server",
            "the package that is installed has no pages",
            "Build the wheel after `make bundle`, install it with `--force-reinstall --no-deps`, and restart the API server",
        )
    else:
        yield sound("plugin", "API server")


def _examined(api: AirflowApi, project: Path, timeout_s: float) -> Iterator[Finding]:
    """What a run of the DAG finds."""
    names = (file.stem for file in sorted(pipelines_of(project).glob("*.yaml")))
    dags = filter(None, (api.dag(f"{DOCTOR_DAG}{name}") for name in names))
    dag = next((dag for dag in dags if not dag["is_stale"]), None)
    if dag is None:
        says = f"Airflow has no DAG {DOCTOR_DAG}… of a pipeline that is here; no task was asked"
        fix = f"Deploy a valid pipeline, or name another --project. {PARSED}"
        yield broken("files", TASKS, says, fix)
        return
    dag_id = str(dag["dag_id"])
    if dag["is_paused"]:
        says = f"the DAG {dag_id} is paused; no task was asked"
        yield broken("files", TASKS, says, f"Run `airflow dags unpause {dag_id}`")
        return
    run_id = api.trigger(dag_id)
    run: dict[str, Any] = {}
    try:
        with err.status(f"{dag_id} examines what tasks need: run {run_id}"):
            run = api.wait_run(dag_id, run_id, timeout_s=timeout_s, poll_s=1.0)
    except PlatformError as error:  # what some tasks have found is known all the same
        yield of_error("files", TASKS, error)
    tasks = api.task_instances(dag_id, run_id)
    for task in tasks:
        told = api.xcom(dag_id, run_id, task["task_id"], FINDINGS) or {"sound": [], "findings": [], "left_out": 0}
        yield from (sound(check, of) for check, of in told["sound"])
        found = [Finding(**each) for each in told["findings"]]
        yield from found
        if told["left_out"]:
            says = f"{told['left_out']} more findings of task {task['task_id']} are in its log"
            yield unknown("files", TASKS, says)
        if task["state"] != "success" and not is_broken(found):
            says = f"task {task['task_id']} is {task['state'] or 'not started'}"
            yield broken("files", TASKS, says, f"See its log in run {run_id} of {dag_id}")
    yield from _clocks(run, tasks)
    yield from _deployed(api.xcom(dag_id, run_id, "look", DEPLOYED) or {}, str(dag.get("description")), project)


def _clocks(run: dict[str, Any], tasks: list[dict[str, Any]]) -> Iterator[Finding]:
    """Whether the clock of workers, which say when tasks begin and end, is that of Airflow's servers, who say it of the run."""
    times = [run.get("queued_at"), *(task[name] for task in tasks for name in ("start_date", "end_date")), run.get("end_date")]
    if None in times:
        return
    begun, *within, ended = map(epoch_ms, times)
    before_ms, after_ms = begun - min(within), max(within) - ended
    if (apart_ms := max(before_ms, after_ms)) > CLOCKS_APART_MS:
        where = "behind" if before_ms > after_ms else "ahead of"
        says = f"the clock of a worker is at least {apart_ms // 1000} s {where} that of Airflow's servers"
        yield doubtful("servers", "workers", says, "Let all machines keep time by NTP")


def _deployed(of_tasks: dict[str, Any], of_processor: str, project: Path) -> Iterator[Finding]:
    """Whether the tasks, the DAG processor and this command have the same files, and the same version."""
    files = of_tasks.get("files")
    if files is not None and f"(files {files})" not in of_processor:
        says = "tasks read other files of pipelines than the DAG processor has read"
        fix = "Let every part of Airflow see the same DAG folder, or wait until the folder has come to all of them"
        yield doubtful("files", TASKS, says, fix)
    elif files is not None and files != digest(pipelines_of(project)):
        says = f"the files of pipelines in {pipelines_of(project)} are not those that Airflow reads"
        yield doubtful("files", "this command", says, "Deploy them, or name another --project")
    version = of_tasks.get("version")
    same = {"this command": version == __version__, "the DAG processor": f"Tidegate {version} " in of_processor}
    others = " and ".join(part for part, is_same in same.items() if not is_same)
    if of_tasks and others:
        says = f"tasks run Tidegate {version}, and {others} another version"
        yield doubtful("packages", "tidegate", says, "Install one version in all places, and restart what has read another one")

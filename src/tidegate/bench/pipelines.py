"""Comparison `pipelines`: what 1, 4 and 16 pipelines take of one platform, busy and idle.

Each number of pipelines has a platform that was just started, one after the other. `Airflow alone` is the same four servers of
Airflow over an empty DAG folder, without Kafka and Spark. CPU and memory are those of the servers and all that they started.
"""

from __future__ import annotations

import contextlib
import statistics
import time

import psutil

from tidegate.airflow.remote.api import AirflowApi
from tidegate.bench.runs import TIMEOUT_S, seconds_between
from tidegate.bench.stage import RUN, Stage, evenly
from tidegate.bench.suite import Bar, Comparison, Medians, Samples, Term, add
from tidegate.core.errors import PlatformError
from tidegate.local.process import ProcessId, Server, members

COUNTS = (1, 4, 16)
ALONE = "Airflow alone"
RUNS = 3
"""Of each pipeline in a round."""
IDLE_S = 30.0
"""In each round: Airflow reads the DAG files once in so long (`[dag_processor] min_file_process_interval`)."""
SETTLE_S = 20.0
TOPIC = "pipelines"
AIRFLOW = "airflow-"


def name_of(count: int) -> str:
    """Of a contender."""
    return f"{count} pipeline{'s' if count > 1 else ''}"


def measure(stage: Stage) -> Samples:
    """One platform after the other."""
    samples: Samples = {}
    for count in (1,) if stage.rehearsal else (0, *COUNTS):
        observe(stage, samples, count)
    return samples


def observe(stage: Stage, samples: Samples, count: int) -> None:
    """All rounds of so many pipelines; 0 is Airflow alone."""
    if not stage.rehearsal:
        stage.down()
    pipelines = {f"p{count}_{n}": TOPIC for n in range(count)}
    stage.set_dags(pipelines)
    name, parts = (name_of(count), ("kafka", "spark", "airflow")) if count else (ALONE, ("airflow",))
    platform = stage.up(*parts)
    if count:
        # what a run reads is bounded, so each has a full batch
        stage.filled(TOPIC, evenly(RUN * RUNS * (stage.rounds + 1)))
    with platform.api() as api:
        stage.start_dags(api, pipelines)
        for turn in range(stage.rounds + 1):
            stage.progress(
                f"{name}, busy: {'warm-up' if turn == 0 else f'round {turn} of {stage.rounds}'}", turn, stage.rounds + 1
            )
            measured = busy(api, list(pipelines)) if count else {}
            if turn and count:
                add(samples, name, measured)
    settle_s, idle_s = (1.0, 2.0) if stage.rehearsal else (SETTLE_S, IDLE_S)
    time.sleep(settle_s)
    servers = [server for server in platform.servers() if server.pid is not None]
    for turn in range(stage.rounds):
        stage.progress(f"{name}, idle: round {turn + 1} of {stage.rounds}", turn, stage.rounds)
        add(samples, name, {**idle(servers, idle_s), **memory(servers)})


def busy(api: AirflowApi, dag_ids: list[str]) -> dict[str, float]:
    """Runs a minute where each pipeline always has one to do, and how long the tasks of a run wait for their start, together.

    Raises:
        PlatformError: one failed.
    """
    started = [(dag_id, api.trigger(dag_id)) for _ in range(RUNS) for dag_id in dag_ids]
    runs = [api.wait_run(dag_id, run_id, timeout_s=TIMEOUT_S, poll_s=1.0) for dag_id, run_id in started]
    for (dag_id, run_id), run in zip(started, runs, strict=True):
        if run["state"] != "success":
            raise PlatformError(f"{dag_id} failed: {api.why_failed(dag_id, run_id)}", fix="Run the comparison again")
    waits = []
    for dag_id, run_id in started:
        tasks = [task for task in api.task_instances(dag_id, run_id) if task["start_date"]]
        waits.append(sum(seconds_between(task["scheduled_when"], task["start_date"]) for task in tasks))
    took = seconds_between(min(run["queued_at"] for run in runs), max(run["end_date"] for run in runs))
    return {"runs": 60 * len(runs) / took, "queued": statistics.median(waits)}


def idle(servers: list[Server], seconds: float) -> dict[str, float]:
    """Percent of a core that Airflow's servers take, and all servers."""
    before, began = cpu_seconds(servers), time.perf_counter()
    time.sleep(seconds)
    took = time.perf_counter() - began
    used = {name: 100 * (after - before[name]) / took for name, after in cpu_seconds(servers).items()}
    return {
        "idle CPU, Airflow": sum(share for name, share in used.items() if name.startswith(AIRFLOW)),
        "idle CPU": sum(used.values()),
    }


def cpu_seconds(servers: list[Server]) -> dict[str, float]:
    """Of each server so far: its processes, and those of their children that have ended."""
    return {server.name: sum(map(_used, processes(server))) for server in servers}


def _used(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.Error):
        times = process.cpu_times()
        return float(times.user + times.system + times.children_user + times.children_system)
    return 0.0


def memory(servers: list[Server]) -> dict[str, float]:
    """MB of each server; what forked processes share is counted once, where the system tells."""
    return {server.name.removeprefix(AIRFLOW): sum(map(_held, processes(server))) / 1e6 for server in servers}


def _held(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        full = process.memory_full_info()
        return int(getattr(full, "pss", full.rss))
    return 0


def processes(server: Server) -> list[psutil.Process]:
    """A server's own, and what it started."""
    identity = ProcessId.read(server.pid_file)
    return [] if identity is None else members(identity)


def shows(m: Medians) -> str:
    """Busy and idle."""
    most, one, alone = m[name_of(16)], m[name_of(1)], m[ALONE]
    return (
        f"16 pipelines get {most['runs']:.0f} runs a minute, one gets {one['runs']:.0f}; with 16 idle pipelines all servers "
        f"together take {most['idle CPU']:.0f} % of a core, Airflow alone takes {alone['idle CPU']:.0f} %."
    )


COMPARISON = Comparison(
    name="pipelines",
    title="Many pipelines on one platform",
    about=f"1, 4 and 16 pipelines, each number on a platform that was just started. Busy: every pipeline has {RUNS} runs of "
    f"{RUN:,} records to do in each round; `queued` is how long the tasks of a run wait for the scheduler and for a slot, "
    f"together (median of the runs). Idle: percent of a core over {IDLE_S:.0f} s in which nothing is to do. `Airflow alone` is "
    "the same API server, scheduler, DAG processor and triggerer over an empty DAG folder, without Kafka and Spark. The other "
    "columns are the memory of each server with its children; pages that forks share are counted once.",
    measures={
        "runs": "a minute",
        "queued": "s",
        "idle CPU": "%",
        "idle CPU, Airflow": "%",
        "api-server": "MB",
        "scheduler": "MB",
        "dag-processor": "MB",
        "triggerer": "MB",
        "kafka": "MB",
        "spark": "MB",
    },
    bars=tuple(
        Bar(
            f"pipelines: idle CPU {of} with 16, to Airflow alone",
            Term(name_of(16), measured),
            1.3,
            1.0,
            against=Term(ALONE, "idle CPU"),
        )
        for of, measured in (("of all servers", "idle CPU"), ("of Airflow's servers", "idle CPU, Airflow"))
    ),
    shows=shows,
    measure=measure,
)

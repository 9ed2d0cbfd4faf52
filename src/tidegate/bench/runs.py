"""Comparison `runs`: one whole DAG run of 4,000 records, from queued to success, beside the usual ways of running the same.

All DAGs run on one embedded platform. What Airflow says of a run is taken, not what a client sees; a process is timed from its
start to its end. Then the platform is stopped and started again, and ten runs follow at once; not in a rehearsal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from tidegate.airflow.remote.api import AirflowApi
from tidegate.bench import jobs
from tidegate.bench.stage import RUN, Stage, evenly, seconds_of
from tidegate.bench.suite import Bar, Comparison, Medians, Samples, Term
from tidegate.bench.tables import job_for, make_table
from tidegate.bench.throughput import run_process, stream_job
from tidegate.core.errors import PlatformError
from tidegate.core.load.job import LoadJob
from tidegate.core.offsets.ranges import OffsetRange, ranges_to_json
from tidegate.spark.session import connect

OURS, NOTHING, BARE, PROCESS = "Tidegate", "three tasks that do nothing", "bare SparkSubmitOperator", "availableNow process"
FIRST, LAST = "Tidegate, first run after up", "Tidegate, tenth run after up"
AFTER_UP = 10
TIMEOUT_S = 300
COUNTS = evenly(RUN, 4)
PIPELINE = "runs"

_NOTHING = """
from airflow.sdk import DAG, BaseOperator


class Nothing(BaseOperator):
    def execute(self, context):
        return None


with DAG("nothing", schedule=None, max_active_runs=1):
    Nothing(task_id="plan") >> Nothing(task_id="load") >> Nothing(task_id="commit")
"""
_BARE = f"""
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

with DAG("bare", schedule=None, max_active_runs=1):
    arguments = ["append", "{{{{ dag_run.conf['job'] }}}}"]
    SparkSubmitOperator(task_id="load", application={jobs.__file__!r}, application_args=arguments, conn_id="spark_default")
"""


def one_run(api: AirflowApi, dag_id: str, conf: Mapping[str, Any] | None = None) -> dict[str, float]:
    """Seconds of one run, and of its tasks.

    Raises:
        PlatformError: it failed.
    """
    run_id = api.trigger(dag_id, conf)
    run = api.wait_run(dag_id, run_id, timeout_s=TIMEOUT_S)
    if run["state"] != "success":
        raise PlatformError(f"{dag_id} failed: {api.why_failed(dag_id, run_id)}", fix="Run the comparison again")
    tasks = {task["task_id"]: float(task["duration"]) for task in api.task_instances(dag_id, run_id)}
    return {"time": seconds_between(run["queued_at"], run["end_date"]), **tasks}


def seconds_between(since: str, until: str) -> float:
    """Of two of Airflow's times."""
    return (datetime.fromisoformat(until) - datetime.fromisoformat(since)).total_seconds()


def measure(stage: Stage) -> Samples:
    """Warm runs by turns, then first and tenth runs."""
    stage.set_dags({PIPELINE: PIPELINE}, nothing=_NOTHING, bare=_BARE)
    platform = stage.up("kafka", "spark", "airflow", warm=not stage.rehearsal)
    beside = {name: job_for(stage, "parse_json", stage.fill(f"runs_{name}", COUNTS)) for name in ("bare", "stream")}
    stage.fill(PIPELINE, COUNTS)
    with connect(platform.spark_remote, name="bench") as spark:
        for job in beside.values():
            make_table(spark, stage, job)
    with platform.api() as api:
        stage.start_dags(api, (PIPELINE, "nothing", "bare"))
        samples = stage.alternate(
            {
                OURS: partial(own_run, stage, api),
                NOTHING: partial(one_run, api, "nothing"),
                BARE: partial(bare_run, stage, api, beside["bare"]),
                PROCESS: partial(stream_run, stage, beside["stream"]),
            },
            warm_up=3,
        )
    if not stage.rehearsal:
        restarts = stage.alternate({FIRST: partial(after_up, stage)}, warm_up=0)[FIRST]
        samples |= {FIRST: {"time": restarts["first"]}, LAST: {"time": restarts["tenth"]}}
    return samples


def own_run(stage: Stage, api: AirflowApi) -> dict[str, float]:
    """Of Tidegate's DAG, with new records."""
    stage.fill(PIPELINE, COUNTS)
    return one_run(api, PIPELINE)


def bare_run(stage: Stage, api: AirflowApi, job: LoadJob) -> dict[str, float]:
    """One task, which is told the offsets, and neither saves nor checks anything."""
    ranges: tuple[OffsetRange, ...] = stage.fill("runs_bare", COUNTS)
    arguments = {**stream_job(stage, job), "ranges": ranges_to_json(ranges)}
    return one_run(api, "bare", {"job": json.dumps(arguments)})


def stream_run(stage: Stage, job: LoadJob) -> dict[str, float]:
    """A process that reads what its checkpoint has not seen."""
    stage.fill("runs_stream", COUNTS)
    return seconds_of(lambda: run_process(stage, "stream", stream_job(stage, job)))


def after_up(stage: Stage) -> dict[str, float]:
    """The first run after a start of the platform, and the tenth, each one right after the run before it."""
    stage.down()
    platform = stage.up("kafka", "spark", "airflow", warm=True)
    with platform.api() as api:
        times = [own_run(stage, api)["time"] for _ in range(AFTER_UP)]
    return {"first": times[0], "tenth": times[-1]}


def shows(m: Medians) -> str:
    """Beside the others, and after a start."""
    ours = m[OURS]["time"]
    more, bare, process = ours - m[NOTHING]["time"], m[BARE]["time"] / ours, m[PROCESS]["time"] / ours
    return (
        f"A warm run takes {ours:.1f} s, {more:.1f} s of them more than three tasks that do nothing; the bare task takes "
        f"{bare:.1f} times as long, and a streaming process {process:.1f} times."
    )


COMPARISON = Comparison(
    name="runs",
    title="One DAG run of 4,000 records",
    about="Seconds from queued to success, by Airflow's own times; `plan`, `load` and `commit` are those of its tasks. The "
    "bare `SparkSubmitOperator` is one task that appends explicit offsets by the same transform to a table of the "
    "same kind, and neither plans nor commits. The `availableNow` process is timed from its start to its end, without "
    "Airflow. After `up` the platform has just been stopped and started, and the runs follow at once.",
    measures={"time": "s", "plan": "s", "load": "s", "commit": "s"},
    bars=(
        Bar(
            "runs: a warm run, beyond three empty tasks",
            Term(OURS, "time"),
            1.0,
            0.6,
            Term(NOTHING, "time"),
            "difference",
            unit="s",
        ),
        Bar("runs: the bare task, to a warm run", Term(BARE, "time"), 5, 7, against=Term(OURS, "time"), at_least=True),
        Bar("runs: the first after up, to the tenth", Term(FIRST, "time"), 2, 1.3, against=Term(LAST, "time")),
    ),
    shows=shows,
    measure=measure,
)

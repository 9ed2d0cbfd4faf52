"""One whole DAG run of 4,000 records, from queued to success, beside the usual ways of running the same.

    python -m tests.bench.runs [--rounds 5] [--warm-up 3] [--restarts 5]

All DAGs run on one embedded platform. What Airflow says of a run is taken, not what a client sees; a process is timed from its
start to its end. Then the platform is stopped and started again, and ten runs follow at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench import jobs
from tests.bench.cli import run
from tests.bench.stage import RUN, Stage, seconds_of, told
from tests.bench.throughput import run_process, stream_job
from tidegate.airflow.remote.api import AirflowApi
from tidegate.core.model.ranges import OffsetRange, ranges_to_json
from tidegate.core.state.jobs import LoadJob
from tidegate.spark.session import connect

OURS, NOTHING, BARE, PROCESS = "Tidegate", "three tasks that do nothing", "bare SparkSubmitOperator", "availableNow process"
FIRST, LAST = "Tidegate, first run after up", "Tidegate, tenth run after up"
AFTER_UP = 10
TIMEOUT_S = 300
COUNTS = (RUN // 4,) * 4
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
    """Seconds of one run, and of its tasks; one that fails ends the benchmark."""
    run_id = api.trigger(dag_id, conf)
    ended = api.wait_run(dag_id, run_id, timeout_s=TIMEOUT_S)
    if ended["state"] != "success":
        raise SystemExit(f"{dag_id} failed: {api.why_failed(dag_id, run_id)}")
    tasks = {task["task_id"]: float(task["duration"]) for task in api.task_instances(dag_id, run_id)}
    took = datetime.fromisoformat(ended["end_date"]) - datetime.fromisoformat(ended["queued_at"])
    return {"time": took.total_seconds(), **tasks}


def measure(rounds: int, warm_up: int, restarts: int, folder: Path) -> dict[str, Any]:
    """Warm runs by turns, then first and tenth runs."""
    with closing(Stage(folder, rounds, warm_up)) as stage:
        stage.set_dags([PIPELINE], nothing=_NOTHING, bare=_BARE)
        platform = stage.up("kafka", "spark", "airflow", warm=True)
        beside = {name: stage.job_for("parse_json", stage.fill(f"runs_{name}", COUNTS)) for name in ("bare", "stream")}
        stage.fill(PIPELINE, COUNTS)
        with connect(platform.spark_remote, name="bench") as spark:
            for job in beside.values():
                stage.make_table(spark, job)
        with platform.api() as api:
            for dag_id in (PIPELINE, "nothing", "bare"):
                api.wait_dag(dag_id, timeout_s=120)
                api.unpause(dag_id)
            samples = stage.alternate(
                {
                    OURS: partial(own_run, stage, api),
                    NOTHING: partial(one_run, api, "nothing"),
                    BARE: partial(bare_run, stage, api, beside["bare"]),
                    PROCESS: partial(stream_run, stage, beside["stream"]),
                }
            )
        for _ in range(restarts):
            for name, seconds in after_up(stage).items():
                samples.setdefault(name, {}).setdefault("time", []).append(seconds)
    return told(samples)


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
    stage.platform.down()
    platform = stage.up("kafka", "spark", "airflow", warm=True)
    with platform.api() as api:
        times = [own_run(stage, api)["time"] for _ in range(AFTER_UP)]
    return {FIRST: times[0], LAST: times[-1]}


if __name__ == "__main__":
    run(__doc__, measure, rounds=5, warm_up=3, restarts=5)

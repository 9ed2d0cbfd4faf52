"""Seconds from queued to success: a warm run of 4,000 records against a DAG of three tasks that do nothing, alternately.

    python -m tests.bench.run_overhead [--rounds 10]

Both run on one embedded platform in a temporary folder, started and stopped here. The bar is the difference of the medians.
"""

from __future__ import annotations

import shutil
import statistics
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.bench.cli import run
from tidegate.airflow.remote.api import AirflowApi
from tidegate.local import Platform
from tidegate.local.flights import create_topic, produce, read_flights

REPO = Path(__file__).parents[2]
NOTHING = """
from airflow.sdk import DAG, BaseOperator


class Nothing(BaseOperator):
    def execute(self, context):
        return None


with DAG("nothing", schedule=None, max_active_runs=1):
    Nothing(task_id="a") >> Nothing(task_id="b") >> Nothing(task_id="c")
"""
RECORDS = 4000


def seconds(since: str, until: str) -> float:
    """Between two of Airflow's times."""
    return (datetime.fromisoformat(until) - datetime.fromisoformat(since)).total_seconds()


def one_run(api: AirflowApi, dag_id: str) -> dict[str, float]:
    """Seconds of one run, and of its tasks."""
    run_id = api.trigger(dag_id)
    run = api.wait_run(dag_id, run_id, timeout_s=120)
    if run["state"] != "success":
        raise SystemExit(f"{dag_id} {run_id} ended as {run['state']}")
    tasks = {t["task_id"]: t["duration"] for t in api.task_instances(dag_id, run_id)}
    phases = (api.xcom(dag_id, run_id, "load") or {}).get("seconds", {}) if dag_id == "flights" else {}
    return {"run": seconds(run["queued_at"], run["end_date"]), **tasks, **{f"load: {name}": s for name, s in phases.items()}}


def measure(rounds: int, folder: Path) -> dict[str, Any]:
    """Medians of both DAGs over the rounds, after three that warm up."""
    for name in ("dags", "spark_jobs"):
        shutil.copytree(REPO / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "dags" / "nothing.py").write_text(NOTHING)
    platform = Platform(folder / ".tidegate", folder)
    found: dict[str, list[dict[str, float]]] = {"flights": [], "nothing": []}
    try:
        platform.up()
        platform.sync_pools({"tidegate_lake_demo_flights": 4})
        kafka = {"bootstrap.servers": platform.bootstrap_servers}
        create_topic(kafka)
        flights = read_flights(RECORDS)
        with platform.api() as api:
            for dag_id in found:
                api.wait_dag(dag_id)
                api.unpause(dag_id)
            for turn in range(rounds + 3):
                produce(kafka, flights)
                for dag_id, runs in found.items():
                    run = one_run(api, dag_id)
                    if turn >= 3:
                        runs.append(run)
                    print(f"round {turn - 2}: {dag_id} {run['run']:.2f} s", file=sys.stderr)  # noqa: T201
    finally:
        platform.down()
    medians = {
        dag_id: {key: round(statistics.median(r[key] for r in runs), 2) for key in runs[0]} for dag_id, runs in found.items()
    }
    return {**medians, "difference": round(medians["flights"]["run"] - medians["nothing"]["run"], 2), "rounds": rounds}


if __name__ == "__main__":
    run(__doc__, measure, rounds=10)

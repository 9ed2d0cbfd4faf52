"""The demo, as a user runs it, and after the Spark server was killed in the middle of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.e2e.project import Project, answer
from tests.e2e.runs import Runs
from tidegate.airflow.remote.api import AirflowApi
from tidegate.waiting import wait_until
from tidegate_local.platform import Platform


def test_the_demo_loads_every_record_once_and_a_second_demo_adds_to_it(project: Project, platform: Platform) -> None:
    """Four thousand flights in runs of fifteen hundred, each with its own saved range; then a thousand more."""
    first = project.tidegate("demo", "--records", "4000")
    assert first["produced"] == 4000
    assert [r["seq"] for r in first["runs"]] == [1, 2, 3]
    assert all(r["state"] == "success" and r["seconds"] > 0 for r in first["runs"])
    assert all(set(r["task_seconds"]) == {"plan", "load", "commit"} for r in first["runs"])
    assert (first["verdict"]["holds"], first["verdict"]["records"], first["verdict"]["rows"]) == (True, 4000, 4000)
    second = project.tidegate("demo", "--records", "1000")
    assert [r["seq"] for r in second["runs"]] == [4]
    assert (second["verdict"]["holds"], second["verdict"]["rows"]) == (True, 5000)


def test_the_queries_that_the_demo_prints_answer(project: Project, platform: Platform) -> None:
    """PyIceberg and DuckDB, word for word."""
    out, _ = project.start("demo", "--records", "0").communicate(timeout=300)
    assert f"Airflow: {platform.airflow_url}  user admin  password" in out
    code = "\n".join(line[2:] for line in out.splitlines() if line.startswith("  ")) + ".show()\n"
    assert "import duckdb" in code
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "count_star()" in done.stdout


def test_a_spark_server_killed_during_the_second_load_costs_neither_a_try_nor_a_record(
    project: Project, platform: Platform, api: AirflowApi
) -> None:
    """`kill -9`, and `tidegate up` once the load waits, in its one try; the demo ends with the verdict that holds."""
    before = {r["dag_run_id"] for r in api.dag_runs("flights")}
    demo = project.start("demo", "--records", "3000", "--json")

    def second_run() -> list[str]:
        return [r["dag_run_id"] for r in api.dag_runs("flights") if r["dag_run_id"] not in before][1:2]

    assert wait_until(lambda: bool(second_run()), 300, poll_s=0.1)
    (second,) = second_run()
    runs = Runs(api, "flights")
    runs.wait_task(second, "load", "running", timeout_s=300)
    killed = next(s.pid for s in platform.status() if s.name == "spark")
    assert killed is not None
    os.kill(killed, signal.SIGKILL)

    def load() -> tuple[str, int]:
        return next((t["state"], t["try_number"]) for t in api.task_instances("flights", second) if t["task_id"] == "load")

    def waits() -> bool:
        return "does not count as a failed try" in api.task_log("flights", second, "load", 1)

    assert wait_until(waits, 600, poll_s=0.5)
    assert load() == ("running", 1)
    repair = project.start("up", "--no-warm-up")
    assert repair.communicate(timeout=600) is not None
    assert repair.returncode == 0
    found = answer(demo)
    assert found["verdict"]["holds"]
    assert (found["verdict"]["records"], found["verdict"]["rows"]) == (8000, 8000)
    assert all(r["state"] == "success" for r in found["runs"])
    assert load() == ("success", 1)
    assert "It answers again after" in api.task_log("flights", second, "load", 1)

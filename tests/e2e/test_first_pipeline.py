"""The pipeline of the README, added while the platform runs: nothing but its two files is needed."""

from __future__ import annotations

import json
import re
from pathlib import Path

from confluent_kafka import Producer

from tests.e2e.project import REPO, Project
from tests.e2e.runs import Runs
from tidegate.airflow.remote.api import AirflowApi
from tidegate.local import Platform
from tidegate.local.flights import create_topic


def example(readme: Path, language: str, containing: str) -> str:
    """A block of code of the README."""
    blocks = re.findall(rf"```{language}\n(.*?)```", readme.read_text(), re.DOTALL)
    return next(str(block) for block in blocks if containing in block)


def test_the_readmes_pipeline_loads_though_its_file_is_added_while_the_platform_runs(
    api: AirflowApi, platform: Platform, project: Project
) -> None:
    """The first run makes the pool of its sink; `status` names it before, and no longer afterwards."""
    kafka = {"bootstrap.servers": platform.bootstrap_servers}
    create_topic(kafka, "orders", 1)
    producer = Producer(kafka)
    for n in range(20):
        producer.produce("orders", json.dumps({"id": n, "item": "book", "price": 9.5}))
    assert producer.flush(30) == 0
    pool = "/pools/tidegate_lake_shop_orders"
    assert api.find(pool) is None
    (project.root / "spark_jobs/transforms/orders.py").write_text(example(REPO / "README.md", "python", "def orders"))
    (project.root / "dags/pipelines/orders.yaml").write_text(example(REPO / "README.md", "yaml", "topics: [orders]"))
    for command in ("check", "status"):
        asked = project.start(command)
        _, told = asked.communicate(timeout=120)
        assert "pool tidegate_lake_shop_orders: not there yet, made when the next run starts" in told
        assert asked.returncode == 0
    runs = Runs(api, "orders")
    run = runs.run()
    assert run["state"] == "success", runs.log(run, "load")
    # its schedule may have started a run before
    loads = [api.xcom("orders", r["dag_run_id"], "load") for r in api.dag_runs("orders") if r["state"] == "success"]
    assert sum(load["receipt"]["rows"] for load in loads if load) == 20
    assert api.get(pool)["slots"] == 4
    assert "airflow pools set tidegate_lake_shop_orders 4" in runs.log(run, "plan")
    asked = project.start("status")
    assert "pool" not in asked.communicate(timeout=120)[1]


def test_a_pool_that_operators_changed_keeps_its_slots(api: AirflowApi) -> None:
    """Slots are theirs to tune."""
    runs = Runs(api, "flights")
    name = "tidegate_lake_demo_flights"
    api.sync_pool(name, 4)
    api.patch(f"/pools/{name}", {"pool": name, "slots": 2, "description": "tuned", "include_deferred": False})
    assert runs.run()["tasks"]["plan"] in {"success", "skipped", "failed"}
    assert (api.get(f"/pools/{name}")["slots"], api.get(f"/pools/{name}")["description"]) == (2, "tuned")

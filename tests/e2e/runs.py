"""DAG runs through Airflow's REST API, and what they have saved."""

from __future__ import annotations

from typing import Any

from tidegate.airflow.remote.api import AirflowApi
from tidegate.airflow.remote.schedule import ApiStore
from tidegate.core.model.ranges import ranges_to_json
from tidegate.core.state.codec import decode
from tidegate.core.state.ledger import Ledger
from tidegate.waiting import wait_until


def saved_ranges(api: AirflowApi, pipeline: str, run_id: str) -> dict[str, dict[str, list[int]]]:
    """The range that a run has saved, by the key that its plan hands on."""
    key = api.xcom(pipeline, run_id, "plan")["key"]
    return ranges_to_json(Ledger(ApiStore(api), pipeline).saved_range(key).load.ranges)


def state_of(api: AirflowApi, key: str) -> dict[str, Any]:
    """What a Variable of ours holds."""
    return decode(key.split(".")[2], api.variable(key), key=key, repair="")


def asset_events(api: AirflowApi, name: str) -> list[dict[str, Any]]:
    """What the events of an asset carry, the newest first."""
    (asset,) = [a for a in api.get("/assets", name_pattern=name)["assets"] if a["name"] == name]
    found = api.get("/assets/events", asset_id=asset["id"], order_by="-timestamp", limit=100)["asset_events"]
    return [event["extra"] for event in found]


POLL_S = 0.5
"""A look costs the API server 20 to 30 ms of CPU, and a run takes seconds."""


class Runs:
    """Triggers runs of one pipeline and waits for their ends."""

    def __init__(self, api: AirflowApi, dag_id: str) -> None:
        self.api, self.dag_id = api, dag_id
        api.wait_dag(dag_id)
        api.unpause(dag_id)

    def run(self, **conf: Any) -> dict[str, Any]:
        """One run to its end; its tasks' states are under `tasks`."""
        run_id = self.api.trigger(self.dag_id, conf)
        return self.ended(run_id)

    def ended(self, run_id: str) -> dict[str, Any]:
        """The run, once it ended."""
        run = self.api.wait_run(self.dag_id, run_id, timeout_s=600, poll_s=POLL_S)
        tasks = self.api.task_instances(self.dag_id, run_id)
        return {**run, "tasks": {t["task_id"]: t["state"] for t in tasks}}

    def cleared(self, run_id: str, *tasks: str | list[str | int]) -> dict[str, Any]:
        """The run, once these of its tasks (a mapped one with its index) were cleared and ended again."""
        body = {"dry_run": False, "dag_run_id": run_id, "task_ids": list(tasks), "only_failed": False}
        self.api.post(f"/dags/{self.dag_id}/clearTaskInstances", body)
        return self.ended(run_id)

    def log(self, run: dict[str, Any], task_id: str) -> str:
        """The log of the last try of a task."""
        tries = {t["task_id"]: t["try_number"] for t in self.api.task_instances(self.dag_id, run["dag_run_id"])}
        return self.api.task_log(self.dag_id, run["dag_run_id"], task_id, tries[task_id])

    def wait_task(self, run_id: str, task_id: str, *states: str, timeout_s: float = 300) -> None:
        """Wait until a task of the run is in one of the states."""

        def is_there() -> bool:
            return any(t["task_id"] == task_id and t["state"] in states for t in self.api.task_instances(self.dag_id, run_id))

        assert wait_until(is_there, timeout_s, poll_s=0.2)

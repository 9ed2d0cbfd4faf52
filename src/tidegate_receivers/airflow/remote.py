"""What Airflow's REST API knows of receivers."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.airflow.remote.api import AirflowApi
from tidegate_receivers.config.receiver import Receiver
from tidegate_receivers.rules.placement import Assigned, mapped
from tidegate_receivers.views import InstanceView, ReceiverView

MOST_ACTIVE = 2
"""Active runs of a receiver: one that ends, and the one that takes over."""


def read_receiver(api: AirflowApi, receiver: Receiver) -> ReceiverView:
    """How a receiver does, by the runs of its DAG that are active, or else by the last one."""
    dag = api.dag(receiver.dag_id)
    if dag is None:
        return ReceiverView(receiver.name, paused=None)
    runs = api.newest_runs(receiver.dag_id, MOST_ACTIVE)
    active = [run["dag_run_id"] for run in runs if run["state"] == "running"]
    shown = active or [run["dag_run_id"] for run in runs[:1]]
    instances = [each for run_id in reversed(shown) for each in _instances(api, receiver, run_id)]
    return ReceiverView(receiver.name, dag["is_paused"], tuple(instances))


def _instances(api: AirflowApi, receiver: Receiver, run_id: str) -> Iterator[InstanceView]:
    placed = [Assigned(**item) for item in api.xcom(receiver.dag_id, run_id, "place") or ()]
    tasks = {(ti["task_id"], ti["map_index"]): ti for ti in api.task_instances(receiver.dag_id, run_id)}
    for each, task_id, index in mapped(placed, receiver.workers.tasks):
        task = tasks.get((task_id, index), {"state": None, "try_number": 0})
        status = api.xcom(receiver.dag_id, run_id, task_id, "status", map_index=index)
        yield InstanceView(placed=each, run_id=run_id, task_state=task["state"], tries=task["try_number"], status=status or {})

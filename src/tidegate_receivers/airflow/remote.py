"""What receivers do, by Airflow's REST API: where their instances run, and how each does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.airflow.remote.api import AirflowApi
from tidegate.core.model.times import utc
from tidegate_receivers.config.receiver import Receiver
from tidegate_receivers.rules.placement import Assigned, mapped

MOST_ACTIVE = 2
"""Active runs of a receiver: one that ends, and the one that takes over."""


@dataclass(frozen=True, kw_only=True)
class InstanceView:
    """One instance in one run; its fields are its JSON.

    Attributes:
        instance: its number, from 0.
        host: where it runs.
        queue: the Airflow queue that leads there.
        until: when its lease ends (ISO 8601).
        run_id: the run that runs it.
        state: what it says of itself while its task runs, `paused` with its DAG, otherwise the state of the task.
        task_state: the state of its task in Airflow; None: it has none yet.
        tries: how often the task was started.
        status: what the instance said last: `at` (ISO 8601), `state`, used share of its `buffer`, `records` and `bytes` that
            the broker has acknowledged, `throttled_s`, `restarts`, `refused`, `last_error`, the `rate` (records/s) and `room`
            (records) of its back-pressure, the topic's `lag`, whether it is `deaf`, ...; empty before the first time.
    """

    instance: int
    host: str
    queue: str
    until: str
    run_id: str
    state: str
    task_state: str | None
    tries: int
    status: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ReceiverView:
    """One receiver; its fields are its JSON.

    Attributes:
        receiver: its name.
        paused: whether its DAG is paused; None: Airflow does not know the DAG yet.
        instances: those of the runs that are active, or else of the last one.
    """

    receiver: str
    paused: bool | None
    instances: tuple[InstanceView, ...] = ()


def read_receiver(api: AirflowApi, receiver: Receiver) -> ReceiverView:
    """How a receiver does, by the runs of its DAG that are active, or else by the last one."""
    dag = api.dag(receiver.dag_id)
    if dag is None:
        return ReceiverView(receiver=receiver.name, paused=None)
    runs = api.newest_runs(receiver.dag_id, MOST_ACTIVE)
    active = [run["dag_run_id"] for run in runs if run["state"] == "running"]
    shown = active or [run["dag_run_id"] for run in runs[:1]]
    instances = tuple(each for run_id in reversed(shown) for each in _instances(api, receiver, run_id))
    return ReceiverView(receiver=receiver.name, paused=dag["is_paused"], instances=instances)


def _instances(api: AirflowApi, receiver: Receiver, run_id: str) -> Iterator[InstanceView]:
    placed = [Assigned(**item) for item in api.xcom(receiver.dag_id, run_id, "place") or ()]
    tasks = {(ti["task_id"], ti["map_index"]): ti for ti in api.task_instances(receiver.dag_id, run_id)}
    for each, task_id, index in mapped(placed, receiver.workers.tasks):
        task = tasks.get((task_id, index), {"state": None, "try_number": 0})
        status = api.xcom(receiver.dag_id, run_id, task_id, "status", map_index=index) or {}
        yield InstanceView(
            instance=each.instance,
            host=each.host,
            queue=each.queue,
            until=utc(int(each.until_s) * 1000),
            run_id=run_id,
            state=_state(task["state"], status),
            task_state=task["state"],
            tries=task["try_number"],
            status=status,
        )


def _state(of_task: str | None, status: Mapping[str, Any]) -> str:
    if of_task == "up_for_reschedule":  # as Airflow says of a task that goes on later
        return "paused"
    said = status.get("state") if of_task == "running" else None
    return str(said or of_task or "waiting")

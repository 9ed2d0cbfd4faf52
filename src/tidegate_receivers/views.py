"""What receivers do: where their instances run, and how each does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.core.model.times import utc
from tidegate_receivers.rules.placement import Assigned


@dataclass(frozen=True, kw_only=True)
class InstanceView:
    """One instance in one run.

    Attributes:
        placed: where it runs, and until when.
        run_id: the run that runs it.
        task_state: the state of its task in Airflow; None: it has none yet.
        tries: how often the task was started.
        status: what the instance said last: `at` (ISO 8601), `state`, used share of its `buffer`, `records` and `bytes` that
            the broker has acknowledged, `throttled_s`, `restarts`, `refused`, `last_error`, the `rate` (records/s) and `room`
            (records) of its back-pressure, the topic's `lag`, whether it is `deaf`, ...; empty before the first time.
    """

    placed: Assigned
    run_id: str
    task_state: str | None
    tries: int
    status: Mapping[str, Any]

    @property
    def state(self) -> str:
        """What it says of itself while its task runs, `paused` with its DAG, otherwise the state of the task."""
        if self.task_state == "up_for_reschedule":  # as Airflow says of a task that goes on later
            return "paused"
        said = self.status.get("state") if self.task_state == "running" else None
        return str(said or self.task_state or "waiting")

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "instance": self.placed.instance,
            "host": self.placed.host,
            "queue": self.placed.queue,
            "until": utc(int(self.placed.until_s) * 1000),
            "run_id": self.run_id,
            "state": self.state,
            "task_state": self.task_state,
            "tries": self.tries,
            "status": dict(self.status),
        }


@dataclass(frozen=True)
class ReceiverView:
    """One receiver.

    Attributes:
        name: its name.
        paused: whether its DAG is paused; None: Airflow does not know the DAG yet.
        instances: those of the runs that are active, or else of the last one.
    """

    name: str
    paused: bool | None
    instances: tuple[InstanceView, ...] = ()

    @property
    def state(self) -> str:
        """Of a receiver without instances, in a word or two."""
        if self.paused is None:
            return "not known to Airflow yet"
        return "paused" if self.paused else "starting"

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"receiver": self.name, "paused": self.paused, "instances": [each.to_json() for each in self.instances]}

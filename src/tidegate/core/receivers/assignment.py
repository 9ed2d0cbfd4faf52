"""On which worker and queue each instance of a receiver runs, in one lease.

`placement` chooses workers; here one of the candidates is taken, and the queue that leads to it. Airflow sends a task to a
queue, and not to a worker: an instance runs where it was placed if its worker is the only one of the queue.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from tidegate.core.receivers.placement import Tracked, Worker, reschedule_receiver, schedule_receivers

Live = Sequence[tuple[Worker, Container[str]]]
"""The live workers, each with the queues that it takes tasks from."""
NOWHERE = "unknown"
"""The host of an instance that was placed while no worker was known."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """Where an instance is to run, and until when.

    Args:
        instance: its number, from 0.
        host: of the worker that it was placed on; `NOWHERE` where none was known.
        queue: the Airflow queue that leads there.
        until_s: when it stops accepting (epoch s); what it has accepted is then delivered.
    """

    instance: int
    host: str
    queue: str
    until_s: float

    def __str__(self) -> str:
        """As labels and logs name it."""
        return f"{self.instance} on {self.host}"

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def on_queues(live: Live, queues: Sequence[str]) -> Live:
    """The live workers that take tasks from one of the queues."""
    return [(worker, of) for worker, of in live if any(queue in of for queue in queues)]


def are_ready(live: Live, *, expected: int, share: float) -> bool:
    """Whether so many workers are up that instances may be placed.

    Args:
        live: the workers on the receiver's queues.
        expected: how many there are when all are up.
        share: of the expected workers, above 0 and at most 1. It counts as written: 0.7 of 10 are 7.
    """
    return len(live) >= expected * Fraction(str(share))


def assign(
    preferred: Mapping[int, str | None], live: Live, *, queues: Sequence[str], failed: Mapping[int, str], until_s: float
) -> list[Assigned]:
    """Place every instance of a receiver, by `schedule_receivers`.

    An instance that failed is then placed once more, by `reschedule_receiver`, among the workers of other hosts, where there
    are any. So the others stay where they are.

    Args:
        preferred: the preferred host of each instance, or None.
        live: the workers on the receiver's queues.
        queues: the receiver's queues, the first one for instances while no worker is known.
        failed: the host that each instance failed on in the last run, for those that did.
        until_s: as in `Assigned`.

    Raises:
        RequestError: two workers on different hosts have the same name.
    """
    workers = [worker for worker, _ in live]
    hosts = {worker.name: worker.host for worker in workers}
    placed: dict[int, str | None] = {}
    for instance, names in schedule_receivers(preferred, workers).items():
        placed[instance] = _first_live(names, hosts)
    for instance in sorted(failed.keys() & preferred.keys()):
        others = [worker for worker in workers if worker.host != failed[instance]]
        if others:
            placed[instance] = None
            host = preferred[instance]
            again = reschedule_receiver(instance, None if host == failed[instance] else host, _tracked(placed), others)
            placed[instance] = _first_live(again, hosts)
    for instance, name in placed.items():
        if name is None:  # its preferred host has no live worker
            placed[instance] = _first_live(reschedule_receiver(instance, None, _tracked(placed), workers), hosts)
    queue_of = {worker.name: _queue(of, live, queues) for worker, of in live}
    return [
        Assigned(instance, NOWHERE, queues[0], until_s)
        if name is None
        else Assigned(instance, hosts[name], queue_of[name], until_s)
        for instance, name in placed.items()
    ]


def _first_live(names: Sequence[str], hosts: Mapping[str, str]) -> str | None:
    return next((name for name in names if name in hosts), None)


def _tracked(placed: Mapping[int, str | None]) -> dict[int, Tracked]:
    """What counts on the workers, for `reschedule_receiver`."""
    return {instance: Tracked("scheduled", (name,)) for instance, name in placed.items() if name is not None}


def _queue(of: Container[str], live: Live, queues: Sequence[str]) -> str:
    """The queue of a worker that the fewest workers share."""
    return min((queue for queue in queues if queue in of), key=lambda queue: sum(queue in other for _, other in live))


def failed_instances(lists: Mapping[str, Sequence[Mapping[str, Any]]], states: Mapping[str, str]) -> set[int]:
    """The instances that failed in a run, or are failing.

    Args:
        lists: for each mapped task of the run, what it was mapped over: `Assigned.to_json` of each index.
        states: of its task instances, each by the task's id, _ and the index.
    """
    return {
        item["instance"]
        for task_id, items in lists.items()
        for index, item in enumerate(items)
        if states.get(f"{task_id}_{index}") in ("failed", "up_for_retry")
    }


def sharing(instances: int, now_s: float, until_s: float, lease_s: float, overlap_s: float) -> int:
    """How many instances share what the pipeline takes: in the first and the last moments of a lease, those of two leases.

    Args:
        instances: of one lease.
        now_s: epoch s.
        until_s: when the lease ends, the overlap included (epoch s).
        lease_s: seconds of a lease, without the overlap.
        overlap_s: seconds that it goes on beside the next one.
    """
    alone = until_s - lease_s <= now_s < until_s - overlap_s
    return instances if alone else 2 * instances

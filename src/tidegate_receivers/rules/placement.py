"""On which worker and queue each instance of a receiver runs, in one lease.

`schedule_receivers` and `reschedule_receiver` name candidates; `assign` takes one of them, and the queue that leads to it.
Airflow sends a task to a queue, and not to a worker: an instance runs where it was placed if its worker is the only one of the
queue.

The candidates are from Spark's `ReceiverSchedulingPolicy`, with these differences. Weights are exact fractions: ten tenths are
as much as one receiver, which they are not as doubles. Only live workers are chosen by weight, where Spark may choose an
executor that has gone. A preferred host is a candidate even if no worker is live.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

from tidegate.core.model.errors import RequestError

State = Literal["inactive", "scheduled", "active"]


@dataclass(frozen=True, slots=True)
class Worker:
    """A live process that can run receivers; a host may have several.

    Args:
        name: names one process.
        host: where the process runs.

    Raises:
        RequestError: the name or the host is empty.
    """

    name: str
    host: str

    def __post_init__(self) -> None:
        if not self.name or not self.host:
            raise RequestError(
                f"worker {self.name!r} on host {self.host!r}: both must be named", fix="Pass the name and the host"
            )


@dataclass(frozen=True, slots=True)
class Tracked:
    """What is known of a receiver.

    Args:
        state: `inactive`: it runs nowhere; `scheduled`: it will start on one of its workers; `active`: it runs on its worker.
        workers: names of workers, which may be dead; those of an inactive receiver do not count.

    Raises:
        RequestError: the state is unknown, the workers are one string, or an active receiver has not exactly one worker.
    """

    state: State
    workers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.state not in get_args(State):
            raise RequestError(f"unknown state of a receiver: {self.state!r}", fix=f"Use one of {', '.join(get_args(State))}")
        workers: object = self.workers
        if isinstance(workers, str):  # which is a sequence of names too
            raise RequestError(f"workers: expected a tuple of names, got {self.workers!r}", fix=f"Pass ({self.workers!r},)")
        if self.state == "active" and len(self.workers) != 1:
            raise RequestError(
                f"an active receiver has one worker, got {self.workers!r}", fix="Name the worker that it runs on"
            )


def schedule_receivers(preferred: Mapping[int, str | None], workers: Sequence[Worker]) -> dict[int, tuple[str, ...]]:
    """The candidates of each receiver, when none of them runs yet.

    1. A receiver with a preferred host gets the worker of that host that has the fewest receivers; without a live worker there,
       the host itself, whose worker may still come.
    2. Each other receiver gets the worker that has the fewest receivers.
    3. Each worker that has no receiver yet joins the receiver with the fewest candidates.

    Receivers are taken in the order of `preferred`, workers in their own; of equals the first is chosen.

    Args:
        preferred: the preferred host of each receiver, or None.
        workers: the live workers; the same worker twice is one.

    Returns:
        For each receiver names of workers, without duplicates, the best candidate first. Without workers only preferred hosts.

    Raises:
        RequestError: a preferred host is empty, or two workers on different hosts have the same name.
    """
    hosts = _hosts(workers)
    load = dict.fromkeys(hosts, 0)
    # the values are ordered sets: a preferred host without a worker may have the name of a worker elsewhere
    candidates: dict[int, dict[str, None]] = {receiver: {} for receiver in preferred}
    for receiver, host in preferred.items():
        if on_host := _on_host(receiver, host, hosts):
            candidates[receiver][_least_loaded(on_host, load)] = None
        elif host is not None:
            candidates[receiver][host] = None
    for names in candidates.values():
        if load and not names:
            names[_least_loaded(load, load)] = None
    for worker in [name for name, receivers in load.items() if not receivers]:
        if candidates:
            min(candidates.values(), key=len)[worker] = None
    return {receiver: tuple(names) for receiver, names in candidates.items()}


def reschedule_receiver(
    receiver: int, preferred: str | None, tracked: Mapping[int, Tracked], workers: Sequence[Worker]
) -> tuple[str, ...]:
    """The candidates of one receiver that has to start again, while others run.

    Every live worker of the preferred host (without one, the host itself), and every idle worker or, when none is idle, every
    worker of the least weight. A worker's weight is the number of receivers to expect on it: an active receiver adds 1 to its
    worker, a scheduled one 1/n to each of its n workers, dead ones counted. The receiver's own entry counts like any other:
    pass it as inactive where it must not.

    Args:
        receiver: which receiver, for messages.
        preferred: its preferred host, or None.
        tracked: what is known of each receiver.
        workers: the live workers; the same worker twice is one.

    Returns:
        Names of workers, without duplicates, those of the preferred host first. Without workers only the preferred host.

    Raises:
        RequestError: the preferred host is empty, or two workers on different hosts have the same name.
    """
    hosts = _hosts(workers)
    weights = dict.fromkeys(hosts, Fraction(0))
    for entry in tracked.values():
        for name in entry.workers:
            if entry.state != "inactive" and name in weights:
                weights[name] += Fraction(1, len(entry.workers))
    lightest = min(weights.values(), default=None)
    first = _on_host(receiver, preferred, hosts) or ([] if preferred is None else [preferred])
    return tuple(dict.fromkeys([*first, *(name for name, weight in weights.items() if weight == lightest)]))


def _hosts(workers: Iterable[Worker]) -> dict[str, str]:
    """The host of each worker."""
    hosts: dict[str, str] = {}
    for worker in workers:
        if hosts.setdefault(worker.name, worker.host) != worker.host:
            raise RequestError(
                f"worker {worker.name!r} is on two hosts, {hosts[worker.name]!r} and {worker.host!r}",
                fix="Give each worker a name of its own",
            )
    return hosts


def _on_host(receiver: int, host: str | None, hosts: Mapping[str, str]) -> list[str]:
    """The live workers of a preferred host."""
    if host == "":
        raise RequestError(f"the preferred host of receiver {receiver} is empty", fix="Name a host, or pass None")
    return [name for name, of_worker in hosts.items() if of_worker == host]


def _least_loaded(names: Iterable[str], load: dict[str, int]) -> str:
    """The worker with the fewest receivers, which gets one more."""
    name = min(names, key=load.__getitem__)
    load[name] += 1
    return name


# ---- one lease

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
        share: of the expected workers, above 0 and at most 1. It counts as written: 0.55 of 100 are 55.
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
    placed = {instance: _first_live(names, workers) for instance, names in schedule_receivers(preferred, workers).items()}

    def move(instance: int, host: str | None, among: Sequence[Worker]) -> None:
        beside = {other: Tracked("scheduled", (name,)) for other, name in placed.items() if name is not None}
        placed[instance] = _first_live(reschedule_receiver(instance, host, beside, among), among)

    for instance in sorted(failed.keys() & preferred.keys()):
        if others := [worker for worker in workers if worker.host != failed[instance]]:
            move(instance, preferred[instance], others)
    for instance, name in placed.items():
        if name is None:  # its preferred host has no live worker
            move(instance, None, workers)
    where = {worker.name: (worker.host, _queue(of, live, queues)) for worker, of in live}
    unknown = (NOWHERE, queues[0])
    return [
        Assigned(instance, *(unknown if name is None else where[name]), until_s=until_s) for instance, name in placed.items()
    ]


def _first_live(names: Sequence[str], workers: Sequence[Worker]) -> str | None:
    live = {worker.name for worker in workers}
    return next((name for name in names if name in live), None)


def _queue(of: Container[str], live: Live, queues: Sequence[str]) -> str:
    """The queue of a worker that the fewest workers share."""
    return min((queue for queue in queues if queue in of), key=lambda queue: sum(queue in other for _, other in live))


def mapped(placed: Sequence[Assigned], tasks: Mapping[str, str]) -> Iterator[tuple[Assigned, str, int]]:
    """Each instance of a run, with the mapped task that runs it and its index there.

    Args:
        placed: all instances of the run.
        tasks: the mapped task of each queue, by the queue.
    """
    for queue, task_id in tasks.items():
        for index, each in enumerate(each for each in placed if each.queue == queue):
            yield each, task_id, index


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

"""What is killed. A fault strikes at a random instant, and ends when what it killed does not live any more."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from tests.chaos.faults import kill
from tests.chaos.receiving.stage import ReceivingStage
from tests.chaos.stage import Held
from tidegate.core.model.errors import TidegateError
from tidegate.waiting import wait_until
from tidegate_local import airflow, broker
from tidegate_local.process import ProcessId, members

FOUND_S = 120.0
LONGEST_DELAY_S = 20.0
"""Random instants lie so far apart that some of them are in a change of leases."""
AWAY_S = 6.0
"""Longer than a sender waits for its answer."""

Strike = Callable[[ReceivingStage, random.Random], None]


@dataclass(frozen=True)
class Fault:
    """One thing that happens."""

    name: str
    what: str
    strike: Strike


@dataclass(frozen=True)
class Planned:
    """The fault of one number, and what draws its delays; it strikes within `within_s` seconds of the one before."""

    number: int
    fault: Fault
    seed: int
    within_s: float = LONGEST_DELAY_S

    def draw(self) -> random.Random:
        """Always the same numbers."""
        return random.Random(f"{self.seed}/{self.number}")  # noqa: S311 - to be repeated, not to be secret


def plan(seed: int, count: int) -> list[Planned]:
    """The first `count` faults of a seed. Each comes once, in an order that the seed shuffles, before any comes again."""
    shuffle = random.Random(seed)  # noqa: S311
    order: list[Fault] = []
    while len(order) < count:
        order += shuffle.sample(FAULTS, len(FAULTS))
    return [Planned(number, fault, seed) for number, fault in enumerate(order[:count], start=1)]


def _kill_instances(*, task: bool, supervisor: bool) -> Strike:
    """All that are there: two, while one lease takes over from another."""

    def strike(stage: ReceivingStage, draw: random.Random) -> None:
        del draw
        found: list[Held] = []

        def is_there() -> bool:
            found.extend(stage.instances())
            return bool(found)

        if not wait_until(is_there, FOUND_S, poll_s=0.5):
            raise TidegateError(f"Airflow runs no instance for {FOUND_S:.0f} s", fix="See the runs in Airflow")
        doomed: list[psutil.Process] = []
        for held in found:
            # the supervisor first, so that it does not see its task go
            doomed += [held.supervisor] * supervisor + [held.task] * task
        kill(*doomed)

    return strike


def _kill_scheduler(stage: ReceivingStage, draw: random.Random) -> None:
    kill(stage.process(airflow.SCHEDULER))
    time.sleep(draw.uniform(0, AWAY_S))


def _kill_schedulers_tree(stage: ReceivingStage, draw: random.Random) -> None:
    kill(*members(ProcessId.of(stage.process(airflow.SCHEDULER).pid)))
    time.sleep(draw.uniform(0, AWAY_S))


def _kill_broker(stage: ReceivingStage, draw: random.Random) -> None:
    kill(stage.process(broker.NAME))
    time.sleep(draw.uniform(0, AWAY_S))


def _kill_path(stage: ReceivingStage, draw: random.Random) -> None:
    scheduler = members(ProcessId.of(stage.process(airflow.SCHEDULER).pid))
    kill(*scheduler, stage.process(broker.NAME))
    time.sleep(draw.uniform(0, AWAY_S))


FAULTS = (
    Fault("receiver", "SIGKILL of the receiver's process", _kill_instances(task=True, supervisor=False)),
    Fault("supervisor", "SIGKILL of the Airflow worker that supervises it", _kill_instances(task=False, supervisor=True)),
    Fault("both", "SIGKILL of the worker and of the receiver's process", _kill_instances(task=True, supervisor=True)),
    Fault("scheduler", "SIGKILL of Airflow's scheduler alone", _kill_scheduler),
    Fault("scheduler-tree", "SIGKILL of the scheduler, its workers and their tasks", _kill_schedulers_tree),
    Fault("broker", "SIGKILL of the Kafka broker", _kill_broker),
    Fault("path", "SIGKILL of the broker, the scheduler, its workers and their tasks at once", _kill_path),
)

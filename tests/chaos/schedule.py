"""Which faults, where, in which order: all of it from one number.

Every (fault, phase) comes once, in an order that the seed shuffles, before any comes again.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

from tests.chaos.faults import FAULTS, Fault
from tests.chaos.stage import ASIDE, BATCHES, CONNECT
from tidegate.failpoints import OF_QUARANTINE


@dataclass(frozen=True)
class Planned:
    """The fault of one number, where it strikes, whose task is held, and what draws its delays."""

    number: int
    fault: Fault
    phase: str
    seed: int
    pipeline: str = CONNECT

    def draw(self) -> random.Random:
        """Always the same numbers."""
        return random.Random(f"{self.seed}/{self.number}")  # noqa: S311 - to be repeated, not to be secret


def plan(seed: int, count: int, *, only: Collection[str] = (), skip: Collection[str] = ()) -> list[Planned]:
    """The first `count` faults of a seed.

    Args:
        seed: any number.
        count: how many.
        only: `fault`, `phase` or `fault:phase`; empty for all.
        skip: the same, to be left out.

    Raises:
        ValueError: there is no such fault or phase, or none is left.
    """
    words = {(f, p): {f.name, p, f"{f.name}:{p}"} for f in FAULTS for p in f.phases}
    if unknown := {*only, *skip} - set().union(*words.values()):
        raise ValueError(f"there is no fault or phase {min(unknown)!r}")
    places = [place for place, said in words.items() if (not only or said & set(only)) and not said & set(skip)]
    if not places:
        raise ValueError("no fault is left")
    shuffle = random.Random(seed)  # noqa: S311
    order: list[tuple[Fault, str]] = []
    while len(order) < count:
        order += shuffle.sample(places, len(places))
    return [
        Planned(number, fault, phase, seed, fault.pipeline or shuffle.choice(pipelines_at(phase)))
        for number, (fault, phase) in enumerate(order[:count], start=1)
    ]


def pipelines_at(phase: str) -> tuple[str, ...]:
    """Those that get there."""
    return (ASIDE,) if phase == OF_QUARANTINE else (CONNECT, BATCHES, ASIDE)

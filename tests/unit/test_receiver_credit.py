"""Laws of credits: who may send how much, and who is next, against a model that moves one place at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidegate.core.errors import RequestError
from tidegate.core.receivers import CreditPool


class Place:
    """One place for one record."""


class Model:
    """The rules read literally: places are things that move one at a time."""

    def __init__(self, exclusive: int, floating: int) -> None:
        self.exclusive = exclusive
        self.free = [Place() for _ in range(floating)]
        self.available: dict[str, list[Place]] = {}
        self.spent: dict[str, list[Place]] = {}
        self.backlog: dict[str, int] = {}
        self.queue: list[str] = []

    def required(self, channel: str) -> int:
        return self.backlog[channel] + self.exclusive

    def short(self, channel: str) -> bool:
        return len(self.available[channel]) < self.required(channel)

    def open(self, channel: str) -> None:
        self.available[channel] = [Place() for _ in range(self.exclusive)]
        self.spent[channel] = []
        self.backlog[channel] = 0

    def announce(self, channel: str, backlog: int) -> None:
        self.backlog[channel] = backlog
        while self.short(channel) and self.free:
            self.available[channel].append(self.free.pop())
        if self.short(channel) and channel not in self.queue:
            self.queue.append(channel)
        self.queue = [c for c in self.queue if self.short(c) or c != channel]

    def spend(self, channel: str) -> None:
        self.spent[channel].append(self.available[channel].pop())

    def give_back(self, channel: str) -> None:
        place = self.spent[channel].pop()
        if self.short(channel) or len(self.available[channel]) + len(self.spent[channel]) < self.exclusive:
            self.available[channel].append(place)
        else:
            self.free.append(place)
        self.grant()

    def close(self, channel: str) -> None:
        self.free += [*self.available.pop(channel), *self.spent.pop(channel)][self.exclusive :]
        del self.backlog[channel]
        self.queue = [c for c in self.queue if c != channel]
        self.grant()

    def grant(self) -> None:
        self.queue = [c for c in self.queue if self.short(c)]
        while self.free and self.queue:
            first = self.queue.pop(0)
            self.available[first].append(self.free.pop())
            if self.short(first):
                self.queue.append(first)


OPEN = st.runner().flatmap(lambda machine: st.sampled_from(sorted(machine.model.available)))


def with_places(places: dict[str, list[Place]]) -> list[str]:
    return sorted(channel for channel, its in places.items() if its)


class Crediting(RuleBasedStateMachine):
    """The pool agrees with the model after every call, and so does what it returns."""

    @initialize(exclusive=st.integers(0, 3), floating=st.integers(0, 12))
    def start(self, exclusive: int, floating: int) -> None:
        """A pool of any size."""
        self.exclusive, self.floating = exclusive, floating
        self.pool, self.model = CreditPool(exclusive, floating), Model(exclusive, floating)
        for channel in ("a", "b"):
            self.open(channel)

    def counts(self) -> dict[str, int]:
        """What the model has available."""
        return {channel: len(places) for channel, places in self.model.available.items()}

    def changes(self, before: dict[str, int]) -> dict[str, int]:
        """What the model has available now, more than before."""
        return {channel: n - before[channel] for channel, n in self.counts().items() if n != before[channel]}

    @precondition(lambda self: len(self.model.available) < 4)
    @rule(data=st.data())
    def open_another(self, data: st.DataObject) -> None:
        """With its exclusive places."""
        self.open(data.draw(st.sampled_from([c for c in "abcd" if c not in self.model.available])))

    def open(self, channel: str) -> None:
        assert self.pool.open(channel) == self.exclusive
        self.model.open(channel)

    @precondition(lambda self: self.model.available)
    @rule(channel=OPEN, backlog=st.integers(0, 8))
    def announce(self, channel: str, backlog: int) -> None:
        """The answer is what is available more."""
        before = self.counts()
        granted = self.pool.announce(channel, backlog)
        self.model.announce(channel, backlog)
        assert self.changes(before) == ({channel: granted} if granted else {})

    @precondition(lambda self: bool(with_places(self.model.available)))
    @rule(data=st.data())
    def spend(self, data: st.DataObject) -> None:
        """What is available."""
        channel = data.draw(st.sampled_from(with_places(self.model.available)))
        n = data.draw(st.integers(1, len(self.model.available[channel])))
        self.pool.spend(channel, n)
        for _ in range(n):
            self.model.spend(channel)

    @precondition(lambda self: bool(with_places(self.model.spent)))
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        """Several at once are as one after the other."""
        channel = data.draw(st.sampled_from(with_places(self.model.spent)))
        n = data.draw(st.integers(1, len(self.model.spent[channel])))
        before = self.counts()
        granted = self.pool.give_back(channel, n)
        for _ in range(n):
            self.model.give_back(channel)
        assert granted == self.changes(before)

    @precondition(lambda self: self.model.available)
    @rule(channel=OPEN)
    def close(self, channel: str) -> None:
        """The others' changes are the answer."""
        before = self.counts()
        granted = self.pool.close(channel)
        self.model.close(channel)
        assert granted == self.changes(before)

    @invariant()
    def agrees(self) -> None:
        """Everything that can be seen."""
        assert self.pool.free == len(self.model.free)
        for channel, places in self.model.available.items():
            assert self.pool.available(channel) == len(places)
            assert self.pool.required(channel) == self.model.required(channel)
            assert self.pool.waiting(channel) == (channel in self.model.queue)

    @invariant()
    def no_place_is_made_or_lost(self) -> None:
        """Nor is a channel left with fewer than its own, nor a place free while a channel waits."""
        spent = {channel: len(places) for channel, places in self.model.spent.items()}
        held_places = {channel: self.pool.available(channel) + n for channel, n in spent.items()}
        assert self.pool.free + sum(held_places.values()) == self.floating + self.exclusive * len(spent)
        assert all(n >= self.exclusive for n in held_places.values())
        assert not (self.pool.free and any(self.pool.waiting(channel) for channel in spent))


TestCrediting = Crediting.TestCase


def pool_of(exclusive: int, floating: int, *channels: str) -> CreditPool:
    """A pool with open channels."""
    pool = CreditPool(exclusive, floating)
    for channel in channels:
        assert pool.open(channel) == exclusive
    return pool


def view(pool: CreditPool, *channels: str) -> tuple[object, ...]:
    """All that can be seen of it."""
    return (pool.free, *((pool.available(c), pool.required(c), pool.waiting(c)) for c in channels))


@pytest.mark.parametrize("places", [(-1, 0), (0, -1), (1.0, 0), (0, True), (float("nan"), 0)])
def test_places_are_whole_numbers(places: Any) -> None:
    """From 0."""
    with pytest.raises(RequestError, match="at least 0"):
        CreditPool(*places)


@pytest.mark.parametrize(
    "call",
    [
        lambda pool: pool.open("a"),
        lambda pool: pool.announce("a", -1),
        lambda pool: pool.announce("a", 1.5),
        lambda pool: pool.announce("x", 1),
        lambda pool: pool.announce("closed", 1),
        lambda pool: pool.spend("a", 4),
        lambda pool: pool.spend("a", -1),
        lambda pool: pool.spend("a", True),
        lambda pool: pool.spend("x"),
        lambda pool: pool.spend("closed"),
        lambda pool: pool.give_back("a", 3),
        lambda pool: pool.give_back("a", -1),
        lambda pool: pool.give_back("b"),
        lambda pool: pool.give_back("x"),
        lambda pool: pool.give_back("closed", 0),
        lambda pool: pool.available("x"),
        lambda pool: pool.required("x"),
        lambda pool: pool.waiting("closed"),
        lambda pool: pool.close("x"),
        lambda pool: pool.close("closed"),
    ],
)
def test_a_refused_call_changes_nothing(call: Callable[[CreditPool], object]) -> None:
    """Too much, negative, unknown, closed, or open already."""
    pool = pool_of(2, 3, "a", "b", "closed")
    pool.announce("a", 3)
    pool.spend("a", 2)
    pool.announce("b", 1)
    pool.close("closed")
    before = view(pool, "a", "b")
    with pytest.raises(RequestError) as refused:
        call(pool)
    assert refused.value.fix
    assert view(pool, "a", "b") == before == (0, (3, 5, False), (2, 3, True))
    assert pool.give_back("a", 2) == {"a": 2}

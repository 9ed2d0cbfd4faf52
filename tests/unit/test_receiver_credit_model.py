"""Credits against a model that moves one place at a time."""

from __future__ import annotations

import pytest
from hypothesis import assume
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


CHANNELS = st.sampled_from(["a", "b", "c", "d"])


class Crediting(RuleBasedStateMachine):
    """The pool agrees with the model after every call, and so does what it returns."""

    @initialize(exclusive=st.integers(0, 3), floating=st.integers(0, 12))
    def start(self, exclusive: int, floating: int) -> None:
        """A pool of any size."""
        self.exclusive, self.floating = exclusive, floating
        self.pool, self.model = CreditPool(exclusive, floating), Model(exclusive, floating)

    def counts(self) -> dict[str, int]:
        """What the model has available."""
        return {channel: len(places) for channel, places in self.model.available.items()}

    def changes(self, before: dict[str, int]) -> dict[str, int]:
        """What the model has available now, more than before."""
        return {channel: n - before[channel] for channel, n in self.counts().items() if n != before[channel]}

    def is_open(self, channel: str) -> bool:
        """Open channels only."""
        return channel in self.model.available

    @rule(channel=CHANNELS)
    def open_or_refuse(self, channel: str) -> None:
        """A channel that is open is refused."""
        if self.is_open(channel):
            with pytest.raises(RequestError):
                self.pool.open(channel)
        else:
            assert self.pool.open(channel) == self.exclusive
            self.model.open(channel)

    @precondition(lambda self: self.model.available)
    @rule(channel=CHANNELS, backlog=st.integers(0, 8))
    def announce(self, channel: str, backlog: int) -> None:
        """The answer is what is available more."""
        assume(self.is_open(channel))
        before = self.counts()
        granted = self.pool.announce(channel, backlog)
        self.model.announce(channel, backlog)
        assert self.changes(before) == ({channel: granted} if granted else {})

    @precondition(lambda self: self.model.available)
    @rule(channel=CHANNELS, n=st.integers(0, 8))
    def spend(self, channel: str, n: int) -> None:
        """Too many are refused."""
        assume(self.is_open(channel))
        if n > len(self.model.available[channel]):
            with pytest.raises(RequestError):
                self.pool.spend(channel, n)
        else:
            self.pool.spend(channel, n)
            for _ in range(n):
                self.model.spend(channel)

    @precondition(lambda self: self.model.available)
    @rule(channel=CHANNELS, n=st.integers(0, 8))
    def give_back(self, channel: str, n: int) -> None:
        """Several at once are as one after the other."""
        assume(self.is_open(channel))
        if n > len(self.model.spent[channel]):
            with pytest.raises(RequestError):
                self.pool.give_back(channel, n)
        else:
            before = self.counts()
            granted = self.pool.give_back(channel, n)
            for _ in range(n):
                self.model.give_back(channel)
            assert granted == self.changes(before)

    @precondition(lambda self: self.model.available)
    @rule(channel=CHANNELS)
    def close(self, channel: str) -> None:
        """The others' changes are the answer."""
        assume(self.is_open(channel))
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

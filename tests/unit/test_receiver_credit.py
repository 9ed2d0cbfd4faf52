"""Laws of credits: who may send how much, and who is next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import RequestError
from tidegate.core.receivers import CreditPool


def pool_of(exclusive: int, floating: int, *channels: str) -> CreditPool:
    """A pool with open channels."""
    pool = CreditPool(exclusive, floating)
    for channel in channels:
        assert pool.open(channel) == exclusive
    return pool


def view(pool: CreditPool, *channels: str) -> tuple[object, ...]:
    """All that can be seen of it."""
    return (pool.free, *((pool.available(c), pool.required(c), pool.waiting(c)) for c in channels))


def test_a_channel_opens_with_its_exclusive_places() -> None:
    """Available and required; it does not wait."""
    assert view(pool_of(2, 5, "a"), "a") == (5, (2, 2, False))
    assert view(pool_of(0, 0, "a"), "a") == (0, (0, 0, False))


def test_an_announced_backlog_is_granted_at_once_from_the_free_places() -> None:
    """Up to what is required; a channel that is left short waits."""
    pool = pool_of(2, 5, "a", "b")
    assert pool.announce("a", 3) == 3
    assert view(pool, "a", "b") == (2, (5, 5, False), (2, 2, False))
    assert pool.announce("a", 3) == 0  # the same backlog again asks for nothing more
    assert pool.announce("b", 6) == 2
    assert view(pool, "a", "b") == (0, (5, 5, False), (4, 8, True))


def test_a_smaller_backlog_takes_nothing_away() -> None:
    """It ends the wait where it makes what is available enough."""
    pool = pool_of(2, 5, "a")
    assert pool.announce("a", 6) == 5
    assert pool.waiting("a")
    assert pool.announce("a", 5) == 0
    assert view(pool, "a") == (0, (7, 7, False))
    assert pool.announce("a", 0) == 0
    assert view(pool, "a") == (0, (7, 2, False))


def test_spending_alone_makes_no_channel_wait() -> None:
    """Only an announcement does; then it is granted what is free."""
    pool = pool_of(2, 5, "a", "b")
    pool.announce("a", 3)
    pool.spend("a", 5)
    assert view(pool, "a", "b") == (2, (0, 5, False), (2, 2, False))
    assert pool.announce("b", 3) == 2
    assert pool.close("b") == {}  # "a" is short, but does not wait
    assert view(pool, "a") == (2, (0, 5, False))
    assert pool.announce("a", 3) == 2
    assert view(pool, "a") == (0, (2, 5, True))


def test_a_place_given_back_stays_while_its_channel_is_short() -> None:
    """Then it is free, for who waits."""
    pool = pool_of(1, 2, "a", "b")
    assert pool.announce("a", 2) == 2
    pool.spend("a", 3)
    assert pool.announce("b", 5) == 0
    assert pool.give_back("a") == {"a": 1}
    assert pool.announce("a", 0) == 0
    assert pool.give_back("a", 2) == {"b": 2}  # "a" has its exclusive place
    assert view(pool, "a", "b") == (0, (1, 1, False), (3, 6, True))


def test_one_answer_may_grant_to_the_giver_and_to_others() -> None:
    """The giver's own change is included, and nobody's is 0."""
    pool = pool_of(1, 4, "a", "b", "c")
    assert pool.announce("a", 4) == 4
    pool.spend("a", 5)
    assert pool.announce("a", 1) == 0
    assert [pool.announce("b", 2), pool.announce("c", 1)] == [0, 0]
    assert pool.waiting("a")
    assert pool.give_back("a", 4) == {"a": 2, "b": 1, "c": 1}
    assert view(pool, "a", "b", "c") == (0, (2, 2, False), (2, 3, True), (2, 2, False))
    assert pool.give_back("a") == {"b": 1}
    assert pool.give_back("a", 0) == {}


def test_without_a_waiting_channel_a_place_is_free() -> None:
    """And granted with the next announcement."""
    pool = pool_of(1, 1, "a")
    pool.announce("a", 1)
    pool.spend("a", 2)
    pool.announce("a", 0)
    assert pool.give_back("a", 2) == {"a": 1}
    assert pool.free == 1
    assert pool.announce("a", 3) == 1


def test_free_places_go_to_waiting_channels_in_turn() -> None:
    """The turn goes on where it was; an announcement of who waits already does not change it."""
    pool = pool_of(0, 9, "a", "b", "c", "d")
    pool.announce("a", 9)
    pool.spend("a", 9)
    pool.announce("a", 0)
    for channel in ("b", "c", "d"):
        assert pool.announce(channel, 4) == 0
    assert pool.give_back("a", 2) == {"b": 1, "c": 1}
    assert pool.announce("b", 5) == 0
    assert pool.give_back("a") == {"d": 1}
    assert pool.give_back("a", 4) == {"b": 2, "c": 1, "d": 1}
    assert pool.give_back("a", 2) == {"c": 1, "d": 1}


def test_a_closed_channel_leaves_its_floating_places_to_those_that_wait() -> None:
    """Also those in use. Its exclusive places go with it, and are there again when it is opened again."""
    pool = pool_of(2, 3, "a", "b")
    assert pool.announce("a", 3) == 3
    pool.spend("a", 4)
    assert pool.announce("b", 1) == 0
    assert pool.close("a") == {"b": 1}
    assert view(pool, "b") == (2, (3, 3, False))
    assert pool.open("a") == 2
    assert view(pool, "a") == (2, (2, 2, False))
    with pytest.raises(RequestError):
        pool.give_back("a")  # what was spent before is no longer known
    assert pool.close("b") == {}
    assert pool.free == 3


def test_a_waiting_channel_that_is_closed_gets_nothing_more() -> None:
    """Nor does it after it is opened again, until it announces a backlog."""
    pool = pool_of(0, 2, "a", "b")
    pool.announce("a", 2)
    pool.spend("a", 2)
    pool.announce("a", 0)
    assert pool.announce("b", 2) == 0
    assert pool.close("b") == {}
    pool.open("b")
    assert pool.give_back("a", 2) == {}
    assert view(pool, "a", "b") == (2, (0, 0, False), (0, 0, False))


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


@given(st.data(), st.integers(0, 2), st.integers(1, 20))
def test_no_channel_that_waits_sees_another_get_two_places_before_its_own(
    data: st.DataObject, exclusive: int, floating: int
) -> None:
    """Places come back one by one, while channels announce, spend, close and open between them."""
    giver, channels = "giver", ["a", "b", "c", "d"]
    pool = pool_of(exclusive, floating, giver, *channels)
    pool.announce(giver, floating)
    pool.spend(giver, exclusive + floating)
    pool.announce(giver, 0)
    if exclusive:
        pool.give_back(giver, exclusive)
    spent = floating
    since: dict[str, Counter[str]] = {}  # of each channel that waits: who got how many places since its own last one
    for _ in range(30):
        channel = data.draw(st.sampled_from([giver, giver, giver, *channels]))
        if channel == giver:
            granted = pool.give_back(giver, min(1, spent))
            spent -= min(1, spent)
        elif data.draw(st.booleans()):
            pool.announce(channel, data.draw(st.integers(0, 6)))
            granted = {}
        else:
            granted = {}
            if pool.close(channel):
                since.clear()  # several places at once: in which order is not to be seen
            pool.open(channel)
            since.pop(channel, None)
        assert sum(granted.values()) <= 1
        for winner in granted:
            since.pop(winner, None)
            for counts in since.values():
                counts[winner] += 1
                assert counts[winner] <= 1
        since = {c: since.get(c, Counter()) for c in channels if pool.waiting(c)}

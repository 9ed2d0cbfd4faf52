"""Laws of the policy credit where several instances share the places of a topic's backlog, and nobody hands them out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.config.receiver import Backpressure
from tidegate.core.receivers.backpressure import Heard, Throttle

ROUNDS = 200


def fill(count: int, max_backlog: int, *, lands: bool) -> int:
    """Every instance looks in turn, again and again, and stores all that it may; records stored or landed at the end."""
    throttles = [Throttle(Backpressure("credit", max_backlog=max_backlog), None) for _ in range(count)]
    landed = 0
    for second in range(ROUNDS):
        for throttle in throttles:
            throttle.hear(Heard(landed, instances=count), throttle.taken, float(second))
            throttle.stored(max(0, int(throttle.room(float(second)))))
        for throttle in throttles if lands else ():
            landed += throttle.taken.in_flight
            throttle.ended(throttle.taken.in_flight)
    return sum(throttle.taken.stored for throttle in throttles)


@given(st.integers(1, 20), st.integers(20, 10**6))
def test_together_instances_fill_the_backlog_and_never_pass_it(count: int, max_backlog: int) -> None:
    """To less than a record for each of them."""
    filled = fill(count, max_backlog, lands=True)
    assert max_backlog - count < filled <= max_backlog


@given(st.integers(1, 20), st.integers(20, 10**6))
def test_records_that_are_long_on_their_way_do_not_make_room_for_others(count: int, max_backlog: int) -> None:
    """An instance sees its own alone, so it takes for granted that the others have as many."""
    assert fill(count, max_backlog, lands=False) <= max_backlog


@pytest.mark.parametrize("max_backlog", [1, 3, 9])
def test_a_backlog_of_fewer_places_than_instances_is_used(max_backlog: int) -> None:
    """Each takes one while nothing waits; otherwise all would wait for ever."""
    assert fill(10, max_backlog, lands=True) == 10

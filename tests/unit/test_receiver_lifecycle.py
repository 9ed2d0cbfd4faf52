"""Laws of the life of a receiver's instance, and of the delays before it is started again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.model.errors import RequestError
from tidegate.core.model.transitions import Transition
from tidegate_receivers.rules.lifecycle import MEANING, TRANSITIONS, Event, Restarts, State, after


@pytest.mark.parametrize("transition", TRANSITIONS, ids=lambda t: f"{t.state}-{t.event}")
def test_each_event_leads_where_the_table_says(transition: Transition[State, Event]) -> None:
    """There is one row for each."""
    assert after(transition.state, transition.event) is transition.then
    assert sum((t.state, t.event) == (transition.state, transition.event) for t in TRANSITIONS) == 1


@given(st.lists(st.sampled_from(Event)))
def test_whatever_happens_an_instance_ends_only_by_a_stop_and_its_drain(events: list[Event]) -> None:
    """Events that cannot happen are refused and change nothing."""
    state, possible = State.INITIALIZED, []
    for event in events:
        try:
            state = after(state, event)
        except RequestError:
            continue
        possible.append(event)
    if state is State.STOPPED:
        assert possible[-1] is Event.DRAINED
        assert possible.count(Event.STOP) == 1


@pytest.mark.parametrize("state", [state for state in State if state is not State.STOPPED])
def test_a_lease_can_end_in_every_state(state: State) -> None:
    """There is no state in which a stop is not heard."""
    assert state is State.STOPPING or after(state, Event.STOP) is State.STOPPING
    assert MEANING[state]


def test_a_stopped_receiver_meets_nothing() -> None:
    """A new lease is a new instance."""
    for event in Event:
        with pytest.raises(RequestError, match="a receiver that is stopped cannot meet"):
            after(State.STOPPED, event)


def test_delays_double_up_to_the_longest() -> None:
    """Without jitter: the draw is 0."""
    restarts = Restarts(1, 30)
    assert [restarts.delay_s(n, 0) for n in (1, 2, 3, 4, 5, 6, 7, 10**6)] == [1, 2, 4, 8, 16, 30, 30, 30]


@given(st.integers(1, 10**9), st.floats(0, 1), st.floats(0.001, 10), st.floats(1, 1000))
def test_a_delay_is_at_least_half_of_what_its_failures_ask_for(
    failures: int, draw: float, first_s: float, factor: float
) -> None:
    """And never above it."""
    restarts = Restarts(first_s, first_s * factor)
    most_s = restarts.delay_s(failures, 0)
    assert 0 < most_s / 2 <= restarts.delay_s(failures, draw) <= most_s <= restarts.longest_s


def test_failures_are_forgotten_after_a_time_without_one() -> None:
    """Until then they add up."""
    restarts = Restarts(forget_s=60)
    assert [restarts.failures(0, 0), restarts.failures(4, 59.9), restarts.failures(4, 60)] == [1, 5, 1]

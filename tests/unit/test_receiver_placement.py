"""Laws of the placement of receivers."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import RequestError
from tidegate.core.receivers.placement import Tracked, Worker, reschedule_receiver, schedule_receivers

A1, A2, B1, C1 = Worker("a1", "A"), Worker("a2", "A"), Worker("b1", "B"), Worker("c1", "C")

FIVE = [Worker(f"w{n}", f"h{n}") for n in range(1, 6)]
SPARKS = {0: Tracked("active", ("w1",)), 1: Tracked("scheduled", ("w2", "w3")), 2: Tracked("scheduled", ("w1", "w3"))}

HOSTS = ["A", "B", "C"]
NAMES = [f"w{n}" for n in range(8)]
GONE = "gone"

preferences = st.dictionaries(st.integers(0, 20), st.sampled_from([None, *HOSTS, GONE]), max_size=8)
live = st.lists(st.builds(Worker, st.sampled_from(NAMES), st.sampled_from(HOSTS)), unique_by=lambda w: w.name, max_size=8)
known = st.sampled_from([*NAMES, "dead"])
tracked_receivers = st.dictionaries(
    st.integers(0, 20),
    st.one_of(
        st.builds(Tracked, st.sampled_from(["inactive", "scheduled"]), st.lists(known, unique=True).map(tuple)),
        st.builds(Tracked, st.just("active"), known.map(lambda name: (name,))),
    ),
    max_size=8,
)


@pytest.mark.parametrize(
    ("preferred", "workers", "candidates"),
    [
        ({}, [], {}),
        ({}, [A1], {}),
        ({0: None, 1: "A"}, [], {0: (), 1: ("A",)}),
        ({0: None, 1: "B", 2: "C"}, [A1], {0: ("a1",), 1: ("B",), 2: ("C",)}),
        ({0: None, 1: None, 2: None}, [A1], {0: ("a1",), 1: ("a1",), 2: ("a1",)}),
        ({0: "A", 1: "A"}, [A1, A2], {0: ("a1",), 1: ("a2",)}),  # the least loaded of the preferred host
        ({0: "A", 1: "A", 2: "A"}, [A1, A2], {0: ("a1",), 1: ("a2",), 2: ("a1",)}),
        ({0: None, 1: "A"}, [A1, B1], {0: ("b1",), 1: ("a1",)}),  # preferences first, whatever the order
        ({0: "A", 1: None, 2: None}, [A1, B1], {0: ("a1",), 1: ("b1",), 2: ("a1",)}),
        ({0: None}, [A1, A2, B1], {0: ("a1", "a2", "b1")}),  # idle workers join
        ({5: None, 3: None}, [A1, A2, B1], {5: ("a1", "b1"), 3: ("a2",)}),  # ties go to the first of the mapping
        ({0: "Z"}, [A1], {0: ("Z", "a1")}),  # a host whose worker may still come is no load of any worker
        ({0: "a1"}, [A1], {0: ("a1",)}),  # a host that has the name of a worker elsewhere
        ({0: None}, [A1, A1], {0: ("a1",)}),  # the same worker twice
    ],
)
def test_receivers_are_scheduled_as_in_the_examples(
    preferred: dict[int, str | None], workers: list[Worker], candidates: dict[int, tuple[str, ...]]
) -> None:
    """Preferred host, least loaded, idle."""
    scheduled = schedule_receivers(preferred, workers)
    assert scheduled == candidates
    assert list(scheduled) == list(preferred)


@pytest.mark.parametrize(
    ("receivers", "hosts", "candidates", "receivers_of_each"),
    [
        ([None] * 6, {"A": 3}, 1, 2),  # more receivers than workers
        ([None] * 3, {"A": 6}, 2, 1),  # more workers than receivers
        ([None] * 3 + ["A"] * 3, {"A": 3, "B": 3}, 1, 1),  # as many on the preferred host as prefer it
    ],
)
def test_receivers_and_workers_are_matched_evenly(
    receivers: list[str | None], hosts: dict[str, int], candidates: int, receivers_of_each: int
) -> None:
    """The cases of Spark's `ReceiverSchedulingPolicySuite`."""
    workers = [Worker(f"{host}{n}", host) for host, count in hosts.items() for n in range(count)]
    scheduled = schedule_receivers(dict(enumerate(receivers)), workers)
    assert {len(names) for names in scheduled.values()} == {candidates}
    assert Counter(name for names in scheduled.values() for name in names) == {w.name: receivers_of_each for w in workers}
    assert all(host is None or scheduled[r][0].startswith(host) for r, host in enumerate(receivers))


@given(preferences, live)
def test_the_first_candidate_is_preferred_and_then_least_loaded(
    preferred: dict[int, str | None], workers: list[Worker]
) -> None:
    """Those with a preference in their order, then the others in theirs; at each turn no worker of the choice had fewer."""
    scheduled = schedule_receivers(preferred, workers)
    load = {w.name: 0 for w in workers}
    for receiver in sorted(preferred, key=lambda r: preferred[r] is None):  # stable
        host = preferred[receiver]
        choice = [w.name for w in workers if host in (None, w.host)]
        if choice:
            first = scheduled[receiver][0]
            assert first in choice
            assert load[first] == min(load[name] for name in choice)
            load[first] += 1
        elif host is not None:
            assert scheduled[receiver][0] == host
        else:
            assert scheduled[receiver] == ()


@given(preferences, live)
def test_each_idle_worker_joins_one_of_the_receivers_with_the_fewest_candidates(
    preferred: dict[int, str | None], workers: list[Worker]
) -> None:
    """So the numbers of candidates differ by at most one, and the first receivers have more. No worker is left out."""
    scheduled = schedule_receivers(preferred, workers)
    first = {names[0] for names in scheduled.values() if names}
    joined = [name for names in scheduled.values() for name in names[1:]]
    if not preferred or not workers:
        assert joined == []
        return
    assert sorted(joined) == sorted({w.name for w in workers} - first)
    each, more = divmod(len(joined), len(preferred))
    assert [len(names) - 1 for names in scheduled.values()] == [each + 1] * more + [each] * (len(preferred) - more)


@given(preferences, live)
def test_scheduling_is_deterministic_and_names_each_candidate_once(
    preferred: dict[int, str | None], workers: list[Worker]
) -> None:
    """One entry for each receiver, in the order of the mapping; the same worker given twice is one."""
    scheduled = schedule_receivers(preferred, workers)
    assert scheduled == schedule_receivers(preferred, workers) == schedule_receivers(preferred, workers * 2)
    assert list(scheduled) == list(preferred)
    for receiver, names in scheduled.items():
        assert len(set(names)) == len(names)
        assert set(names) <= {w.name for w in workers} | {preferred[receiver]}


@pytest.mark.parametrize(
    ("preferred", "tracked", "workers", "candidates"),
    [
        (None, {}, [], ()),
        ("A", {}, [], ("A",)),
        (None, {}, [A1, B1], ("a1", "b1")),  # all are idle
        (None, {1: Tracked("active", ("a1",))}, [A1, B1], ("b1",)),
        (
            "A",
            {1: Tracked("active", ("a1",))},
            [A1, A2, B1],
            ("a1", "a2", "b1"),
        ),  # each worker of the preferred host, busy or not
        ("Z", {1: Tracked("active", ("a1",))}, [A1, B1], ("Z", "b1")),
        (None, {1: Tracked("inactive", ("a1",))}, [A1], ("a1",)),  # what is inactive has no weight
        (None, {1: Tracked("inactive", ("a1",)), 2: Tracked("active", ("b1",))}, [A1, B1], ("a1",)),
        # no worker is idle: the least weight
        (None, {1: Tracked("active", ("a1",)), 2: Tracked("scheduled", ("b1", "c1"))}, [A1, B1, C1], ("b1", "c1")),
        ("A", {1: Tracked("active", ("a1",)), 2: Tracked("scheduled", ("b1", "c1"))}, [A1, B1, C1], ("a1", "b1", "c1")),
        # the dead count in the share, and are not chosen
        (None, {1: Tracked("scheduled", ("a1", "dead", "gone")), 2: Tracked("scheduled", ("b1", "gone"))}, [A1, B1], ("a1",)),
        (None, {1: Tracked("scheduled", ("dead",)), 2: Tracked("active", ("gone",))}, [A1], ("a1",)),
        (None, {1: Tracked("scheduled", ())}, [A1], ("a1",)),
        # a half, a third and a sixth are exactly one
        (
            None,
            {
                1: Tracked("active", ("a1",)),
                2: Tracked("scheduled", ("b1", "x")),
                3: Tracked("scheduled", ("b1", "x", "y")),
                4: Tracked("scheduled", ("b1", "u", "v", "x", "y", "z")),
            },
            [A1, B1],
            ("a1", "b1"),
        ),
        # ten tenths are exactly one
        (
            None,
            {0: Tracked("active", ("a1",))}
            | {n: Tracked("scheduled", ("b1", *(f"dead{d}" for d in range(9)))) for n in range(1, 11)},
            [A1, B1],
            ("a1", "b1"),
        ),
        # Spark's example: weights of 1.5, 0.5 and 1, and two that are idle; then without those
        (None, SPARKS, FIVE, ("w4", "w5")),
        (None, SPARKS, FIVE[:3], ("w2",)),
        # the receiver's own entry counts
        (None, {0: Tracked("active", ("a1",))}, [A1, B1], ("b1",)),
        ("a1", {1: Tracked("active", ("b1",))}, [A1, B1], ("a1",)),  # a host that has the name of a worker elsewhere
        (None, {}, [A1, A1], ("a1",)),
    ],
)
def test_a_receiver_is_rescheduled_as_in_the_examples(
    preferred: str | None, tracked: dict[int, Tracked], workers: list[Worker], candidates: tuple[str, ...]
) -> None:
    """Receiver 0."""
    assert reschedule_receiver(0, preferred, tracked, workers) == candidates


@given(st.sampled_from([None, *HOSTS, GONE]), tracked_receivers, live)
def test_a_receiver_gets_its_preferred_host_and_the_workers_of_least_weight(
    preferred: str | None, tracked: dict[int, Tracked], workers: list[Worker]
) -> None:
    """An idle worker is one of weight 0. The preferred host comes first."""
    weights = {
        worker.name: sum(
            (
                Fraction(1, len(entry.workers))
                for entry in tracked.values()
                if entry.state != "inactive" and worker.name in entry.workers
            ),
            Fraction(0),
        )
        for worker in workers
    }
    idle = {name for name, weight in weights.items() if weight == 0}
    least = idle or {name for name, weight in weights.items() if weight == min(weights.values())}
    first = {w.name for w in workers if w.host == preferred} or ({preferred} if preferred else set())
    candidates = reschedule_receiver(0, preferred, tracked, workers)
    assert set(candidates) == first | least
    assert set(candidates[: len(first)]) == first
    assert len(set(candidates)) == len(candidates)


@given(st.sampled_from([None, *HOSTS, GONE]), tracked_receivers, live, st.integers(0, 20))
def test_rescheduling_is_deterministic_and_counts_every_entry_alike(
    preferred: str | None, tracked: dict[int, Tracked], workers: list[Worker], receiver: int
) -> None:
    """Which receiver asks changes nothing, nor does the order of the entries, nor a worker that is given twice."""
    candidates = reschedule_receiver(receiver, preferred, tracked, workers)
    assert candidates == reschedule_receiver(receiver, preferred, tracked, workers)
    assert candidates == reschedule_receiver(99, preferred, dict(reversed(tracked.items())), workers * 2)


@pytest.mark.parametrize(("name", "host"), [("", "A"), ("a", ""), ("", "")])
def test_a_worker_has_a_name_and_a_host(name: str, host: str) -> None:
    """An empty one is refused."""
    with pytest.raises(RequestError, match="Pass the name and the host"):
        Worker(name, host)


@pytest.mark.parametrize(
    ("state", "workers"),
    [
        ("dead", ()),
        ("ACTIVE", ("a1",)),
        ("", ()),
        ("active", ()),
        ("active", ("a1", "a2")),
        ("scheduled", "a1"),
        ("active", "a"),
    ],
)
def test_a_tracked_receiver_has_a_known_state_and_where_it_is_active_one_worker(state: Any, workers: Any) -> None:
    """A string is no tuple of names."""
    with pytest.raises(RequestError) as refused:
        Tracked(state, workers)
    assert refused.value.fix


def test_placement_refuses_what_names_nothing_or_two_things() -> None:
    """An empty host, and a name that two workers have."""
    for workers in ([], [A1]):
        with pytest.raises(RequestError, match="receiver 7 is empty"):
            schedule_receivers({7: ""}, workers)
        with pytest.raises(RequestError, match="receiver 7 is empty"):
            reschedule_receiver(7, "", {}, workers)
    twice = [A1, Worker("a1", "B")]
    with pytest.raises(RequestError, match="two hosts, 'A' and 'B'"):
        schedule_receivers({0: None}, twice)
    with pytest.raises(RequestError, match="two hosts, 'A' and 'B'"):
        reschedule_receiver(0, None, {}, twice)

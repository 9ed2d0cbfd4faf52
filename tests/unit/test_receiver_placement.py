"""Laws of the life of a receiver's instances: where they run, and when they are started again."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.model.errors import RequestError
from tidegate_receivers.rules import placement
from tidegate_receivers.rules.lifecycle import MEANING, TRANSITIONS, Event, Restarts, State, after
from tidegate_receivers.rules.placement import NOWHERE, Assigned, Live, Tracked, Worker

A1, A2, B1 = Worker("a1", "A"), Worker("a2", "A"), Worker("b1", "B")
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


def test_receivers_are_scheduled_as_in_the_examples() -> None:
    """Idle workers join, and ties go to the first. A preferred host may have the name of a worker elsewhere."""
    assert placement.schedule_receivers({5: None, 3: None}, [A1, A2, B1]) == {5: ("a1", "b1"), 3: ("a2",)}
    assert placement.schedule_receivers({0: "a1"}, [A1]) == {0: ("a1",)}


@given(preferences, live)
def test_the_first_candidate_is_preferred_then_least_loaded(preferred: dict[int, str | None], workers: list[Worker]) -> None:
    """Those with a preference in their order, then the others in theirs; of equals the first worker is chosen."""
    scheduled = placement.schedule_receivers(preferred, workers)
    load = {w.name: 0 for w in workers}
    for receiver in sorted(preferred, key=lambda r: preferred[r] is None):  # stable
        host = preferred[receiver]
        choice = [w.name for w in workers if host in (None, w.host)]
        if choice:
            first = scheduled[receiver][0]
            assert first == min(choice, key=load.__getitem__)
            load[first] += 1
        elif host is not None:
            assert scheduled[receiver][0] == host
        else:
            assert scheduled[receiver] == ()


@given(preferences, live)
def test_idle_workers_join_receivers_with_the_fewest_candidates(
    preferred: dict[int, str | None], workers: list[Worker]
) -> None:
    """So the numbers of candidates differ by at most one, and the first receivers have more. No worker is left out."""
    scheduled = placement.schedule_receivers(preferred, workers)
    assert scheduled == placement.schedule_receivers(preferred, workers * 2)  # the same worker given twice is one
    assert list(scheduled) == list(preferred)
    first = {names[0] for names in scheduled.values() if names}
    joined = [name for names in scheduled.values() for name in names[1:]]
    if not preferred or not workers:
        assert joined == []
        return
    assert sorted(joined) == sorted({w.name for w in workers} - first)
    each, more = divmod(len(joined), len(preferred))
    assert [len(names) - 1 for names in scheduled.values()] == [each + 1] * more + [each] * (len(preferred) - more)


def test_a_receiver_is_rescheduled_as_in_the_examples() -> None:
    """Ten tenths are exactly one. Spark's example has weights of 1.5, 0.5 and 1, and two workers that are idle."""
    tenths = {n: Tracked("scheduled", ("b1", *(f"dead{d}" for d in range(9)))) for n in range(1, 11)}
    assert placement.reschedule_receiver(0, None, {0: Tracked("active", ("a1",)), **tenths}, [A1, B1]) == ("a1", "b1")
    spark = {0: Tracked("active", ("w1",)), 1: Tracked("scheduled", ("w2", "w3")), 2: Tracked("scheduled", ("w1", "w3"))}
    five = [Worker(f"w{n}", f"h{n}") for n in range(1, 6)]
    found = [placement.reschedule_receiver(0, None, spark, workers) for workers in (five, five[:3])]
    assert found == [("w4", "w5"), ("w2",)]
    # a host that has the name of a worker elsewhere
    assert placement.reschedule_receiver(0, "a1", {1: Tracked("active", ("b1",))}, [A1, B1]) == ("a1",)


@given(st.sampled_from([None, *HOSTS, GONE]), tracked_receivers, live)
def test_a_receiver_gets_its_preferred_host_and_the_workers_of_least_weight(
    preferred: str | None, tracked: dict[int, Tracked], workers: list[Worker]
) -> None:
    """An idle worker is one of weight 0, and the preferred host comes first. Every entry counts alike, whoever asks."""
    weights = dict.fromkeys((worker.name for worker in workers), Fraction(0))
    for entry in tracked.values():
        for name in weights.keys() & {*entry.workers} if entry.state != "inactive" else ():
            weights[name] += Fraction(1, len(entry.workers))
    least = {name for name, weight in weights.items() if weight == min(weights.values())}
    first = {w.name for w in workers if w.host == preferred} or ({preferred} if preferred else set())
    candidates = placement.reschedule_receiver(0, preferred, tracked, workers)
    assert set(candidates) == first | least
    assert set(candidates[: len(first)]) == first
    assert len(set(candidates)) == len(candidates)
    assert candidates == placement.reschedule_receiver(99, preferred, dict(reversed(tracked.items())), workers * 2)


@pytest.mark.parametrize(
    ("make", "words", "message"),
    [
        *((Worker, words, "Pass the name and the host") for words in (("", "A"), ("a", ""), ("", ""))),
        # a tracked receiver has a known state and, where it is active, one worker; a string is no tuple of names
        *((Tracked, (state, ()), "") for state in ("dead", "", "active")),
        *(
            (Tracked, words, "")
            for words in (("ACTIVE", ("a1",)), ("active", ("a1", "a2")), ("scheduled", "a1"), ("active", "a"))
        ),
        # placement refuses what names nothing or two things
        *((placement.schedule_receivers, ({7: ""}, workers), "receiver 7 is empty") for workers in ([], [A1])),
        *((placement.reschedule_receiver, (7, "", {}, workers), "receiver 7 is empty") for workers in ([], [A1])),
        (placement.schedule_receivers, ({0: None}, [A1, Worker("a1", "B")]), "two hosts, 'A' and 'B'"),
        (placement.reschedule_receiver, (0, None, {}, [A1, Worker("a1", "B")]), "two hosts, 'A' and 'B'"),
    ],
)
def test_what_names_nothing_or_two_things_is_refused(make: Any, words: tuple[Any, ...], message: str) -> None:
    with pytest.raises(RequestError) as refused:
        make(*words)
    assert message in str(refused.value)
    assert refused.value.fix


A, B, C = (Worker(f"celery@{host}", host) for host in "abc")


@pytest.mark.parametrize(
    ("preferred", "workers", "failed", "placed"),
    [
        ([None, None, None], "a", {}, "aaa"),  # as with LocalExecutor
        (["c", None, None], "abc", {}, "cab"),  # the preferred host, then the worker with the fewest instances
        (["z", None], "ab", {}, "ba"),  # a preferred host without a live worker is not waited for
        (["z", "z"], "a", {}, "aa"),
        ([None, None], "ab", {0: "a"}, "bb"),  # what failed moves, and the others stay
        (["a", None], "ab", {0: "a"}, "bb"),
        ([None, None], "abc", {0: "a"}, "cb"),
        (["c", None], "abc", {0: "a"}, "ca"),
        ([None], "a", {0: "a"}, "a"),  # where there is no other host
        ([None], "ab", {5: "a"}, "a"),
    ],
)
def test_instances_are_placed_as_shown(preferred: list[str | None], workers: str, failed: dict[int, str], placed: str) -> None:
    live = [(Worker(host, host), ["q"]) for host in workers]
    found = placement.assign(dict(enumerate(preferred)), live, queues=["q"], failed=failed, until_s=7.0)
    assert [(each.instance, each.host, each.until_s) for each in found] == [(n, host, 7.0) for n, host in enumerate(placed)]


def test_the_queue_of_a_worker_is_the_one_that_the_fewest_share() -> None:
    """A queue of its own leads to it alone; among equals the first of the file is taken. Workers of others never count."""
    live: Live = [(A, ["all", "own_a"]), (B, ["all"])]
    placed = placement.assign({0: None, 1: None}, live, queues=("all", "own_a"), failed={}, until_s=1)
    assert [(each.host, each.queue) for each in placed] == [("a", "own_a"), ("b", "all")]
    assert placement.assign({0: None}, [(A, ["p", "q"])], queues=("q", "p"), failed={}, until_s=1)[0].queue == "q"
    assert placement.on_queues([(A, ["x"]), (B, ["q", "x"]), (C, [])], ("q",)) == [(B, ["q", "x"])]


@pytest.mark.parametrize(
    ("up", "expected", "share", "ready"),
    [(0, 1, 0.8, False), (3, 4, 0.8, False), (4, 5, 0.8, True), (55, 100, 0.55, True), (1, 1000, 0.001, True)],
)
def test_the_share_of_workers_counts_as_it_is_written(up: int, expected: int, share: float, *, ready: bool) -> None:
    """0.55 of 100 are 55, which they are not as doubles."""
    assert placement.are_ready([(A, ["q"])] * up, expected=expected, share=share) is ready


def test_each_instance_has_its_place_in_the_mapped_task_of_its_queue() -> None:
    """In the order in which they were placed. It is JSON-ready, and names itself by instance and host."""
    placed = [Assigned(number, "h", queue, 1.0) for number, queue in enumerate("pqqp")]
    found = [(str(each), task, index) for each, task, index in placement.mapped(placed, {"p": "t_p", "q": "t_q"})]
    assert [Assigned(**each.to_json()) for each in placed] == placed
    assert found == [("0 on h", "t_p", 0), ("3 on h", "t_p", 1), ("1 on h", "t_q", 0), ("2 on h", "t_q", 1)]


QUEUES = ("p", "q")
HOST = st.sampled_from("abcd")


@given(
    st.lists(st.none() | st.sampled_from([*"abcd", "away"]), max_size=8),
    st.dictionaries(HOST, st.sets(st.sampled_from([*QUEUES, "x"]))),
    st.dictionaries(st.integers(0, 9), HOST, max_size=4),
)
def test_instances_run_where_they_can(preferred: list[str | None], queues: dict[str, set[str]], failed: dict[int, str]) -> None:
    """Once, on a live worker and by a queue of it; not where it failed, if there is another host; and always alike."""
    live = placement.on_queues([(Worker(host, host), of) for host, of in queues.items()], QUEUES)
    up = {worker.host: of for worker, of in live}

    def placed(failures: dict[int, str]) -> list[Assigned]:
        return placement.assign(dict(enumerate(preferred)), live, queues=QUEUES, failed=failures, until_s=1)

    found = placed(failed)
    assert found == placed(failed)
    assert [each.instance for each in found] == list(range(len(preferred)))
    for each, before in zip(found, placed({}), strict=True):
        if not up:
            assert (each.host, each.queue) == (NOWHERE, "p")
            continue
        assert each.queue in up[each.host]
        if up.keys() != {failed.get(each.instance)}:
            assert each.host != failed.get(each.instance)
        if each.instance not in failed and preferred[each.instance] in (*up, None):
            assert each == before


@pytest.mark.parametrize(
    ("now_s", "overlap_s", "count"), [(29, 30, 6), (30, 30, 3), (599, 30, 3), (600, 30, 6), (0, 0, 3), (599, 0, 3)]
)
def test_instances_of_two_leases_share_while_the_leases_overlap(now_s: float, overlap_s: float, count: int) -> None:
    """In the first moments of a lease, and in its last ones; one without overlap is alone."""
    assert placement.sharing(3, now_s, 600 + overlap_s, 600, overlap_s) == count


@given(st.lists(st.sampled_from(Event)))
def test_whatever_happens_an_instance_ends_only_by_a_stop_and_its_drain(events: list[Event]) -> None:
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


@pytest.mark.parametrize("state", State)
def test_a_lease_can_end_in_every_state_and_a_new_one_is_a_new_instance(state: State) -> None:
    """There is no state in which a stop is not heard; what is stopped meets nothing."""
    assert MEANING[state]
    assert len({(t.state, t.event) for t in TRANSITIONS}) == len(TRANSITIONS)
    if state is not State.STOPPED:
        assert state is State.STOPPING or after(state, Event.STOP) is State.STOPPING
        return
    for event in Event:
        with pytest.raises(RequestError, match="a receiver that is stopped cannot meet"):
            after(state, event)


def test_delays_double_up_to_the_longest() -> None:
    restarts = Restarts(1, 30)
    assert [restarts.delay_s(n, 0) for n in (1, 2, 3, 4, 5, 6, 7, 10**6)] == [1, 2, 4, 8, 16, 30, 30, 30]


@given(st.integers(1, 10**9), st.floats(0, 1), st.floats(0.001, 10), st.floats(1, 1000))
def test_a_delay_is_at_least_half_of_what_failures_ask_for(failures: int, draw: float, first_s: float, factor: float) -> None:
    restarts = Restarts(first_s, first_s * factor)
    most_s = restarts.delay_s(failures, 0)
    assert 0 < most_s / 2 <= restarts.delay_s(failures, draw) <= most_s <= restarts.longest_s


def test_failures_are_forgotten_after_a_time_without_one() -> None:
    restarts = Restarts(forget_s=60)
    assert [restarts.failures(0, 0), restarts.failures(4, 59.9), restarts.failures(4, 60)] == [1, 5, 1]

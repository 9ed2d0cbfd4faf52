"""Laws of where the instances of a receiver run: on live workers, by queues that lead to them, away from hosts that failed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.receivers.placement import NOWHERE, Assigned, Live, Worker, are_ready, assign, mapped, on_queues, sharing

A, B, C = (Worker(f"celery@{host}", host) for host in "abc")


def hosts(
    live: Live, *preferred: str | None, failed: dict[int, str] | None = None, queues: tuple[str, ...] = ("q",)
) -> list[str]:
    """The host of each instance."""
    wishes = dict(enumerate(preferred))
    placed = assign(wishes, live, queues=queues, failed=failed or {}, until_s=7.0)
    assert [each.instance for each in placed] == list(wishes)
    assert {each.until_s for each in placed} <= {7.0}
    return [each.host for each in placed]


def everywhere(*workers: Worker) -> Live:
    return [(worker, ["q"]) for worker in workers]


def test_one_worker_runs_every_instance() -> None:
    """As with LocalExecutor."""
    assert hosts(everywhere(A), None, None, None) == ["a", "a", "a"]


def test_instances_spread_over_the_workers_and_prefer_their_hosts() -> None:
    """A preferred host comes first, then the worker with the fewest instances."""
    assert hosts(everywhere(A, B), None, None, None) == ["a", "b", "a"]
    assert hosts(everywhere(A, B, C), "c", None, None) == ["c", "a", "b"]


def test_a_preferred_host_without_a_live_worker_is_not_waited_for() -> None:
    """The instance runs on the worker that has the least to do."""
    assert hosts(everywhere(A, B), "z", None) == ["b", "a"]
    assert hosts(everywhere(A), "z", "z") == ["a", "a"]


def test_without_a_live_worker_instances_wait_in_the_first_queue() -> None:
    """Whoever comes up takes them."""
    placed = assign({0: None, 1: "a"}, [], queues=("p", "q"), failed={0: "a"}, until_s=1)
    assert placed == [Assigned(0, NOWHERE, "p", 1), Assigned(1, NOWHERE, "p", 1)]


def test_an_instance_that_failed_moves_and_the_others_stay() -> None:
    """To another host, where there is one; also if it prefers the one that failed."""
    live = everywhere(A, B)
    assert hosts(live, None, None) == ["a", "b"]
    assert hosts(live, None, None, failed={0: "a"}) == ["b", "b"]
    assert hosts(live, "a", None, failed={0: "a"}) == ["b", "b"]
    assert hosts(everywhere(A, B, C), None, None, failed={0: "a"}) == ["c", "b"]
    assert hosts(everywhere(A, B, C), "b", None, failed={0: "a"}) == ["b", "a"]
    assert hosts(everywhere(A), None, failed={0: "a"}) == ["a"]
    assert hosts(live, None, failed={5: "a"}) == ["a"]


def test_the_queue_of_a_worker_is_the_one_that_the_fewest_share() -> None:
    """A queue of its own leads to it alone; among equals the first of the file is taken."""
    live: Live = [(A, ["all", "own_a"]), (B, ["all"])]
    placed = assign({0: None, 1: None}, live, queues=("all", "own_a"), failed={}, until_s=1)
    assert [(each.host, each.queue) for each in placed] == [("a", "own_a"), ("b", "all")]
    assert assign({0: None}, [(A, ["p", "q"])], queues=("q", "p"), failed={}, until_s=1)[0].queue == "q"


def test_only_workers_of_the_receivers_queues_count() -> None:
    """Others never get its tasks."""
    live: Live = [(A, ["x"]), (B, ["q", "x"]), (C, [])]
    assert on_queues(live, ("q",)) == [(B, ["q", "x"])]
    assert on_queues(live, ("q", "x")) == [(A, ["x"]), (B, ["q", "x"])]


@pytest.mark.parametrize(
    ("up", "expected", "share", "ready"),
    [(0, 1, 0.8, False), (1, 1, 0.8, True), (3, 4, 0.8, False), (4, 5, 0.8, True), (7, 10, 0.7, True), (1, 1000, 0.001, True)],
)
def test_the_share_of_workers_counts_as_it_is_written(up: int, expected: int, share: float, *, ready: bool) -> None:
    """0.7 of 10 is 7, which it is not as a double."""
    assert are_ready([(A, ["q"])] * up, expected=expected, share=share) is ready


def test_an_assignment_is_json_and_names_instance_and_host() -> None:
    """As XCom, and as the label of a task."""
    placed = Assigned(2, "edge1", "q", 5.0)
    assert Assigned(**placed.to_json()) == placed
    assert str(placed) == "2 on edge1"


def test_each_instance_has_its_place_in_the_mapped_task_of_its_queue() -> None:
    """In the order in which they were placed."""
    placed = [Assigned(number, "h", queue, 1.0) for number, queue in enumerate("pqqp")]
    found = [(each.instance, task, index) for each, task, index in mapped(placed, {"p": "receive_p", "q": "receive_q"})]
    assert found == [(0, "receive_p", 0), (3, "receive_p", 1), (1, "receive_q", 0), (2, "receive_q", 1)]


NAMES = st.sampled_from(["a", "b", "c", "d"])
QUEUES = ("p", "q")
WORKERS = st.dictionaries(NAMES, st.sets(st.sampled_from([*QUEUES, "x"])))


@given(
    st.lists(st.none() | st.sampled_from([*"abcd", "away"]), max_size=8),
    WORKERS,
    st.dictionaries(st.integers(0, 9), NAMES, max_size=4),
)
def test_every_instance_runs_where_it_can(
    preferred: list[str | None], queues: dict[str, set[str]], failed: dict[int, str]
) -> None:
    """Once, on a live worker and by a queue of it; not where it failed, if there is another host; and always alike."""
    live = on_queues([(Worker(f"celery@{host}", host), of) for host, of in queues.items()], QUEUES)
    up = {worker.host: of for worker, of in live}

    def placed(failures: dict[int, str]) -> list[Assigned]:
        return assign(dict(enumerate(preferred)), live, queues=QUEUES, failed=failures, until_s=1)

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
    if not failed and not any(preferred) and up:
        counts = Counter(each.host for each in found)
        assert max((counts[host] for host in up), default=0) - min((counts[host] for host in up), default=0) <= 1


@pytest.mark.parametrize(
    ("now_s", "overlap_s", "count"),
    [(0, 30, 6), (29, 30, 6), (30, 30, 3), (599, 30, 3), (600, 30, 6), (629, 30, 6), (0, 0, 3), (599, 0, 3)],
)
def test_instances_of_two_leases_share_while_the_leases_overlap(now_s: float, overlap_s: float, count: int) -> None:
    """In the first moments of a lease, and in its last ones; one without overlap is alone."""
    assert sharing(3, now_s, 600 + overlap_s, 600, overlap_s) == count

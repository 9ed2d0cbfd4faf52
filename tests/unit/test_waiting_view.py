"""Laws of what a run is shown to wait for."""

from __future__ import annotations

import pytest

from tidegate.core.config.names import DEFAULT_POOL
from tidegate.views.waiting import Slots, Task, crowding, receiver_slots, waits_for
from tidegate_receivers.config.receiver import Listen, Receiver, Workers

FULL, FREE, GONE = Slots("p", 4, 4), Slots("p", 4, 3), Slots("p", None)


@pytest.mark.parametrize(
    ("task", "slots", "line"),
    [
        (Task(name="load", state="scheduled", pool="p"), FULL, "load waits for a slot of the pool p (4 of 4 taken)"),
        (Task(name="load", state="scheduled", pool="p"), FREE, None),
        (Task(name="load", state="queued", pool="p"), FULL, None),
        (Task(name="load", state="scheduled", pool="p"), Slots("p", -1, 9), None),
        (Task(name="load", state="scheduled", pool="p"), GONE, "load waits for the pool p, which does not exist"),
        (Task(name="load", state="scheduled", pool="p"), Slots("p", 0), "load waits for a slot of the pool p, which has none"),
        (
            Task(name="load", state="up_for_retry", pool="p", retry_at_ms=12_400, retry_reason="SparkUnavailable"),
            FREE,
            "load is tried again in 12 s (SparkUnavailable)",
        ),
        (Task(name="load", state="up_for_retry", pool="p", retry_at_ms=-5), FREE, "load is tried again in 0 s"),
        (Task(name="load[3]", state="up_for_retry", pool="p"), FREE, "load[3] is tried again"),
        (
            Task(name="plan", state="running", pool="p", away="no broker answers"),
            FREE,
            "plan waits for a server: no broker answers",
        ),
        (Task(name="plan", state="failed", pool="p", away="no broker answers"), FREE, None),
        (Task(name="load", state="running", pool="p"), FULL, None),
    ],
)
def test_a_run_says_what_it_waits_for(task: Task, slots: Slots, line: str | None) -> None:
    """Nothing where a task runs, or has the slot that it needs."""
    assert waits_for([Task(name="before", state="success", pool="p"), task], {"p": slots}.__getitem__, now_ms=0) == line


def receiver(name: str, instances: int, pool: str = DEFAULT_POOL) -> Receiver:
    """One that listens, so that two of its leases overlap."""
    return Receiver(name, "http", "t", listen=Listen(8080), instances=instances, workers=Workers(pool=pool))


def crowded(*receivers: Receiver, parallelism: int | None = 99, **pools: int) -> list[str]:
    return crowding(receiver_slots(receivers), held=pools.get, parallelism=lambda: parallelism)


def test_receivers_that_take_every_slot_of_pipelines_are_named_with_the_way_out() -> None:
    """Slots of the pool that they share, of a pool of their own, and of all tasks; unknown limits are none."""
    a, b = receiver("a", 2), receiver("b", 3, "listening")
    assert receiver_slots([a, b, a]) == {"default_pool": 8, "listening": 6}
    assert crowded(a, b, default_pool=5, listening=6) == []
    assert crowded(a, b, default_pool=-1, listening=-1, parallelism=None) == []
    (shared,) = crowded(a, default_pool=4)
    assert shared.startswith("receivers take 4 of the 4 slots of default_pool, which plans and commits need, too")
    assert "`workers.pool`), or raise it to 10" in shared
    (missing,) = crowded(b)
    assert (
        "need 6 slots of the pool listening, which does not exist: instances wait. Run `airflow pools set listening 6"
        in missing
    )
    (few,) = crowded(b, listening=5)
    assert "which has 5" in few
    (all_tasks,) = crowded(a, default_pool=128, parallelism=4)
    assert "receivers take 4 of the 4 tasks that Airflow runs at the same time" in all_tasks
    assert crowding({}, held=lambda _: None, parallelism=lambda: 1) == []

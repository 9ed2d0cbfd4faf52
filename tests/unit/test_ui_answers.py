"""Laws of answers that pages share, and of what a run is shown to wait for."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier, Event
from unittest import mock

import pytest

from tidegate.core.config.names import DEFAULT_POOL
from tidegate.core.config.pipeline import pool_command
from tidegate.core.model.errors import BrokerUnavailable
from tidegate.ui.caches import MOST, Answer, Answers
from tidegate.views.overview import Slots, Task, crowding, receiver_slots, waits_for
from tidegate_receivers.config.receiver import Listen, Receiver, Workers

GONE = BrokerUnavailable("nobody answers")
LONG_S = 30.0


class Clock:
    now = 1000

    def __call__(self) -> int:
        return self.now


def answers_of(clock: Clock, wait_s: float = LONG_S) -> Answers[int]:
    return Answers[int]("somebody", 5, wait_s=wait_s, now_ms=clock)


def test_an_answer_is_kept_for_a_while() -> None:
    answers, ask = answers_of(clock := Clock()), mock.Mock(side_effect=range(1, 9))
    assert answers.get("a", ask) == answers.get("a", ask) == Answer(value=1, at_ms=1000)
    assert answers.get("b", ask) == Answer(value=2, at_ms=1000)
    clock.now += 5000
    assert answers.get("a", ask) == Answer(value=3, at_ms=6000)
    clock.now -= 500
    assert answers.get("a", ask) == Answer(value=4, at_ms=5500)


def test_what_is_known_stays_while_nobody_answers() -> None:
    """With its age and the error; a failure is not asked for again at once either."""
    answers, fail = answers_of(clock := Clock()), mock.Mock(side_effect=GONE)
    assert answers.get("a", fail) == Answer(value=None, at_ms=1000, error=GONE)
    assert answers.get("a", lambda: 1).value is None
    clock.now += 5000
    assert answers.get("a", lambda: 1) == Answer(value=1, at_ms=6000)
    clock.now += 5000
    assert answers.get("a", fail) == Answer(value=1, at_ms=6000, error=GONE)
    clock.now += 5000
    assert answers.get("a", lambda: 2) == Answer(value=2, at_ms=16_000)


def test_a_fault_of_ours_is_named_and_hides_nothing_else() -> None:
    """What is known stays; the log has the rest."""
    answers = answers_of(clock := Clock())
    assert answers.get("a", lambda: 1).value == 1
    clock.now += 5000
    found = answers.get("a", mock.Mock(side_effect=LookupError("a secret")))
    assert (found.value, str(found.error)) == (1, "it cannot be read: LookupError. See the log of Airflow's API server")


def test_of_several_who_ask_at_once_one_asks() -> None:
    answers, answer, start = answers_of(Clock()), mock.Mock(return_value=7), Barrier(4)

    def ask(_: int) -> int | None:
        start.wait(10)
        return answers.get("a", answer).value

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(ask, range(4))] == [7] * 4
    assert answer.call_count == 1


def test_nobody_waits_for_what_does_not_answer() -> None:
    """The newest answer is shown meanwhile, where there is one, and the next caller gets what came later."""
    clock, may_answer = Clock(), Event()
    answers = answers_of(clock, wait_s=0)

    def late(value: int) -> int:
        assert may_answer.wait(10)
        return value

    def settled() -> Answer[int]:
        may_answer.set()
        while (answer := answers.get("a", lambda: late(0))).waiting:
            continue
        may_answer.clear()
        return answer

    assert answers.get("a", lambda: late(1)) == Answer(value=None, at_ms=1000, waiting=True)
    assert settled() == Answer(value=1, at_ms=1000)
    clock.now += 5000
    assert answers.get("a", lambda: late(2)) == Answer(value=1, at_ms=1000, waiting=True)
    assert settled() == Answer(value=2, at_ms=6000)


def test_an_answer_from_before_a_change_is_not_kept() -> None:
    """One that was asked for after it is; nor does a change of a clock that is ahead count."""
    clock = Clock()
    answers = answers_of(clock)
    assert answers.get("a", lambda: 1).value == 1
    clock.now += 10
    assert answers.get("a", lambda: 2, after_ms=999).value == 1
    assert answers.get("a", lambda: 2, after_ms=9000).value == 1
    assert answers.get("a", lambda: 2, after_ms=1000).value == 2
    assert answers.get("a", lambda: 3, after_ms=1005).value == 2


def test_who_never_answers_is_named_and_asked_again_after_a_while() -> None:
    """What is known is shown meanwhile, and the later answer counts."""
    clock, answered = Clock(), Event()
    answers, asked = answers_of(clock, wait_s=0), list[int]()

    def hang() -> int:
        asked.append(1)
        assert answered.wait(LONG_S)
        return 1

    assert answers.get("a", hang) == Answer(value=None, at_ms=1000, waiting=True)
    clock.now += 20_000
    late = answers.get("a", hang)
    assert (late.value, late.waiting) == (None, True)
    assert str(late.error) == "somebody has not answered for 20 s. See whether it is overloaded"
    assert asked == [1]
    clock.now += 580_000
    while (found := answers.get("a", lambda: 2)).waiting:
        continue
    assert found == Answer(value=2, at_ms=601_000)
    answered.set()
    assert answers.get("a", lambda: 3) == Answer(value=2, at_ms=601_000)


def test_several_questions_are_asked_at_once() -> None:
    answers, both = answers_of(Clock()), Barrier(2)

    def meet() -> int:
        return both.wait(10)

    found = answers.get_all({"a": meet, "b": meet})
    assert sorted(each.value for each in found.values() if each.value is not None) == [0, 1]


def test_the_oldest_answers_are_forgotten() -> None:
    answers = Answers[int]("somebody", 60, wait_s=LONG_S, now_ms=Clock())
    for key in range(MOST + 10):
        answers.get(key, lambda key=key: key)  # type: ignore[misc]
    assert answers.get(0, lambda: -1).value == -1
    assert answers.get(MOST + 9, lambda: -1).value == MOST + 9


RETRIED = partial(Task, state="up_for_retry", pool="p")
FULL, FREE, NO_POOL = Slots("p", 4, 4), Slots("p", 4, 3), Slots("p", None)


@pytest.mark.parametrize(
    ("task", "slots", "line"),
    [
        (Task(name="load", state="scheduled", pool="p"), FULL, "load waits for a slot of the pool p (4 of 4 taken)"),
        (Task(name="load", state="scheduled", pool="p"), FREE, None),
        (Task(name="load", state="queued", pool="p"), FULL, None),
        (Task(name="load", state="scheduled", pool="p"), Slots("p", -1, 9), None),
        (Task(name="load", state="scheduled", pool="p"), NO_POOL, "load waits for the pool p, which does not exist"),
        (Task(name="load", state="scheduled", pool="p"), Slots("p", 0), "load waits for a slot of the pool p, which has none"),
        (
            Task(name="load", state="scheduled", pool="p"),
            Slots("p", 0, needed=2),
            f"load waits for a slot of the pool p, which has none. Run `{pool_command('p', 2)}`",
        ),
        (RETRIED(name="load", retry_at_ms=12_400, retry_reason="Spark"), FREE, "load is tried again in 12 s (Spark)"),
        (RETRIED(name="load", retry_at_ms=-5), FREE, "load is tried again in 0 s"),
        (RETRIED(name="load[3]"), FREE, "load[3] is tried again"),
        (Task(name="plan", state="running", pool="p", away="no broker"), FREE, "plan waits for a server: no broker"),
        (Task(name="plan", state="failed", pool="p", away="no broker"), FREE, None),
        (Task(name="load", state="running", pool="p"), FULL, None),
    ],
)
def test_a_run_says_what_it_waits_for(task: Task, slots: Slots, line: str | None) -> None:
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
    for receivers, limits, words in (
        ([a], {"default_pool": 4}, "take 4 of the 4 slots of default_pool, .* pool of their own .*, or raise it to 10"),
        ([b], {}, "need 6 slots of the pool listening, which does not exist: .* `airflow pools set listening 6"),
        ([b], {"listening": 5}, "which has 5"),
        ([a], {"default_pool": 128, "parallelism": 4}, "take 4 of the 4 tasks that Airflow runs at the same time"),
    ):
        (told,) = crowded(*receivers, **limits)
        assert re.search(words, told)
    assert crowding({}, held=lambda _: None, parallelism=lambda: 1) == []

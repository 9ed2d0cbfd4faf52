"""Laws of answers that pages share."""

from __future__ import annotations

from threading import Barrier, Event, Thread

from tidegate.core.model.errors import BrokerUnavailable
from tidegate.ui.answers import MOST, Answer, Answers

GONE = BrokerUnavailable("nobody answers")
LONG_S = 30.0


class Clock:
    """A time that moves when it is told to."""

    now = 1000

    def __call__(self) -> int:
        return self.now


def answers_of(clock: Clock, wait_s: float = LONG_S) -> Answers[int]:
    return Answers[int]("somebody", 5, wait_s=wait_s, now_ms=clock)


def test_an_answer_is_kept_for_a_while() -> None:
    """Each question by itself."""
    clock, asked = Clock(), list[str]()

    def ask(key: str) -> Answer[int]:
        def count() -> int:
            asked.append(key)
            return len(asked)

        return answers.get(key, count)

    answers = answers_of(clock)
    assert ask("a") == ask("a") == Answer(value=1, at_ms=1000)
    assert ask("b") == Answer(value=2, at_ms=1000)
    clock.now += 5000
    assert ask("a") == Answer(value=3, at_ms=6000)
    assert asked == ["a", "b", "a"]


def test_what_is_known_stays_while_nobody_answers() -> None:
    """With its age and the error; a failure is not asked for again at once either."""
    clock = Clock()
    answers = answers_of(clock)

    def fail() -> int:
        raise GONE

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
    clock = Clock()
    answers = answers_of(clock)
    assert answers.get("a", lambda: 1).value == 1
    clock.now += 5000

    def fail() -> int:
        raise LookupError("a secret")

    found = answers.get("a", fail)
    assert (found.value, str(found.error)) == (1, "it cannot be read: LookupError. See the log of Airflow's API server")


def test_a_clock_that_goes_back_keeps_nothing_for_longer() -> None:
    """It is asked again."""
    clock = Clock()
    answers = answers_of(clock)
    assert answers.get("a", lambda: 1).value == 1
    clock.now -= 500
    assert answers.get("a", lambda: 2).value == 2


def test_of_several_who_ask_at_once_one_asks() -> None:
    """The others get its answer."""
    answers, asked, start = answers_of(Clock()), list[int](), Barrier(4)
    got: list[int | None] = []

    def answer() -> int:
        asked.append(1)
        return 7

    def ask() -> None:
        start.wait(10)
        got.append(answers.get("a", answer).value)

    threads = [Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert (asked, got) == ([1], [7] * 4)


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
    """None of them waits for another."""
    answers, both = answers_of(Clock()), Barrier(2)

    def meet() -> int:
        return both.wait(10)

    found = answers.get_all({"a": meet, "b": meet})
    assert sorted(each.value for each in found.values() if each.value is not None) == [0, 1]


def test_the_oldest_answers_are_forgotten() -> None:
    """However many questions there are."""
    answers = Answers[int]("somebody", 60, wait_s=LONG_S, now_ms=Clock())
    for key in range(MOST + 10):
        answers.get(key, lambda key=key: key)  # type: ignore[misc]
    assert answers.get(0, lambda: -1).value == -1
    assert answers.get(MOST + 9, lambda: -1).value == MOST + 9

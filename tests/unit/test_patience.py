"""Laws of waiting for a server that is away."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field

import pytest

from tidegate.core.model.errors import BrokerUnavailable, SinkUnavailable, SparkUnavailable, TidegateError, TopicNotFound
from tidegate.core.planning.patience import AWAY, LONGEST_S, Patience, is_away


@dataclass
class Time:
    """A clock that only sleeping moves."""

    now: float = 100.0
    naps: list[float] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds

    def patience(self, for_s: float, spread: float = 1.0) -> Patience:
        return Patience(for_s=for_s, tell=self.told.append, clock=lambda: self.now, sleep=self.sleep, spread=lambda: spread)

    def away(self, seconds: float, error: type[TidegateError] = SparkUnavailable) -> Callable[[], str]:
        back = self.now + seconds

        def step() -> str:
            if self.now < back:
                raise error("it does not answer", fix="Start it")
            return "done"

        return step


@pytest.mark.parametrize("error", AWAY)
def test_an_absence_is_waited_out_and_told_twice(error: type[TidegateError]) -> None:
    """One line when the server goes away, with what to do, and one when it is back; the same is shown meanwhile."""
    time, shown = Time(), list[str | None]()
    patience = time.patience(600)
    patience.show = shown.append
    assert patience.through(time.away(60, error)) == "done"
    away = f"{error.__name__}: it does not answer. Start it"
    waits = "Waiting for it, up to 600 s; this does not count as a failed try"
    assert time.told == [f"{away}. {waits}", "It answers again after 60 s; going on"]
    assert shown == [away, None]


@pytest.mark.parametrize(
    ("for_s", "away_s", "spread", "naps"),
    [
        (50, 10_000, 1.0, [1, 2, 4, 8, LONGEST_S, LONGEST_S, 5]),
        (600, 3, 0.0, [0.5, 1, 2]),  # jitter halves a pause at most: tasks do not come back at the same instant
    ],
)
def test_pauses_double_and_never_pass_the_deadline(for_s: float, away_s: float, spread: float, naps: list[float]) -> None:
    time = Time()
    with pytest.raises(SparkUnavailable, match="does not answer") if away_s > for_s else nullcontext():
        time.patience(for_s, spread).through(time.away(away_s))
    assert time.naps == naps


def test_what_is_not_an_absence_is_raised_at_once() -> None:
    time = Time()
    with pytest.raises(TopicNotFound):
        time.patience(600).through(time.away(1, TopicNotFound))
    with pytest.raises(SparkUnavailable):
        time.patience(0).through(time.away(1))
    with pytest.raises(SparkUnavailable):
        time.patience(600).through(time.away(1), waits_for=lambda _: False)
    assert (time.naps, time.told) == ([], [])
    assert not is_away(TopicNotFound("gone"))


def test_the_time_is_not_renewed_by_a_server_that_comes_and_goes() -> None:
    """Spark answers each time, and the catalog behind it never does: the try ends in time, with one line."""
    time = Time()
    patience = time.patience(30)

    def step() -> None:
        patience.answered(SparkUnavailable)
        raise SinkUnavailable("the catalog does not answer")

    with pytest.raises(SinkUnavailable):
        patience.through(step)
    assert (time.now, len(time.told)) == (130, 1)


def test_one_server_after_the_other_is_told_apart() -> None:
    time = Time()
    patience, broker, spark = time.patience(600), time.away(7, BrokerUnavailable), time.away(20)

    def step() -> str:
        broker()
        patience.answered(BrokerUnavailable)
        return spark()

    assert patience.through(step) == "done"
    told = [line.split(":")[0].split(" after")[0] for line in time.told]
    assert told == ["BrokerUnavailable", "It answers again", "SparkUnavailable", "It answers again"]
    assert time.naps == [1, 2, 4, 1, 2, 4, 8]


def test_what_the_sleep_raises_ends_the_waiting() -> None:
    time = Time()

    def stopped(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Patience(for_s=600, tell=time.told.append, clock=lambda: time.now, sleep=stopped).through(time.away(60))

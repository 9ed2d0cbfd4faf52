"""Laws of the poller of the logs' ends, with a client in memory (tests/integration has the real one)."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.core.config.pipeline import Source
from tidegate.core.model.errors import BrokerUnavailable, ConfigError, KafkaError
from tidegate.core.model.ranges import TopicPartition
from tidegate.kafka import ends
from tidegate.kafka.ends import EndsReading, Settings, Subscription, watching

POLL_S = 0.02
LONG_S = 20.0
T = TopicPartition("t", 0)


class Client:
    """Answers for partition 0 of each topic with `end`; both clients, librdkafka's and the one that holds it."""

    made: list[Client]
    hangs = False

    def __init__(self, settings: Mapping[str, str], **_: Any) -> None:
        self.end = int(settings["end"])
        if self.end < 0:
            raise KafkaError("the connection's settings are refused")
        self.closed = False
        self.asked: Counter[str] = Counter()
        self.threads, self.client = 0, self
        self.made.append(self)

    def describe_topics(self, names: Any, **_: Any) -> dict[str, Future[Any]]:
        self.asked["describe_topics"] += 1
        return {name: answer(SimpleNamespace(partitions=[SimpleNamespace(id=0)])) for name in names.topic_names}

    def list_offsets(self, partitions: Mapping[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        self.asked["list_offsets"] += 1
        self.threads = sum(thread.name.startswith("tidegate-kafka-ends") for thread in threading.enumerate())
        if self.hangs:
            return {tp: Future() for tp in partitions}
        return {tp: answer(SimpleNamespace(offset=self.end)) for tp in partitions}

    def poll(self, _: float) -> None: ...

    def wait(self, _: Future[Any]) -> None:
        """No answer is an error."""

    def forget_reports(self) -> None: ...

    def close(self) -> None:
        self.closed = True


def answer(value: object) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


@pytest.fixture(autouse=True)
def clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Client]]:
    """All that were made; pauses after failures are short. After each test no poller, no thread and no client is left."""
    made: list[Client] = []
    monkeypatch.setattr(Client, "made", made, raising=False)
    monkeypatch.setattr(ends, "Admin", Client)
    monkeypatch.setattr(ends, "LONGEST_PAUSE_S", POLL_S)
    yield made
    assert not ends._OPEN
    for thread in threading.enumerate():
        if thread.name.startswith("tidegate-kafka-ends"):
            thread.join(LONG_S)
            assert not thread.is_alive()
    assert all(client.closed for client in made)


def hangs(monkeypatch: pytest.MonkeyPatch, **within: float) -> None:
    """No client answers; that is noticed within so many seconds."""
    for name, value in {"REQUEST_S": 0.0, "STEP_S": POLL_S, **within}.items():
        monkeypatch.setattr(ends, name, value)
    monkeypatch.setattr(Client, "hangs", True)


def answers(*given: Any) -> Settings:
    """The settings at each look; the last ones from then on."""
    left: Iterator[Any] = iter(given)

    async def read() -> Mapping[str, str]:
        settings = next(left, given[-1])
        if isinstance(settings, BaseException):
            raise settings
        return {"end": str(settings)}

    return read


def user_of(settings: Settings, poll_s: float = POLL_S, topic: str = "t") -> AbstractContextManager[Subscription]:
    return watching("c", settings, Source((topic,)), poll_s)


async def answered(user: Subscription) -> EndsReading:
    """The first reading without an error; one that came late may be shared once more."""
    while (reading := await user.next()).error is not None:
        pass
    return reading


@pytest.mark.parametrize("end", [asyncio.CancelledError(), GeneratorExit()], ids=repr)
async def test_nobody_waits_for_a_user_that_has_ended(end: BaseException) -> None:
    """However it ended: it would be for ever, and nobody would see it."""
    with user_of(answers(end), LONG_S) as one, user_of(answers(5)) as other:
        ending, waiting = (asyncio.ensure_future(user.poller.reading(user)) for user in (one, other))
        assert await waiting == EndsReading({T: 5})
        await asyncio.wait({ending})
        with pytest.raises(type(end)):
            ending.result()


async def test_an_answer_is_shared_while_it_is_younger_than_half_of_a_users_interval(clients: list[Client]) -> None:
    """Between users of any intervals; a new user needs another one, since nobody has asked for its topics."""
    with user_of(answers(5)) as short, user_of(answers(5), LONG_S) as long:
        for asked in (1, 2):
            for each in (short, long, long):
                assert await each.poller.reading(each) == EndsReading({T: 5})
            assert clients[0].asked == {"describe_topics": 1, "list_offsets": asked}
            await asyncio.sleep(POLL_S)
        with user_of(answers(5), LONG_S) as new:
            await new.poller.reading(new)
            assert clients[0].asked == {"describe_topics": 2, "list_offsets": 3}


@pytest.mark.parametrize(("round_s", "slack_s"), [(0.5, 2), (9, 0.1)], ids=["poll", "answer"])
async def test_a_client_that_hangs_is_left(
    round_s: float, slack_s: float, monkeypatch: pytest.MonkeyPatch, clients: list[Client]
) -> None:
    """Whether its answer is missing, or the whole poll takes too long: its users hear of it, and have another one."""
    hangs(monkeypatch, ROUND_S=round_s, SLACK_S=slack_s)
    with user_of(answers(5)) as user:
        reading = await user.next()
        assert isinstance(reading.error, BrokerUnavailable)
        assert "hangs" in str(reading.error)
        monkeypatch.setattr(Client, "hangs", False)
        assert await answered(user) == EndsReading({T: 5})
    assert len(clients) == 2


async def test_200_users_of_a_broker_that_hangs_share_one_thread_and_one_request(
    monkeypatch: pytest.MonkeyPatch, clients: list[Client]
) -> None:
    """And leave the event loop free."""
    hangs(monkeypatch, SLACK_S=0.5)
    with ExitStack() as stack:
        users = [stack.enter_context(user_of(answers(5), 2.0, f"t{n}")) for n in range(200)]
        reading = asyncio.gather(*(user.next() for user in users))
        turns = 0
        while not reading.done():
            await asyncio.wait({reading}, timeout=POLL_S)
            turns += 1
        assert turns > 10
        assert all(isinstance(each.error, BrokerUnavailable) for each in reading.result())
    assert [(client.asked["list_offsets"], client.threads) for client in clients] == [(1, 1)]


async def test_a_connection_that_names_another_cluster_is_followed_though_the_former_one_answers(
    monkeypatch: pytest.MonkeyPatch, clients: list[Client]
) -> None:
    """Nothing would fail there, and no record would come. A connection that cannot be read changes nothing."""
    monkeypatch.setattr(ends, "METADATA_S", 2 * POLL_S)
    with user_of(answers(5, 5, ConfigError("Airflow has no connection c"), 7)) as user:
        assert await user.next() == EndsReading({T: 5})
        while (reading := await user.next()) != EndsReading({T: 7}):
            assert reading == EndsReading({T: 5})
    former, present = clients
    assert former.asked["list_offsets"] >= 3
    assert present.asked["describe_topics"] >= 1


async def test_a_connection_that_was_corrected_is_taken_at_the_next_poll() -> None:
    """What no wait mends, somebody may have mended: one that is missing, or whose settings no client takes."""
    with user_of(answers(ConfigError("Airflow has no connection c"), -1, 5)) as user:
        assert isinstance((await user.next()).error, ConfigError)
        assert await answered(user) == EndsReading({T: 5})


async def test_a_failure_is_shared_for_pauses_that_double(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the longest: a broker that is away is asked less and less."""
    now_s, asked = [0.0], list[float]()
    monkeypatch.setattr(ends, "LONGEST_PAUSE_S", 30.0)
    monkeypatch.setattr(ends, "time", SimpleNamespace(monotonic=lambda: now_s[0]))

    async def settings() -> Mapping[str, str]:
        asked.append(now_s[0])
        raise ConfigError("Airflow has no connection c")

    with user_of(settings, 1.0) as user:
        for now_s[0] in range(100):
            await user.poller.reading(user)
    assert asked == [0, 1, 3, 7, 15, 31, 61, 91]


async def test_users_are_told_one_after_the_other() -> None:
    """What each computes of thousands of partitions would add up to a time in which the event loop serves nobody else."""
    turns = [0]

    async def count() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    async def use() -> int:
        with user_of(answers(5)) as user:
            await user.next()
            return turns[0]

    counting = asyncio.create_task(count())
    told = await asyncio.gather(*(use() for _ in range(5)))
    counting.cancel()
    assert len(set(told)) == 5

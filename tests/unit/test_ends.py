"""Laws of the poller of the logs' ends, with a client in memory (tests/integration has the real one)."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.core.config.pipeline import Source
from tidegate.core.errors import BrokerUnavailable, ConfigError
from tidegate.core.offsets.ranges import TopicPartition
from tidegate.kafka import ends
from tidegate.kafka.ends import Poller, Reading, Settings, watching

POLL_S = 0.02
LONG_S = 20.0
T = TopicPartition("t", 0)


class Client:
    """Answers for partition 0 of each topic with `end`; both clients, librdkafka's and the one that holds it."""

    made: list[Client]
    hangs = False

    def __init__(self, settings: Mapping[str, str], **_: Any) -> None:
        self.end = int(settings["end"])
        self.closed = False
        self.asked: Counter[str] = Counter()
        self.client = self
        self.made.append(self)

    def describe_topics(self, names: Any, **_: Any) -> dict[str, Future[Any]]:
        self.asked["describe_topics"] += 1
        return {name: answer(SimpleNamespace(partitions=[SimpleNamespace(id=0)])) for name in names.topic_names}

    def list_offsets(self, partitions: Mapping[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        self.asked["list_offsets"] += 1
        if self.hangs:
            return {tp: Future() for tp in partitions}
        return {tp: answer(SimpleNamespace(offset=self.end)) for tp in partitions}

    def poll(self, _: float) -> None: ...

    def forget_reports(self) -> None: ...

    def close(self) -> None:
        self.closed = True


def answer(value: object) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


@pytest.fixture(autouse=True)
def clients(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    """All that were made; pauses after failures are short."""
    made: list[Client] = []
    monkeypatch.setattr(Client, "made", made, raising=False)
    monkeypatch.setattr(ends, "Admin", Client)
    monkeypatch.setattr(ends, "LONGEST_PAUSE_S", POLL_S)
    return made


def answers(*given: Any) -> Settings:
    """The settings at each look; the last ones from then on."""
    left: Iterator[Any] = iter(given)

    async def read() -> Mapping[str, str]:
        settings = next(left, given[-1])
        if isinstance(settings, BaseException):
            raise settings
        return {"end": str(settings)}

    return read


def run(what: Callable[[], Awaitable[None]]) -> None:
    """A test's coroutine, at the end of which no poller, no thread and no client is left."""

    async def whole() -> None:
        await asyncio.wait_for(what(), LONG_S)
        assert not ends._OPEN

    asyncio.run(whole())
    for thread in threading.enumerate():
        if thread.name.startswith("tidegate-kafka-ends"):
            thread.join(LONG_S)
            assert not thread.is_alive()
    assert all(client.closed for client in Client.made)


class Abort(BaseException):
    """Not an Exception."""


@pytest.mark.parametrize("end", [asyncio.CancelledError("the channel to Airflow"), Abort("a bug of a client")], ids=repr)
def test_users_of_a_poller_that_has_ended_are_told_and_the_next_one_finds_another(end: BaseException) -> None:
    """Otherwise they would wait for ever, and nobody would see it."""

    async def follow() -> None:
        async with watching("c", answers(end), Source(("t",)), POLL_S) as one:
            async with watching("c", answers(5), Source(("t",)), POLL_S) as other:
                for user in (one, other, other):
                    with pytest.raises(BrokerUnavailable, match="has ended"):
                        await user.next()
                async with watching("c", answers(7), Source(("t",)), POLL_S) as next_one:
                    assert await next_one.next() == Reading({T: 7})
            async with watching("c", answers(8), Source(("t",)), POLL_S) as last:
                assert await last.next() == Reading({T: 8})

    run(follow)


@pytest.mark.parametrize("limit", ["ROUND_S", "SLACK_S"])
def test_a_client_that_hangs_is_left(limit: str, monkeypatch: pytest.MonkeyPatch, clients: list[Client]) -> None:
    """Whether its answer is missing, or the whole poll takes too long: the next user has another one."""
    monkeypatch.setattr(Poller.__init__, "__kwdefaults__", {"request_s": 0.0, "open_client": None})
    monkeypatch.setattr(ends, limit, 0.1)
    monkeypatch.setattr(ends, "STEP_S", POLL_S)
    monkeypatch.setattr(Client, "hangs", True)

    async def follow() -> None:
        async with watching("c", answers(5), Source(("t",)), POLL_S) as user:
            with pytest.raises(BrokerUnavailable, match="has ended: TimeoutError"):
                await user.next()
        monkeypatch.setattr(Client, "hangs", False)
        async with watching("c", answers(5), Source(("t",)), POLL_S) as user:
            assert await user.next() == Reading({T: 5})

    run(follow)
    assert len(clients) == 2


def test_a_poller_that_is_closed_ends_although_somebody_has_just_joined() -> None:
    """And left again, in the same turn of the event loop."""

    async def follow() -> None:
        poller = Poller(answers(5))
        users = [poller.join(Source(("t",)), LONG_S)]
        await asyncio.sleep(POLL_S)
        users.append(poller.join(Source(("t",)), LONG_S))
        await asyncio.sleep(0)
        assert [poller.leave(user) for user in users] == [False, True]
        await poller.close()
        assert poller.has_ended

    run(follow)


def test_a_connection_that_names_another_cluster_is_followed_though_the_former_one_answers(
    monkeypatch: pytest.MonkeyPatch, clients: list[Client]
) -> None:
    """Nothing would fail there, and no record would come. A connection that cannot be read changes nothing."""
    monkeypatch.setattr(ends, "METADATA_S", 2 * POLL_S)

    async def follow() -> None:
        settings = answers(5, 5, ConfigError("Airflow has no connection c"), 7)
        async with watching("c", settings, Source(("t",)), POLL_S) as user:
            assert await user.next() == Reading({T: 5})
            while (reading := await user.next()) != Reading({T: 7}):
                assert reading == Reading({T: 5})

    run(follow)
    former, present = clients
    assert former.asked["list_offsets"] >= 3
    assert present.asked["describe_topics"] >= 1


def test_users_are_told_one_after_the_other() -> None:
    """What each computes of thousands of partitions would add up to a time in which the event loop serves nobody else."""
    turns = [0]

    async def count() -> None:
        while True:
            turns[-1] += 1
            await asyncio.sleep(0)

    async def follow() -> None:
        counting = asyncio.create_task(count())

        async def use() -> int:
            async with watching("c", answers(5), Source(("t",)), POLL_S) as user:
                await user.next()
                return turns[-1]

        told = await asyncio.gather(*(use() for _ in range(5)))
        counting.cancel()
        assert len(set(told)) == 5

    run(follow)

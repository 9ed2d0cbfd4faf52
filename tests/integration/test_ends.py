"""Laws of the poller of the logs' ends, on real brokers, on one that swallows packets, and on none."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from tests.integration.private_broker import PrivateBroker
from tests.topics import make_topic, transact, write
from tidegate.core.config.pipeline import Source
from tidegate.core.model.errors import BrokerUnavailable, TidegateError, TopicNotFound
from tidegate.core.model.ranges import TopicPartition
from tidegate.kafka import ends
from tidegate.kafka.ends import EndsReading, Subscription, watching
from tidegate_local import sockets

POLL_S = 0.2
LONG_S = 60.0


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "LONGEST_PAUSE_S", 0.5)
    monkeypatch.setattr(ends, "METADATA_S", 0.5)


def known(settings: Mapping[str, str]) -> ends.Settings:
    async def read() -> Mapping[str, str]:
        return settings

    return read


def run(what: Callable[[], Awaitable[None]]) -> None:
    """A test's coroutine, at the end of which no poller is open."""

    async def whole() -> None:
        await asyncio.wait_for(what(), LONG_S)
        assert not ends._OPEN

    asyncio.run(whole())


async def until(user: Subscription, holds: Callable[[EndsReading], bool]) -> EndsReading:
    """The first reading of which it holds."""
    while not holds(reading := await user.next()):
        pass
    return reading


def wrong(kind: type[TidegateError]) -> Callable[[EndsReading], bool]:
    return lambda reading: isinstance(reading.error, kind)


def at(topic: str, *offsets: int) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, number): offset for number, offset in enumerate(offsets)}


def test_ends_follow_the_log_and_its_new_partitions(kafka: dict[str, str]) -> None:
    """Of topics by name, by pattern, and of assigned partitions; a topic that a pattern matches later is found too."""
    make_topic(kafka, "ends_a", 2)
    sources = [Source(("ends_a",)), Source(pattern="ends_.*", exclude=("ends_x",)), Source(assign={"ends_a": (1, 2)})]

    async def follow() -> None:
        with ExitStack() as stack:
            named, matched, assigned = [stack.enter_context(watching("c", known(kafka), source, POLL_S)) for source in sources]
            await until(named, lambda r: r == EndsReading(at("ends_a", 0, 0)))
            write(kafka, "ends_a", 1, 3)
            await until(named, lambda r: r == EndsReading(at("ends_a", 0, 3)))
            await until(assigned, lambda r: r == EndsReading({TopicPartition("ends_a", 1): 3}))
            admin = AdminClient(dict(kafka))  # its requests end with it, so it has a name
            admin.create_partitions([NewPartitions("ends_a", 3)])["ends_a"].result(30)
            make_topic(kafka, "ends_x")
            make_topic(kafka, "ends_b")
            await until(named, lambda r: r == EndsReading(at("ends_a", 0, 3, 0)))
            await until(matched, lambda r: r == EndsReading(at("ends_a", 0, 3, 0) | at("ends_b", 0)))
            await until(assigned, lambda r: r == EndsReading({TopicPartition("ends_a", n): 6 - 3 * n for n in (1, 2)}))

    run(follow)


def test_each_user_sees_what_its_isolation_level_lets_it_read(kafka: dict[str, str]) -> None:
    """An open transaction holds back those that read committed records."""
    make_topic(kafka, "levels")
    transact(kafka, "levels", 0, 4)
    sources = [Source(("levels",)), Source(("levels",), isolation_level="read_uncommitted")]

    async def look() -> None:
        producer = ck.Producer({**kafka, "transactional.id": "open"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("levels", b"x")
        assert producer.flush(30) == 0
        with ExitStack() as stack:
            committed, all_ = [stack.enter_context(watching("c", known(kafka), source, POLL_S)) for source in sources]
            assert (await committed.next()).ends == at("levels", 5)
            assert (await all_.next()).ends == at("levels", 6)
        producer.abort_transaction(30)

    run(look)


def test_a_missing_topic_is_named_and_leaves_the_other_users(kafka: dict[str, str]) -> None:
    """A pattern leaves it out, and so does a pipeline that retires what is gone."""
    make_topic(kafka, "there")

    async def look() -> None:
        with ExitStack() as stack:
            missing, there, retiring = [
                stack.enter_context(watching("c", known(kafka), source, POLL_S))
                for source in (
                    Source(("there", "nowhere")),
                    Source(("there",)),
                    Source(("there", "nowhere"), on_deleted="retire"),
                )
            ]
            error = (await until(missing, wrong(TopicNotFound))).error
            assert error is not None
            assert "topic nowhere does not exist" in str(error)
            assert (await there.next()) == (await retiring.next()) == EndsReading(at("there", 0))
            make_topic(kafka, "nowhere")
            await until(missing, lambda r: r == EndsReading(at("there", 0) | at("nowhere", 0)))

    run(look)


@asynccontextmanager
async def longest_block() -> AsyncIterator[list[float]]:
    """The longest that the event loop was not free, s, as Airflow's own watchdog measures it."""
    longest = [0.0]

    async def watch() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.05)
            longest[0] = max(longest[0], time.monotonic() - before - 0.05)

    task = asyncio.create_task(watch())
    yield longest
    task.cancel()


@pytest.fixture
def black_hole() -> Iterator[str]:
    """The address of a broker that takes connections and answers nothing."""
    with socket.create_server((sockets.LOOPBACK, 0), backlog=100) as silent:
        yield f"{sockets.LOOPBACK}:{silent.getsockname()[1]}"


def test_a_broker_that_swallows_packets_never_blocks_the_event_loop(black_hole: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither while topics are listed, nor while the client is made and closed; each poll fails by its timeout."""
    monkeypatch.setattr(ends, "REQUEST_S", 2.0)
    settings = {"bootstrap.servers": black_hole, "client.id": "test"}

    async def poll() -> None:
        async with longest_block() as longest:
            with ExitStack() as stack:
                users = [
                    stack.enter_context(watching("c", known(settings), source, POLL_S))
                    for source in (Source(("a",)), Source(pattern="a.*"))
                ]
                for user in users * 2:
                    assert isinstance((await user.next()).error, BrokerUnavailable)
        assert longest[0] < 1.0  # what blocks, blocks for two seconds

    run(poll)


def test_a_broker_that_was_away_is_found_again_by_the_same_client(own: PrivateBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its users hear of each failed poll, and of the ends as soon as it is back."""
    monkeypatch.setattr(ends, "REQUEST_S", 1.0)
    settings = {"bootstrap.servers": own.address(), "client.id": "test"}
    make_topic(settings, "away")

    async def follow() -> None:
        with watching("c", known(settings), Source(("away",)), POLL_S) as user:
            await until(user, lambda r: r == EndsReading(at("away", 0)))
            (poller,) = ends._OPEN.values()
            client = poller._client._admin
            await asyncio.to_thread(own.server.stop)
            await until(user, wrong(BrokerUnavailable))
            await asyncio.to_thread(own.server.start)
            await until(user, lambda r: r == EndsReading(at("away", 0)))
            assert poller._client._admin is client

    run(follow)


def test_the_client_ends_with_its_last_user(kafka: dict[str, str]) -> None:
    """Its thread too; a user that is cancelled is one that leaves, also while the client is being made."""
    make_topic(kafka, "left")

    async def follow() -> None:
        with watching("c", known(kafka), Source(("left",)), POLL_S) as first:
            with watching("c", known(kafka), Source(("left",)), POLL_S) as second:
                await second.next()
            await first.next()

        async def use() -> None:
            with watching("c", known(kafka), Source(("left",)), POLL_S) as user:
                await user.next()

        for pause_s in (0.0, POLL_S, 1.2 * POLL_S):
            task = asyncio.create_task(use())
            await asyncio.sleep(pause_s)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run(follow)
    for thread in threading.enumerate():
        if thread.name.startswith("tidegate-kafka-ends"):
            thread.join(LONG_S)
    assert not [t for t in threading.enumerate() if t.name.startswith("tidegate-kafka-ends")]

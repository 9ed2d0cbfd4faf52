"""Receivers that run in a test: until it has seen what it wants, and no longer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka as ck

from tidegate.core.model.errors import BrokerUnavailable, NotDelivered, RecordRefused, TidegateError
from tidegate_receivers.config.receiver import Block, Receiver
from tidegate_receivers.rules.records import Failures, Outgoing, Sender
from tidegate_receivers.runtime.backpressure import Heard
from tidegate_receivers.runtime.receiver import RecordSource
from tidegate_receivers.runtime.supervisor import Lease, LeaseReport, Status, serve

LONG_S = 60.0


@dataclass
class MemorySender:
    """A topic: its `log` holds what was acknowledged.

    While it is `away`, nothing ends. `answers` are for the next blocks: an error fails one as a whole, a mapping fails some of
    its records.
    """

    log: list[Outgoing] = field(default_factory=list)
    answers: list[TidegateError | Failures] = field(default_factory=list)
    longest: int = 1 << 20
    away: bool = False
    closed: bool = False
    attempts: list[list[bytes]] = field(default_factory=list)
    trouble: TidegateError | None = None
    _given_up: bool = False

    async def send(self, records: Sequence[Outgoing]) -> Failures:
        """As the port."""
        self.attempts.append([record.value for record in records])
        while self.away and not self._given_up:  # noqa: ASYNC110 - tests set both
            await asyncio.sleep(0.001)
        if self._given_up:
            return dict.fromkeys(range(len(records)), NotDelivered("given up"))
        answer: TidegateError | Failures = self.answers.pop(0) if self.answers else {}
        failed = dict.fromkeys(range(len(records)), answer) if isinstance(answer, TidegateError) else dict(answer)
        failed |= {at: RecordRefused("too large") for at, record in enumerate(records) if len(record.value) > self.longest}
        self.log += [record for at, record in enumerate(records) if at not in failed]
        return failed

    def give_up(self) -> None:
        """As the port."""
        self._given_up = True

    async def close(self) -> None:
        """Noted."""
        self.closed = True


@dataclass
class Running:
    """A receiver that is being served."""

    source: RecordSource
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    told: list[str] = field(default_factory=list)
    shown: list[Status] = field(default_factory=list)
    task: asyncio.Task[LeaseReport] | None = None

    async def ended(self) -> LeaseReport:
        """End the lease; its report."""
        self.stop.set()
        assert self.task is not None
        return await asyncio.wait_for(self.task, LONG_S)

    async def until_told(self, part: str) -> str:
        """Wait for a sentence that contains this; the first of them."""
        await until(lambda: any(part in text for text in self.told))
        return next(text for text in self.told if part in text)


async def until(condition: Callable[[], object]) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(LONG_S):
        while not condition():  # noqa: ASYNC110 - what a test waits for has no event
            await asyncio.sleep(0.005)


def a_lease(topic: str = "t", *, lasts_s: float = 600.0, name: str = "r", **settings: Any) -> Lease:
    """Of the first instance. Its blocks go soon, unless the settings of its receiver say otherwise."""
    receiver = Receiver(name, "m:Class", topic, **{"block": Block(0.01), **settings})
    return Lease(receiver, 0, "h1", until_s=time.time() + lasts_s)


@dataclass
class MemoryDownstream:
    """A pipeline that has `loaded` so many of the records that are `landed`. While it is `away`, nothing is known of it."""

    landed: Callable[[], int]
    loaded: int = 0
    away: bool = False
    asked: int = 0

    def __call__(self) -> Heard:
        """How it does."""
        self.asked += 1
        if self.away:
            raise BrokerUnavailable("away")
        return Heard(lag=self.landed() - self.loaded)


@dataclass(eq=False)
class Scripted(RecordSource):
    """Does what the test does."""

    fails: list[Exception] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    stopping: Callable[[], Awaitable[Any]] | None = None

    async def on_start(self) -> None:
        self.calls.append("start")
        if self.fails:
            raise self.fails.pop(0)

    async def on_stop(self) -> None:
        self.calls.append("stop")
        if self.stopping is not None:
            await self.stopping()


def texts(sender: MemorySender) -> list[bytes]:
    """What was acknowledged."""
    return [record.value for record in sender.log]


@asynccontextmanager
async def served(
    source: RecordSource,
    *,
    sender: Sender | None = None,
    kafka: Mapping[str, str] | None = None,
    lease: Lease | None = None,
    downstream: Callable[[], Heard] | None = None,
) -> AsyncIterator[Running]:
    """The source, as a lease serves it; it has been started, unless it cannot. The lease is ended, whatever happens."""
    running = Running(source)
    running.task = asyncio.create_task(
        serve(
            source,
            lease or a_lease(),
            producer=kafka or {},
            stop=running.stop,
            tell=running.told.append,
            sender=sender,
            downstream=downstream,
            watch=running.shown.append,
        )
    )
    try:
        await until(lambda: running.told or running.task is None or running.task.done())
        yield running
    finally:
        running.stop.set()
        await asyncio.wait({running.task}, timeout=LONG_S)


def landed(kafka: Mapping[str, str], topic: str) -> list[ck.Message]:
    """All records of a topic, partition after partition."""
    consumer = ck.Consumer({**kafka, "group.id": "test", "enable.partition.eof": "true", "auto.offset.reset": "earliest"})
    try:
        partitions = list(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        consumer.assign([ck.TopicPartition(topic, number, 0) for number in partitions])
        records, left = [], len(partitions)
        while left:
            message = consumer.poll(30)
            assert message is not None
            error = message.error()
            if error is None:
                records.append(message)
            else:
                assert error.code() == ck.KafkaError._PARTITION_EOF
                left -= 1
        return records
    finally:
        consumer.close()


def values(kafka: Mapping[str, str], topic: str) -> list[bytes]:
    """What is in the topic."""
    return [message.value() or b"" for message in landed(kafka, topic)]


async def connect(port: int | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """To a receiver on this machine."""
    return await asyncio.open_connection("127.0.0.1", port)


async def send(port: int | None, data: bytes) -> None:
    """All of it, and the end."""
    _, writer = await connect(port)
    writer.write(data)
    await writer.drain()
    writer.close()


async def push(port: int | None, lines: int) -> None:
    """Send so many numbered lines of 140 bytes, as fast as they are taken."""
    _, writer = await connect(port)
    for start in range(0, lines, 1000):
        writer.write(b"".join(b"%0139d\n" % n for n in range(start, start + 1000)))
        await writer.drain()
    writer.close()
    await writer.wait_closed()

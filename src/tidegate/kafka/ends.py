"""The ends of logs, asked for again and again without a consumer: all users of a connection in a process share one client.

    with watching("kafka_default", settings, source, poll_s=5) as subscription:
        while True:
            reading = await subscription.next()

One `list_offsets` asks for all partitions that the users want (one for each isolation level, where they want several), and
its answer is shared: each user takes one that is younger than half of its interval. Polls are due at multiples of the
interval, so users of one interval share each answer. Every `METADATA_S`, after a failure, and for a new user the topics are
described too, by which new partitions and topics are found, and the connection's settings are looked at. The first user opens
the client, the last one closes it.

Nothing here blocks the event loop. Whatever may wait or compute (making and closing a client, requests of thousands of
partitions) is done in one thread of the connection's own, however many its users are. A broker that does not answer costs them
a timeout together, then pauses that double, and a client that hangs is left with its thread.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka as ck

from tidegate.core.config.pipeline import Source
from tidegate.core.model.errors import BrokerUnavailable, KafkaError, TidegateError, TopicNotFound
from tidegate.core.model.ranges import TopicPartition
from tidegate.kafka.brokers import LATEST
from tidegate.kafka.client import STEP_S, Admin

METADATA_S = 30.0
REQUEST_S = 10.0
SLACK_S = 5.0
"""librdkafka keeps a request's timeout itself; only a client that hangs needs this."""
ROUND_S = 120.0
"""The longest that a poll may take; all its timeouts together are shorter."""
PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""For how long a failure of all users is an answer: at first, doubling, at most."""

Wanted = list[TopicPartition] | KafkaError
"""The partitions to ask for, or why there are none."""
Settings = Callable[[], Awaitable[Mapping[str, str]]]
"""How to learn librdkafka's configuration (`tidegate.kafka.settings.planning_client`); it is asked again and again."""


@dataclass(frozen=True)
class EndsReading:
    """What one poll found: the end of each partition of the source, or the error instead."""

    ends: Mapping[TopicPartition, int]
    error: TidegateError | None = None


@dataclass(eq=False, kw_only=True)
class Subscription:
    """One user's wish: the ends of what a source names, every `poll_s` seconds."""

    source: Source
    poll_s: float
    settings: Settings
    poller: Poller

    async def next(self) -> EndsReading:
        """The ends at the next multiple of the interval, or as they were less than half of it before."""
        await asyncio.sleep(self.poll_s - time.monotonic() % self.poll_s)
        return await self.poller.reading(self)


@dataclass(eq=False, kw_only=True)
class Poller:
    """What the users of a connection share: its client, and the last answer."""

    users: list[Subscription] = field(default_factory=list)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _readings: dict[Subscription, EndsReading] = field(default_factory=dict)
    _read_s: float = -math.inf
    _pause_s: float = 0.0
    _described_s: float = -math.inf
    _configured: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._client, self._thread = Client(), ThreadPoolExecutor(1, "tidegate-kafka-ends")

    def close(self) -> None:
        """End the client and its thread, after what the thread is doing; waits for neither."""
        self._thread.submit(self._client.close)
        self._thread.shutdown(wait=False)

    async def reading(self, user: Subscription) -> EndsReading:
        """The last answer where it is young enough for the user, else a new one.

        Users take it one after the other, and so they compute what follows from thousands of partitions.
        """
        async with self._lock:
            if user not in self._readings or time.monotonic() - self._read_s >= max(user.poll_s / 2, self._pause_s):
                self._readings = await self._asked(user.settings)
                self._read_s = time.monotonic()
                failed = all(reading.error is not None for reading in self._readings.values())
                self._pause_s = min(LONGEST_PAUSE_S, max(PAUSE_S, 2 * self._pause_s)) if failed else 0.0
            return self._readings[user]

    async def _asked(self, settings: Settings) -> dict[Subscription, EndsReading]:
        """A reading for each user that there is now."""
        users = list(self.users)
        try:
            async with asyncio.timeout(ROUND_S):
                configured = await self._look_up(settings) if self._is_stale(users) else None
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._thread, self._client.readings, users, configured)
        except TidegateError as error:
            why = error
        except TimeoutError:
            self.close()
            self._start()
            why = BrokerUnavailable("the client of the log's ends hangs", fix="Another one is made")
        except Exception as error:  # noqa: BLE001 - whatever a client raises, its users go on
            told = f"the ends of the log were not answered: {type(error).__name__}: {error}"
            why = BrokerUnavailable(told, fix="See the broker's log")
        return dict.fromkeys(users, EndsReading({}, why))

    def _is_stale(self, users: Sequence[Subscription]) -> bool:
        """Whether to look again at what changes rarely: after a failure topics, leaders and the cluster may be others."""
        return (
            time.monotonic() - self._described_s >= METADATA_S
            or not self._readings.keys() >= set(users)
            or self._pause_s > 0
            or any(reading.error is not None and reading.error.retryable for reading in self._readings.values())
        )

    async def _look_up(self, settings: Settings) -> Mapping[str, str]:
        """The connection's settings; the former ones where they cannot be read: the cluster that they name may go on."""
        try:
            self._configured = dict(await settings())
        except TidegateError:
            if self._configured is None:
                raise
        self._described_s = time.monotonic()
        return self._configured


class Client:
    """A client, and what it knows of the topics. All of this may wait, and is called in one thread."""

    def __init__(self) -> None:
        self._admin: Admin | None = None
        self._configured: Mapping[str, str] = {}
        self._wanted: dict[Subscription, Wanted] = {}

    def close(self) -> None:
        """End the client."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def readings(self, users: Sequence[Subscription], configured: Mapping[str, str] | None) -> dict[Subscription, EndsReading]:
        """A reading for each of all users; with `configured`, the client's configuration, the topics are described again.

        Raises KafkaError: no user has its ends; a subclass says why. TimeoutError: the client hangs, and only another one will
        answer.
        """
        if self._admin is None or configured not in (None, self._configured):
            self.close()
            self._configured = configured or self._configured
            self._admin = Admin(self._configured, timeout_s=REQUEST_S)
        if configured is not None:
            self._wanted = self._described(self._admin, users)
        readings: dict[Subscription, EndsReading] = {}
        for level in {user.source.isolation_level for user in users}:
            wanted = {user: self._wanted[user] for user in users if user.source.isolation_level == level}
            readings |= self._ends(self._admin, wanted, ck.IsolationLevel[level.upper()])
        return readings

    def _described(self, admin: Admin, users: Sequence[Subscription]) -> dict[Subscription, Wanted]:
        """The partitions that each user's source names; or what is wrong with one of its topics."""
        names = admin.topics() if any(user.source.pattern is not None for user in users) else []
        topics = {user: user.source.named or [topic for topic in names if user.source.names(topic)] for user in users}
        known: dict[str, list[int] | KafkaError] = {}
        if asked := sorted({topic for each in topics.values() for topic in each}):
            answers = admin.client.describe_topics(ck.TopicCollection(asked), request_timeout=REQUEST_S)
            for topic, (error, about) in _answers(admin, answers).items():
                known[topic] = [p.id for p in about.partitions] if error is None else admin.meaning(error, topic)
        return {user: _wanted(user.source, topics[user], known) for user in users}

    def _ends(
        self, admin: Admin, wanted: Mapping[Subscription, Wanted], level: ck.IsolationLevel
    ) -> dict[Subscription, EndsReading]:
        """The ends of all partitions by one request, as each user wants them."""
        partitions = {tp for want in wanted.values() if not isinstance(want, KafkaError) for tp in want}
        ends: dict[TopicPartition, int] = {}
        errors: dict[str, KafkaError] = {}
        if partitions:
            asked = {ck.TopicPartition(tp.topic, tp.partition): LATEST for tp in partitions}
            answers = admin.client.list_offsets(asked, isolation_level=level, request_timeout=REQUEST_S)
            for tp, (error, answer) in _answers(admin, answers).items():
                if error is None:
                    ends[TopicPartition(tp.topic, tp.partition)] = int(answer.offset)
                elif tp.topic not in errors:
                    errors[tp.topic] = admin.meaning(error, tp.topic)
            if not errors:
                admin.forget_reports()
        return {user: _reading(want, ends, errors) for user, want in wanted.items()}


def _wanted(source: Source, topics: Sequence[str], known: Mapping[str, list[int] | KafkaError]) -> Wanted:
    partitions: list[TopicPartition] = []
    for topic in topics:
        numbers = known[topic]
        if isinstance(numbers, TopicNotFound) and (source.pattern is not None or source.on_deleted == "retire"):
            continue  # where the cursor has it, its offsets are not in the log any more
        if isinstance(numbers, KafkaError):
            return numbers
        partitions += filter(source.reads, (TopicPartition(topic, number) for number in numbers))
    return partitions


def _reading(want: Wanted, ends: Mapping[TopicPartition, int], errors: Mapping[str, KafkaError]) -> EndsReading:
    if isinstance(want, KafkaError):
        return EndsReading({}, want)
    error = next((errors[tp.topic] for tp in want if tp.topic in errors), None) if errors else None
    return EndsReading({tp: ends[tp] for tp in want}) if error is None else EndsReading({}, error)


def _answers(admin: Admin, asked: Mapping[Any, Future[Any]]) -> dict[Any, tuple[ck.KafkaError | None, Any]]:
    """For each key of a request an error, or a value. Raises TimeoutError: the client hangs."""
    until_s = time.monotonic() + REQUEST_S + SLACK_S
    while wait(asked.values(), STEP_S).not_done:
        if time.monotonic() > until_s:
            raise TimeoutError
        admin.client.poll(0)  # a login by OIDC asks for its token here
    errors = {key: admin.wait(future) for key, future in asked.items()}
    return {key: (errors[key], future.result() if errors[key] is None else None) for key, future in asked.items()}


_OPEN: dict[str, Poller] = {}


@contextmanager
def watching(connection: str, settings: Settings, source: Source, poll_s: float) -> Iterator[Subscription]:
    """A subscription to what a source names, at the poller of its connection in this process; its users share one client.

    `settings` is how to learn the configuration, `poll_s` the seconds between two readings.
    """
    if connection not in _OPEN:
        _OPEN[connection] = Poller()
    poller = _OPEN[connection]
    user = Subscription(source=source, poll_s=poll_s, settings=settings, poller=poller)
    poller.users.append(user)
    try:
        yield user
    finally:
        poller.users.remove(user)
        if not poller.users:
            del _OPEN[connection]
            poller.close()

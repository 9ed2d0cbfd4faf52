"""One idempotent Kafka producer: a block of records in, and what became of each of them out.

A record is acknowledged by the broker's delivery report without an error, and by nothing else. One block is on its way at a
time, so when `send` answers, nothing of it is left in the client, and its caller may send the failed records again, in their
order. Inside a block the broker's sequence numbers keep the order, and the client stops at the first gap
(`enable.gapless.guarantee`): a record that was refused for a moment cannot be overtaken by the ones behind it.

After any failure the next block gets a new client. It knows topics, leaders and permissions afresh, where an old one would
remember for minutes that a topic was missing.

The client lives in one thread, which makes it, uses it and ends it (see `tidegate.kafka.client` for why).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import confluent_kafka as ck

from tidegate.core.model.errors import KafkaError, NotDelivered, RecordRefused, TidegateError, TopicNotFound
from tidegate.kafka.client import KEPT, meaning, servers_of, settings_refused
from tidegate_receivers.rules.records import Failures, Outgoing

DEFAULTS = {
    "linger.ms": "2",
    "compression.type": "lz4",
    "partitioner": "murmur2_random",  # that of Kafka's Java client, so that keys land where its keys do
    "topic.metadata.propagation.max.ms": "5000",  # so long a topic that was deleted is waited for before it counts as missing
}
"""What a connection may set otherwise."""

FORCED = {
    "acks": "all",
    "enable.idempotence": "true",
    "enable.gapless.guarantee": "true",
    "message.timeout.ms": "0",  # never: a time-out would drop records that the source cannot send again
    "queue.buffering.max.messages": "0",  # the buffer of blocks is what bounds memory
    "queue.buffering.max.kbytes": "2147483647",
}
"""What no connection may set otherwise: without these, records are lost or change their order."""

LEFT_OUT = {
    "transactional.id",
    "transaction.timeout.ms",
    "delivery.timeout.ms",
    "request.required.acks",
    "delivery.report.only.error",
    "group.id",
}
ROOM_BYTES = 65_536
"""What a message may have beside the value: key, headers."""

OPEN_S = 5.0
STEP_S = 0.1
POLL_EVERY = 1000
_TOO_LARGE = ck.KafkaError.MSG_SIZE_TOO_LARGE
_MISSING = {
    ck.KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - librdkafka's local error codes are named with an underscore
    ck.KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    ck.KafkaError.UNKNOWN_TOPIC_OR_PART,
}


def producer_settings(settings: Mapping[str, str], max_record_bytes: int) -> dict[str, str]:
    """The producer's configuration.

    Args:
        settings: of the connection, in librdkafka's names.
        max_record_bytes: the longest value.
    """
    most = max(int(settings.get("message.max.bytes", 0)), max_record_bytes + ROOM_BYTES, 1_000_000)
    kept = {name: value for name, value in settings.items() if name not in LEFT_OUT}
    return {"log_level": "2", **DEFAULTS, **kept, **FORCED, "message.max.bytes": str(most)}


class KafkaSender:
    """Sends blocks to one topic.

    Args:
        settings: of the connection, in librdkafka's names.
        topic: where the records go.
        max_record_bytes: the longest value.
    """

    def __init__(self, settings: Mapping[str, str], topic: str, *, max_record_bytes: int) -> None:
        self._settings = producer_settings(settings, max_record_bytes)
        self._topic = topic
        self._thread = ThreadPoolExecutor(1, "tidegate-producer")
        self._given_up = threading.Event()
        self._client: ck.Producer | None = None
        self._partitions = 0
        self._attempted = _Attempt()
        self._reports: deque[ck.KafkaError] = deque(maxlen=KEPT)

    @property
    def trouble(self) -> TidegateError | None:
        """As the port."""
        reports = list(self._reports)
        return self._meaning(reports[-1], reports) if reports else None

    async def send(self, records: Sequence[Outgoing]) -> Failures:
        """As the port."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._send, records)

    def give_up(self) -> None:
        """As the port."""
        self._given_up.set()

    async def close(self) -> None:
        """As the port."""
        self.give_up()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._end_client)
        self._thread.shutdown(wait=False)

    # ---- in the thread

    def _send(self, records: Sequence[Outgoing]) -> Failures:
        failed = self._attempt(dict(enumerate(records)), self._settings)
        refused: Failures = {}
        again = any(isinstance(error, _BatchTooLarge) for error in failed.values())
        while again:
            # The broker refuses a batch as a whole, so each record is tried alone. The first that is refused ends the client,
            # and those behind it fail with it: there is one attempt for each of them.
            failed = self._attempt({at: records[at] for at in sorted(failed)}, {**self._settings, "batch.num.messages": "1"})
            self._end_client()
            too_large = {at: _refused(records[at]) for at, error in failed.items() if isinstance(error, _BatchTooLarge)}
            failed = {at: error for at, error in failed.items() if at not in too_large}
            refused |= too_large
            again = bool(failed and too_large)
        return failed | refused

    def _attempt(self, records: Mapping[int, Outgoing], settings: Mapping[str, str]) -> Failures:
        """Send the records once, in this order, and wait for the end of each."""
        try:
            client = self._open(settings)
        except TidegateError as error:
            self._end_client()
            return dict.fromkeys(records, error)
        attempt = self._attempted
        attempt.produce(client, self._topic, self._partitions, records.values())
        while attempt.left:
            attempt.poll(client, STEP_S)
            if self._given_up.is_set():
                client.purge(blocking=False)
            elif attempt.is_fatal:  # what waits would wait for ever; what is on its way still gets its answer
                client.purge(in_flight=False, blocking=False)
        reports = list(self._reports)
        self._reports.clear()
        if not attempt.errors:
            return {}
        self._end_client()
        places = list(records)
        return {places[number]: self._meaning(error, reports) for number, error in attempt.errors.items()}

    def _open(self, settings: Mapping[str, str]) -> ck.Producer:
        """The client, which has asked for the topic's partitions when it was made.

        Raises:
            KafkaError: a setting is refused, no broker answers, or there is no such topic.
        """
        if self._client is not None and settings is self._settings:
            return self._client
        self._end_client()
        try:
            client = ck.Producer({**settings, "error_cb": self._reports.append})
        except ck.KafkaException as error:
            raise settings_refused(error, settings) from None  # the cause contains the value
        self._client = client
        until_s = time.monotonic() + OPEN_S
        while True:
            client.poll(0)  # a login by OIDC gets its token here
            refusal: ck.KafkaError | None = None
            try:
                about = client.list_topics(self._topic, timeout=1.0).topics[self._topic]
                refusal, self._partitions = about.error, len(about.partitions)
            except ck.KafkaException as error:
                refusal = error.args[0]
                if time.monotonic() < until_s and not self._given_up.is_set():
                    continue
            if refusal is not None:
                raise self._meaning(refusal, list(self._reports))
            if not self._partitions:
                raise self._meaning(ck.KafkaError(ck.KafkaError.LEADER_NOT_AVAILABLE), [])
            self._reports.clear()
            return client

    def _end_client(self) -> None:
        if self._client is not None:
            # It raises what made the client unusable meanwhile. Each record has had its answer by now.
            with suppress(ck.KafkaException):
                self._client.close()
            self._client = None

    def _meaning(self, error: ck.KafkaError, reports: Iterable[ck.KafkaError]) -> TidegateError:
        servers = servers_of(self._settings)
        if error.code() == _TOO_LARGE:
            return _BatchTooLarge(
                "the broker refuses a batch as too large", fix="Set batch.size in the connection to the limit"
            )
        if error.code() in _MISSING:
            return TopicNotFound(
                f"topic {self._topic} does not exist on {servers}",
                fix="Create it, or correct `topic` in the receiver's file",
                topic=self._topic,
            )
        meant = meaning(error, self._settings, self._topic, reports, operation="Write")
        if type(meant) is KafkaError:
            return NotDelivered(meant.message, fix="See the broker's log; the records are sent again", topic=self._topic)
        return meant


class _Attempt:
    """Records on their way: how many have not ended, and the error of each that has failed, by its number.

    One object serves all attempts of a sender, and keeps its callbacks: with one made for each record, the garbage collector
    would take a third of the time.
    """

    def __init__(self) -> None:
        self.left = 0
        self.errors: dict[int, ck.KafkaError] = {}
        self.is_fatal = False
        self._callbacks: list[partial[None]] = []

    def produce(self, client: ck.Producer, topic: str, partitions: int, records: Collection[Outgoing]) -> None:
        """Hand the records to the client. Behind one that it does not take none is sent, so that none is overtaken."""
        self.left, self.errors, self.is_fatal = len(records), {}, False
        self._callbacks += [partial(self._ended, number) for number in range(len(self._callbacks), len(records))]
        broken: ck.KafkaError | None = None
        for number, ((value, key, stream, headers), ended) in enumerate(zip(records, self._callbacks, strict=False)):
            if broken is not None:
                self._ended(number, broken, None)
                continue
            if number % POLL_EVERY == 0:
                self.poll(client, 0)
            partition = stream % partitions if key is None else -1
            try:
                client.produce(topic, value, key, partition, headers=headers, on_delivery=ended)
            except ck.KafkaException as error:
                refusal: ck.KafkaError = error.args[0]
                self._ended(number, refusal, None)
                broken = None if refusal.code() == _TOO_LARGE else refusal  # too large is this record alone

    def poll(self, client: ck.Producer, timeout_s: float) -> None:
        """Call back for what has ended."""
        try:
            client.poll(timeout_s)
        except ck.KafkaException:  # the client is of no use any more; each of its records has an error of its own
            self.is_fatal = True

    def _ended(self, number: int, error: ck.KafkaError | None, _: object) -> None:
        self.left -= 1
        if error is not None:
            self.errors[number] = error


class _BatchTooLarge(NotDelivered):
    """The broker refuses a batch as too large, which says nothing of each of its records."""


def _refused(record: Outgoing) -> RecordRefused:
    return RecordRefused(
        f"a record of {len(record.value)} bytes is larger than the topic allows",
        fix="Raise max.message.bytes of the topic, or send smaller records",
        bytes=len(record.value),
    )

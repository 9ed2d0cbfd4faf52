"""What only the log itself shows: which offsets it holds, when a record was written, how long topics keep records.

Transactions, compaction and control records leave gaps between offsets, and only a record has its timestamp. So records are
read, by a consumer that gets explicit positions, joins no group and commits nothing.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any

import confluent_kafka as ck
from confluent_kafka import admin

from tidegate.core.model.errors import BrokerUnavailable, OffsetsOutOfRange, some
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.model.watermarks import IsolationLevel, Watermarks
from tidegate.kafka.client import KEPT, LOST, MOVING, UNREACHABLE, Admin, meaning, settings_refused

POLL_S = 1.0
MANY = 10_000
SeesRecord = Callable[[TopicPartition, int, ck.Message], None]
EOF = ck.KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's own name
FINAL = {EOF, *LOST}


@contextmanager
def _reading(
    settings: Mapping[str, str], positions: Mapping[TopicPartition, int], isolation_level: str, **more: Any
) -> Iterator[ck.Consumer]:
    """A consumer of each partition from its position on, with `more` settings. Raises KafkaError: one is refused."""
    conf: dict[str, Any] = {
        "log_level": 2,
        **settings,
        "group.id": f"{settings.get('client.id', 'tidegate')}-log",  # a consumer must have one; nothing is ever committed
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": isolation_level,
        **more,
    }
    try:
        consumer = ck.Consumer(conf)
    except ck.KafkaException as error:
        raise settings_refused(error, settings) from None  # the cause contains the value
    try:
        consumer.assign([ck.TopicPartition(tp.topic, tp.partition, at) for tp, at in sorted(positions.items())])
        yield consumer
    finally:
        consumer.close()


def read_offsets(
    settings: Mapping[str, str],
    watermarks: Watermarks,
    *,
    isolation_level: IsolationLevel = "read_committed",
    progress: Callable[[int], object] = int,
    silent_s: float = 30.0,
    see: Sequence[SeesRecord] = (),
) -> dict[TopicPartition, array[int]]:
    """The offsets of all records between the watermarks, in order, for each partition; records that arrive later are left out.

    `progress` is called with the number of records read so far, `see` with the partition and the offset of each record, and
    with the record.

    Raises BrokerUnavailable: no record came for `silent_s` seconds before the end of the log. KafkaAuthFailed: the credentials
    are refused, or do not allow to read a topic. KafkaError: a setting is refused, or the broker answers something else.
    OffsetsOutOfRange: the log lost records while it was read.
    """
    offsets_read = {tp: array("q") for tp in watermarks.latest}
    waiting = {tp for tp, end in watermarks.latest.items() if end > watermarks.earliest[tp]}
    reports: deque[ck.KafkaError] = deque(maxlen=KEPT)
    positions = {tp: watermarks.earliest[tp] for tp in waiting}
    with _reading(settings, positions, isolation_level, error_cb=reports.append) as consumer:
        read, heard = 0, time.monotonic()
        while waiting:
            messages = [m for m in consumer.consume(MANY, timeout=POLL_S) if not _is_tried_again(m, settings)]
            if messages:
                heard = time.monotonic()
            elif time.monotonic() > heard + silent_s:
                raise _silence(waiting, settings, reports, silent_s)
            for message in messages:
                tp = TopicPartition(str(message.topic()), message.partition() or 0)
                offset = message.offset()
                if offset is None or tp not in waiting:
                    continue
                is_record = message.error() is None
                if is_record and offset < watermarks.latest[tp]:
                    offsets_read[tp].append(offset)
                    read += 1
                    for tell in see:
                        tell(tp, offset, message)
                if offset >= watermarks.latest[tp] - is_record:
                    waiting.discard(tp)
            progress(read)
    return offsets_read


def with_headers(see: Callable[[TopicPartition, int, Any], None]) -> SeesRecord:
    """For `read_offsets`: what is called with the headers of each record."""
    return lambda tp, offset, message: see(tp, offset, message.headers())


def newest_values(
    settings: Mapping[str, str], watermarks: Watermarks, count: int, *, isolation_level: IsolationLevel = "read_committed"
) -> list[bytes]:
    """The values of the newest records, by their timestamps, at most so many; those that are null are left out.

    As many offsets are read of each partition, which may hold fewer records. `watermarks` are of the same isolation level.
    Raises as `read_offsets`.
    """
    newest: list[tuple[int, TopicPartition, int, bytes]] = []

    def keep(tp: TopicPartition, offset: int, message: ck.Message) -> None:
        if (value := message.value()) is not None:
            heappush(newest, (message.timestamp()[1], tp, offset, value))
            if len(newest) > count:
                heappop(newest)

    earliest = {tp: max(watermarks.earliest[tp], end - count) for tp, end in watermarks.latest.items()}
    read_offsets(settings, replace(watermarks, earliest=earliest), isolation_level=isolation_level, see=[keep])
    return [value for *_, value in sorted(newest)]


def _is_tried_again(message: ck.Message, settings: Mapping[str, str]) -> bool:
    """Whether a message reports a lost connection or a leader that moves, which librdkafka retries.

    Raises OffsetsOutOfRange, KafkaError: it reports another error.
    """
    error = message.error()
    if error is None or error.code() == EOF:
        return False
    if error.code() in UNREACHABLE | MOVING | {ck.KafkaError.GROUP_AUTHORIZATION_FAILED}:
        return True  # a consumer must have a group, but reading assigned partitions needs no right on it
    topic = str(message.topic())
    if error.code() in LOST:
        raise OffsetsOutOfRange(
            f"{topic}-{message.partition()}: the log lost records while it was read ({error.str()})",
            fix="Run the command again; see `tidegate plan` if it stays so",
            topic=topic,
        )
    raise meaning(error, settings, topic, operation="Read")


def _silence(
    waiting: Iterable[TopicPartition], settings: Mapping[str, str], reports: Collection[ck.KafkaError], silent_s: float
) -> Exception:
    if reports:
        return meaning(ck.KafkaError(ck.KafkaError._TIMED_OUT), settings, "*", reports)  # noqa: SLF001
    return BrokerUnavailable(
        f"no record of {min(waiting)} came for {silent_s:g} s, and the end of its log is not reached",
        fix="Start the broker and try again",
    )


def next_timestamps(
    settings: Mapping[str, str], positions: Mapping[TopicPartition, int], *, isolation_level: str, timeout_s: float
) -> dict[TopicPartition, int]:
    """The timestamp (epoch ms) of the first record at or after each position; partitions without one are left out.

    Each position is below the end of its partition's log.

    Raises BrokerUnavailable: the records were not answered within `timeout_s`. KafkaAuthFailed: the credentials do not allow to
    read a topic.
    """
    if not positions:
        return {}
    waiting, times = set(positions), dict[TopicPartition, int]()
    # one record of each partition is read: do not fetch a megabyte of each
    little = {"queued.min.messages": 1, "fetch.message.max.bytes": 16_384}
    with _reading(settings, positions, isolation_level, **little) as consumer:
        deadline = time.monotonic() + timeout_s
        while waiting:
            done: list[ck.TopicPartition] = []
            for message in consumer.consume(min(MANY, len(waiting)), timeout=POLL_S):
                tp = _answered(message, settings)
                if tp not in waiting:
                    continue
                waiting.discard(tp)
                done.append(ck.TopicPartition(tp.topic, tp.partition))
                kind, written = message.timestamp()
                if message.error() is None and kind != ck.TIMESTAMP_NOT_AVAILABLE:
                    times[tp] = written
            if done:
                consumer.incremental_unassign(done)
                deadline = time.monotonic() + timeout_s
            elif time.monotonic() > deadline:
                raise BrokerUnavailable(
                    f"the next records of {len(waiting)} partitions, {min(waiting)} among them, were not answered "
                    f"for {timeout_s:g} s",
                    fix="See the broker's log, or try again",
                )
    return times


def _answered(message: ck.Message, settings: Mapping[str, str]) -> TopicPartition | None:
    """The partition that a message answers for: a record, the end of its log, or a record that is gone by now."""
    error, topic, partition = message.error(), message.topic(), message.partition()
    if error is not None and error.code() == ck.KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise meaning(error, settings, str(topic), operation="Read")
    if topic is None or partition is None or (error is not None and error.code() not in FINAL):
        return None  # a lost connection: librdkafka connects again
    return TopicPartition(topic, partition)


def retention_ms(
    settings: Mapping[str, str], topics: Sequence[str], *, timeout_s: float, tell: Callable[[str], object] = str
) -> dict[str, int]:
    """How long each topic keeps a record, ms; without topics that keep it for ever, and those whose settings may not be read.

    `tell` hears of the latter. Raises KafkaError.
    """
    retention = {}
    configs = _topic_configs(settings, topics, timeout_s=timeout_s)
    if hidden := [topic for topic in topics if topic not in configs]:
        tell(f"the retention of {some(hidden)} is not known: it needs the right DescribeConfigs on the topic")
    for topic, config in configs.items():
        kept = int(config["retention.ms"])
        if kept >= 0 and "delete" in config["cleanup.policy"].split(","):
            retention[topic] = kept
    return retention


def compacted_topics(settings: Mapping[str, str], topics: Sequence[str]) -> frozenset[str]:
    """The topics whose log may lose records that were read, and those whose settings may not be read. Raises KafkaError."""
    configs = _topic_configs(settings, topics)
    return frozenset(t for t in topics if t not in configs or "compact" in configs[t]["cleanup.policy"].split(","))


def _topic_configs(settings: Mapping[str, str], topics: Sequence[str], *, timeout_s: float = 15.0) -> dict[str, dict[str, str]]:
    """The settings of each topic, such as `cleanup.policy`; topics whose settings may not be read are left out."""
    if not topics:
        return {}
    resources = [admin.ConfigResource("topic", topic) for topic in topics]  # type: ignore[attr-defined]
    configs = {}
    with Admin(settings, timeout_s=timeout_s) as client:
        for resource, future in client.client.describe_configs(resources, request_timeout=timeout_s).items():
            error = client.wait(future)
            if error is not None and error.code() == ck.KafkaError.TOPIC_AUTHORIZATION_FAILED:
                continue  # reading a topic's settings needs another permission than reading its records
            config = client.answer(future, resource.name)
            configs[resource.name] = {name: entry.value for name, entry in config.items()}
    return configs

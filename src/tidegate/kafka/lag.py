"""What a lag needs beside watermarks: the timestamp of the next record of a partition, and how long topics keep records.

Only the record itself has its timestamp, so it is read: one of each partition, by a consumer that gets explicit
positions, joins no group and commits nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import confluent_kafka as ck

from tidegate.core.model.errors import BrokerUnavailable, some
from tidegate.core.model.ranges import TopicPartition
from tidegate.kafka.client import LOST, meaning, settings_refused, topic_configs

POLL_S = 1.0
MANY = 1_000


def retention_ms(
    settings: Mapping[str, str], topics: Sequence[str], *, timeout_s: float, tell: Callable[[str], object] = str
) -> dict[str, int]:
    """How long each topic keeps a record, ms; without topics that keep it for ever, and those whose settings may not be read.

    `tell` hears of the latter.

    Raises:
        KafkaError: a subclass says what is wrong.
    """
    retention = {}
    configs = topic_configs(settings, topics, timeout_s=timeout_s)
    if hidden := [topic for topic in topics if topic not in configs]:
        tell(f"the retention of {some(hidden)} is not known: it needs the right DescribeConfigs on the topic")
    for topic, config in configs.items():
        kept = int(config["retention.ms"])
        if kept >= 0 and "delete" in config["cleanup.policy"].split(","):
            retention[topic] = kept
    return retention


def next_timestamps(
    settings: Mapping[str, str], positions: Mapping[TopicPartition, int], *, isolation_level: str, timeout_s: float
) -> dict[TopicPartition, int]:
    """The timestamp (epoch ms) of the first record at or after each position; partitions without one are left out.

    Args:
        settings: librdkafka's configuration (`tidegate.kafka.settings.planning_client`).
        positions: an offset of each partition, below the end of its log.
        isolation_level: what counts as a record.
        timeout_s: seconds of silence after which the broker counts as unavailable.

    Raises:
        BrokerUnavailable: the records were not answered in time.
        KafkaAuthFailed: the credentials do not allow to read a topic.
    """
    if not positions:
        return {}
    conf: dict[str, Any] = {
        "log_level": 2,
        **settings,
        "group.id": f"{settings.get('client.id', 'tidegate')}-lag",  # a consumer must have one; nothing is ever committed
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": isolation_level,
        # one record of each partition is read: do not fetch a megabyte of each
        "queued.min.messages": 1,
        "fetch.message.max.bytes": 16_384,
    }
    try:
        consumer = ck.Consumer(conf)
    except ck.KafkaException as error:
        raise settings_refused(error, settings) from None  # the cause contains the value
    waiting, times = set(positions), dict[TopicPartition, int]()
    try:
        consumer.assign([ck.TopicPartition(tp.topic, tp.partition, at) for tp, at in sorted(positions.items())])
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
    finally:
        consumer.close()
    return times


def _answered(message: ck.Message, settings: Mapping[str, str]) -> TopicPartition | None:
    """The partition that a message answers for: a record, the end of its log, or a record that is gone by now."""
    error, topic, partition = message.error(), message.topic(), message.partition()
    if error is not None and error.code() == ck.KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise meaning(error, settings, str(topic), operation="Read")
    if topic is None or partition is None or (error is not None and error.code() not in FINAL):
        return None  # a lost connection: librdkafka connects again
    return TopicPartition(topic, partition)


FINAL = {ck.KafkaError._PARTITION_EOF, *LOST}  # noqa: SLF001 - librdkafka's local error codes are named with an underscore

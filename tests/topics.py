"""Topics and records on a real broker; `kafka` is its configuration in librdkafka's names, `records` are values or how many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tidegate.core.model.ranges import TopicPartition
from tidegate.waiting import wait_until
from tidegate_local.flights import create_topic

Records = int | Iterable[bytes | None]


def make_topic(kafka: Mapping[str, Any], name: str, partitions: int = 1, /, **config: str) -> str:
    """A new topic; its name."""
    admin = AdminClient(dict(kafka))  # its requests end with it, so it has a name
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(30)
    return name


def make_topic_again(kafka: Mapping[str, Any], name: str, partitions: int = 1) -> None:
    """The topic is deleted and created again: another one of the same name."""
    admin = AdminClient(dict(kafka))
    admin.delete_topics([name])[name].result(30)
    # the broker lets go of the name a while after it has answered
    assert wait_until(lambda: create_topic(kafka, name, partitions), 300, poll_s=0.2)


def write(
    kafka: Mapping[str, Any],
    topic: str,
    partition: int,
    records: Records,
    *,
    key: bytes | None = None,
    times: Sequence[int] = (),
) -> None:
    """Records that the broker has acknowledged; `times` are their timestamps, epoch ms."""
    _produce(ck.Producer(dict(kafka)), topic, partition, records, key=key, times=times)


def transact(kafka: Mapping[str, Any], topic: str, partition: int, records: Records, *, commit: bool = True) -> None:
    """Records with the key `k` and their transaction's marker: one offset more than records."""
    producer = ck.Producer({**kafka, "transactional.id": f"test-{topic}"})
    producer.init_transactions(30)  # the same id waits for the marker of the transaction before
    producer.begin_transaction()
    _produce(producer, topic, partition, records, key=b"k")
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def committed_offsets(kafka: Mapping[str, Any], group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The committed offsets of a consumer group, once it has a coordinator; the group is not joined."""
    consumer = ck.Consumer({**kafka, "group.id": group, "enable.auto.commit": False})
    found: dict[TopicPartition, int] = {}

    def told() -> bool:
        asked = [ck.TopicPartition(tp.topic, tp.partition) for tp in partitions]
        try:
            answers = consumer.committed(asked, timeout=30)
        except ck.KafkaException:
            return False
        found.update({TopicPartition(tp.topic, tp.partition): tp.offset for tp in answers if tp.offset >= 0})
        return all(tp.error is None for tp in answers)

    try:
        assert wait_until(told, 60, poll_s=0.2)
    finally:
        consumer.close()
    return found


def _produce(
    producer: ck.Producer, topic: str, partition: int, records: Records, *, key: bytes | None, times: Sequence[int] = ()
) -> None:
    values = [str(number).encode() for number in range(records)] if isinstance(records, int) else list(records)
    for value, time_ms in zip(values, times or [0] * len(values), strict=True):
        producer.produce(topic, value=value, key=key, partition=partition, timestamp=time_ms)
    assert producer.flush(30) == 0

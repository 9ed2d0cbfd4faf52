"""Create a topic, and produce the lines of a file: enough to try a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tidegate.core.model.errors import RequestError, TopicNotFound
from tidegate.kafka.client import meaning

TIMEOUT_S = 30.0
FLUSH_S = 60.0
PROGRESS_EVERY = 5_000
NOW = 0
"""The timestamp of a record that gets the time at which it is produced."""
Record: TypeAlias = tuple[str | bytes | None, str | bytes, int]
_INVALID = {ck.KafkaError.TOPIC_EXCEPTION, ck.KafkaError.INVALID_PARTITIONS, ck.KafkaError.INVALID_CONFIG}


def create_topic(settings: Mapping[str, str], topic: str, partitions: int, *, config: Mapping[str, str] | None = None) -> bool:
    """Create the topic when it is missing; returns whether it did.

    Raises:
        RequestError: Kafka refuses the name, the number of partitions or the configuration.
        KafkaError: the broker does not answer, or refuses.
    """
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    admin = _admin(settings)  # kept in a variable, since its requests end with it
    try:
        admin.create_topics([new], request_timeout=TIMEOUT_S)[topic].result()
    except ck.KafkaException as error:
        cause = error.args[0]
        if cause.code() == ck.KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        if cause.code() in _INVALID:
            raise RequestError(f"topic {topic!r} cannot be created: {cause.str()}", fix="Choose another value") from error
        raise meaning(cause, settings, topic, operation="Create") from error
    return True


def partitions_of(settings: Mapping[str, str], topic: str) -> int:
    """How many partitions the topic has.

    Raises:
        TopicNotFound: there is no such topic.
        KafkaError: the broker does not answer, or refuses.
    """
    try:
        # all topics: a broker with auto.create.topics.enable creates a topic that is asked for by name
        metadata = _admin(settings).list_topics(timeout=TIMEOUT_S).topics.get(topic)
    except ck.KafkaException as error:
        raise meaning(error.args[0], settings, topic) from error
    if metadata is None:
        raise TopicNotFound(f"there is no topic {topic}", fix=f"Create it: tidegate topic create {topic}", topic=topic)
    return len(metadata.partitions)


def _admin(settings: Mapping[str, str]) -> AdminClient:
    """Errors are raised. librdkafka's own log would be mixed with the output of a command, so it is off."""
    return AdminClient({**settings, "log_level": 2})


def produce_lines(settings: Mapping[str, str], topic: str, lines: Iterable[bytes], *, separator: bytes | None = None) -> int:
    """Produce one record of each line that is not empty; returns how many the broker acknowledged.

    Args:
        settings: librdkafka's configuration.
        topic: an existing topic.
        lines: with or without their line ends.
        separator: a record's key is the part of its line before the first one; None for records without keys.

    Raises:
        RequestError: a line holds no separator. The lines before it are produced.
        KafkaError: not every record was acknowledged.
    """
    wrong = 0

    def records() -> Iterator[Record]:
        nonlocal wrong
        for number, line in enumerate(lines, start=1):
            record = line.rstrip(b"\r\n")
            key, has_key, value = record.partition(separator) if separator is not None else (None, b"", record)
            if record and separator is not None and not has_key:
                wrong = number
                return
            if record:
                yield key, value, NOW

    count = produce(settings, topic, records())
    if wrong:
        raise RequestError(
            f"line {wrong} holds no key separator; the {count} records before it were produced",
            fix="Put key and separator before the value, or leave the separator out",
            line=wrong,
            produced=count,
        )
    return count


def produce(
    settings: Mapping[str, str], topic: str, records: Iterable[Record], *, progress: Callable[[int], object] = int
) -> int:
    """Produce records; returns how many the broker acknowledged.

    Args:
        settings: librdkafka's configuration.
        topic: an existing topic.
        records: key, value and timestamp (epoch ms) of each.
        progress: called with the number of records handed over so far.

    Raises:
        KafkaError: not every record was acknowledged.
    """
    failed: list[ck.KafkaError] = []

    def acknowledged(error: ck.KafkaError | None, _message: Any) -> None:
        if error is not None:
            failed.append(error)

    own = {"linger.ms": 50, "compression.type": "lz4", "enable.idempotence": True, "log_level": 3}
    producer = ck.Producer({**settings, **own})
    count = 0
    for count, (key, value, time_ms) in enumerate(records, start=1):
        while True:
            try:
                producer.produce(topic, key=key, value=value, timestamp=time_ms, on_delivery=acknowledged)
                break
            except BufferError:
                producer.poll(1.0)  # the queue is full: wait until the broker has taken some
        producer.poll(0)
        if count % PROGRESS_EVERY == 0:
            progress(count)
    unacknowledged = producer.flush(FLUSH_S)
    progress(count)
    if unacknowledged or failed:
        error = failed[0] if failed else ck.KafkaError(ck.KafkaError._TIMED_OUT)  # noqa: SLF001 - librdkafka's
        why, lost = meaning(error, settings, topic, operation="Write"), unacknowledged + len(failed)
        raise type(why)(f"{lost} records were not acknowledged: {why.message}", fix=why.fix, **why.fields)
    return count

"""Which offsets a log really holds: transactions, compaction and control records leave gaps that only reading shows."""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import confluent_kafka as ck

from tidegate.core.model.errors import BrokerUnavailable, OffsetsOutOfRange
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.model.watermarks import IsolationLevel, Watermarks
from tidegate.kafka.client import KEPT, LOST, MOVING, UNREACHABLE, meaning, settings_refused, topic_configs

POLL_S = 1.0
MANY = 10_000
SeesRecord = Callable[[TopicPartition, int, Any], None]
EOF = ck.KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's own name


def read_offsets(
    settings: Mapping[str, str],
    watermarks: Watermarks,
    *,
    isolation_level: IsolationLevel = "read_committed",
    progress: Callable[[int], object] = int,
    silent_s: float = 30.0,
    see: Sequence[SeesRecord] = (),
) -> dict[TopicPartition, array[int]]:
    """The offsets of all records between the watermarks, in order, for each partition.

    Args:
        settings: librdkafka's configuration (`tidegate.kafka.settings.planning_client`).
        watermarks: what to read; records that arrive later are left out.
        isolation_level: whether records of open and aborted transactions are left out.
        progress: called with the number of records read so far.
        silent_s: seconds without a record after which the broker counts as unavailable.
        see: called with the partition, the offset and the headers of each record.

    Raises:
        BrokerUnavailable: no record came for so long before the end of the log.
        KafkaAuthFailed: the credentials are refused, or do not allow to read a topic.
        KafkaError: a setting is refused, or the broker answers something else.
        OffsetsOutOfRange: the log lost records while it was read.
    """
    offsets_read = {tp: array("q") for tp in watermarks.latest}
    waiting = {tp for tp, end in watermarks.latest.items() if end > watermarks.earliest[tp]}
    reports: deque[ck.KafkaError] = deque(maxlen=KEPT)
    conf: dict[str, Any] = {
        "log_level": 2,
        **settings,
        "group.id": f"{settings.get('client.id', 'tidegate')}-verify",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": isolation_level,
        "error_cb": reports.append,
    }
    try:
        consumer = ck.Consumer(conf)
    except ck.KafkaException as error:
        raise settings_refused(error, settings) from None  # the cause contains the value
    try:
        consumer.assign([ck.TopicPartition(tp.topic, tp.partition, watermarks.earliest[tp]) for tp in sorted(waiting)])
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
                        tell(tp, offset, message.headers())
                if offset >= watermarks.latest[tp] - is_record:
                    waiting.discard(tp)
            progress(read)
    finally:
        consumer.close()
    return offsets_read


def _is_tried_again(message: ck.Message, settings: Mapping[str, str]) -> bool:
    """Whether a message reports a lost connection or a leader that moves, which librdkafka retries.

    Raises:
        OffsetsOutOfRange, KafkaError: it reports another error.
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


def compacted_topics(settings: Mapping[str, str], topics: Sequence[str]) -> frozenset[str]:
    """The topics whose log may lose records that were read before. Topics whose settings may not be read are among them.

    Raises:
        KafkaError: a subclass says what is wrong.
    """
    configs = topic_configs(settings, topics)
    return frozenset(t for t in topics if t not in configs or "compact" in configs[t]["cleanup.policy"].split(","))

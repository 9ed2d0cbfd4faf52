"""Which offsets a log really holds: transactions, compaction and control records leave gaps that only reading shows."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence

import confluent_kafka as ck

from tidegate.errors import BrokerUnavailable, OffsetsOutOfRange
from tidegate.kafka.client import topic_configs
from tidegate.planning import Watermarks
from tidegate.ports import IsolationLevel
from tidegate.ranges import TopicPartition

POLL_S = 5.0
SILENT_POLLS = 6


def read_offsets(
    settings: Mapping[str, str],
    watermarks: Watermarks,
    *,
    isolation_level: IsolationLevel = "read_committed",
    progress: Callable[[int], object] = int,
) -> dict[TopicPartition, array[int]]:
    """The offsets of all records between the watermarks, in order, for each partition.

    Args:
        settings: librdkafka's configuration (`tidegate.kafka.settings.planning_client`).
        watermarks: what to read; records that arrive later are left out.
        isolation_level: whether records of open and aborted transactions are left out.
        progress: called with the number of records read so far.

    Raises:
        BrokerUnavailable: the log stayed silent for half a minute before its end.
        OffsetsOutOfRange: the log lost records while it was read.
    """
    found = {tp: array("q") for tp in watermarks.latest}
    waiting = {tp for tp, end in watermarks.latest.items() if end > watermarks.earliest[tp]}
    conf = {
        **settings,
        "group.id": f"{settings.get('client.id', 'tidegate')}-verify",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": isolation_level,
    }
    consumer = ck.Consumer(conf)
    try:
        consumer.assign([ck.TopicPartition(tp.topic, tp.partition, watermarks.earliest[tp]) for tp in sorted(waiting)])
        silent = read = 0
        while waiting:
            messages = consumer.consume(10_000, timeout=POLL_S)
            silent = 0 if messages else silent + 1
            if silent >= SILENT_POLLS:
                raise BrokerUnavailable("the log stayed silent before its end was read", fix="Start the broker and try again")
            for message in messages:
                tp = TopicPartition(str(message.topic()), message.partition() or 0)
                error = message.error()
                if error is not None and error.code() != ck.KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own name
                    raise OffsetsOutOfRange(f"{tp}: {error.str()}", fix="Verify again; see the broker's log")
                offset = message.offset()
                if offset is None or tp not in waiting:
                    continue
                if error is None and offset < watermarks.latest[tp]:
                    found[tp].append(offset)
                    read += 1
                if offset >= watermarks.latest[tp] - (error is None):
                    waiting.discard(tp)
            progress(read)
    finally:
        consumer.close()
    return found


def compacted_topics(settings: Mapping[str, str], topics: Sequence[str]) -> frozenset[str]:
    """Those of the topics whose log may lose records that were read before; topics that may not be asked count as such.

    Raises:
        KafkaError: a subclass says what is wrong.
    """
    configs = topic_configs(settings, topics)
    return frozenset(t for t in topics if t not in configs or "compact" in configs[t]["cleanup.policy"].split(","))

"""What the log holds against what the table holds. Spark has no say in it: librdkafka reads the one, PyIceberg the other."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import confluent_kafka as ck

from tidegate.iceberg.history import load_table
from tidegate.iceberg.origins import read_origins
from tidegate.kafka.brokers import AdminBrokers
from tidegate.kafka.log import read_offsets
from tidegate.oracle import Verdict, judge
from tidegate.ranges import TopicPartition

POLL_S = 5.0
Contents = dict[tuple[int, int], tuple[int | None, int | None]]


@dataclass(frozen=True)
class Oracle:
    """One topic, one table."""

    bootstrap: str
    topic: str
    table: str

    def ends(self) -> dict[TopicPartition, int]:
        """Where the committed log ends, for each partition."""
        return dict(self._brokers.watermarks([self.topic], isolation_level="read_committed").latest)

    def judge_so_far(self, cursor: Mapping[TopicPartition, int]) -> Verdict:
        """The verdict while the schedule works: every record below the cursor is there once; above it, at most once.

        `cursor` has to be read before this is called: the table may be ahead of it, never behind.
        """
        table = read_origins(self.table)
        log = self._log()
        expected = {}
        for tp, offsets in log.items():
            rows = set(table.get(tp, ()))
            expected[tp] = [o for o in offsets if o < cursor.get(tp, 0) or o in rows]
        return judge(expected, table)

    def judge_all(self) -> Verdict:
        """The verdict when the schedule has drained the log."""
        return judge(self._log(), read_origins(self.table))

    def changed_rows(self) -> int:
        """How many rows do not have the key and the value of their record, by checksum."""
        rows = load_table(self.table)
        if rows is None:
            return 0
        names = ("_kafka_partition", "_kafka_offset", "key_crc", "value_crc")
        columns = rows.scan(selected_fields=names).to_arrow().to_pydict()
        records = self._contents()
        found = zip(*(columns[name] for name in names), strict=True)
        return sum(records.get((partition, offset)) != (key, value) for partition, offset, key, value in found)

    @property
    def _brokers(self) -> AdminBrokers:
        return AdminBrokers({"bootstrap.servers": self.bootstrap, "client.id": "chaos"})

    def _log(self) -> Mapping[TopicPartition, list[int]]:
        marks = self._brokers.watermarks([self.topic], isolation_level="read_committed")
        found = read_offsets({"bootstrap.servers": self.bootstrap, "client.id": "chaos"}, marks)
        return {tp: list(offsets) for tp, offsets in found.items()}

    def _contents(self) -> Contents:
        ends = self.ends()
        consumer = ck.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "chaos-contents",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        found: Contents = {}
        try:
            consumer.assign([ck.TopicPartition(tp.topic, tp.partition, 0) for tp in ends])
            ended: set[int] = set()
            while len(ended) < len(ends):
                for message in consumer.consume(10_000, timeout=POLL_S):
                    partition = message.partition() or 0
                    if message.error() is not None:
                        ended.add(partition)
                    else:
                        found[partition, message.offset() or 0] = (_crc(message.key()), _crc(message.value()))
        finally:
            consumer.close()
        return found


def _crc(data: str | bytes | None) -> int | None:
    return None if data is None else zlib.crc32(data.encode() if isinstance(data, str) else data)

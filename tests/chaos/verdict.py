"""What the log holds against what the table holds. Spark has no say in it: librdkafka reads the one, PyIceberg the other."""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import confluent_kafka as ck

from tests.batches import BatchVerdict, Key, Ranges, Sums, gaps, judge_sums, ranges_of_batches
from tidegate.core.audit.oracle import Verdict, judge
from tidegate.core.audit.quarantine import judge_quarantine
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.kafka.brokers import AdminBrokers
from tidegate.kafka.log import read_offsets
from tidegate.sinks.iceberg.catalog import load_table
from tidegate.sinks.iceberg.history import IcebergReader, read_origins

POLL_S = 5.0
QUARTERS = 4
SUMMED = '''\
"""Sums that can be made again from the records of a batch."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def summed(records: DataFrame) -> DataFrame:
    """One row for each partition and each quarter of its keys."""
    quarter = F.pmod(F.crc32(F.col("key")), F.lit(4))
    return records.groupBy(F.col("_kafka_partition").alias("shard"), quarter.alias("quarter")).agg(
        F.count("*").alias("n"),
        F.sum("_kafka_offset").alias("offsets"),
        F.sum(F.coalesce(F.crc32(F.col("value")), F.lit(0))).alias("checks"),
    )
'''
"""The module of the transform that `BatchOracle` judges."""
Contents = dict[tuple[int, int], tuple[int | None, int | None]]


@dataclass(frozen=True)
class Log:
    """One topic, read by librdkafka."""

    bootstrap: str
    topic: str

    def ends(self) -> dict[TopicPartition, int]:
        """Where the committed log ends, for each partition."""
        return dict(self._brokers.watermarks([self.topic], isolation_level="read_committed").latest)

    @property
    def _brokers(self) -> AdminBrokers:
        return AdminBrokers({"bootstrap.servers": self.bootstrap, "client.id": "chaos"})

    def _log(self) -> Mapping[TopicPartition, list[int]]:
        marks = self._brokers.watermarks([self.topic], isolation_level="read_committed")
        found = read_offsets({"bootstrap.servers": self.bootstrap, "client.id": "chaos"}, marks)
        return {tp: list(offsets) for tp, offsets in found.items()}

    def messages(self) -> Iterator[ck.Message]:
        """Every committed record, up to the end that the log has now or a little later."""
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
        try:
            consumer.assign([ck.TopicPartition(tp.topic, tp.partition, 0) for tp in ends])
            ended: set[int] = set()
            while len(ended) < len(ends):
                for message in consumer.consume(10_000, timeout=POLL_S):
                    if message.error() is not None:
                        ended.add(message.partition() or 0)
                    else:
                        yield message
        finally:
            consumer.close()

    def _contents(self) -> Contents:
        return {
            (message.partition() or 0, message.offset() or 0): (_crc(message.key()), _crc(message.value()))
            for message in self.messages()
        }


@dataclass(frozen=True)
class Oracle(Log):
    """A topic and a table of which every row tells its record, and the records that its pipeline has rejected."""

    table: str
    pipeline: str
    quarantine: str | None = None

    def judge_so_far(self, cursor: Cursor) -> Verdict:
        """The verdict while the schedule works: every record below the cursor is there once; above it, at most once.

        `cursor` has to be read before this is called: the table may be ahead of it, never behind.
        """
        table = read_origins(self.table)
        if self.quarantine is not None:  # of a load that was killed, records may be there that the next one removes
            reader = IcebergReader()
            receipts = reader.receipts(self.table, self.pipeline)
            for one in judge_quarantine(reader.rejections(self.quarantine), receipts, cursor.at.offsets).rejected:
                table.setdefault(one.topic_partition, array("q")).append(one.offset)
        log = self._log()
        expected = {}
        for tp, offsets in log.items():
            rows = set(table.get(tp, ()))
            expected[tp] = [o for o in offsets if o < cursor.at.offsets.get(tp, 0) or o in rows]
        return judge(expected, table)

    def judge_all(self, cursor: Cursor) -> Verdict:
        """The verdict when the schedule has drained the log."""
        del cursor
        table = read_origins(self.table)
        for tp, offsets in read_origins(self.quarantine).items() if self.quarantine else ():
            table.setdefault(tp, array("q")).extend(offsets)
        return judge(self._log(), table)

    def changed_rows(self) -> int:
        """How many rows, and rejected records, do not have the key and the value of their record, by checksum."""
        records = self._contents()
        rows = _columns(self.table, "key_crc", "value_crc")
        aside = _columns(self.quarantine, "key", "value") if self.quarantine else ()
        found = [*rows, *((*place, _crc(key), _crc(value)) for *place, key, value in aside)]
        return sum(records.get((partition, offset)) != (key, value) for partition, offset, key, value in found)


@dataclass(frozen=True)
class BatchOracle(Log):
    """A topic and a table of sums (`SUMMED`), made again here from the records of each batch's ranges."""

    table: str
    pipeline: str
    ledger: Callable[[], AbstractContextManager[Ledger]]

    def judge_so_far(self, cursor: Cursor) -> BatchVerdict:
        """The verdict while the schedule works: batches beyond the cursor are there at most once.

        `cursor` has to be read before this is called: the table may be ahead of it, never behind.
        """
        found = self._rows()
        with self.ledger() as ledger:
            ranges = ranges_of_batches(ledger, IcebergReader().receipts(self.table, self.pipeline))
        log = self._contents()
        # what is beyond the cursor is known, too, as far as its ranges are
        ahead = {key[0] for key in found if key[0] > cursor.seq and key[0] in ranges}
        expected = self._expected({seq: ranges.get(seq, ()) for seq in {*range(1, cursor.seq + 1), *ahead}}, log)
        return judge_sums(expected, found, gaps(ranges, cursor))

    def judge_all(self, cursor: Cursor) -> BatchVerdict:
        """The verdict when the schedule has drained the log."""
        return self.judge_so_far(cursor)

    def changed_rows(self) -> int:
        """None beside what the verdict tells: it holds the sums of each row against its records."""
        return 0

    def _rows(self) -> dict[Key, list[Sums]]:
        """The sums that the table holds, by batch, partition and quarter; one each, where all is well."""
        found: dict[Key, list[Sums]] = defaultdict(list)
        table = load_table(self.table)
        for row in [] if table is None else table.scan().to_arrow().to_pylist():
            found[row["_batch"], row["shard"], row["quarter"]].append((row["n"], row["offsets"], row["checks"]))
        return found

    def _expected(self, batches: Mapping[int, Ranges], log: Contents) -> dict[Key, Sums]:
        held: dict[int, list[int]] = defaultdict(list)
        for partition, offset in sorted(log):
            held[partition].append(offset)
        found: dict[Key, Sums] = {}
        for batch, ranges in batches.items():
            for r in ranges:
                offsets = held[r.partition]
                for offset in offsets[bisect_left(offsets, r.from_offset) : bisect_left(offsets, r.until_offset)]:
                    key, value = log[r.partition, offset]
                    place = batch, r.partition, (key or 0) % QUARTERS
                    n, total, checks = found.get(place, (0, 0, 0))
                    found[place] = n + 1, total + offset, checks + (value or 0)
        return found


def _columns(table: str, *names: str) -> Iterator[tuple[Any, ...]]:
    """Of each row: partition, offset, and these columns."""
    columns = ("_kafka_partition", "_kafka_offset", *names)
    held = load_table(table)
    found = {} if held is None else held.scan(selected_fields=columns).to_arrow().to_pydict()
    return zip(*(found.get(name, ()) for name in columns), strict=True)


def _crc(data: str | bytes | None) -> int | None:
    return None if data is None else zlib.crc32(data.encode() if isinstance(data, str) else data)

"""The records that the benchmarks of loads read, and what they make of them: the same for all, so that figures compare."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import cycle, islice

from confluent_kafka import Producer

from tidegate.local.flights import create_topic

TRANSFORM = '''
from tidegate.spark.records import parse_json

def plain(records):
    """A few typed columns of each record."""
    return parse_json(records, "id BIGINT, name STRING, amount DOUBLE, at STRING").drop("key", "timestamp", "timestampType")
'''


def fill(bootstrap: str, topic: str, counts: Sequence[int], *, header: str | None = None) -> None:
    """Make the topic, with so many records of about 140 bytes in each partition; `header` has another value in each of them.

    They are the same thousand values over and over: making JSON is not what is measured.
    """
    settings = {"bootstrap.servers": bootstrap}
    create_topic(settings, topic, len(counts))
    producer = Producer({**settings, "linger.ms": 50, "batch.size": 1_000_000, "queue.buffering.max.messages": 1_000_000})
    values = [
        json.dumps(
            {"id": n, "name": f"customer-{n:06}", "amount": n / 7, "at": "2026-01-01T10:00:00Z", "note": "x" * 40}
        ).encode()
        for n in range(1000)
    ]
    for partition, count in enumerate(counts):
        for number, value in enumerate(islice(cycle(values), count)):
            own: list[tuple[str, str | bytes | None]] = (
                [] if header is None else [(header, f"{number:032x}/{partition}".encode())]
            )
            producer.produce(topic, value=value, partition=partition, headers=own)
            if number % 10_000 == 0:
                producer.flush()
    if producer.flush(60):
        raise SystemExit("the broker did not take all records")

"""What a receiver hands over to Kafka."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

IDEMPOTENCY_KEY = "tidegate.idempotency_key"
"""The header of a record that tells it from a repeat of another one."""

Headers: TypeAlias = list[tuple[str, str | bytes | None]]
"""As the Kafka client takes them; here all are bytes."""


class Outgoing(NamedTuple):
    """One record.

    Args:
        value: as it was received.
        key: chooses the partition, as in Kafka's Java client; None: the stream does.
        stream: records of one stream keep their order, so they go to one partition.
        headers: may be shared with other records.
    """

    value: bytes
    key: bytes | None
    stream: int
    headers: Headers


def headers_of(receiver: str, instance: int, host: str, received_at_ms: int, block: str) -> Headers:
    """The headers that every record has; all are texts.

    Args:
        receiver: its name.
        instance: which instance of it, from 0.
        host: the host that it ran on.
        received_at_ms: when the record was received, epoch ms.
        block: the id of the block that it was part of; it stays when the block is sent again.
    """
    texts = {
        "receiver": receiver,
        "instance": str(instance),
        "host": host,
        "received_at": str(received_at_ms),
        "block": block,
    }
    return [(f"tidegate.{name}", text.encode()) for name, text in texts.items()]


def idempotency_headers(
    stream: int, request_key: str | None, record_keys: Sequence[str | None]
) -> Iterator[tuple[int, tuple[str, bytes] | None]]:
    """The stream of each record of a request, and the header by which a repeat of it is known, if it has one.

    What is sent again may come over another connection, to another instance, or after a restart. So a record with a key has a
    stream that follows from the key alone. Otherwise its repeat would land in another partition, where no pipeline finds it.

    Args:
        stream: of records without a key.
        request_key: what the sender named the request; bytes that are not UTF-8 stand in it as surrogates, and are landed as
            they were. Each record gets it with its number in the request, from 0, and all go to one partition.
        record_keys: where the request has no name, that of each record.
    """
    if request_key is not None:
        shared = _stream_of(request_key)
        yield from ((shared, _header(f"{request_key}/{number}")) for number in itertools.count())
    for key in record_keys:
        yield (stream, None) if key is None else (_stream_of(key), _header(key))


def _header(key: str) -> tuple[str, bytes]:
    return IDEMPOTENCY_KEY, key.encode(errors="surrogateescape")


def _stream_of(key: str) -> int:
    return zlib.crc32(key.encode(errors="surrogateescape"))

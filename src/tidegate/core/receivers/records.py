"""What a receiver hands over to Kafka."""

from __future__ import annotations

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


def idempotency_header(key: str, number: int) -> tuple[str, bytes]:
    """The header of a record whose sender named its request.

    Args:
        key: what the sender sent; bytes that are not UTF-8 stand in it as surrogates, and are landed as they were.
        number: which record of the request it is, from 0: each record has a key of its own.
    """
    return IDEMPOTENCY_KEY, f"{key}/{number}".encode(errors="surrogateescape")

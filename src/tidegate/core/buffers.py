"""What records of receivers take while they wait."""

from __future__ import annotations

MEMORY_BYTES = 512
"""What a record takes beside its key and value while it waits: objects, headers and Kafka client's own copy of both,
roughly."""


def least_buffer_bytes(max_record_bytes: int) -> int:
    """Bytes of a buffer with room for two of the longest records: one that is on its way, and the one that is read."""
    return 2 * (max_record_bytes + MEMORY_BYTES)

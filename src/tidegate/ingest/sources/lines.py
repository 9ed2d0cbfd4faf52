"""Lands the lines of a stream."""

from __future__ import annotations

import asyncio

from tidegate.core.receivers.lines import LineSplitter
from tidegate.ingest.receiver import Receiver

CHUNK_BYTES = 65_536


async def land_lines(source: Receiver, reader: asyncio.StreamReader, *, stream: int, idle_s: float | None, peer: str) -> None:
    """Store the lines of a stream until it ends. It reads on when the lines before are stored, which is what slows the sender.

    Args:
        source: whose lines they are.
        reader: the stream.
        stream: its number; its lines keep their order.
        idle_s: seconds without a byte after which it is given up; None: never.
        peer: who sends, for messages.

    Raises:
        TimeoutError: it was idle.
        OSError: the connection was lost.
    """
    longest = source.limits.max_record_bytes
    splitter, refused = LineSplitter(longest), 0
    try:
        while True:
            async with asyncio.timeout(idle_s):
                chunk = await reader.read(CHUNK_BYTES)
            if not chunk:
                return
            if lines := splitter.feed(chunk):
                await source.store(lines, stream=stream)
            if splitter.refused > refused:
                source.refuse(splitter.refused - refused, f"{peer} sent a line of more than {longest} bytes")
                refused = splitter.refused
    finally:
        if splitter.open_bytes:
            source.refuse(1, f"{peer} ended in the middle of a line")

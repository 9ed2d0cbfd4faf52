"""Lands the lines of streams, and ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tidegate_receivers.rules.records import LineSplitter
from tidegate_receivers.runtime.receiver import Receiver

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
    splitter = LineSplitter(longest)
    try:
        while True:
            async with asyncio.timeout(idle_s):
                chunk = await reader.read(CHUNK_BYTES)
            if not chunk:
                return
            if lines := splitter.feed(chunk):
                await source.store(lines, stream=stream)
            if refused := splitter.refused():
                source.refuse(refused, f"{peer} sent a line of more than {longest} bytes")
    finally:
        if splitter.open_bytes:
            source.refuse(1, f"{peer} ended in the middle of a line")


async def end_streams(streams: Mapping[asyncio.StreamWriter, asyncio.Task[None]], linger_s: float) -> None:
    """Half-close connections, store what comes in until their senders end them, but no longer than `linger_s`, and close them.

    Args:
        streams: the task that lands each connection's lines; it ends with the connection.
        linger_s: seconds. Only reading on takes what the system holds: it would be lost with the connection.
    """
    streams = dict(streams)
    if not streams:
        return
    for writer in streams:
        if writer.can_write_eof() and not writer.is_closing():
            writer.write_eof()  # a sender that looks goes elsewhere
    await asyncio.wait(streams.values(), timeout=linger_s)
    for writer in streams:
        writer.close()
    await asyncio.wait(streams.values())

"""Each line that comes over TCP as a record: of connections that are accepted, and of a server that is connected to.

TCP has no answer that a sender could wait for. What the receiver has read and not delivered is lost with its process; what it
has not read is still the sender's, or the system's. So a source reads no further than its buffer has room, and the sender's
own `write` blocks.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.core.model.errors import SourceUnavailable
from tidegate_receivers.config.receiver import Tls
from tidegate_receivers.rules.records import LineSplitter
from tidegate_receivers.runtime.listening import (
    HANDSHAKE_S,
    Listener,
    check_listener,
    check_peer,
    client_context,
    server_context,
)
from tidegate_receivers.runtime.receiver import RecordSource

CHUNK_BYTES = 65_536
POLL_S = 0.01


async def land_lines(
    source: RecordSource, reader: asyncio.StreamReader, *, stream: int, idle_s: float | None, peer: str
) -> None:
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
    longest = source.intake.receiver.max_record_bytes
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


@dataclass(eq=False, kw_only=True)
class TcpServerSource(RecordSource):
    r"""Lines over TCP; a line ends with `\n` or `\r\n`, and one that does not end is no record.

    Args:
        host: what to listen on.
        port: 0: a free one (`listening_on` has it).
        tls: needed, with a CA for client certificates, for anything but the loopback.
        max_connections: more are closed at once; those whose TLS handshake goes on count.
        idle_s: a connection that sends nothing for so many seconds is closed.
        linger_s: seconds that connections may go on sending when the lease has ended. They are half-closed first.

    Raises:
        ConfigError: others could send.
    """

    host: str = "127.0.0.1"
    port: int = 0
    tls: Tls | None = None
    max_connections: int = 200
    idle_s: float = 60.0
    linger_s: float = 1.0
    _connections: dict[asyncio.StreamWriter, asyncio.Task[None]] = field(default_factory=dict, init=False, repr=False)
    _accepted: weakref.WeakSet[asyncio.StreamReader] = field(default_factory=weakref.WeakSet, init=False, repr=False)
    _listener: Listener | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check_listener(self.host, self.port, self.tls)
        self._streams = itertools.count()

    @property
    def listening_on(self) -> int | None:
        """The port, while it is open."""
        return self._listener.port if self._listener is not None else None

    async def on_start(self) -> None:
        """As `RecordSource`."""
        context = server_context(self.tls)
        self._accepted.clear()
        listener = Listener(self.host, self.port, self.intake.receiver.name, self.intake.instance)
        await listener.start(self._protocol, context, self.max_connections, self.report_error)
        self._listener = listener

    async def on_stop(self) -> None:
        """As `RecordSource`. What was sent before is stored before it ends."""
        if self._listener is not None:
            await self._listener.stop()
            self._listener = None
        until_s = time.monotonic() + self.linger_s
        while self._accepted and time.monotonic() < until_s:  # noqa: ASYNC110 - asyncio tells of no connection that is being made
            await asyncio.sleep(POLL_S)
        await end_streams(self._connections, self.linger_s)

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader(limit=CHUNK_BYTES // 2)  # of which asyncio holds twice as much before it stops reading
        self._accepted.add(reader)  # of one whose handshake fails nobody tells: it is forgotten with its connection
        return asyncio.StreamReaderProtocol(reader, self._connected)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._accepted.discard(reader)
        self._connections[writer] = self.spawn(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = writer.get_extra_info("peername")
        peer = f"{address[0]}:{address[1]}" if address else "a sender"
        try:
            await land_lines(self, reader, stream=next(self._streams), idle_s=self.idle_s, peer=peer)
        except TimeoutError:
            self.report_error(f"{peer} sent nothing for {self.idle_s:g} s and is closed")
        except OSError as error:
            self.report_error(f"the connection of {peer} was lost", error)
        finally:
            del self._connections[writer]
            writer.transport.abort()


@dataclass(eq=False)
class SocketSource(RecordSource):
    r"""Lines of a server; a line ends with `\n` or `\r\n`, and one that does not end is no record.

    When the server refuses, resets or ends the connection, the receiver connects again after its delay.

    Args:
        host: the server.
        port: its port.
        tls: needed for anything but the loopback; the server's name is checked.
        linger_s: seconds that the server may go on sending when the lease has ended. The connection is half-closed first.

    Raises:
        ConfigError: others could read or answer.
    """

    host: str
    port: int
    tls: Tls | None = None
    linger_s: float = 1.0
    _streams: dict[asyncio.StreamWriter, asyncio.Task[None]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_peer(self.host, self.port, self.tls)

    async def on_start(self) -> None:
        """As `RecordSource`."""
        context = client_context(self.tls)
        try:
            reader, writer = await asyncio.open_connection(
                self.host,
                self.port,
                ssl=context,
                limit=CHUNK_BYTES // 2,
                ssl_handshake_timeout=HANDSHAKE_S if context else None,
            )
        except OSError as error:
            raise SourceUnavailable(
                f"cannot connect to {self.host}:{self.port}: {error.strerror or error}",
                fix="Start the server, or correct the address",
            ) from None
        self._streams = {writer: self.spawn(self._read(reader))}

    async def on_stop(self) -> None:
        """As `RecordSource`. What was sent before is stored before it ends."""
        streams, self._streams = self._streams, {}
        await end_streams(streams, self.linger_s)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        peer = f"{self.host}:{self.port}"
        await land_lines(self, reader, stream=self.intake.instance, idle_s=None, peer=peer)
        if self._streams:
            raise SourceUnavailable(f"{peer} has ended the connection", fix="The receiver connects again")

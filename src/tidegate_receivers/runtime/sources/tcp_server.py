"""Listens, and takes each line of each connection as a record.

TCP has no answer that a sender could wait for. What the receiver has read and not delivered is lost with its process; what it
has not read is still the sender's, or the system's. So the source reads no further than its buffer has room, and the sender's
own `write` blocks.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import weakref
from dataclasses import dataclass, field

from tidegate_receivers.runtime.listening import Listener, Tls, check_listener, server_context
from tidegate_receivers.runtime.receiver import Receiver
from tidegate_receivers.runtime.sources.lines import CHUNK_BYTES, end_streams, land_lines

POLL_S = 0.01


@dataclass(eq=False, kw_only=True)
class TcpServerSource(Receiver):
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
        """As `Receiver`."""
        context = server_context(self.tls)
        self._accepted.clear()
        listener = Listener(self.host, self.port, self.intake.receiver, self.intake.instance)
        await listener.start(self._protocol, context, self.max_connections, self.report_error)
        self._listener = listener

    async def on_stop(self) -> None:
        """As `Receiver`. What was sent before is stored before it ends."""
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

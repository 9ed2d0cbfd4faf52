"""Connects, and takes each line that it is sent as a record. As Spark's `SocketReceiver`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tidegate.core.model.errors import SourceUnavailable
from tidegate_receivers.runtime.listening import HANDSHAKE_S, Tls, check_peer, client_context
from tidegate_receivers.runtime.receiver import Receiver
from tidegate_receivers.runtime.sources.lines import CHUNK_BYTES, end_streams, land_lines


@dataclass(eq=False)
class SocketSource(Receiver):
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
        """As `Receiver`."""
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
        """As `Receiver`. What was sent before is stored before it ends."""
        streams, self._streams = self._streams, {}
        await end_streams(streams, self.linger_s)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        peer = f"{self.host}:{self.port}"
        await land_lines(self, reader, stream=self.intake.instance, idle_s=None, peer=peer)
        if self._streams:
            raise SourceUnavailable(f"{peer} has ended the connection", fix="The receiver connects again")

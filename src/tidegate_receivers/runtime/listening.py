"""Addresses that sources listen on or connect to, and who may use them.

A listening port is shared between two leases of one instance (SO_REUSEPORT), so that the next one listens before the last one
stops, and no connect is refused; and between the instances of one receiver on one host. The system lets any process of this
user share it, so each takes a lock on the port in its receiver's name: two receivers with one port are a named error, not a
stream that is split between them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import fcntl
import os
import socket
import ssl
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidegate.core.model.errors import ConfigError, SourceUnavailable
from tidegate.core.model.uris import is_loopback
from tidegate_receivers.config.receiver import Tls

BACKLOG = 1024
HANDSHAKE_S = 10.0
SO_ATTACH_REUSEPORT_CBPF = 51
BPF_RETURN = 6


def check_listener(host: str, port: int, tls: Tls | None, *, token: str | None = None) -> None:
    """Refuse a listener that others could use.

    Raises:
        ConfigError: the port is no port, TLS has no certificate, or the host is not the loopback and there is no TLS, or
            neither a token nor a CA for client certificates.
    """
    _check_port(port, least=0)
    if tls is not None and (tls.certificate is None or tls.key is None):
        raise ConfigError("tls: a server needs a certificate and its key", fix="Set `certificate` and `key`")
    if is_loopback(host):
        return
    if tls is None:
        raise ConfigError(f"host {host} is not the loopback, and there is no TLS", fix="Set `tls`, or listen on 127.0.0.1")
    if not token and tls.ca is None:
        raise ConfigError(
            f"host {host} is not the loopback, and senders need no login",
            fix="Set `tls.ca` for client certificates, or a token (http)",
        )


def check_peer(host: str, port: int, tls: Tls | None) -> None:
    """Refuse a connection that others could read or answer.

    Raises:
        ConfigError: the port is no port, or the host is not the loopback and there is no TLS.
    """
    _check_port(port, least=1)
    if tls is None and not is_loopback(host):
        raise ConfigError(f"host {host} is not the loopback, and there is no TLS", fix="Set `tls`")


def _check_port(port: int, least: int) -> None:
    if not least <= port <= 65_535:
        raise ConfigError(f"port: expected a number up to 65535, got {port!r}", fix="Correct the port")


def server_context(tls: Tls | None) -> ssl.SSLContext | None:
    """The context of a server. Raises ConfigError: a file cannot be read, or is not what it should be."""
    if tls is None:
        return None
    return _context(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), tls, demand=tls.ca is not None)


def client_context(tls: Tls | None) -> ssl.SSLContext | None:
    """The context of a client, which checks the server's name. Raises ConfigError: as `server_context`."""
    return None if tls is None else _context(ssl.create_default_context(), tls, demand=True)


def _context(context: ssl.SSLContext, tls: Tls, *, demand: bool) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key, password="")
        if tls.ca is not None:
            context.load_verify_locations(tls.ca)
    except (OSError, ssl.SSLError) as error:
        names = ", ".join(filter(None, (tls.certificate, tls.key, tls.ca)))
        why = error.strerror or type(error).__name__
        raise ConfigError(f"tls: {why} ({names})", fix="Give PEM files that can be read") from None
    if demand:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class _Door(socket.socket):
    """A listening socket that closes at once what it accepts beyond `most` connections.

    They are counted here, where each begins: asyncio tells of none before its TLS handshake is over.
    """

    most = sys.maxsize
    refused: Callable[[], object] = staticmethod(lambda: None)
    _open: tuple[socket.socket, ...] = ()

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        self._open = tuple(each for each in self._open if each.fileno() >= 0)  # the others are closed
        if len(self._open) >= self.most:
            connection.close()
            self.refused()
            raise ConnectionAbortedError  # asyncio goes on with the next one
        self._open = (*self._open, connection)
        return connection, address


class Listener:
    """A port that is listened on, and the lock that keeps other receivers from it.

    Args:
        host: a name or an address.
        port: 0: a free one.
        owner: who may share the port: a receiver.
        instance: which instance of it. While one alone has the port, its next lease gets all new connections.

    Raises:
        SourceUnavailable: somebody else has the port, or the address is not this machine's.
    """

    def __init__(self, host: str, port: int, owner: str, instance: int = 0) -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, kind, protocol, _, address = found[0]
            self._socket = _Door(family, kind, protocol)
        except OSError as error:
            raise _taken(host, port, error) from None
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._socket.bind(address)
            self.port: int = self._socket.getsockname()[1]
            self._lock, follows = _lock(self.port, owner, instance)
            self._socket.listen(BACKLOG)
            if follows:
                _take_over(self._socket)
            self._socket.setblocking(False)
        except OSError as error:
            self._socket.close()
            raise _taken(host, port, error) from None
        self._server: asyncio.Server | None = None

    async def start(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext | None,
        most: int,
        report: Callable[[str], object],
    ) -> None:
        """Accept connections, each for a protocol of its own.

        Args:
            factory: makes the protocol.
            context: of TLS; None: there is none.
            most: connections at the same time, those whose TLS handshake goes on among them; more are closed at once.
            report: hears of each that is closed.
        """
        self._socket.most = most
        self._socket.refused = lambda: report(f"there are {most} connections, and another one is closed")
        loop = asyncio.get_running_loop()
        handshake_s = HANDSHAKE_S if context else None
        self._factory, self._context = factory, context
        self._server = await loop.create_server(
            factory, sock=self._socket, ssl=context, backlog=BACKLOG, ssl_handshake_timeout=handshake_s
        )

    def close(self) -> None:
        """Stop listening. Who has connected and is not accepted yet is reset."""
        if self._server is not None:
            self._server.close()
        self._socket.close()
        os.close(self._lock)

    async def stop(self) -> None:
        """Accept what has connected, and nothing new."""
        rest: list[socket.socket] = []
        with contextlib.suppress(OSError):  # BlockingIOError: nobody waits
            while len(rest) < BACKLOG:
                rest.append(self._socket.accept()[0])
                rest[-1].setblocking(False)
        self.close()
        loop = asyncio.get_running_loop()
        handshake_s = HANDSHAKE_S if self._context else None
        making = [  # the system would have reset these
            loop.connect_accepted_socket(self._factory, connection, ssl=self._context, ssl_handshake_timeout=handshake_s)
            for connection in rest
        ]
        await asyncio.gather(*making, return_exceptions=True)  # together, since one may never finish its handshake
        for _ in range(3):
            await asyncio.sleep(0)  # what the server itself has accepted last is known to the factory now


def _take_over(listener: socket.socket) -> None:
    """Let the system give all new connections to this socket, of the two that share the port.

    Otherwise it spreads them, and resets those that have connected to the older one in the instant in which that is closed. The
    program is one instruction, which returns the number of the second socket; when that is alone, the system does without it.
    """
    if sys.platform == "linux":
        instruction = ctypes.create_string_buffer(struct.pack("HBBI", BPF_RETURN, 0, 0, 1))
        program = struct.pack("HP", 1, ctypes.addressof(instruction))
        with contextlib.suppress(OSError):  # an old kernel: connections are spread
            listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, program)


def _lock(port: int, owner: str, instance: int) -> tuple[int, bool]:
    """A file that is locked as long as it is open, by one owner in as many processes as it likes.

    It names the owner and the instance, or no instance where several share it.

    Returns:
        The file, and whether others have it who are all of the same instance.

    Raises:
        OSError: another owner has it.
    """
    path = Path(tempfile.gettempdir()) / f"tidegate-{os.getuid()}-port-{port}.lock"
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody has it, so it is named anew
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{owner} {instance}".encode(), 0)
        fcntl.flock(lock, fcntl.LOCK_SH)
    except BlockingIOError:
        named, _, number = os.pread(lock, 1000, 0).decode(errors="replace").rpartition(" ")
        if named == owner:
            fcntl.flock(lock, fcntl.LOCK_SH)
            if number != str(instance):
                os.ftruncate(lock, os.pwrite(lock, f"{owner} ".encode(), 0))
            return lock, number == str(instance)
        os.close(lock)
        raise OSError(errno.EADDRINUSE, f"the receiver {named} listens on it") from None
    return lock, False


def _taken(host: str, port: int, error: OSError) -> SourceUnavailable:
    return SourceUnavailable(
        f"cannot listen on {host}:{port}: {error.strerror or error}",
        fix="Free the port, or choose another in the receiver's file",
        port=port,
    )

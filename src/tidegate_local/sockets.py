"""Ports on the loopback: which are free, and who has the others.

Rule: a chosen port lies below the ranges from which kernels give ports to outgoing connections, so that a port which was
saved stays free while its server is down.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Collection

import psutil

from tidegate.core.model.errors import PlatformError

LOOPBACK = "127.0.0.1"
CHOSEN_FROM = range(20_000, 32_000)


def choose_port(taken: Collection[int] = ()) -> int:
    """A free port of `CHOSEN_FROM` that is not in `taken`; drawn at random, so that two platforms hardly choose the same.

    Raises:
        PlatformError: a thousand draws found none.
    """
    draw = random.SystemRandom()
    for _ in range(1000):
        port = draw.choice(CHOSEN_FROM)
        if port not in taken and is_free(port):
            return port
    raise PlatformError(f"No free port was found between {CHOSEN_FROM.start} and {CHOSEN_FROM.stop}", fix="Configure the ports")


def is_free(port: int) -> bool:
    """Whether a server of ours could listen on the port of the loopback now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # as servers do: connections of an earlier server that linger in TIME_WAIT do not count
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def answers(port: int, timeout_s: float = 1.0) -> bool:
    """Whether somebody accepts connections on the port of the loopback."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=timeout_s):
            return True
    except OSError:
        return False


def owner_of(port: int) -> str:
    """Who listens on the port, as `name (pid 123)`; `another process` when the system does not show it."""
    # macOS lists the connections of other users' processes to root only
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if (
                connection.status == psutil.CONN_LISTEN
                and connection.pid
                and connection.laddr
                and connection.laddr.port == port
            ):
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    return "another process"

"""Ports on the loopback: which are free, who has the others, and those of a platform, kept in `platform.json`.

Rules: a platform's ports are chosen once, since connections and URLs name them; a chosen port lies below the ranges from which
kernels give ports to outgoing connections, so that a port which was saved stays free while its server is down.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
from collections.abc import Collection, Mapping
from pathlib import Path

import psutil

from tidegate.core.model.errors import PlatformError

LOOPBACK = "127.0.0.1"
CHOSEN_FROM = range(20_000, 32_000)
PORTS = ("kafka", "kafka-controller", "spark", "airflow")
SCHEMA = 1


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


def read_ports(path: Path) -> dict[str, int] | None:
    """The ports of the last `up`; None before the first one.

    Raises:
        PlatformError: the file is damaged.
    """
    try:
        saved = json.loads(path.read_text())
        return {name: int(saved["ports"][name]) for name in PORTS}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise PlatformError(
            f"{path} is not what `tidegate up` wrote",
            fix="Restore it, or end the servers by the pids in run/ and remove it",
            path=path,
        ) from error


def write_ports(path: Path, ports: Mapping[str, int]) -> None:
    """Save the ports, whole or not at all."""
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps({"version": SCHEMA, "ports": ports}, indent=2) + "\n")
    beside.replace(path)


def choose_ports(saved: Mapping[str, int] | None, configured: Mapping[str, int], running: Collection[str]) -> dict[str, int]:
    """The ports of this `up`: those that are configured, else those that are saved, else free ones.

    Args:
        saved: the ports of the last `up`.
        configured: the ports that the caller fixes.
        running: the ports whose servers run.

    Raises:
        PlatformError: a server runs on another port than the configured one.
    """
    ports = {**(saved or {}), **configured}
    for name in PORTS:
        if name not in ports:
            ports[name] = choose_port(ports.values())
    for name, port in ports.items():
        before = (saved or {}).get(name)
        if name in running and before != port:
            raise PlatformError(
                f"{name} runs on port {before}, and {port} is configured",
                fix="Run `tidegate down` first, or leave the port as it is",
                port=port,
                server=name,
            )
    return ports


def check_free(ports: Mapping[str, int]) -> None:
    """Raises PlatformError where a process has one of these ports."""
    for name, port in ports.items():
        if not is_free(port):
            raise PlatformError(
                f"Port {port}, which is {name}'s, is taken by {owner_of(port)}",
                fix=f"Stop that process, or configure another port for {name}",
                port=port,
                server=name,
            )

"""The ports of a platform, chosen once and kept in `platform.json`: connections and URLs name them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from tidegate.core.model.errors import PlatformError
from tidegate_local import airflow, broker, sockets, spark_connect

PORTS = ("kafka", "kafka-controller", "spark", "airflow")
SERVERS = {"kafka": broker.NAME, "kafka-controller": broker.NAME, "spark": spark_connect.NAME, "airflow": airflow.API_SERVER}
"""The server that listens on each port."""
SCHEMA = 1


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
        running: the servers that run.

    Raises:
        PlatformError: a server runs on another port than the configured one.
    """
    ports = {**(saved or {}), **configured}
    for name in PORTS:
        if name not in ports:
            ports[name] = sockets.choose_port(ports.values())
    for name, port in ports.items():
        before = (saved or {}).get(name)
        if SERVERS[name] in running and before != port:
            raise PlatformError(
                f"{name} runs on port {before}, and {port} is configured",
                fix="Run `tidegate down` first, or leave the port as it is",
                port=port,
                server=name,
            )
    return ports


def check_free(ports: Mapping[str, int], parts: Collection[str], running: Collection[str]) -> None:
    """Raises PlatformError where another process has a port of these parts whose server does not run."""
    for name, port in ports.items():
        part = "airflow" if name == "airflow" else SERVERS[name]
        if part in parts and SERVERS[name] not in running and not sockets.is_free(port):
            raise PlatformError(
                f"Port {port}, which is {name}'s, is taken by {sockets.owner_of(port)}",
                fix=f"Stop that process, or configure another port for {name}",
                port=port,
                server=name,
            )

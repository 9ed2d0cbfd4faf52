"""Brokers of a test's own, which it may lock, stop and damage: small, in the folder it gives them, on free ports.

    own = new_broker(tmp_path / "own", {"LOGIN": "SASL_PLAINTEXT"}, {"sasl.enabled.mechanisms": "PLAIN"})
    with running(own):
        own.address("LOGIN")

Each has the listener PLAINTEXT too, and is stopped by its pid file whatever happens. Most tests do with one for all of them:
the fixture `own`.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient

from tidegate_local import broker, jars, sockets
from tidegate_local.process import Server

HEAP = ("-Xms64m", "-Xmx256m")
USER, PASSWORD = "alice", "guest-7"
"""Who may log in on the listener LOGIN of a broker that asks who may do what."""
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
ASKING = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.login.plain.sasl.jaas.config": f'{PLAIN} required username="b" password="b" user_{USER}="{PASSWORD}";',
}


@dataclass(frozen=True)
class PrivateBroker:
    """Its process, its folder, and its ports by listener."""

    server: Server
    folder: Path
    ports: Mapping[str, int]

    def address(self, listener: str = "PLAINTEXT") -> str:
        return f"{sockets.LOOPBACK}:{self.ports[listener]}"


def new_broker(
    folder: Path,
    listeners: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    jvm: Iterable[str] = (),
) -> PrivateBroker:
    """A broker that is its own controller, not started; `listeners` by name, with their security protocol."""
    protocols = {"PLAINTEXT": "PLAINTEXT", **(listeners or {}), "CONTROLLER": "PLAINTEXT"}
    ports = _choose(protocols)
    broker.prepare(folder, ports["PLAINTEXT"], ports["CONTROLLER"], jars.find_java(), _jars(), {})
    _configure(folder, ports["PLAINTEXT"], ports["CONTROLLER"], {**_listening(ports, protocols), **(settings or {})})
    return PrivateBroker(_server(folder, ports["PLAINTEXT"], 1, jvm), folder, ports)


def new_asking_broker(folder: Path) -> PrivateBroker:
    """A broker that asks on the listener LOGIN who may do what, and nobody on PLAINTEXT, and on TLS by the CA in its `pem`."""
    keys = sign(folder / "pem", "server") / "server.pem"
    tls = {"listener.name.tls.ssl.keystore.type": "PEM", "listener.name.tls.ssl.keystore.location": str(keys)}
    return new_broker(folder, {"LOGIN": "SASL_PLAINTEXT", "TLS": "SSL"}, {**ASKING, **tls})


def sign(folder: Path, *names: str) -> Path:
    """A folder with a new CA (`ca`), and certificates by it for the loopback: `NAME`, `NAME.key`, and both in `NAME.pem`."""
    folder.mkdir(parents=True, exist_ok=True)
    openssl(folder, "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca -days 2 -subj /CN=ca")
    (folder / "names").write_text(f"subjectAltName=IP:{sockets.LOOPBACK}\n")
    for name in names:
        openssl(folder, f"req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}")
        openssl(folder, f"x509 -req -in {name}.csr -CA ca -CAkey ca.key -CAcreateserial -days 2 -extfile names -out {name}")
        (folder / f"{name}.pem").write_text((folder / f"{name}.key").read_text() + (folder / name).read_text())
    return folder


def openssl(folder: Path, command: str) -> None:
    """Run one of its commands there."""
    subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)


def new_member(of: PrivateBroker, folder: Path, node_id: int) -> PrivateBroker:
    """A further broker of the cluster, no controller, not started."""
    ports = _choose(["PLAINTEXT"])
    folder.mkdir()
    listening = _listening(ports, {"PLAINTEXT": "PLAINTEXT"})
    listening["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
    member = {**listening, "process.roles": "broker", "node.id": str(node_id)}
    _configure(folder, ports["PLAINTEXT"], of.ports["CONTROLLER"], member)
    (folder / "log4j2.properties").write_text((of.folder / "log4j2.properties").read_text())
    known = dict(
        line.split("=", 1) for line in (of.folder / "data" / "meta.properties").read_text().splitlines() if "=" in line
    )
    tool = [str(jars.find_java()), "-cp", f"{_jars()}/*", "kafka.tools.StorageTool", "format"]
    tool += ["--cluster-id", known["cluster.id"], "--config", "server.properties"]
    subprocess.run(tool, cwd=folder, env={}, check=True, capture_output=True, timeout=broker.FORMAT_TIMEOUT_S)
    return PrivateBroker(_server(folder, ports["PLAINTEXT"], node_id, ()), folder, ports)


@contextlib.contextmanager
def running(*brokers: PrivateBroker) -> Iterator[None]:
    """Started in this order, stopped in the other."""
    with contextlib.ExitStack() as stack:
        for one in brokers:
            stack.callback(one.server.stop)
            one.server.start()
        yield


def _jars() -> Path:
    return jars.ensure_jars(lambda *_: None).kafka


def _choose(names: Iterable[str]) -> dict[str, int]:
    ports: dict[str, int] = {}
    for name in names:
        ports[name] = sockets.choose_port(ports.values())
    return ports


def _listening(ports: Mapping[str, int], protocols: Mapping[str, str]) -> dict[str, str]:
    listeners = ",".join(f"{name}://{sockets.LOOPBACK}:{ports[name]}" for name in protocols)
    named = ",".join(f"{name}:{protocol}" for name, protocol in protocols.items())
    return {"listeners": listeners, "advertised.listeners": listeners, "listener.security.protocol.map": named}


def _configure(folder: Path, port: int, controller_port: int, settings: Mapping[str, str]) -> None:
    properties = {**broker.server_properties(folder, port, controller_port), **settings}
    (folder / "server.properties").write_text("".join(f"{key}={value}\n" for key, value in properties.items()))


def _server(folder: Path, port: int, node_id: int, jvm: Iterable[str]) -> Server:
    made = broker.broker(
        folder=folder,
        port=port,
        java=jars.find_java(),
        jars=_jars(),
        env={},
        log=folder / "kafka.log",
        pid_file=folder / "kafka.pid",
    )
    java, *words = made.argv
    argv = [java, *HEAP, *jvm, *(word for word in words if not word.startswith("-Xm"))]
    return replace(made, argv=argv, health=lambda _started: _is_member(port, node_id))


def _is_member(port: int, node_id: int) -> bool:
    """Whether the broker answers, and is a member of its cluster, with or without others."""
    if not sockets.answers(port):
        return False
    client = AdminClient({"bootstrap.servers": f"{sockets.LOOPBACK}:{port}", "log_level": 0})
    with contextlib.suppress(ck.KafkaException):
        return node_id in client.list_topics(timeout=2.0).brokers
    return False

"""A real Kafka broker: one KRaft node that is its own controller, on the loopback, with its data under the state folder.

Rules: no topic appears by itself; a consumer group starts at once; the data survives `kill -9`, which costs a restart the
few seconds until the controller gives up the broker's last session (so that session is short).
"""

from __future__ import annotations

import base64
import contextlib
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from tidegate.core.model.errors import PlatformError
from tidegate_local import sockets
from tidegate_local.process import Server, last_meaningful_line

NAME = "kafka"
HEAP = "512m"
FORMAT_TIMEOUT_S = 120.0

_LOG4J2 = """\
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
# logs when it started and stopped, without the thousand lines of its configuration
logger.server.name = kafka.server
logger.server.level = INFO
"""


def server_properties(folder: Path, port: int, controller_port: int) -> dict[str, str]:
    """The broker's settings; only what differs from Kafka's defaults for a single node on the loopback."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{sockets.LOOPBACK}:{port},CONTROLLER://{sockets.LOOPBACK}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{sockets.LOOPBACK}:{port},CONTROLLER://{sockets.LOOPBACK}:{controller_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"{sockets.LOOPBACK}:{controller_port}",
        "log.dirs": str(folder / "data"),
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "4",
        # a killed broker may register again only when its last session has ended
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "2000",
    }


def broker(*, folder: Path, port: int, java: Path, jars: Path, env: Mapping[str, str], log: Path, pid_file: Path) -> Server:
    """The broker as a supervised server; `prepare` its folder before it is started."""
    argv = [str(java), f"-Xms{HEAP}", f"-Xmx{HEAP}", *_logging(folder), "-cp", f"{jars}/*"]
    return Server(
        name=NAME,
        argv=[*argv, "kafka.Kafka", str(folder / "server.properties")],
        env=env,
        cwd=folder,
        log=log,
        pid_file=pid_file,
        health=lambda _started: is_healthy(port),
        start_timeout_s=60.0,
    )


def prepare(folder: Path, port: int, controller_port: int, java: Path, jars: Path, env: Mapping[str, str]) -> None:
    """Write the broker's files and format its storage, unless that is done.

    Raises:
        PlatformError: the storage cannot be formatted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    properties = server_properties(folder, port, controller_port)
    (folder / "server.properties").write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    (folder / "log4j2.properties").write_text(_LOG4J2)
    if (folder / "data" / "meta.properties").is_file():
        return
    command = [str(java), *_logging(folder), "-cp", f"{jars}/*", "kafka.tools.StorageTool", "format", "--standalone"]
    command += ["--cluster-id", _new_cluster_id(), "--ignore-formatted", "--config", str(folder / "server.properties")]
    done = subprocess.run(  # noqa: S603
        command, env=dict(env), cwd=folder, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise PlatformError(
            f"The storage of the broker cannot be formatted: {last_meaningful_line(done.stdout + done.stderr)}",
            fix=f"Make sure that {folder} can be written to and has space",
            folder=folder,
        )


def is_healthy(port: int) -> bool:
    """Whether the broker answers a metadata request and is a member of its own cluster."""
    if not sockets.answers(port):
        return False
    # loaded only now: a port that nobody listens on needs no client, and the client would log its failures
    from confluent_kafka import KafkaException  # noqa: PLC0415
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415

    client = AdminClient({"bootstrap.servers": f"{sockets.LOOPBACK}:{port}", "log_level": 0})
    with contextlib.suppress(KafkaException):
        return len(client.list_topics(timeout=2.0).brokers) == 1
    return False


def _logging(folder: Path) -> list[str]:
    return [f"-Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()}"]


def _new_cluster_id() -> str:
    # Kafka's Uuid: 16 random bytes in URL-safe base64 without padding, which must not start with a dash
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "a", 1)

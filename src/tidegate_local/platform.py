"""The parts together: which ports they have, what starts them, what they are for others.

    state folder (`.tidegate/`)
    ├── platform.json   the ports, chosen once        ├── lake/      catalog.db and warehouse/ of Iceberg
    ├── lock            one `up` or `down` at a time   ├── kafka/     settings and data of the broker
    ├── run/*.pid       who runs                       ├── spark/     SPARK_CONF_DIR, token, working folders
    └── logs/*.log      what they said                 └── airflow/   AIRFLOW_HOME

Rules: making a `Platform` touches nothing; `up` starts only what does not run, on the ports it had before; a port that
somebody else took in the meantime is an error, never a silent move, since connections and URLs point at it; servers get
none of the caller's AIRFLOW_*, SPARK_* and PYSPARK_* settings, which are about another installation.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from tidegate.airflow.remote.api import AirflowApi
from tidegate.core.model.errors import PlatformError
from tidegate_local import airflow, broker, jars, sockets, spark_connect
from tidegate_local.process import Report, Server, State, one_at_a_time, run_to_end, silent
from tidegate_local.sockets import PORTS, check_free, choose_ports, read_ports, write_ports

PARTS = ("kafka", "spark", "airflow")
LISTENS = {"kafka": broker.NAME, "kafka-controller": broker.NAME, "spark": spark_connect.NAME, "airflow": airflow.API_SERVER}
"""The server that listens on each port."""
LOCK_TIMEOUT_S = 600.0
WARM_UP, WARM_UP_S = "warm-up", 120.0
_NOT_INHERITED = ("AIRFLOW_", "SPARK_", "PYSPARK_", "PYICEBERG_")


@dataclass(frozen=True)
class ServerStatus:
    """One server, as `tidegate status` shows it. `pid` is None when it does not live, `url` where there is nothing to open."""

    name: str
    state: State
    pid: int | None
    _: KW_ONLY
    port: int | None
    log: Path
    url: str | None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**vars(self), "log": str(self.log)}


class Platform:
    """Kafka, Spark Connect and Airflow of one state folder.

        platform = Platform(Path(".tidegate"), Path("."))
        platform.up()
        platform.bootstrap_servers        # 127.0.0.1:23456
        platform.down()

    `ports` fixes some of `PORTS`; the others are chosen when they are first needed and kept. `project_dir` has the folders
    `dags/` and `plugins/`. `extra_env` is laid over the environment of every server: Airflow's settings, for example, as
    `AIRFLOW__CORE__PARALLELISM`.
    """

    def __init__(
        self,
        state_dir: Path,
        project_dir: Path,
        *,
        ports: Mapping[str, int] | None = None,
        extra_env: Mapping[str, str] | None = None,
    ) -> None:
        unknown = set(ports or {}) - set(PORTS)
        if unknown:
            raise PlatformError(f"There is no port {min(unknown)!r}", fix=f"The ports are {', '.join(PORTS)}")
        self.state_dir = state_dir.absolute()
        self.project_dir = project_dir.absolute()
        self._configured_ports = dict(ports or {})
        self._extra_env = dict(extra_env or {})

    # ---- what a user does

    def up(self, parts: Sequence[str] = PARTS, *, report: Report = silent, warm: bool = False) -> None:
        """Start what does not run of `parts`, and wait until it is healthy. A second call is harmless.

        With `warm`, a Spark server that is started does some loads meanwhile (`tidegate_local.warm_up`). Where they fail, that
        is reported, and everything is up all the same.

        Raises:
            PlatformError: the first thing that went wrong; what did start stays up.
        """
        unknown = set(parts) - set(PARTS)
        if unknown:
            raise PlatformError(f"There is no part {min(unknown)!r}", fix=f"The parts are {', '.join(PARTS)}")
        report = one_at_a_time(report)
        jars.pyspark_home()  # what is missing is found before anything is written
        with self._lock():
            ready = jars.ensure_jars(report)
            ports = self._settle_ports(parts)
            spark_connect.prepare(self._spark_dir, self._lake, ready.spark)
            spark_connect.make_token(self._spark_dir)
            ways = {
                "kafka": lambda: self._up_kafka(ready, ports, report),
                "spark": lambda: self._up_one(self._spark(ports), report),
                "airflow": lambda: self._up_airflow(ports, report),
            }
            warm = warm and {"kafka", "spark"} <= set(parts) and self._spark(ports).pid is None
            # the JVMs start while Airflow migrates its database: each of them mostly waits for a disk or one core
            with ThreadPoolExecutor(len(PARTS) + 1) as pool:
                started = {part: pool.submit(way) for part, way in ways.items() if part in parts}
                if warm:
                    pool.submit(self._warm_up, [started["kafka"], started["spark"]], report)
            for part in started.values():
                part.result()

    def down(self, *, report: Report = silent) -> None:
        """Stop every server and all that they started; their data stays. Harmless when nothing runs."""
        report = one_at_a_time(report)
        if not self.state_dir.is_dir():
            return
        with self._lock():
            servers = self.servers()
            with ThreadPoolExecutor(max(1, len(servers))) as pool:
                for stopped in [pool.submit(_stop, server, report) for server in servers]:
                    stopped.result()

    def status(self) -> list[ServerStatus]:
        """Every server, also those that were never started."""
        ports = self._saved_ports()
        if ports is None:
            names = (broker.NAME, spark_connect.NAME, *airflow.NAMES)
            return [ServerStatus(name, "stopped", None, port=None, log=self._log(name), url=None) for name in names]
        servers = self.servers()
        with ThreadPoolExecutor(len(servers)) as pool:
            return list(pool.map(lambda server: self._status_of(server, ports), servers))

    @property
    def is_up(self) -> bool:
        """Whether Airflow answers, without starting or waiting for anything."""
        ports = self._saved_ports()
        return ports is not None and sockets.answers(ports["airflow"])

    def servers(self, parts: Sequence[str] = PARTS) -> list[Server]:
        """Every server of these parts as a process with a pid file; none before the first `up`."""
        ports = self._saved_ports()
        if ports is None:
            return []
        by_part = {"kafka": [self._kafka(ports)], "spark": [self._spark(ports)], "airflow": self._airflow(ports).servers()}
        return [server for part in PARTS if part in parts for server in by_part[part]]

    def sync_pools(self, pools: Mapping[str, int]) -> None:
        """Make sure that Airflow has the pools (name to slots). Raises `PlatformError` when Airflow does not run."""
        with self.api() as api:
            for name, slots in pools.items():
                api.sync_pool(name, slots)

    # ---- what others need of it

    @property
    def bootstrap_servers(self) -> str:
        """Kafka's `host:port`. This and the following raise `PlatformError` before the first `up`."""
        return f"{sockets.LOOPBACK}:{self._ports()['kafka']}"

    @property
    def spark_remote(self) -> str:
        """The Spark Connect URL with its token, `sc://localhost:port/;token=…`."""
        return spark_connect.remote(self._ports()["spark"], spark_connect.read_token(self._spark_dir))

    @property
    def spark_connection(self) -> dict[str, object]:
        """The Spark Connect server as an Airflow connection: `conn_type`, `host`, `port`, and its token as `password`."""
        return spark_connect.connection(self._ports()["spark"], spark_connect.read_token(self._spark_dir))

    @property
    def airflow_url(self) -> str:
        """Where Airflow's UI and API are."""
        return self._airflow(self._ports()).url

    @property
    def airflow_login(self) -> tuple[str, str]:
        """User and password of Airflow."""
        return self._airflow(self._ports()).login

    @property
    def catalog_properties(self) -> dict[str, str]:
        """The Iceberg catalog for PyIceberg: `load_catalog("lake", **platform.catalog_properties)`."""
        return spark_connect.catalog_properties(self._lake)

    def api(self, tell: Callable[[str], object] = str) -> AirflowApi:
        """A client of Airflow's REST API, to be closed or used in a `with`. `tell` is called with what takes long."""
        return self._airflow(self._ports()).api(tell)

    def use_catalog(self) -> None:
        """Let PyIceberg find the platform's catalog in this process."""
        os.environ.update({name: value for name, value in self.environment().items() if name.startswith("PYICEBERG_")})

    def environment(self) -> dict[str, str]:
        """The variables by which a child process finds this platform; to be laid over the environment it gets."""
        java = jars.find_java().resolve()
        variables = {
            "TIDEGATE_STATE_DIR": str(self.state_dir),
            "AIRFLOW_HOME": str(self.state_dir / "airflow"),
            "JAVA_HOME": str(java.parents[1]),
            "SPARK_HOME": str(jars.pyspark_home()),
            "SPARK_LOCAL_IP": sockets.LOOPBACK,
            "SPARK_CONF_DIR": str(self._spark_dir / "conf"),
            "PYSPARK_PYTHON": sys.executable,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
            "PYTHONUNBUFFERED": "1",
            "NO_PROXY": self._no_proxy(),
            # macOS: LocalExecutor forks, and Apple's libraries end forked children otherwise
            "OBJC_DISABLE_INITIALIZE_FORK_SAFETY": "YES",
        }
        variables["no_proxy"] = variables["NO_PROXY"]
        catalog = spark_connect.CATALOG.upper()
        for name, value in self.catalog_properties.items():
            variables[f"PYICEBERG_CATALOG__{catalog}__{name.upper()}"] = value
        return variables

    @staticmethod
    def _no_proxy() -> str:
        # a proxy must never be asked for the loopback
        inherited = os.environ.get("NO_PROXY") or os.environ.get("no_proxy")
        return ",".join(filter(None, [inherited, sockets.LOOPBACK, spark_connect.HOST]))

    def airflow_command(self, arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """A call of Airflow's own command line: program with arguments, and the environment of the platform's Airflow."""
        return self._airflow(self._ports()).command(arguments), self._child_environment()

    # ---- starting

    def _up_kafka(self, ready: jars.Jars, ports: Mapping[str, int], report: Report) -> None:
        broker.prepare(
            self._kafka_dir, ports["kafka"], ports["kafka-controller"], jars.find_java(), ready.kafka, self._child_environment()
        )
        self._up_one(self._kafka(ports), report)

    def _up_airflow(self, ports: Mapping[str, int], report: Report) -> None:
        server = self._airflow(ports)
        with _reported("airflow-database", "preparing", "ready", report):
            server.prepare()
        components = server.servers()
        spawned = [component.spawn() for component in components]
        for component, is_new in zip(components, spawned, strict=True):
            with _reported(component.name, "starting", "running", report):
                component.await_healthy(spawned=is_new)
        server.sync_connections(ports["kafka"], self.spark_connection)

    def _warm_up(self, needed: Sequence[Future[None]], report: Report) -> None:
        if any(part.exception() for part in needed):
            return
        report(WARM_UP, "loading")
        # -P: a module of the folder in which the command was called must not hide one of the library's
        command = [sys.executable, "-P", "-m", "tidegate_local.warm_up", str(self.state_dir), str(self.project_dir)]
        log = self._log(WARM_UP)
        why = run_to_end(command, env=self._child_environment(), log=log, timeout_s=WARM_UP_S)
        report(WARM_UP, "ready" if why is None else f"failed, and the first runs will be slow: {why} (see {log})")

    def _up_one(self, server: Server, report: Report) -> None:
        with _reported(server.name, "starting", "running", report):
            server.start()

    def _status_of(self, server: Server, ports: Mapping[str, int]) -> ServerStatus:
        port = {broker.NAME: ports["kafka"], spark_connect.NAME: ports["spark"], airflow.API_SERVER: ports["airflow"]}
        url = {
            spark_connect.NAME: f"sc://{spark_connect.HOST}:{ports['spark']}",
            airflow.API_SERVER: f"http://{sockets.LOOPBACK}:{ports['airflow']}",
        }
        return ServerStatus(
            server.name, server.state, server.pid, port=port.get(server.name), log=server.log, url=url.get(server.name)
        )

    # ---- the parts

    @property
    def _kafka_dir(self) -> Path:
        return self.state_dir / "kafka"

    @property
    def _spark_dir(self) -> Path:
        return self.state_dir / "spark"

    @property
    def _lake(self) -> Path:
        return self.state_dir / "lake"

    def _log(self, name: str) -> Path:
        return self.state_dir / "logs" / f"{name}.log"

    def _pid_file(self, name: str) -> Path:
        return self.state_dir / "run" / f"{name}.pid"

    def _child_environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
        return inherited | self.environment() | self._extra_env

    def _kafka(self, ports: Mapping[str, int]) -> Server:
        return broker.broker(
            folder=self._kafka_dir,
            port=ports["kafka"],
            java=jars.find_java(),
            jars=jars.locate_jars().kafka,
            env=self._child_environment(),
            log=self._log(broker.NAME),
            pid_file=self._pid_file(broker.NAME),
        )

    def _spark(self, ports: Mapping[str, int]) -> Server:
        return spark_connect.spark_connect(
            folder=self._spark_dir,
            port=ports["spark"],
            spark_home=jars.pyspark_home(),
            env=self._child_environment(),
            log=self._log(spark_connect.NAME),
            pid_file=self._pid_file(spark_connect.NAME),
            token=spark_connect.read_token(self._spark_dir),
        )

    def _airflow(self, ports: Mapping[str, int]) -> airflow.Airflow:
        return airflow.Airflow(
            home=self.state_dir / "airflow",
            project=self.project_dir,
            port=ports["airflow"],
            env=self._child_environment(),
            logs=self.state_dir / "logs",
            pid_files=self.state_dir / "run",
        )

    # ---- ports and the lock

    def _ports(self) -> dict[str, int]:
        ports = self._saved_ports()
        if ports is None:
            raise PlatformError(
                f"No platform was started for the project {self.project_dir}",
                fix="Run `tidegate up` in it, or name an Airflow of your own with TIDEGATE_AIRFLOW_URL",
            )
        return ports

    def _saved_ports(self) -> dict[str, int] | None:
        return read_ports(self.state_dir / "platform.json")

    def _settle_ports(self, parts: Sequence[str]) -> dict[str, int]:
        """The ports of this `up`, saved: what runs keeps its port, and every other port of `parts` is free."""
        live = {server.name for server in self.servers() if server.pid is not None}
        running = {port for port, server in LISTENS.items() if server in live}
        ports = choose_ports(self._saved_ports(), self._configured_ports, running)
        # what a crashed server started may outlive it and hold its port
        for server in self.servers(parts):
            if server.state == "crashed":
                server.stop()
        # the first part of a port's name is the part of the platform that it belongs to
        check_free({name: port for name, port in ports.items() if name.split("-")[0] in parts and name not in running})
        write_ports(self.state_dir / "platform.json", ports)
        return ports

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        self.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            # the system frees it when its holder dies, so a crash never leaves it behind
            held = FileLock(self.state_dir / "lock").acquire(LOCK_TIMEOUT_S, poll_interval=0.2)
        except Timeout as error:
            raise PlatformError(
                f"Another `tidegate up` or `tidegate down` of {self.state_dir} has not ended for {LOCK_TIMEOUT_S:.0f} s",
                fix="Wait for it, or end it, and try again",
            ) from error
        with held:
            yield


@contextlib.contextmanager
def _reported(phase: str, doing: str, done: str, report: Report) -> Iterator[None]:
    report(phase, doing)
    try:
        yield
    except BaseException:
        report(phase, "failed")
        raise
    report(phase, done)


def _stop(server: Server, report: Report) -> None:
    if server.state == "stopped":
        return
    with _reported(server.name, "stopping", "stopped", report):
        server.stop()

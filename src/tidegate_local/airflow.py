"""Airflow as four processes of ours: API server, scheduler (LocalExecutor), DAG processor and triggerer, on SQLite.

`airflow standalone` would do nearly the same in one process tree that nobody can look into; four servers have four
states, four logs, and come back one at a time. No task of Tidegate defers; the triggerer is for pipelines that are scheduled by
lag, and always runs, since a pipeline's file may change while the platform is up.

Rules: `airflow.cfg` holds only what differs from Airflow's defaults; its secrets are made once, kept with mode 0600, and
survive a new port. What Airflow holds in its database (connections, pools) is set through its REST API, never by SQL.
"""

from __future__ import annotations

import base64
import configparser
import importlib.metadata
import io
import json
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from pathlib import Path

from tidegate.airflow.remote.api import AirflowApi
from tidegate.beside import valid_beside
from tidegate.core.model.errors import PlatformError
from tidegate.pipelines import pipelines_of
from tidegate_local import sockets
from tidegate_local.process import Server, run_to_end, write_private

API_SERVER = "airflow-api-server"
SCHEDULER = "airflow-scheduler"
DAG_PROCESSOR = "airflow-dag-processor"
TRIGGERER = "airflow-triggerer"
NAMES = (API_SERVER, SCHEDULER, DAG_PROCESSOR, TRIGGERER)

USER = "admin"
SHORT_TASKS = 6
"""Tasks at the same time that run for seconds or minutes, such as loads."""
MIGRATE_TIMEOUT_S = 300.0
DATABASE_TIMEOUT_S = 60
"""How long a process waits for another to end its write to SQLite. The API server waits as long as SQLite's driver does by
default, 5 s: it waits in its event loop, where the request that holds the lock has to end."""
CONNECTION_MARK = "Kept by `tidegate up`; change this text to keep your own values"

_LOCAL_SETTINGS = '''\
"""Written by `tidegate up`: Airflow imports this file in every process that it starts."""

__all__ = []

try:
    from tidegate.airflow.preload import preload
except ImportError:
    pass
else:
    preload()
'''


@dataclass(frozen=True)
class Secrets:
    """What must stay the same for as long as the database lives."""

    fernet_key: str
    jwt_secret: str
    api_secret_key: str
    _: KW_ONLY
    password: str

    @staticmethod
    def make() -> Secrets:
        """New random ones."""
        fernet = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
        return Secrets(fernet, secrets.token_urlsafe(32), secrets.token_urlsafe(32), password=secrets.token_urlsafe(12))

    @staticmethod
    def load(home: Path) -> Secrets | None:
        """The saved ones; None before the first start.

        Raises:
            PlatformError: the file is damaged.
        """
        path = home / "secrets.json"
        try:
            return Secrets(**json.loads(path.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise PlatformError(
                f"{path} is not what `tidegate up` wrote",
                fix="Restore it, or remove the folder beside it to start anew",
                path=path,
            ) from error

    def save(self, home: Path) -> None:
        """Keep them, readable by the user only."""
        write_private(home / "secrets.json", json.dumps(vars(self)))


@dataclass(frozen=True, kw_only=True)
class Airflow:
    """One Airflow: its home, where it finds DAGs, its port, and the environment of its processes."""

    home: Path
    project: Path
    port: int
    env: Mapping[str, str]
    logs: Path
    pid_files: Path

    def command(self, arguments: Sequence[str]) -> list[str]:
        """The program and arguments of a call of Airflow's own command line.

        Raises:
            PlatformError: Airflow was never started in this project.
        """
        if not (self.home / "airflow.cfg").is_file():
            raise PlatformError("Airflow was never started in this project", fix="Run `tidegate up`")
        return [sys.executable, "-m", "airflow", *arguments]

    @property
    def url(self) -> str:
        """Where the UI and the API are."""
        return f"http://{sockets.LOOPBACK}:{self.port}"

    def _receiving(self) -> int:
        return sum(stated.slots for stated in valid_beside(pipelines_of(self.project)))

    def prepare(self) -> None:
        """Write its files, and make or migrate its database, unless that is done.

        Raises:
            PlatformError: the migration failed.
        """
        if "?" in str(self.home):
            raise PlatformError(
                f"{self.home} has a question mark, after which the URL of a SQLite database has its options",
                fix="Rename the folder, or move the project to another",
            )
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.project / "dags").mkdir(exist_ok=True)  # in an empty folder, too: `init` writes where this Airflow looks
        keys = Secrets.load(self.home)
        if keys is None:
            keys = Secrets.make()
            keys.save(self.home)
        write_private(
            self.home / "airflow.cfg", render_config(self.home, self.project, self.port, keys, receiving=self._receiving())
        )
        write_private(self.home / "passwords.json", json.dumps({USER: keys.password}) + "\n")
        (self.home / "config").mkdir(exist_ok=True)
        (self.home / "config" / "airflow_local_settings.py").write_text(_LOCAL_SETTINGS)
        self._migrate()

    def servers(self) -> tuple[Server, ...]:
        """API server, scheduler, DAG processor and triggerer, in the order in which to wait for them."""
        short_wait = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": _database(self.home)}
        return (
            self._server(API_SERVER, ["api-server"], section=None, env=short_wait),
            # the API server reads the log files itself: the scheduler's own log server would listen on every interface
            self._server(SCHEDULER, ["scheduler", "--skip-serve-logs"], section="scheduler"),
            self._server(DAG_PROCESSOR, ["dag-processor"], section="dag_processor"),
            self._server(TRIGGERER, ["triggerer", "--skip-serve-logs"], section="triggerer"),
        )

    def api(self, tell: Callable[[str], object] = str) -> AirflowApi:
        """A client with all rights. `tell` is called with what takes long.

        Raises:
            PlatformError: Airflow was never started in this project.
        """
        user, password = self.login
        return AirflowApi(self.url, user, password, tell=tell)

    @property
    def login(self) -> tuple[str, str]:
        """User and password of the UI and the API. Raises as `api` does."""
        keys = Secrets.load(self.home)
        if keys is None:
            raise PlatformError("Airflow was never started in this project", fix="Run `tidegate up`")
        return USER, keys.password

    def sync_connections(self, kafka_port: int, spark_connect: Mapping[str, object]) -> None:
        """Make the connections that pipelines use by default, and follow ports and tokens. Leaves changed ones alone."""
        connections: dict[str, dict[str, object]] = {
            "kafka_default": {
                "conn_type": "kafka",
                "extra": json.dumps({"bootstrap.servers": f"{sockets.LOOPBACK}:{kafka_port}"}),
            },
            "spark_connect_default": dict(spark_connect),
            "spark_default": {"conn_type": "spark", "host": "local[2]"},
        }
        with self.api() as api:
            for connection_id, connection in connections.items():
                api.sync_connection(connection_id, connection, mark=CONNECTION_MARK)

    def _server(self, name: str, command: list[str], *, section: str | None, env: Mapping[str, str] | None = None) -> Server:
        return Server(
            name=name,
            argv=[sys.executable, "-m", "airflow", *command],
            env={**self.env, **(env or {})},
            cwd=self.home,
            log=self.logs / f"{name}.log",
            pid_file=self.pid_files / f"{name}.pid",
            health=lambda started: self._is_healthy(section, started),
            start_timeout_s=300.0,  # several platforms may start on one machine at once
        )

    def _is_healthy(self, section: str | None, started: float) -> bool:
        """Ask the API server for itself (None) or for what it knows of another component's heartbeats."""
        # who answers nothing is no reason to restart the others
        cannot_tell = section is not None
        if not sockets.answers(self.port):
            return cannot_tell
        try:
            with AirflowApi(self.url, "", "", timeout_s=5.0) as api:
                health = api.health()
                if section is None:  # asked for here, so that it is not the first task that waits until it is built
                    return bool(health["metadatabase"]["status"] == "healthy") and api.task_api_answers()
        except PlatformError:
            return cannot_tell
        component = health.get(section) or {}
        return component.get("status") == "healthy" and is_since(component.get(f"latest_{section}_heartbeat"), started)

    def _migrate(self) -> None:
        version = importlib.metadata.version("apache-airflow-core")
        done = self.home / "airflow.db.version"
        database = self.home / "airflow.db"
        if database.is_file() and done.is_file() and done.read_text() == version:
            return
        if not done.is_file():
            # a first migration that was interrupted leaves half a schema, and nothing worth keeping
            for path in self.home.glob("airflow.db*"):
                path.unlink()
        command = [sys.executable, "-m", "airflow", "db", "migrate"]
        log = self.logs / "airflow-db-migrate.log"
        if why := run_to_end(command, env=self.env, cwd=self.home, log=log, timeout_s=MIGRATE_TIMEOUT_S):
            raise PlatformError(
                f"Airflow's database could not be migrated: {why} (see {log})",
                fix="Correct what the log names, then run `tidegate up` again",
                log=log,
            )
        done.write_text(version)


def render_config(home: Path, project: Path, port: int, keys: Secrets, *, receiving: int = 0) -> str:
    """`airflow.cfg`: what differs from Airflow's defaults, and nothing else.

    Args:
        home: of Airflow.
        project: its DAGs and plugins.
        port: of the API server.
        keys: what it signs and encrypts with.
        receiving: tasks that run for the lease of a receiver; they take none of the slots of tasks that run for seconds.
    """
    url = f"http://{sockets.LOOPBACK}:{port}"
    sections: dict[str, dict[str, object]] = {
        "core": {
            "dags_folder": project / "dags",
            "plugins_folder": project / "plugins",
            "load_examples": False,
            "executor": "LocalExecutor",
            "parallelism": SHORT_TASKS + receiving,
            "fernet_key": keys.fernet_key,
            "auth_manager": "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager",
            "simple_auth_manager_users": f"{USER}:admin",
            "simple_auth_manager_passwords_file": home / "passwords.json",
            "execution_api_server_url": f"{url}/execution/",
            # the default asks the DNS for the machine's full name, which may take its time
            "hostname_callable": "socket.gethostname",
        },
        "database": {"sql_alchemy_conn": f"{_database(home)}?timeout={DATABASE_TIMEOUT_S}"},
        "logging": {"base_log_folder": home / "logs"},
        "api": {
            "host": sockets.LOOPBACK,
            "port": port,
            "base_url": url,
            "workers": 1,
            "secret_key": keys.api_secret_key,
            # `tidegate check` looks whether receivers leave room for pipelines
            "expose_config": "non-sensitive-only",
        },
        "api_auth": {"jwt_secret": keys.jwt_secret},
        "scheduler": {"scheduler_idle_sleep_time": 0.5},
        # a new file is found sooner than after Airflow's own five minutes; changed ones are read every 30 s, as by default
        "dag_processor": {"refresh_interval": 10, "print_stats_interval": 0},
    }
    config = configparser.ConfigParser(interpolation=None)
    for section, options in sections.items():
        # Airflow interpolates what it reads
        config[section] = {name: str(value).replace("%", "%%") for name, value in options.items()}
    text = io.StringIO()
    config.write(text)
    return f"# Written by each `tidegate up`: changes are overwritten.\n\n{text.getvalue()}"


def _database(home: Path) -> str:
    return f"sqlite:///{home / 'airflow.db'}"


def is_since(heartbeat: str | None, started: float) -> bool:
    """Whether the heartbeat (ISO 8601) is of the process that started then (seconds since the epoch), not of one before."""
    return heartbeat is not None and datetime.fromisoformat(heartbeat).timestamp() >= started

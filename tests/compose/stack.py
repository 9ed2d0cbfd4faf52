"""The services of docker-compose.yml, of a copy of this repository, under a project name and ports of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.projects import REPO
from tidegate import __version__
from tidegate.airflow.remote.api import AirflowApi
from tidegate.waiting import wait_until
from tidegate_local.sockets import choose_port

PORTS = ("AIRFLOW_PORT", "KAFKA_PORT", "SPARK_CONNECT_PORT", "SPARK_MASTER_UI_PORT", "SPARK_DRIVER_UI_PORT")
SUBMITTED = {
    "source": {"topics": ["flights"]},
    "transform": "transforms.flights:flights",
    "sink": {"table": "lake.demo.submitted"},
    "spark": {"connection": "spark_default"},
}
"""A pipeline beside `flights`, whose loads go by spark-submit."""
PRODUCE = """
import sys
from tidegate_local.flights import create_topic, produce, read_flights
kafka = {"bootstrap.servers": "kafka:19092"}
create_topic(kafka)
produce(kafka, read_flights(int(sys.argv[1])))
"""
STARTED_S = 600


@dataclass
class Stack:
    """What a team has, and does by `docker compose` and Airflow's API."""

    root: Path
    environment: dict[str, str]
    produced: int = 0
    untagged_before: set[str] = field(default_factory=set)

    @classmethod
    def made(cls, root: Path) -> Stack:
        """A copy of this repository and its pages, without what git ignores, with secrets and free ports; not started."""
        listing = ["git", "-C", str(REPO), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        files = subprocess.run(listing, check=True, capture_output=True).stdout
        paths = [name for name in files.decode().split("\0") if name and (REPO / name).exists()]
        paths += [str(path.relative_to(REPO)) for path in (REPO / "src" / "tidegate" / "ui" / "bundle").glob("*")]
        pack = ["tar", "-C", str(REPO), "-c", "--null", "--files-from", "-"]
        packed = subprocess.run(pack, input="\0".join(paths).encode(), check=True, capture_output=True).stdout
        subprocess.run(["tar", "-C", str(root), "-x"], input=packed, check=True)
        (root / "dags" / "pipelines" / "submitted.yaml").write_text(yaml.safe_dump(SUBMITTED))
        subprocess.run([sys.executable, "docker/new_env.py"], cwd=root, check=True, capture_output=True)
        name = f"tidegate-test-{os.getpid()}"
        compose = root / "docker-compose.yml"  # an image that the machine's own services use keeps its name
        compose.write_text(compose.read_text().replace("image: tidegate:", f"image: {name}:"))
        ports: dict[str, int] = {}
        for each in PORTS:
            ports[each] = choose_port(ports.values())
        return cls(root, {**os.environ, **{k: str(v) for k, v in ports.items()}, "COMPOSE_PROJECT_NAME": name})

    @property
    def name(self) -> str:
        """The project's name, which begins the names of all that it makes."""
        return self.environment["COMPOSE_PROJECT_NAME"]

    @property
    def image(self) -> str:
        """The image that is built."""
        return f"{self.name}:{__version__}"

    def docker(self, *arguments: str, check: bool = True) -> str:
        """What `docker` prints. Raises AssertionError: it failed."""
        command = ["docker", *arguments]
        done = subprocess.run(command, cwd=self.root, env=self.environment, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]} {done.stderr[-3000:]}"
        return done.stdout

    def run(self, service: str, *command: str) -> str:
        """What a command prints, in a container of a service."""
        return self.docker("compose", "exec", "-T", service, *command)

    def up(self, *arguments: str) -> None:
        """Start what does not run, and wait until all is healthy."""
        self.docker("compose", "up", "--detach", "--wait", "--wait-timeout", str(STARTED_S), *arguments)

    def containers(self, *services: str) -> list[dict[str, Any]]:
        """The containers of these services (all, where none is named) as `docker inspect` shows them."""
        ids = self.docker("compose", "ps", "--quiet", *services).split()
        return list(json.loads(self.docker("inspect", *ids)))

    def untagged(self) -> set[str]:
        """The images of this machine that have no name."""
        return {*self.docker("images", "--quiet", "--filter", "dangling=true").split()}

    def secrets(self) -> dict[str, str]:
        """Those of `.env`."""
        lines = [line.partition("=") for line in (self.root / ".env").read_text().splitlines()]
        return {name: value for name, _, value in lines if value and not name.startswith("#")}

    def api(self) -> AirflowApi:
        """Airflow, from this machine."""
        url = f"http://localhost:{self.environment['AIRFLOW_PORT']}"
        return AirflowApi(url, "admin", self.secrets()["AIRFLOW_ADMIN_PASSWORD"])

    def produce(self, count: int) -> None:
        """Append this many records to the topic `flights`, from where no end of PostgreSQL is felt."""
        self.run("spark-worker", "python", "-c", PRODUCE, str(count))
        self.produced += count

    def begin(self, dag_id: str) -> str:
        """Trigger a run; its id."""
        with self.api() as api:
            api.unpause(dag_id)
            return api.trigger(dag_id)

    def wait_for_load(self, dag_id: str, run_id: str) -> None:
        """Wait until the load of a run has begun."""
        with self.api() as api:

            def has_begun() -> bool:
                tasks = {task["task_id"]: task["state"] for task in api.task_instances(dag_id, run_id)}
                return tasks.get("load") in ("running", "success")

            assert wait_until(has_begun, STARTED_S, poll_s=0.5)

    def end(self, dag_id: str, run_id: str, *, timeout_s: float = 900) -> None:
        """Wait for the success of a run."""
        with self.api() as api:
            state = api.wait_run(dag_id, run_id, timeout_s=timeout_s)["state"]
            assert state == "success", api.why_failed(dag_id, run_id)

    def load(self, *dags: str) -> None:
        """Run these DAGs at the same time."""
        for dag_id, run_id in [(dag_id, self.begin(dag_id)) for dag_id in dags]:
            self.end(dag_id, run_id)

    def kill(self, service: str) -> None:
        """End all processes of the one container of a service by SIGKILL, and wait until it is healthy again."""
        (before,) = self.containers(service)
        self.docker("compose", "exec", "-T", service, "sh", "-c", "kill -9 -1", check=False)

        def is_back() -> bool:
            (now,) = self.containers(service)
            healthy = now["State"].get("Health", {}).get("Status") == "healthy"
            return now["RestartCount"] > before["RestartCount"] and bool(healthy)

        assert wait_until(is_back, STARTED_S, poll_s=2.0), f"{service} does not come back"

    def judge(self, pipelines: Sequence[str]) -> None:
        """All that was produced is in the tables once, as clients that load nothing read log and table."""
        for pipeline in pipelines:
            verified = json.loads(self.run("airflow-scheduler", "tidegate", "ledger", "verify", pipeline, "--json"))
            assert verified["rows"] == verified["records"] == self.produced, verified

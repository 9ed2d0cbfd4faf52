"""The stage with a receiver: an HTTP receiver that lands posts in a topic, and a pipeline that loads the topic.

The pipeline leaves out repeats (`dedupe`), and starts a run when some records are unread, so that its loads take part in the
faults without taking all of the machine.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil

from tests.chaos.stage import Held, Stage
from tests.chaos.verdict import Log
from tests.projects import write_files
from tests.topics import make_topic
from tidegate.core.config.names import RECEIVE_DAG
from tidegate.core.model.errors import PlatformError
from tidegate.sinks.iceberg.catalog import load_table
from tidegate_local import airflow, sockets

RECEIVER, TOPIC = "chaos_posts", "chaos.posts"
DAG, TASK = f"{RECEIVER}{RECEIVE_DAG}", "receive"
PIPELINE, TABLE = "chaos_received", "lake.chaos.received"
PARTITIONS = 3
LEASE = {"lease": "90s", "overlap": "20s", "drain": "15s"}
"""Short, so that faults also strike while one lease takes over from another."""
WINDOW = 20_000
"""Offsets; minutes of the sender's records in a partition. It repeats within seconds of its last post."""


class ReceivingStage(Stage):
    """A platform that is up, with the receiver and its pipeline beside the others."""

    port: int

    def instances(self) -> list[Held]:
        """The processes in which Airflow runs the receiver now, each with the worker that supervises it; none while it is away.

        An instance whose worker was killed is none of them, though it may serve for a while.
        """
        found = []
        with contextlib.suppress(PlatformError, psutil.Error), self.api() as api:
            going = [run["dag_run_id"] for run in self.runs(DAG) if run["state"] == "running"]
            tasks = [task for run_id in going for task in api.task_instances(DAG, run_id)]
            ids = {task["id"] for task in tasks if task["task_id"] == TASK and task["state"] == "running"}
            for worker in self.process(airflow.SCHEDULER).children():
                if ids & set(" ".join(worker.cmdline()).split()):  # Airflow names a worker after its task
                    found += [Held(task, worker) for task in worker.children()]
        return found

    @property
    def is_listening(self) -> bool:
        """Whether anybody takes connections on the receiver's port."""
        return sockets.answers(self.port)

    def log(self) -> Log:
        """The topic."""
        return Log(self.platform.bootstrap_servers, TOPIC)

    def rows(self) -> list[int]:
        """The ids in the table."""
        self.platform.use_catalog()
        table = load_table(TABLE)
        return [] if table is None else table.scan(selected_fields=("id",)).to_arrow().column("id").to_pylist()

    def _write_files(self, project: Path) -> None:
        super()._write_files(project)
        self.port = sockets.choose_port()
        receiver = {"kind": "http", "topic": TOPIC, "listen": {"port": self.port}, **LEASE}
        write_files(project, "receivers", {RECEIVER: receiver})
        pipeline = {
            "source": {"topics": [TOPIC]},
            "transform": "transforms.chaos:checked",
            "sink": {"table": TABLE},
            "dedupe": {"window": WINDOW},
            "schedule": {"lag": 1000, "max_delay": "20s"},
            "retries": 2,
            "retry_delay_s": 1,
        }
        write_files(project, "pipelines", {PIPELINE: pipeline})

    def _configure(self, proxy_port: int) -> None:
        super()._configure(proxy_port)
        make_topic({"bootstrap.servers": self.platform.bootstrap_servers}, TOPIC, PARTITIONS)
        self.platform.sync_pools({f"tidegate_{TABLE.replace('.', '_')}": 4})

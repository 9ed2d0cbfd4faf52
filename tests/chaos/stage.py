"""The stage: one embedded platform with four pipelines of one topic, and the handles by which it can be hurt and watched.

`chaos` loads through Spark Connect, over a proxy that can be cut, into a table on a small disk of its own (where the system
allows to mount one). `chaos_batches` does so too, and aggregates (`identity: batch`); `chaos_aside` has a quarantine.
`chaos_submit` loads through spark-submit. One of them is awake at a time, since fail points do not tell pipelines apart; the
others are paused, maybe in the middle of a run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import psutil

from tests import failpoints
from tests.chaos.generator import Generator
from tests.chaos.proxy import Proxy
from tests.chaos.verdict import SUMMED, BatchOracle, Oracle
from tests.projects import copy_project, write_files
from tests.records import cursor_of
from tests.topics import make_topic
from tidegate.airflow.remote.api import AirflowApi
from tidegate.airflow.remote.schedule import ApiStore
from tidegate.core.model.errors import PlatformError, StateUnavailable, TidegateError
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.receipt import Receipt
from tidegate.failpoints import VARIABLE
from tidegate.sinks.iceberg.history import IcebergReader
from tidegate.waiting import wait_until
from tidegate_local import airflow, sockets
from tidegate_local.platform import Platform

TOPIC = "chaos"
PARTITIONS = 3
CONNECT, SUBMIT, BATCHES, ASIDE = "chaos", "chaos_submit", "chaos_batches", "chaos_aside"
TABLES = {
    CONNECT: "lake.chaos.connected",
    SUBMIT: "lake.chaos.submitted",
    BATCHES: "lake.chaos.batches",
    ASIDE: "lake.chaos.kept",
}
QUARANTINE = "lake.chaos.rejected"
CONNECTIONS = {name: "spark_default" if name == SUBMIT else "chaos_connect" for name in TABLES}
DISK_MB = 256
REACH_S = 120.0
RELOAD_S = 600.0
RUN_TIMEOUT_S = 180
"""Airflow's LocalExecutor loses a task whose worker dies between taking it and telling that it runs; only this ends the run."""

AIRFLOW_SETTINGS = {
    # a lost task or scheduler is noticed within seconds; the defaults are minutes
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "8",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "2",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "1",
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "15",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    # the pipelines' files do not change
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "60",
    # zombies keep their place until they wake
    "AIRFLOW__CORE__PARALLELISM": "8",
}

TRANSFORM = '''\
"""Rows that can be compared with their records: checksums of key and value."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidegate.formats.json import parse_json


def checked(records: DataFrame) -> DataFrame:
    """One row a record."""
    sums = records.withColumns({"key_crc": F.crc32(F.col("key")), "value_crc": F.crc32(F.col("value"))})
    return parse_json(sums.withColumnRenamed("timestamp", "_timestamp"), "id BIGINT, amount INT")
'''


@dataclass(frozen=True)
class Held:
    """A task's process and its parent, which supervises it; in a driver, Python and its JVM."""

    task: psutil.Process
    supervisor: psutil.Process

    def send(self, number: signal.Signals) -> None:
        """A signal to both, the supervisor first, so that it does not see its task go; to whichever lives."""
        for process in (self.supervisor, self.task):
            send(process, number)


def send(process: psutil.Process, number: signal.Signals) -> None:
    """A signal to a process, if it still lives."""
    with contextlib.suppress(psutil.Error):
        process.send_signal(number)


class Stage:
    """A platform that is up, while in the `with` of `Stage.built`."""

    proxy: Proxy
    """Between Spark Connect and the loads; there while everything runs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.points = root / "failpoints"
        project = root / "project"  # the state lies where the commands of an operator look for it
        self.platform = Platform(project / ".tidegate", project, extra_env={**AIRFLOW_SETTINGS, VARIABLE: str(self.points)})
        self.disk: Path | None = None
        self.awake = CONNECT

    @classmethod
    @contextmanager
    def built(cls, root: Path) -> Iterator[Self]:
        """Write the project, start everything, all DAGs paused; stop everything afterwards. The files stay."""
        stage = cls(root)
        stage._write_project()
        stage.points.mkdir()
        try:
            stage.disk = stage._mount_disk()
            stage.platform.up()
            port = sockets.choose_port(sockets_of(stage.platform))
            with Proxy(port, int(str(stage.platform.spark_connection["port"]))) as stage.proxy:
                stage._configure(port)
                yield stage
        finally:
            stage.platform.down()
            if stage.disk is not None:
                subprocess.run(["umount", "--lazy", stage.disk], check=True)

    # ---- what the schedule does

    @contextmanager
    def api(self) -> Iterator[AirflowApi]:
        """Airflow's REST API."""
        with self.platform.api() as api:
            yield api

    @contextmanager
    def ledger(self, pipeline: str) -> Iterator[Ledger]:
        """The saved state of a pipeline."""
        with self.api() as api:
            yield Ledger(ApiStore(api), pipeline)

    def cursor(self, pipeline: str = CONNECT) -> Cursor:
        """Where the pipeline is; an empty cursor before its first commit. Waits for Airflow to answer."""
        found: list[Cursor] = []

        def read() -> bool:
            with contextlib.suppress(StateUnavailable, PlatformError), self.ledger(pipeline) as ledger:
                found.append(ledger.cursor() if ledger.listing().has_cursor else cursor_of(pipeline))
            return bool(found)

        if not wait_until(read, REACH_S):
            raise PlatformError("Airflow does not tell the cursor", fix="See the log of the API server")
        return found[0]

    def runs(self, pipeline: str = CONNECT) -> list[dict[str, Any]]:
        """The last runs, the newest first; none while Airflow does not answer."""
        try:
            with self.api() as api:
                return list(api.get(f"/dags/{pipeline}/dagRuns", order_by="-run_after", limit=20)["dag_runs"])
        except PlatformError:
            return []

    def is_idle(self, pipeline: str) -> bool:
        """Whether no task of the pipeline runs, or is about to."""
        going = [run["dag_run_id"] for run in self.runs(pipeline) if run["state"] == "running"]
        with self.api() as api:
            states = {t["state"] for run_id in going for t in api.task_instances(pipeline, run_id)}
        return not states & {"queued", "running"}

    def why(self, pipeline: str, run_id: str) -> str:
        """What the failed tasks of a run said last."""
        logs = self.logs(pipeline, run_id)
        return "; ".join(f"{task}: {_last_error(log)}" for task, log in logs.items()) or "no task failed, or Airflow is away"

    def logs(self, pipeline: str, run_id: str) -> dict[str, str]:
        """The logs of the failed tasks of a run; none while Airflow does not answer."""
        with contextlib.suppress(PlatformError), self.api() as api:
            failed = [t for t in api.task_instances(pipeline, run_id) if t["state"] == "failed"]
            return {t["task_id"]: api.task_log(pipeline, run_id, t["task_id"], t["try_number"]) for t in failed}
        return {}

    def unpause(self, pipeline: str) -> None:
        """Let the pipeline run."""
        with self.api() as api:
            api.wait_dag(pipeline)
            api.unpause(pipeline)

    def pause(self, pipeline: str) -> None:
        """Let the pipeline end what it does, and no more."""
        with self.api() as api:
            api.patch(f"/dags/{pipeline}", {"is_paused": True})

    def generator(self, rate: int, seed: int) -> Generator:
        """A stream of `rate` records/s into the topic, to be used in a `with`."""
        return Generator(self.platform.bootstrap_servers, TOPIC, partitions=PARTITIONS, rate=rate, seed=seed)

    def oracle(self, pipeline: str = CONNECT) -> Oracle | BatchOracle:
        """Who judges the pipeline's table."""
        self.platform.use_catalog()
        if pipeline == BATCHES:
            return BatchOracle(
                self.platform.bootstrap_servers, TOPIC, TABLES[pipeline], pipeline, partial(self.ledger, pipeline)
            )
        quarantine = QUARANTINE if pipeline == ASIDE else None
        return Oracle(self.platform.bootstrap_servers, TOPIC, TABLES[pipeline], pipeline, quarantine)

    def receipts(self, pipeline: str) -> list[Receipt]:
        """The receipts of batches that the table's history still holds, oldest first."""
        self.platform.use_catalog()
        return [r for r in IcebergReader().receipts(TABLES[pipeline], pipeline) if r.load.replay is None]

    def reload(self, pipeline: str) -> None:
        """Let an operator bring back what the table has lost. Raises `PlatformError` when the command fails."""
        command = [str(Path(sys.executable).parent / "tidegate"), "ledger", "reload", pipeline, "--json"]
        environment = {**os.environ, **self.platform.environment()}
        done = subprocess.run(
            command, cwd=self.root / "project", env=environment, capture_output=True, text=True, timeout=RELOAD_S, check=False
        )
        if done.returncode:
            raise PlatformError(f"`tidegate ledger reload {pipeline}` failed: {done.stdout[-600:]} {done.stderr[-600:]}")

    # ---- what can be done to it

    def hold(self, point: str) -> Held:
        """The next process that reaches the fail point, stopped there.

        Raises:
            TidegateError: nobody got there in time.
        """
        failpoints.arm(self.points, point, "stop")
        if not wait_until(lambda: failpoints.reached(self.points, point) is not None, REACH_S, poll_s=0.02):
            failpoints.disarm(self.points)
            raise TidegateError(f"nothing reached {point} within {REACH_S:.0f} s", fix="See the runs in Airflow")
        pid, parent = failpoints.reached(self.points, point) or (0, 0)
        held = Held(psutil.Process(pid), psutil.Process(parent))
        wait_until(lambda: held.task.status() == psutil.STATUS_STOPPED, REACH_S, poll_s=0.01)
        return held

    def running_task(self) -> Held:
        """A task that runs now, or the next one. Raises as `hold` does."""
        found: list[Held] = []

        def is_there() -> bool:
            scheduler = self.process(airflow.SCHEDULER)
            with contextlib.suppress(psutil.Error):
                for worker in scheduler.children():
                    found.extend(Held(task, worker) for task in worker.children())
            return bool(found)

        if not wait_until(is_there, REACH_S, poll_s=0.02):
            raise TidegateError(f"no task ran within {REACH_S:.0f} s", fix="See the runs in Airflow")
        return found[0]

    def process(self, server: str) -> psutil.Process:
        """The main process of a server. Raises `PlatformError` when it does not live."""
        pid = next(s.pid for s in self.platform.servers() if s.name == server)
        if pid is None:
            raise PlatformError(f"{server} does not live", fix="See its log")
        return psutil.Process(pid)

    def up(self) -> list[str]:
        """Start what died, as a user would with `tidegate up`; the names of what was started. Harmless when nothing died."""
        dead = [server.name for server in self.platform.servers() if server.pid is None]
        if dead:
            self.platform.up()
        return dead

    @property
    def database(self) -> Path:
        """Airflow's metadata database."""
        return self.platform.state_dir / "airflow" / "airflow.db"

    # ---- building

    def _write_project(self) -> None:
        project = self.root / "project"
        copy_project(project)
        transforms = project / "spark_jobs" / "transforms"
        (transforms / "chaos.py").write_text(TRANSFORM)
        (transforms / "sums.py").write_text(SUMMED)
        pipelines = project / "dags" / "pipelines"
        for example in pipelines.glob("*.yaml"):
            example.unlink()
        self._write_files(project)

    def _write_files(self, project: Path) -> None:
        """What the DAGs are made of."""
        for name, connection in CONNECTIONS.items():
            pipeline = {
                "source": {"topics": [TOPIC]},
                "transform": "transforms.chaos:checked",
                "sink": {"table": TABLES[name]},
                "spark": {"connection": connection},
                "schedule": "@continuous",
                "retries": 2,
                "retry_delay_s": 1,
            }
            if name == BATCHES:
                pipeline |= {"identity": "batch", "transform": "transforms.sums:summed"}
            if name == ASIDE:
                pipeline["quarantine"] = {"table": QUARANTINE}
            if name != SUBMIT:  # which sleeps most of the time, in the middle of a run
                pipeline["timeout_s"] = RUN_TIMEOUT_S
            write_files(project, "pipelines", {name: pipeline})

    def _mount_disk(self) -> Path | None:
        """A small disk where the table's data files go; None where mounting is not permitted."""
        folder = self.platform.state_dir / "lake" / "warehouse" / "chaos" / "connected" / "data"
        folder.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(folder)]
        return folder if subprocess.run(command, capture_output=True, check=False).returncode == 0 else None

    def _configure(self, proxy_port: int) -> None:
        """What the platform has to have before the schedule runs."""
        make_topic({"bootstrap.servers": self.platform.bootstrap_servers}, TOPIC, PARTITIONS)
        self.platform.sync_pools({f"tidegate_{table.replace('.', '_')}": 4 for table in TABLES.values()})
        connection = {**self.platform.spark_connection, "port": proxy_port}
        with self.api() as api:
            api.sync_connection("chaos_connect", connection, mark="Over the proxy of the chaos harness")


def sockets_of(platform: Platform) -> list[int]:
    """The ports that the platform has."""
    return [status.port for status in platform.status() if status.port is not None]


def _last_error(log: str) -> str:
    told = [line for line in log.splitlines() if "exc_value" in line or "Error" in line or "signal" in line.lower()]
    return (told or log.splitlines() or ["no log"])[-1][:600]

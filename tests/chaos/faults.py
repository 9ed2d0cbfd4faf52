"""What is done to the platform, and undone.

A fault strikes while a task is held: stopped at the boundary of a phase, or simply running, at a random instant. It lets go of
what it held (unless it killed it) and ends when nothing of it is left but dead servers, which `tidegate up` starts again.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from stage import CONNECT, SUBMIT, Held, Stage, send

from tidegate.errors import TidegateError
from tidegate.failpoints import POINTS
from tidegate.local import airflow, broker, spark_connect
from tidegate.local.process import ProcessId, members, wait_until

RANDOM = "random"
EVERYWHERE = (*POINTS, RANDOM)
LOADING = ("before-write", "after-write", RANDOM)
SUCCESSOR_S = 120.0
GONE_S = 60.0

Strike = Callable[[Stage, Held, random.Random], None]


@dataclass(frozen=True)
class Fault:
    """One thing that happens: `phases` are where it makes sense, `pipeline` is whose task is held."""

    name: str
    what: str
    phases: tuple[str, ...]
    strike: Strike
    pipeline: str = CONNECT


def _kill(*processes: psutil.Process) -> None:
    """SIGKILL to all of them at once; ends when none lives: one that waits for its disk lives on for seconds."""
    for process in processes:
        send(process, signal.SIGKILL)
    if not wait_until(lambda: not any(_lives(process) for process in processes), GONE_S):
        raise TidegateError(f"a killed process still lives after {GONE_S:.0f} s")


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _kill_task(_stage: Stage, held: Held, _draw: random.Random) -> None:
    send(held.task, signal.SIGKILL)
    send(held.supervisor, signal.SIGCONT)


def _kill_supervised(_stage: Stage, held: Held, _draw: random.Random) -> None:
    held.send(signal.SIGKILL)


def _zombie(stage: Stage, held: Held, draw: random.Random) -> None:
    """Sleep until others have gone on without it, then wake."""
    held.send(signal.SIGSTOP)
    before = stage.cursor().seq
    ahead = draw.randint(1, 3)
    try:
        if not wait_until(lambda: stage.cursor().seq >= before + ahead, SUCCESSOR_S, poll_s=0.3):
            raise TidegateError(f"no successor of a stopped task moved the cursor within {SUCCESSOR_S:.0f} s")
    finally:
        # its supervisor's next heartbeat is refused, and ends it; what it asked before that is still passed on
        send(held.task, signal.SIGCONT)
        time.sleep(draw.choice((0.0, 0.5)))
        held.send(signal.SIGCONT)
    psutil.wait_procs([held.task], timeout=GONE_S)


def _kill_server(name: str) -> Strike:
    def strike(stage: Stage, held: Held, draw: random.Random) -> None:
        _kill(stage.process(name))
        held.send(signal.SIGCONT)
        time.sleep(draw.uniform(0, 3))

    return strike


def _kill_everything(stage: Stage, held: Held, draw: random.Random) -> None:
    del held
    doomed = []
    for server in stage.platform.servers():
        if server.pid is not None:
            doomed += members(ProcessId.of(server.pid))
    _kill(*doomed)
    time.sleep(draw.uniform(0, 2))


def _lock_database(stage: Stage, held: Held, draw: random.Random) -> None:
    database = sqlite3.connect(stage.database, timeout=60, isolation_level=None)
    try:
        database.execute("BEGIN EXCLUSIVE")
        held.send(signal.SIGCONT)
        time.sleep(draw.uniform(2, 12))
    finally:
        database.close()


def _fill_disk(stage: Stage, held: Held, draw: random.Random) -> None:
    with _full(stage.disk):
        held.send(signal.SIGCONT)
        time.sleep(draw.uniform(1, 6))


def _cut_connection(stage: Stage, held: Held, draw: random.Random) -> None:
    held.send(signal.SIGCONT)
    time.sleep(draw.uniform(0, 0.5))
    stage.proxy.cut()
    try:
        time.sleep(draw.uniform(0, 3))
    finally:
        stage.proxy.mend()


@contextmanager
def _full(disk: Path | None) -> Iterator[None]:
    if disk is None:
        raise TidegateError("there is no small disk to fill")
    filler = disk / "filler"
    try:
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(os.urandom(65_536)):
                pass
        yield
    finally:
        filler.unlink()


FAULTS = (
    Fault("task", "SIGKILL of the task's process", EVERYWHERE, _kill_task),
    Fault("supervisor", "SIGKILL of the task and of the Airflow worker that supervises it", EVERYWHERE, _kill_supervised),
    Fault("zombie", "SIGSTOP of both until Airflow gave them up and successors went on, then SIGCONT", EVERYWHERE, _zombie),
    Fault("scheduler", "SIGKILL of Airflow's scheduler", EVERYWHERE, _kill_server(airflow.SCHEDULER)),
    Fault("dag-processor", "SIGKILL of Airflow's DAG processor", (RANDOM,), _kill_server(airflow.DAG_PROCESSOR)),
    Fault("api-server", "SIGKILL of Airflow's API server", EVERYWHERE, _kill_server(airflow.API_SERVER)),
    Fault("spark", "SIGKILL of the Spark Connect server", LOADING, _kill_server(spark_connect.NAME)),
    Fault("driver", "SIGKILL of a spark-submit driver, Python and JVM", LOADING[:2], _kill_supervised, SUBMIT),
    Fault("broker", "SIGKILL of the Kafka broker", EVERYWHERE, _kill_server(broker.NAME)),
    Fault("everything", "SIGKILL of every process at once", EVERYWHERE, _kill_everything),
    Fault("database", "Airflow's metadata database locked for 2 to 12 s", EVERYWHERE, _lock_database),
    Fault("disk", "no space left where the table's data files go", ("before-write", RANDOM), _fill_disk),
    Fault("connection", "the connection between Airflow and Spark cut", LOADING, _cut_connection),
)
BY_NAME = {fault.name: fault for fault in FAULTS}

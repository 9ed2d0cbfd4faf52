"""What is done to the platform, and undone.

A fault strikes while a task is held: stopped at the boundary of a phase, or simply running, at a random instant. It lets go of
what it held (unless it killed it) and ends when nothing of it is left but dead servers, which `tidegate up` starts again, and
rows that a table has lost, which `tidegate ledger reload` brings back.
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
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.table import Table

from tests.chaos.stage import CONNECT, SUBMIT, TABLES, Held, Stage, send
from tidegate.core.model.errors import TidegateError
from tidegate.failpoints import POINTS
from tidegate.sinks.iceberg.catalog import load_table
from tidegate.spark.session import connect
from tidegate.waiting import wait_until
from tidegate_local import airflow, broker, spark_connect
from tidegate_local.process import ProcessId, members

RANDOM = "random"
EVERYWHERE = (*POINTS, RANDOM)
LOADING = ("before-write", "after-write", RANDOM)
AROUND = ("before-range", "before-write", "after-write", "before-cursor", RANDOM)
SUCCESSOR_S = 120.0
GONE_S = 60.0
TRIES = 5

Strike = Callable[[Stage, Held, random.Random], None]


@dataclass(frozen=True)
class Fault:
    """One thing that happens: `phases` are where it makes sense, `pipeline` is whose task is held (None: any by Spark Connect).

    `of_table` says that it strikes the table, `loses` that committed rows are gone afterwards: then the schedule has to refuse
    to go on, and one `tidegate ledger reload` has to be enough.
    """

    name: str
    what: str
    phases: tuple[str, ...]
    strike: Strike
    pipeline: str | None = None
    of_table: bool = False
    loses: bool = False


def kill(*processes: psutil.Process) -> None:
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
    before = stage.cursor(stage.awake).seq
    ahead = draw.randint(1, 3)
    try:
        if not wait_until(lambda: stage.cursor(stage.awake).seq >= before + ahead, ahead * SUCCESSOR_S, poll_s=0.3):
            raise TidegateError(f"{ahead} successors of a stopped task did not move the cursor within {SUCCESSOR_S:.0f} s each")
    finally:
        # its supervisor's next heartbeat is refused, and ends it; what it asked before that is still passed on
        send(held.task, signal.SIGCONT)
        time.sleep(draw.choice((0.0, 0.5)))
        held.send(signal.SIGCONT)
    psutil.wait_procs([held.task], timeout=GONE_S)


def _kill_server(name: str) -> Strike:
    def strike(stage: Stage, held: Held, draw: random.Random) -> None:
        kill(stage.process(name))
        held.send(signal.SIGCONT)
        time.sleep(draw.uniform(0, 3))

    return strike


def _kill_everything(stage: Stage, held: Held, draw: random.Random) -> None:
    del held
    doomed = []
    for server in stage.platform.servers():
        if server.pid is not None:
            doomed += members(ProcessId.of(server.pid))
    kill(*doomed)
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


def _to_table(change: Callable[[Stage, random.Random], None]) -> Strike:
    def strike(stage: Stage, held: Held, draw: random.Random) -> None:
        try:
            change(stage, draw)
        finally:
            held.send(signal.SIGCONT)

    return strike


def _drop(stage: Stage, draw: random.Random) -> None:
    del draw
    _sql(stage, f"DROP TABLE {TABLES[stage.awake]} PURGE")


def _create_again(stage: Stage, draw: random.Random) -> None:
    name = TABLES[stage.awake]
    table = _table(stage)
    _drop(stage, draw)
    with contextlib.suppress(TableAlreadyExistsError):  # a load that was under way was faster
        table.catalog.create_table(
            name.partition(".")[2], table.schema(), partition_spec=table.spec(), properties=table.properties
        )


def _roll_back(stage: Stage, draw: random.Random) -> None:
    """To one of the last commits before that of the last committed batch."""
    committed = stage.cursor(stage.awake).seq
    older = [r.snapshot for r in stage.receipts(stage.awake) if r.load.seq < committed]
    if not older:
        raise TidegateError("the table keeps no older commit to roll back to")
    target = draw.choice(older[-3:])
    _sql(stage, f"CALL lake.system.rollback_to_snapshot('{TABLES[stage.awake]}', {target})")


def _expire(stage: Stage, draw: random.Random) -> None:
    del draw
    _sql(
        stage,
        f"CALL lake.system.expire_snapshots(table => '{TABLES[stage.awake]}', older_than => TIMESTAMP '2100-01-01', "
        "retain_last => 1)",
    )


def _compact(stage: Stage, draw: random.Random) -> None:
    table = TABLES[stage.awake]
    _sql(stage, f"CALL lake.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))")
    _expire(stage, draw)


def _sql(stage: Stage, statement: str) -> None:
    """As somebody else would; who loses a race with a load's commit tries again."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - slow to import

    stage.platform.use_catalog()
    with connect(stage.platform.spark_remote, name="somebody") as spark:
        for left in reversed(range(TRIES)):
            try:
                spark.sql(statement).collect()
            except PySparkException as error:
                if not left:
                    raise TidegateError(f"{statement}: {str(error)[:300]}") from error
            else:
                return


def _table(stage: Stage) -> Table:
    stage.platform.use_catalog()
    table = load_table(TABLES[stage.awake])
    if table is None:
        raise TidegateError(f"there is no table {TABLES[stage.awake]}")
    return table


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
    Fault("disk", "no space left where the table's data files go", ("before-write", RANDOM), _fill_disk, CONNECT),
    Fault("connection", "the connection between Airflow and Spark cut", LOADING, _cut_connection),
    Fault("dropped", "the table dropped", AROUND, _to_table(_drop), of_table=True, loses=True),
    Fault("recreated", "the table dropped and made again, empty", AROUND, _to_table(_create_again), of_table=True, loses=True),
    Fault(
        "rolled-back", "the table rolled back by one to three batches", AROUND, _to_table(_roll_back), of_table=True, loses=True
    ),
    Fault("expired", "all snapshots but the newest expired", LOADING, _to_table(_expire), of_table=True),
    Fault(
        "compacted",
        "the table compacted, then all snapshots but the newest expired",
        LOADING,
        _to_table(_compact),
        of_table=True,
    ),
)
BY_NAME = {fault.name: fault for fault in FAULTS}

"""Health checks of the containers; exit code 0 when what is asked is well.

health.py http URL                   anything answers with 200
health.py job TYPE                   the job of Airflow that this container runs has had a heartbeat lately, since it started:
                                     SchedulerJob, DagProcessorJob or TriggererJob
health.py spark-master URL           the master leads, by its JSON: one that cannot read what it has saved answers, and does not
health.py spark-connect PORT MASTER  a gRPC server answers on the port of this container, and the Spark master, by the URL of
                                     its JSON, has its application
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from contextlib import closing
from urllib.request import ProxyHandler, build_opener

TIMEOUT_S = 5.0
HEARTBEAT = """
select 1 from job where hostname = %s and job_type = %s and state = 'running'
and latest_heartbeat > greatest(now() - interval '30 s', to_timestamp(%s))
"""
"""Airflow's own checks are its API, which knows whether any scheduler lives, and a command that takes seconds of CPU."""


def read(url: str) -> bytes:
    """What a URL of the network of the services says; no proxy is asked. Any status but 2xx raises."""
    with build_opener(ProxyHandler({})).open(url, timeout=TIMEOUT_S) as answer:
        return bytes(answer.read())


def http(url: str) -> bool:
    """Whether it answers."""
    read(url)
    return True


def job(kind: str) -> bool:
    """Whether the job of this container lives, by its heartbeats in Airflow's database."""
    import psutil  # noqa: PLC0415 - the other checks need nothing installed
    import psycopg2  # type: ignore[import-untyped] # noqa: PLC0415 - as above

    database = os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"].replace("+psycopg2", "")
    try:
        with closing(psycopg2.connect(database, connect_timeout=5)) as connection, connection.cursor() as cursor:
            cursor.execute(HEARTBEAT, (socket.gethostname(), kind, psutil.Process(1).create_time()))
            return cursor.fetchone() is not None
    except psycopg2.Error as error:
        raise OSError(str(error).strip()) from error


def spark_master(url: str) -> bool:
    """Whether workers and applications can register."""
    return bool(json.loads(read(url))["status"] == "ALIVE")


def spark_connect(port: str, master: str) -> bool:
    """Whether the Connect server answers, without a session, and can get executors."""
    from tidegate_local.spark_connect import is_healthy  # noqa: PLC0415 - as above

    applications = json.loads(read(master))["activeapps"]
    return is_healthy(int(port)) and any(each["name"] == "tidegate-connect" for each in applications)


CHECKS: dict[str, Callable[..., bool]] = {
    "http": http,
    "job": job,
    "spark-master": spark_master,
    "spark-connect": spark_connect,
}

if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    try:
        healthy = CHECKS[name](*arguments)
    except OSError as error:
        sys.exit(f"{name} {' '.join(arguments)}: {error}")
    sys.exit(0 if healthy else f"{name} {' '.join(arguments)}: not healthy")

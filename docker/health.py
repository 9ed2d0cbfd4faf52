"""Health checks of the containers; exit code 0 when what is asked is well.

health.py http URL                  anything answers with 200
health.py airflow URL COMPONENT     the API server at URL has had a heartbeat of the component lately; it knows
                                    metadatabase, scheduler, dag_processor and triggerer
health.py spark-connect PORT        a gRPC server answers on the port of this container
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from urllib.request import ProxyHandler, build_opener

TIMEOUT_S = 5.0


def read(url: str) -> bytes:
    """What a URL of the network of the services says; no proxy is asked. Any status but 2xx raises."""
    with build_opener(ProxyHandler({})).open(url, timeout=TIMEOUT_S) as answer:
        return bytes(answer.read())


def http(url: str) -> bool:
    """Whether it answers."""
    read(url)
    return True


def airflow(url: str, component: str) -> bool:
    """Whether a component of Airflow is healthy, by its last heartbeat."""
    health = json.loads(read(f"{url}/api/v2/monitor/health"))
    return bool(health[component]["status"] == "healthy")


def spark_connect(port: str) -> bool:
    """Whether the Connect server answers; no session is opened."""
    from tidegate_local.spark_connect import is_healthy  # noqa: PLC0415 - the other checks need nothing installed

    return is_healthy(int(port))


CHECKS: dict[str, Callable[..., bool]] = {"http": http, "airflow": airflow, "spark-connect": spark_connect}

if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    try:
        healthy = CHECKS[name](*arguments)
    except OSError as error:
        sys.exit(f"{name} {' '.join(arguments)}: {error}")
    sys.exit(0 if healthy else f"{name} {' '.join(arguments)}: not healthy")

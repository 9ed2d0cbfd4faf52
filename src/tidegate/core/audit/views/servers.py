"""Which of Airflow's servers do not run, and what stands still without each, by Airflow's own answer on its health."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STANDS_STILL = {
    "scheduler": "no run and no task starts",
    "dag_processor": "Airflow does not read changed or new files of pipelines",
    "triggerer": "pipelines that are scheduled by lag start no run, and deferred tasks wait",
}


def dead_servers(health: Mapping[str, Any]) -> list[str]:
    """A sentence on each server that does not run. One that never ran is not missed.

    Args:
        health: as Airflow's `/api/v2/monitor/health`.
    """
    said = []
    for name, effect in STANDS_STILL.items():
        about = health.get(name) or {}
        if about.get("status") == "unhealthy":
            last = about.get(f"latest_{name}_heartbeat")
            since = f" (last heartbeat {last})" if last else ""
            said.append(f"Airflow's {name.replace('_', ' ')} does not run{since}: {effect}. Start it, or see its log")
    return said

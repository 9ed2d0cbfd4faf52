"""What the machine of a measurement is, as its readers need it to judge the figures."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import psutil

from tidegate.local import jars

REPO = Path(__file__).parents[3]


def describe() -> dict[str, str]:
    """Cores, memory, versions, and the commit, where this is a checkout."""
    version = importlib.metadata.version
    return {
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "load at the start": f"{os.getloadavg()[0]:.1f}",
        "Python": platform.python_version(),
        "Java": _java(),
        "Spark": version("pyspark"),
        "Airflow": version("apache-airflow"),
        "Tidegate": _commit() or version("tidegate"),
    }


def _java() -> str:
    told = subprocess.run([str(jars.find_java()), "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    return str(jars.parse_java_version(told.stderr + told.stdout))


def _commit() -> str | None:
    """The commit that is checked out, marked where files differ from it."""
    if not (REPO / ".git").exists():
        return None
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"],  # noqa: S607
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or None

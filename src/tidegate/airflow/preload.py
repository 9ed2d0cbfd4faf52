"""Importing modules once, in the processes of Airflow that fork others: scheduler, DAG processor and triggerer.

Called by `airflow_local_settings.py`, which every Airflow process imports. A fresh task process spends about 1.8 s importing
the Spark Connect client; one that is forked by the scheduler (LocalExecutor) finds it imported. The DAG processor forks a
process each time that it reads a DAG file, which would spend 0.4 s importing what makes the DAGs. The triggerer forks the
process whose event loop would stand still while it imports a trigger. Nothing is connected here: forking with an open channel
is unsafe.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from contextlib import suppress

TASKS = (
    "airflow.sdk",
    "airflow.providers.apache.spark.operators.spark_submit",
    "airflow.providers.apache.spark.hooks.spark_connect",
    "confluent_kafka.admin",
    "pyiceberg.catalog.rest",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.pyarrow",
    "pyspark.sql.connect.session",
    "pyspark.sql.connect.dataframe",
    "pyspark.sql.connect.functions",
    "pyspark.sql.connect.observation",
    "tidegate.airflow.dags",
    "tidegate.spark.load",
    "tidegate.spark.session",
)
DAGS = ("tidegate.airflow.dags",)
TRIGGERS = ("tidegate.airflow.triggers", "tidegate.kafka.ends")
BY_COMMAND = {"scheduler": TASKS, "dag-processor": DAGS, "triggerer": TRIGGERS}


def preload(argv: Sequence[str] | None = None) -> tuple[str, ...]:
    """Import what the processes forked by this one need; returns the modules, none in other processes.

    A module that cannot be imported is left out: whoever needs it says what is wrong.
    """
    words = (sys.argv if argv is None else argv)[1:]
    modules = next((modules for command, modules in BY_COMMAND.items() if command in words), ())
    if modules in (TASKS, DAGS):
        from tidegate.beside import registered  # noqa: PLC0415 - other processes need none of it

        with suppress(Exception):
            found = [each for group in ("tidegate.config", "tidegate.dags") for each in registered(group).values()]
            modules += tuple(each.module for each in found)
    imported = []
    for name in modules:
        with suppress(Exception):
            importlib.import_module(name)
            imported.append(name)
    return tuple(imported)

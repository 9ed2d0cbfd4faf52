"""Importing the heavy clients once, in the scheduler, whose LocalExecutor workers and tasks are forked from it.

Called by `airflow_local_settings.py`, which every Airflow process imports. A fresh task process spends about 1.8 s importing
the Spark Connect client; a forked one finds it imported. Nothing is connected here: forking with an open channel is unsafe.
"""

from __future__ import annotations

import importlib
import sys

MODULES = (
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
    "tidegate.airflow.operators",
    "tidegate.airflow.replay_operators",
    "tidegate.spark.load",
    "tidegate.spark.session",
)


def preload_in_scheduler(argv: list[str] | None = None) -> bool:
    """Import the clients when this process is a scheduler; says whether it did. A module that is missing is left out."""
    words = sys.argv if argv is None else argv
    if "scheduler" not in words[1:]:
        return False
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    return True

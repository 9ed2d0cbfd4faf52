"""Registration of Tidegate's Airflow plugin; what it registers lives in the library."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from tidegate.airflow import notes


class TidegatePlugin(AirflowPlugin):
    """The listener that makes missing pools and writes the notes of DAG runs."""

    name = "tidegate"
    listeners = [notes]  # noqa: RUF012 - as Airflow declares it

"""Tidegate's Airflow plugin, which Airflow finds by the package's entry point `airflow.plugins`.

Airflow refuses a second plugin of the same name: no file of a plugins folder may import this class.
"""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from tidegate.airflow import notes


class TidegatePlugin(AirflowPlugin):
    """The listener that makes missing pools and writes the notes of DAG runs."""

    name = "tidegate"
    listeners = [notes]  # noqa: RUF012 - as Airflow declares it

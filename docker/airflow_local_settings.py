"""Airflow imports this file in every process that it starts: two of them import modules once, before they fork."""

__all__: list[str] = []

from tidegate.airflow.preload import preload

preload()

"""Airflow imports this file in every process that it starts: the scheduler imports the heavy clients once, before it forks."""
# ruff: noqa: INP001 - copied into the image or run by itself, never imported as a package

__all__: list[str] = []

from tidegate.airflow.preload import preload_in_scheduler

preload_in_scheduler()

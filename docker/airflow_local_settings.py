"""Airflow imports this file in every process that it starts: the scheduler imports the heavy clients once, before it forks."""

__all__: list[str] = []

from tidegate.airflow.preload import preload_in_scheduler

preload_in_scheduler()

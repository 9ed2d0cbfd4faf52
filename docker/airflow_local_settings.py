"""Airflow imports this file in every process that it starts: those that fork others import modules once, before."""

__all__: list[str] = []

from tidegate.airflow.preload import preload

preload()

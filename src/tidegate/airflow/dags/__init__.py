"""The DAGs of a project: `build_dags`."""

from tidegate.airflow.dags.factory import build_dags

__all__ = ["build_dags"]

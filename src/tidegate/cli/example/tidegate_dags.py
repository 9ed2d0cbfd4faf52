"""Tidegate's Airflow DAGs: two for each file in `pipelines/`, its schedule and its replay."""

from __future__ import annotations

from pathlib import Path

from tidegate.airflow.dags import build_dags

HERE = Path(__file__).resolve().parent

globals().update(build_dags(HERE / "pipelines", spark_jobs=HERE / "spark_jobs"))

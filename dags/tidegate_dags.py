"""The DAGs of every file in `pipelines/` and `receivers/`. Airflow finds them here as module globals."""

from __future__ import annotations

from pathlib import Path

from tidegate.airflow.dags import build_dags

HERE = Path(__file__).resolve().parent

globals().update(build_dags(HERE / "pipelines", spark_jobs=HERE.parent / "spark_jobs"))

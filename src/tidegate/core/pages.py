"""Where the pages of Airflow's UI are that the plugin adds: paths below Airflow's base URL."""

from __future__ import annotations

from urllib.parse import quote

PIPELINES = "plugin/tidegate"
"""The page of all pipelines."""


def ranges_page(pipeline: str, *, batch: int | None = None) -> str:
    """The page of a pipeline's ranges, with one of its batches open."""
    return f"dags/{_part(pipeline)}/plugin/ranges" + ("" if batch is None else f"?batch={batch}")


def run_page(dag_id: str, run_id: str) -> str:
    """The page of what a DAG run read or replayed."""
    return f"dags/{_part(dag_id)}/runs/{_part(run_id)}/plugin/range"


def _part(text: str) -> str:
    return quote(text, safe="")

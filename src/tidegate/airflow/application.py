"""Which file spark-submit runs for a load.

A project may have one of its own, `spark_jobs/load_range.py`, as a checkout of Tidegate does. Any other project uses the one of
the installed package.
"""

from __future__ import annotations

from pathlib import Path

INSTALLED = Path(__file__).resolve().parents[1] / "spark" / "submit" / "__main__.py"
"""The package's own application; it needs `--spark-jobs`."""


def application_of(spark_jobs: Path) -> Path:
    """The project's `load_range.py`, where the folder has one, else that of the installed package."""
    own = spark_jobs / "load_range.py"
    return own if own.is_file() else INSTALLED


def options_of(spark_jobs: Path) -> list[str]:
    """The application's options beside order and answer: a project's own imports the transforms that are beside it."""
    return ["--spark-jobs", str(spark_jobs)] if application_of(spark_jobs) == INSTALLED else []

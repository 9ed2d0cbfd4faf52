"""Project folders as a user has them: a copy of this repository's DAGs and jobs, and files of a test's own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tidegate_local.platform import Platform

REPO = Path(__file__).parents[1]


def copy_project(root: Path) -> None:
    """What this repository's embedded platform has."""
    for folder in ("dags", "spark_jobs", "plugins"):
        shutil.copytree(REPO / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))


def write_files(root: Path, kind: str, files: Mapping[str, Mapping[str, Any]]) -> None:
    """The files of `pipelines` or `receivers`, by name."""
    folder = root / "dags" / kind
    folder.mkdir(exist_ok=True)
    for name, stated in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(dict(stated)))


@contextmanager
def whole_platform(root: Path, *, extra_env: Mapping[str, str] | None = None) -> Iterator[Platform]:
    """Kafka, Spark Connect and Airflow with the DAGs of a project, stopped by their pid files whatever happens."""
    made = Platform(root / ".tidegate", root, extra_env=dict(extra_env or {}))
    try:
        made.up()
        yield made
    finally:
        made.down()

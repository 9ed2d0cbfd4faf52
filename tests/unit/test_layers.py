"""Laws of imports in folders that are no packages; import-linter holds those of the package (`pyproject.toml`)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
EXAMPLE = REPO / "src" / "tidegate" / "cli" / "example"
SPARK = ("pyspark", "tidegate", "transforms")
AIRFLOW = ("airflow", "tidegate.airflow")


def imports_of(file: Path) -> Iterator[str]:
    """The modules that a file names in its imports, also in functions; none of Python itself."""
    for node in ast.walk(ast.parse(file.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{'.' * node.level}{node.module or ''}"]
        yield from (name for name in names if name.partition(".")[0] not in sys.stdlib_module_names)


def strangers(folder: Path, allowed: tuple[str, ...]) -> dict[str, list[str]]:
    """The imports of a folder's files that are none of the allowed packages, by file."""
    imported = {str(file.relative_to(folder)): list(imports_of(file)) for file in folder.rglob("*.py")}
    return {
        file: rest
        for file, names in imported.items()
        if (rest := [name for name in names if not f"{name}.".startswith(tuple(f"{package}." for package in allowed))])
    }


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        (REPO / "dags", AIRFLOW),
        (REPO / "plugins", AIRFLOW),
        (REPO / "spark_jobs", SPARK),
        (EXAMPLE / "spark_jobs", SPARK),
    ],
    ids=lambda value: str(value.relative_to(REPO)) if isinstance(value, Path) else "",
)
def test_each_folder_imports_its_own_side_only(folder: Path, allowed: tuple[str, ...]) -> None:
    """DAG files know Airflow, transforms know Spark."""
    assert folder.is_dir()
    assert strangers(folder, allowed) == {}


def test_the_dag_file_that_init_writes_imports_airflows_side_only() -> None:
    """As that of this repository."""
    assert set(imports_of(EXAMPLE / "tidegate_dags.py")) == {"tidegate.airflow.dags"}


def test_an_import_of_the_other_side_is_found(tmp_path: Path) -> None:
    """In a function, under another name, of a package whose name only begins alike, and a relative one."""
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "bad.py").write_text(
        "import json, airflow\ndef f():\n    import pyspark.sql as s\n    from airflow_other import x\nfrom . import y\n"
    )
    (tmp_path / "good.py").write_text("import airflow.sdk\nfrom tidegate.airflow import notes\n")
    assert strangers(tmp_path, AIRFLOW) == {"inside/bad.py": [".", "pyspark.sql", "airflow_other"]}

"""Laws of the docs: what they name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import generate
from tests.unit.test_config_schema import settings_of
from tidegate.core import errors
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.config.receiver import Receiver
from tidegate.core.config.schema import json_schema

REPO = Path(__file__).parents[2]
REFUSALS = (REPO / "docs" / "exactly-once.md").read_text().split("## What is refused")[1].split("\n## ")[0]
ROWS = [row.split(" | ") for row in REFUSALS.splitlines() if row.startswith("| `")]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_refusal_in_the_docs_is_an_error_and_names_a_test(row: list[str]) -> None:
    """Both are there."""
    files = re.findall(r"`(test_\w+\.py)`", row[-1])
    assert any(hasattr(errors, name) for name in re.findall(r"`(\w+)`", row[0]))
    assert files
    for name in files:
        assert list(REPO.glob(f"tests/*/{name}")), name


def test_every_error_that_waits_for_a_person_is_in_the_docs() -> None:
    """Those that a retry may mend are not, nor those that refuse what somebody has just typed."""
    kinds = {k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.TidegateError)}
    leaves = {k.__name__ for k in kinds if not k.retryable and not any(k in other.__bases__ for other in kinds)}
    of_commands = {"ConfigError", "PlatformError", "RequestError"}
    assert leaves - of_commands <= set(re.findall(r"\w+", REFUSALS))


def test_the_modules_of_the_layout_page_are_there() -> None:
    """Those of the table of questions."""
    page = (REPO / "docs" / "layout.md").read_text()
    for name in re.findall(r"`((?:core|ingest|kafka|iceberg|spark|airflow|cli|local|ui)/[\w/.]*)`", page):
        assert (REPO / "src" / "tidegate" / name).exists(), name
    assert len(page.splitlines()) < 60


@pytest.mark.parametrize("name", generate.PAGES)
def test_the_pages_that_are_made_from_the_code_are_current(name: str) -> None:
    """`make docs` writes them."""
    assert (REPO / "docs" / name).read_text(encoding="utf-8") == generate.PAGES[name]()


def test_the_page_of_settings_has_a_row_for_each_setting() -> None:
    """A section may have one."""
    pages = generate.settings().split("# Settings of a receiver file")
    for page, kind in zip(pages, (Pipeline, Receiver), strict=True):
        rows = set(re.findall(r"^\| `([\w.]+)` \|", page, re.MULTILINE))
        stated = {".".join(path): schema for path, schema in settings_of(json_schema(kind))}
        assert rows <= stated.keys()
        assert all("properties" in stated[path] for path in stated.keys() - rows)

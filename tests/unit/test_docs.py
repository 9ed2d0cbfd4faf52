"""Laws of the docs: what they name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import generate
from tests.unit.test_config_schema import settings_of
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.config.schema import json_schema
from tidegate.core.model import errors
from tidegate_receivers.config.receiver import Receiver

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
    for name in re.findall(
        r"`((?:tidegate_\w+|core|kafka|formats|sinks|spark|views|simulation|testing|airflow|cli|ui)/[\w/.]*)`", page
    ):
        assert (REPO / "src" / ("" if name.startswith("tidegate_") else "tidegate") / name).exists(), name
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


PROSE = [REPO / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")] + sorted(REPO.glob("docs/**/*.md"))


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.name)
def test_lines_are_short_and_links_lead_somewhere(page: Path) -> None:
    """At most 120 characters, but for rows of tables, which cannot be wrapped; each file and heading that is named is there."""
    text = page.read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")] == []
    for name, heading in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        other = (page.parent / name).resolve() if name else page
        assert other.exists(), name
        if heading:
            assert heading in anchors(other), f"{name}#{heading}"


def anchors(page: Path) -> set[str]:
    """The addresses of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}

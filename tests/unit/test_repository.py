"""Laws of the repository: layers of folders, what docs name, fail points, how benchmarks are run."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidegate
from docs import generate
from tests.failpoints import arm, disarm, reached
from tests.unit.test_config_schema import settings_of
from tidegate.core.config.declared import json_schema
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model import errors
from tidegate.failpoints import VARIABLE, reach
from tidegate_receivers.config.receiver import Receiver

REPO = Path(__file__).parents[2]
EXAMPLE = REPO / "src" / "tidegate" / "cli" / "example"
SPARK = ("pyspark", "tidegate.core", "tidegate.formats", "tidegate.spark", "transforms")
AIRFLOW = ("airflow", "tidegate.airflow")


def imports_of(file: Path) -> Iterator[str]:
    """The modules that a file names in its imports, also in functions; none of Python itself."""
    for node in ast.walk(ast.parse(file.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{'.' * node.level}{node.module or ''}"]
            if node.module == "tidegate":  # each public name is of the side that its module is on
                names = [tidegate._MODULES[alias.name] for alias in node.names]
        yield from (name for name in names if name.partition(".")[0] not in sys.stdlib_module_names)


def strangers(file: Path, allowed: tuple[str, ...]) -> list[str]:
    """The imports of a file that are none of the allowed packages."""
    return [name for name in imports_of(file) if not f"{name}.".startswith(tuple(f"{package}." for package in allowed))]


@pytest.mark.parametrize(
    ("folder", "files", "allowed"),
    [
        (REPO / "dags", "**/*.py", AIRFLOW),
        (REPO / "plugins", "**/*.py", AIRFLOW),
        (EXAMPLE, "*.py", AIRFLOW),
        (REPO / "spark_jobs", "**/*.py", SPARK),
        (EXAMPLE / "spark_jobs", "**/*.py", SPARK),
    ],
    ids=lambda value: str(value.relative_to(REPO)) if isinstance(value, Path) else "",
)
def test_each_folder_imports_its_own_side_only(folder: Path, files: str, allowed: tuple[str, ...]) -> None:
    assert [name for file in folder.glob(files) for name in strangers(file, allowed)] == []
    assert folder.is_dir()


def test_no_two_public_classes_have_the_same_name() -> None:
    """In any package of src: so a name in a message or a review means one class."""
    source = "\n".join(file.read_text() for file in (REPO / "src").rglob("*.py"))
    names = Counter(re.findall(r"(?m)^ *class (\w+)", source))
    assert [name for name, count in names.items() if count > 1 and not name.startswith("_")] == []


REFUSALS = (REPO / "docs" / "exactly-once.md").read_text().split("## What is refused")[1].split("\n## ")[0]
ROWS = [row.split(" | ") for row in REFUSALS.splitlines() if row.startswith("| `")]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_refusal_in_the_docs_is_an_error_and_names_a_test(row: list[str]) -> None:
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
    page = (REPO / "docs" / "layout.md").read_text()
    folders = "core|kafka|formats|sinks|spark|views|simulation|testing|airflow|cli|ui"
    for name in re.findall(rf"`((?:tidegate_\w+|{folders})/[\w/.]*)`", page):
        assert (REPO / "src" / ("" if name.startswith("tidegate_") else "tidegate") / name).exists(), name
    assert len(page.splitlines()) < 70


@pytest.mark.parametrize("name", generate.PAGES)
def test_the_pages_that_are_made_from_the_code_are_current(name: str) -> None:
    """`make docs` writes them."""
    assert (REPO / "docs" / name).read_text(encoding="utf-8") == generate.PAGES[name]()


def test_the_page_of_settings_has_a_row_for_each_setting() -> None:
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


REACH = "from tidegate.failpoints import reach; reach('before-range'); print('alive')"


def run(folder: Path | None) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    if folder is not None:
        environment[VARIABLE] = str(folder)
    return subprocess.run([sys.executable, "-c", REACH], env=environment, capture_output=True, text=True, check=False)


def test_an_armed_point_kills_the_first_process_of_its_environment_that_reaches_it(tmp_path: Path) -> None:
    """No process whose environment does not name the folder, and none after it. Who it was can be read afterwards."""
    arm(tmp_path, "before-range", "kill")
    assert (run(None).stdout, reached(tmp_path, "before-range")) == ("alive\n", None)
    assert run(tmp_path).returncode == -signal.SIGKILL
    found = reached(tmp_path, "before-range")
    assert found is not None
    assert found[1] == os.getpid()
    assert run(tmp_path).stdout == "alive\n"


def test_a_point_may_stop_the_process_until_somebody_lets_it_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.delenv(VARIABLE, raising=False)
    reach("after-write")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    arm(tmp_path, "after-write", "stop")
    reach("before-write")
    reach("after-write")
    reach("after-write")
    assert sent == [(os.getpid(), signal.SIGSTOP)]
    assert reached(tmp_path, "after-write") == (os.getpid(), os.getppid())


def test_a_point_that_is_armed_again_forgets_who_reached_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a disarmed one is passed. A fault that is never reached would prove nothing: it cannot be armed."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setattr(os, "kill", lambda pid, number: None)
    arm(tmp_path, "after-write", "stop")
    reach("after-write")
    arm(tmp_path, "after-write", "kill")
    assert reached(tmp_path, "after-write") is None
    disarm(tmp_path)
    reach("after-write")
    assert reached(tmp_path, "after-write") is None
    for point, action in (("nowhere", "kill"), ("after-write", "explode")):
        with pytest.raises(ValueError, match=r"nowhere|explode"):
            arm(tmp_path, point, action)

"""Laws of the check of transforms, which has Python import them in a process of its own."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tidegate.spark.transform_check import broken_transforms

MODULES = {
    "good": "print('hello')\ndef f(records): return records\n",
    "raises": "import nowhere\n",
    "ends": "import os\nos._exit(7)\n",
    "hangs": "while True: pass\n",
    "columns": "from pyspark.sql import functions as F\nV = F.col('v').isNotNull()\ndef f(records): return records.where(V)\n",
    "session": "from pyspark.sql.functions import udf\n@udf('string')\ndef g(v): return v\ndef f(records): return records\n",
}


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def test_each_transform_that_cannot_be_found_is_named_and_the_others_are_found(jobs: Path) -> None:
    """Whether its module raises, ends Python, or is not there."""
    broken = broken_transforms(["ends:f", "good:f", "good:g", "nothing:f", "raises:f"], jobs)
    assert broken.keys() == {"ends:f", "good:g", "nothing:f", "raises:f"}
    assert "ends Python (exit code 7)" in broken["ends:f"]
    assert "module good has no function g" in broken["good:g"]
    assert "there is no module nothing" in broken["nothing:f"]
    assert "No module named 'nowhere'" in broken["raises:f"]


def test_what_a_module_makes_while_it_is_imported_may_need_what_a_load_has(jobs: Path) -> None:
    """Columns, and functions for Spark whose type is parsed by a session."""
    assert broken_transforms(["columns:f", "session:f"], jobs) == {}


@pytest.mark.slow
def test_a_module_that_never_comes_back_is_named(jobs: Path) -> None:
    """The time is for all of a process; the test's is long enough for pyspark to be imported or not."""
    assert broken_transforms(["hangs:f"], jobs, timeout_s=3) == {
        "hangs:f": "importing hangs:f does not end within 3 s. Move the code that does so out of the module's top level"
    }


def test_nothing_is_said_of_transforms_where_pyspark_is_not_installed(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's machines need not have it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert broken_transforms(["nothing:f"], jobs) == {}

"""Laws of what is found out about transforms: whether they can be imported, and which record breaks a load."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.load.culprit import Part, halves, narrowed
from tidegate.core.model.ranges import OffsetRange, total_count
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
    broken = broken_transforms(["ends:f", "good:f", "good:g", "nothing:f", "raises:f"], jobs)
    assert broken.keys() == {"ends:f", "good:g", "nothing:f", "raises:f"}
    assert "ends Python (exit code 7)" in broken["ends:f"]
    assert "module good has no function g" in broken["good:g"]
    assert "there is no module nothing" in broken["nothing:f"]
    assert "No module named 'nowhere'" in broken["raises:f"]


def test_what_a_module_makes_while_it_is_imported_may_need_what_a_load_has(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns, and functions for Spark whose type is parsed by a session. Without pyspark, as at Airflow's, nothing is said."""
    assert broken_transforms(["columns:f", "session:f"], jobs) == {}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert broken_transforms(["nothing:f"], jobs) == {}


@pytest.mark.slow
def test_a_module_that_never_comes_back_is_named(jobs: Path) -> None:
    """The time is for all of a process; the test's is long enough for pyspark to be imported or not."""
    assert broken_transforms(["hangs:f"], jobs, timeout_s=3) == {
        "hangs:f": "importing hangs:f does not end within 3 s. Move the code that does so out of the module's top level"
    }


RANGES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 40)), min_size=1, max_size=4).map(
    lambda cuts: tuple(OffsetRange("t", number, at, at + count) for number, (at, count) in enumerate(cuts))
)


def offsets(part: Part) -> list[tuple[int, int]]:
    return [(r.partition, offset) for r in part for offset in range(r.from_offset, r.until_offset)]


@given(RANGES.filter(lambda ranges: total_count(ranges) > 1))
def test_halves_are_the_part_in_its_order(part: Part) -> None:
    part = tuple(r for r in part if r.count)
    first, rest = halves(part)
    assert offsets(first) + offsets(rest) == offsets(part)
    assert total_count(first) == total_count(part) // 2
    assert all(r.count for r in (*first, *rest))


@given(RANGES, st.data())
def test_the_first_record_that_fails_is_found_by_reading_the_batch_about_twice(ranges: Part, data: st.DataObject) -> None:
    """Whichever others fail, too. Nothing is found where none does, or the first and the last do: it is not the record then."""
    held = offsets(ranges)
    bad = set(data.draw(st.lists(st.sampled_from(held), max_size=3))) if held else set()
    asked: list[int] = []

    def fails(part: Part) -> bool:
        asked.append(total_count(part))
        return bool(bad.intersection(offsets(part)))

    found = narrowed(ranges, fails, lambda: True)
    all_fail = len(bad) > 1 and {held[0], held[-1]} <= bad
    assert (offsets(found) if found else []) == ([] if all_fail else sorted(bad)[:1])
    assert sum(asked) <= 2 * len(held) + math.log2(len(held) + 1) + 3


def test_a_search_that_has_no_time_left_names_the_part_and_records_that_fail_together_are_not_blamed_alone() -> None:
    whole = (OffsetRange("t", 0, 0, 8),)
    looks = iter([True, False])
    assert narrowed(whole, lambda part: (0, 6) in offsets(part), lambda: next(looks)) == (OffsetRange("t", 0, 4, 8),)
    together = {(0, 1), (0, 6)}
    assert narrowed(whole, lambda part: together <= {*offsets(part)}, lambda: True) is None

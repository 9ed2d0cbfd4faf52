"""What maintenance may do, and when a table needs it."""

from __future__ import annotations

import pytest

from tidegate.core.errors import RequestError
from tidegate.core.maintenance.upkeep import DAY_MS, MB, Upkeep, Upkept, needs


@pytest.mark.parametrize(
    "setting",
    [{"target_file_bytes": 1}, {"max_files": 1}, {"keep_snapshots": 0}, {"keep_ms": DAY_MS - 1}, {"orphans_ms": DAY_MS - 1}],
)
def test_nothing_that_a_running_load_may_refer_to_is_removed(setting: dict[str, int]) -> None:
    """A day is the least age, and a table keeps at least its newest snapshot."""
    with pytest.raises(RequestError):
        Upkeep(**setting)


def test_few_files_and_large_files_need_no_compaction() -> None:
    """Whatever the other number is."""
    assert needs(Upkeep(), files=99, total_bytes=99, snapshots=2000) == []
    assert needs(Upkeep(), files=1000, total_bytes=1000 * 32 * MB, snapshots=0) == []


def test_what_is_needed_is_named_with_its_numbers() -> None:
    """Both reasons, each with what was counted."""
    compact, expire = needs(Upkeep(), files=1000, total_bytes=1000 * MB, snapshots=2001)
    assert compact == "1,000 data files of 1.0 MB on average: compact them"
    assert expire == "2,001 snapshots: expire those beyond 1,000"


def test_what_was_done_is_json() -> None:
    """As an XCom holds it."""
    assert Upkept(3, 1, 10, 0, 0, 0, gap=False).to_json()["files_after"] == 1

"""Laws of what a snapshot's summary and a table's properties say. The keys are in tables, so they never change."""

from __future__ import annotations

import pytest

from tests.records import write_of
from tidegate.core.model.errors import StateCorrupt
from tidegate.core.model.ranges import OffsetRange
from tidegate.sinks.iceberg.summary import (
    OWNER,
    changed_partitions,
    changes_rows,
    commits_table,
    compacted,
    holds_rows,
    owners_in,
    receipt_in,
    renamed_in,
    renaming,
    row_counts,
)

LOAD = write_of("p", 1, "r", (OffsetRange("t", 0, 0, 15),), "v", "a")


@pytest.mark.parametrize(
    ("counters", "expected"),
    [({"added-records": "15"}, (15, 0)), ({"added-records": "15", "tidegate.kept": "4"}, (11, 4)), ({}, (0, 0))],
)
def test_rows_that_were_written_again_are_not_the_loads(counters: dict[str, str], expected: tuple[int, int]) -> None:
    """Iceberg counts them as added, and leaves out counters that are zero."""
    receipt = receipt_in({**LOAD.to_properties(), **counters}, snapshot=9, committed_at_ms=1)
    assert receipt is not None
    assert (receipt.write, receipt.snapshot, receipt.committed_at_ms) == (LOAD, 9, 1)
    assert (receipt.rows, receipt.kept) == row_counts(counters) == expected


@pytest.mark.parametrize("broken", [{"added-records": "x"}, {"added-records": "1", "tidegate.kept": "?"}])
def test_broken_counters_make_a_receipt_unreadable_and_concern_no_other_commit(broken: dict[str, str]) -> None:
    """So a history that has such a commit can be read."""
    assert row_counts(broken) == (None, 0)
    assert receipt_in(broken, snapshot=9, committed_at_ms=1) is None
    with pytest.raises(StateCorrupt, match="9"):
        receipt_in({**LOAD.to_properties(), **broken}, snapshot=9, committed_at_ms=1)


def test_a_commit_without_data_files_changes_no_row() -> None:
    """The commit that creates a table has no counters, one that replaces nothing has zeros."""
    assert not changes_rows({})
    assert not changes_rows({"added-data-files": "0", "total-records": "5"})
    assert changes_rows({"added-data-files": "1"})
    assert changes_rows({"removed-delete-files": "1"})
    assert holds_rows({"total-records": "5"})
    assert not holds_rows({"total-records": "0"})
    assert not holds_rows({})


def test_owners_are_named_by_the_keys_of_properties() -> None:
    """Whatever their values; a pipeline's name is all that follows the prefix."""
    assert owners_in({"tidegate.owner.p": "true", "tidegate.owner.q_2": "", "owner": "root"}) == {"p", "q_2"}


def test_the_table_of_commits_is_beside_its_table() -> None:
    """In the same namespace, so whoever may write the one may write the other."""
    assert commits_table("lake.sales.orders") == "lake.sales.orders_commits"


@pytest.mark.parametrize(
    ("files", "size", "expected"),
    [("12", "400", (12, 400)), ("x", "400", (0, 0)), ("12", None, (0, 0)), ("12", "9" * 5000, (0, 0)), (None, None, (0, 0))],
)
def test_a_table_says_what_its_compaction_left(files: str | None, size: str | None, expected: tuple[int, int]) -> None:
    """What somebody wrote there by hand may be no number."""
    said = {"tidegate.compacted-files": files, "tidegate.compacted-bytes": size}
    assert compacted({key: value for key, value in said.items() if value is not None}) == expected


def test_a_commit_says_how_many_partitions_it_wrote_into() -> None:
    """One that does not has written into none that is known."""
    assert [changed_partitions(said) for said in ({"changed-partition-count": "40"}, {}, {"changed-partition-count": "?"})] == [
        40,
        0,
        0,
    ]


def test_a_pipeline_that_is_renamed_leads_from_each_of_its_names_to_the_last() -> None:
    """Once more, and back."""
    properties = {f"{OWNER}a": "true", f"{OWNER}z": "true"}
    for old, new in (("a", "b"), ("b", "c"), ("c", "a")):
        changes, dropped = renaming(properties, old, new)
        properties = {key: value for key, value in {**properties, **changes}.items() if key not in dropped}
    assert renamed_in(properties) == {"b": "a", "c": "a"}
    assert owners_in(properties) == {"a", "z"}

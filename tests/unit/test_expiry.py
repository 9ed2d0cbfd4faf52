"""Laws of which snapshots may expire."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.maintenance import expiry
from tidegate.core.maintenance.expiry import Snapshot, to_expire


def line(*ids: int, parent: int | None = None) -> list[Snapshot]:
    """Snapshots one after the other; each was committed at its id."""
    return [Snapshot(each, before, each) for each, before in zip(ids, (parent, *ids), strict=False)]


MOST, BRANCH = expiry.MOST, line(20, 21, 22, parent=3)


@pytest.mark.parametrize(
    ("table", "heads", "tags", "before_ms", "keep", "expired"),
    [
        (line(*range(1, 11)), {"main": 10}, (), 100, 3, [1, 2, 3, 4, 5, 6, 7]),
        (line(*range(1, 11)), {"main": 10}, (), 4, 3, [1, 2, 3]),
        (line(*range(1, 11)), {"main": 10}, (), 100, 10, []),
        ([], {}, (), 100, 1, []),
        # what a rollback left behind can be rolled forward to, while its newest snapshots are among the newest of their kind
        (line(*range(1, 8)), {"main": 3}, (), 100, 4, []),
        (line(*range(1, 8)), {"main": 3}, (), 100, 2, [1, 4, 5]),
        # snapshots of tags and of other branches stay: of a branch those that are its own; a tag at the head holds nothing else
        (line(*range(1, 8)) + BRANCH, {"main": 7, "audit": 22}, (2, 7), 100, 1, [1, 3, 4, 5, 6]),
        # one run expires a bounded number
        (line(*range(MOST + 5)), {"main": MOST + 4}, (), 2 * MOST, 1, [*range(MOST)]),
    ],
)
def test_old_ancestors_expire_but_the_newest(
    table: list[Snapshot], heads: dict[str, int], tags: tuple[int, ...], before_ms: int, keep: int, expired: list[int]
) -> None:
    """The oldest first; what is not old stays, however many there are."""
    assert to_expire(table, heads, tags, before_ms=before_ms, keep=keep) == expired


@given(st.lists(st.integers(0, 30), unique=True), st.integers(0, 40), st.integers(1, 5), st.integers(0, 30))
def test_the_current_state_and_what_is_young_stay(ids: list[int], before_ms: int, keep: int, head: int) -> None:
    """Whatever the table's history is; a parent that is gone ends it."""
    table = line(*sorted(ids))
    found = to_expire(table, {"main": head}, (), before_ms=before_ms, keep=keep)
    assert head not in found
    assert all(each < before_ms for each in found)
    assert len(found) <= max(0, len(ids) - min(keep, len(ids)))

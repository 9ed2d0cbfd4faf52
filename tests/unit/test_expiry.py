"""Laws of which snapshots may expire."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.maintenance import expiry
from tidegate.core.maintenance.expiry import Snapshot, to_expire


def line(*ids: int, parent: int | None = None) -> list[Snapshot]:
    """Snapshots one after the other; each was committed at its id."""
    return [Snapshot(each, before, each) for each, before in zip(ids, (parent, *ids), strict=False)]


def test_old_ancestors_expire_but_the_newest() -> None:
    """The oldest first; what is not old stays, however many there are."""
    table = line(*range(1, 11))
    assert to_expire(table, {"main": 10}, (), before_ms=100, keep=3) == [1, 2, 3, 4, 5, 6, 7]
    assert to_expire(table, {"main": 10}, (), before_ms=4, keep=3) == [1, 2, 3]
    assert to_expire(table, {"main": 10}, (), before_ms=100, keep=10) == []
    assert to_expire([], {}, (), before_ms=100, keep=1) == []


def test_what_a_rollback_left_behind_can_be_rolled_forward_to() -> None:
    """As long as its newest snapshots are among the newest of their kind."""
    table = line(*range(1, 8))
    assert to_expire(table, {"main": 3}, (), before_ms=100, keep=4) == []
    assert to_expire(table, {"main": 3}, (), before_ms=100, keep=2) == [1, 4, 5]


def test_snapshots_of_tags_and_of_other_branches_stay() -> None:
    """Of a branch those that are its own; a tag at the head holds nothing else."""
    table = line(*range(1, 8)) + line(20, 21, 22, parent=3)
    assert to_expire(table, {"main": 7, "audit": 22}, (2, 7), before_ms=100, keep=1) == [1, 3, 4, 5, 6]


def test_one_run_expires_a_bounded_number() -> None:
    table = line(*range(expiry.MOST + 5))
    found = to_expire(table, {"main": expiry.MOST + 4}, (), before_ms=2 * expiry.MOST, keep=1)
    assert found == list(range(expiry.MOST))


@given(st.lists(st.integers(0, 30), unique=True), st.integers(0, 40), st.integers(1, 5), st.integers(0, 30))
def test_the_current_state_and_what_is_young_stay(ids: list[int], before_ms: int, keep: int, head: int) -> None:
    """Whatever the table's history is; a parent that is gone ends it."""
    table = line(*sorted(ids))
    found = to_expire(table, {"main": head}, (), before_ms=before_ms, keep=keep)
    assert head not in found
    assert all(each < before_ms for each in found)
    assert len(found) <= max(0, len(ids) - min(keep, len(ids)))

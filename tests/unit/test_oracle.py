"""Laws of the verdict."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.audit.oracle import judge
from tidegate.core.model.ranges import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@given(st.dictionaries(st.sampled_from([A, B]), st.sets(st.integers(0, 100))))
def test_a_table_that_equals_the_log_holds(log: dict[TopicPartition, set[int]]) -> None:
    """Gaps in the log are no fault."""
    verdict = judge(log, log)
    assert verdict.holds
    assert verdict.total("records") == verdict.total("rows") == sum(map(len, log.values()))


def test_each_offset_that_does_not_fit_is_named() -> None:
    """Lost, duplicated, unknown, by partition."""
    verdict = judge({A: [0, 1, 2, 5]}, {A: [0, 2, 2, 9], B: [0]})
    first, second = verdict.partitions
    assert (first.lost, first.duplicated, first.unknown) == ((1, 5), (2,), (9,))
    assert second.unknown == (0,)
    assert not verdict.holds
    shown = verdict.to_json()
    assert (shown["lost"], shown["duplicated"], shown["unknown"], shown["records"], shown["rows"]) == (2, 1, 2, 4, 5)
    assert shown["partitions"][0]["lost"] == [1, 5]

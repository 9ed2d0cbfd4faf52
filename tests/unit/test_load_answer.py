"""Laws of what pages read of a load's answer."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.core.audit.views.batch import LoadAnswer
from tidegate.core.load.job import COLD_S


def answer(**changes: Any) -> dict[str, Any]:
    seen = {"records": 10, "rows": 9, "bytes": 100, "repeats": 1}
    return {"receipt": {}, "observed": seen, "seconds": {"write": 0.5}, "landed_before": False, **changes}


def test_seconds_and_counts_are_read() -> None:
    """What an older version did not count is not known."""
    found = LoadAnswer.of(answer())
    assert found == LoadAnswer({"write": 0.5}, records=10, rows=9, repeats=1)
    assert found.marks == frozenset()
    assert found.to_json()["seconds"] == {"write": 0.5}


@pytest.mark.parametrize(
    ("errors", "age_s", "marks"),
    [(0, COLD_S, set()), (3, None, {"errors"}), (None, COLD_S - 1, {"cold"}), (1, 0.0, {"cold", "errors"})],
)
def test_broken_records_and_a_spark_that_had_just_started_are_marked(
    errors: int | None, age_s: float | None, marks: set[str]
) -> None:
    """Nothing is marked that is not known."""
    found = LoadAnswer.of(answer(observed={"errors": errors}, spark_age_s=age_s))
    assert found is not None
    assert found.marks == marks


@pytest.mark.parametrize("value", [None, [], "x", {}, {"observed": None}])
def test_what_is_no_answer_is_left_out(value: object) -> None:
    """Somebody may have written it."""
    assert LoadAnswer.of(value) is None


def test_what_is_no_number_is_not_known() -> None:
    """No batch depends on it."""
    odd = answer(observed={"records": -1, "rows": "9", "errors": True}, seconds={"write": "long", "read": 1}, spark_age_s="x")
    assert LoadAnswer.of(odd) == LoadAnswer({"read": 1.0})
    assert LoadAnswer.of(answer(seconds=3)) == LoadAnswer({}, records=10, rows=9, repeats=1)

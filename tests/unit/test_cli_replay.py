"""Laws of how the command line's words become a replay's parameters. The command itself: `tests/e2e/test_replay.py`."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.cli.replay import _bounds
from tidegate.config import Pipeline, Sink, Source
from tidegate.errors import RequestError

ONE = Pipeline("p", Source(("t",)), "m:f", Sink("lake.a.b"))
TWO = Pipeline("p", Source(("t", "u")), "m:f", Sink("lake.a.b"))


@pytest.mark.parametrize(
    ("first", "last", "since", "params"),
    [
        ([], [], None, {}),
        (["0:1000"], ["0:2000"], None, {"offsets": {"t": {"0": [[1000, 2000]]}}}),
        (["0:0", "1:5"], ["1:7", "0:9"], None, {"offsets": {"t": {"0": [[0, 9]], "1": [[5, 7]]}}}),
        (["0:0", "0:20"], ["0:10", "0:30"], None, {"offsets": {"t": {"0": [[0, 10], [20, 30]]}}}),
        (["u:0:5"], [], None, {"offsets": {"u": {"0": [[5, None]]}}}),
        ([], ["0:5"], None, {"offsets": {"t": {"0": [[None, 5]]}}}),
        (["1000"], ["2000"], None, {"offsets": [[1000, 2000]]}),
        ([], [], "2013-03-01", {"from_time": "2013-03-01T00:00:00+00:00", "until_time": None}),
        (
            [],
            ["2013-03-02"],
            "2013-03-01T12:00+01:00",
            {"from_time": "2013-03-01T11:00:00+00:00", "until_time": "2013-03-02T00:00:00+00:00"},
        ),
        ([], ["2013-03-02T00:00:00"], None, {"from_time": None, "until_time": "2013-03-02T00:00:00+00:00"}),
    ],
)
def test_words_become_offsets_or_times(first: list[str], last: list[str], since: str | None, params: dict[str, Any]) -> None:
    """`--until` takes either; a partition needs no topic where there is one."""
    assert _bounds(ONE, first, last, since) == params


@pytest.mark.parametrize(
    ("pipeline", "first", "last", "since", "words"),
    [
        (TWO, ["0:5"], [], None, "'0:5': the pipeline reads several topics"),
        (ONE, ["a:b:c"], [], None, "'a:b:c' is no offset"),
        (ONE, ["0:5"], ["2013-03-02"], None, "offsets and times cannot be asked for together"),
        (ONE, ["5", "0:5"], [], None, "of all partitions and of some"),
        (ONE, [], [], "soon", "'soon' is no time"),
        (ONE, [], ["0:5"], "2013-03-01", "'0:5' is no time"),
    ],
)
def test_words_that_mean_nothing_are_refused(
    pipeline: Pipeline, first: list[str], last: list[str], since: str | None, words: str
) -> None:
    """With an example of what would."""
    with pytest.raises(RequestError, match=words):
        _bounds(pipeline, first, last, since)

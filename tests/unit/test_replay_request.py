"""Laws of what a replay can be asked, before anything is looked up."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.core.model.errors import RequestError
from tidegate.core.replay.request import Asked, ReplayRequest, version_filter


@pytest.mark.parametrize(
    ("offsets", "asked"),
    [
        ([5, 9], [Asked(None, None, 5, 9)]),
        ([None, 9], [Asked(None, None, None, 9)]),
        ({"t": [5, None]}, [Asked("t", None, 5, None)]),
        ({"t": {"0": [5, 9], "1": [[0, 1], [3, 4]]}}, [Asked("t", 0, 5, 9), Asked("t", 1, 0, 1), Asked("t", 1, 3, 4)]),
        ({"t": [[0, 1], [3, 4]]}, [Asked("t", None, 0, 1), Asked("t", None, 3, 4)]),
    ],
)
def test_offsets_are_asked_for_one_partition_a_topic_or_all(offsets: Any, asked: list[Asked]) -> None:
    """One range or several."""
    assert list(ReplayRequest.from_params({"offsets": offsets}).offsets) == asked


def test_what_is_empty_does_not_count() -> None:
    """A form sends every field."""
    request = ReplayRequest.from_params({"offsets": None, "batches": "", "run": "r 1", "accept_loss": False, "table": None})
    assert request == ReplayRequest(run_id="r 1")
    assert request.to_json() == {"run_id": "r 1"}


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, "exactly one of"),
        ({"batches": "1", "run": "r"}, "got 2"),
        ({"offsets": "all"}, "`offsets` cannot be read"),
        ({"offsets": {"t": {"x": [0, 1]}}}, "`offsets` cannot be read"),
        ({"offsets": {"t": {"0": [0, 1, 2]}}}, "`offsets` cannot be read"),
        ({"offsets": {"t": {"0": [0, "1"]}}}, "`offsets` cannot be read"),
        ({"offsets": {"t": {"0": [True, 1]}}}, "`offsets` cannot be read"),
        ({"offsets": {"t": 5}}, "`offsets` cannot be read"),
        ({"from_time": "yesterday"}, "`from_time` cannot be read"),
        ({"until_time": []}, "exactly one of"),
        ({"batches": "1.5"}, "Write it like 12 or 12..18"),
        ({"from_time": "2013-01-01", "until_time": "2013-01-01"}, "the times are equal"),
        ({"from_time": "2013-01-02", "until_time": "2013-01-01"}, "reversed: from 2013-01-02T00:00:00Z until 2013-01-01T"),
        ({"batches": "1", "chunk_size": 0}, "chunk_size: expected a whole number of at least 1"),
        ({"batches": "1", "parallel": True}, "parallel: expected a whole number of at least 1"),
        ({"batches": "1", "table": "t"}, "table: 't' is not a name like lake.trial.flights"),
        ({"batches": "1", "transform": 5}, "transform: 5 is not a name like"),
        ({"versions": "2"}, "versions: '2' cannot be read"),
        ({"versions": "<3f9a0c12b7de"}, "cannot be ordered"),
    ],
)
def test_what_can_never_be_is_refused_with_an_example(params: dict[str, Any], words: str) -> None:
    """Whatever the schedule looks like."""
    with pytest.raises(RequestError) as caught:
        ReplayRequest.from_params(params)
    assert words in str(caught.value)


def test_the_digest_stands_for_what_is_replayed_and_not_for_how_fast() -> None:
    """A run that asks the same goes on where another stopped."""
    one = ReplayRequest(batches=(1, 2), chunk_size=10)
    assert one.digest == ReplayRequest(batches=(1, 2), chunk_size=10, parallel=3).digest
    assert one.digest != ReplayRequest(batches=(1, 3), chunk_size=10).digest
    assert one.digest != ReplayRequest(batches=(1, 2), chunk_size=10, table="lake.a.b").digest
    assert len(one.digest) == 8


@pytest.mark.parametrize(
    ("text", "wanted", "unwanted"),
    [
        ("<2", ["m:f@1", "m:f@1.9", "m:f@3f9a0c12b7de", "m:f@123456789012"], ["m:f@2", "m:f@2.0", "m:f@10"]),
        ("< 1.10", ["m:f@1.9"], ["m:f@1.10", "m:f@1.10.1"]),
        ("=1", ["m:f@1"], ["m:f@1.0", "m:f@2"]),
        ("!=3f9a0c12b7de", ["m:f@1"], ["m:f@3f9a0c12b7de"]),
    ],
)
def test_versions_compare_as_numbers_and_hashes_are_equal_or_not(text: str, wanted: list[str], unwanted: list[str]) -> None:
    """A hash is from before versions were declared."""
    matches = version_filter(text)
    assert [identity for identity in [*wanted, *unwanted] if matches(identity)] == wanted


def test_a_parameter_that_nothing_reads_is_refused_with_the_closest_one() -> None:
    """A misspelt dry run would load."""
    with pytest.raises(RequestError, match=r"no parameter `dryrun`; did you mean dry_run\?"):
        ReplayRequest.from_params({"batches": "2", "dryrun": True})
    with pytest.raises(RequestError, match=r"no parameter `xyz`. The parameters are offsets, "):
        ReplayRequest.from_params({"xyz": 1})

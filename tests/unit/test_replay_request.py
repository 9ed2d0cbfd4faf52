"""Laws of what a replay can be asked, before anything is looked up."""

from __future__ import annotations

from dataclasses import replace
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
    assert list(ReplayRequest.from_params({"offsets": offsets}).offsets) == asked


def test_what_is_empty_does_not_count() -> None:
    """A form sends every field. Nor does what Airflow adds where OpenLineage is on and a DAG triggers the run."""
    request = ReplayRequest.from_params({"offsets": None, "batches": "", "run": "r 1", "accept_loss": False, "table": None})
    assert request == ReplayRequest(run_id="r 1")
    assert request.to_json() == {"run_id": "r 1"}
    assert ReplayRequest.from_params({"run": "r 1", "openlineage": {"parentRunId": "1"}}) == ReplayRequest(run_id="r 1")


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, "exactly one of"),
        ({"batches": "1", "run": "r"}, "got 2"),
        *[({"offsets": offsets}, "`offsets` cannot be read") for offsets in ("all", {"t": {"x": [0, 1]}}, {"t": 5})],
        *[({"offsets": {"t": {"0": pair}}}, "`offsets` cannot be read") for pair in ([0, 1, 2], [0, "1"], [True, 1])],
        ({"from_time": "yesterday"}, "`from_time` cannot be read"),
        ({"until_time": []}, "exactly one of"),
        ({"batches": "1.5"}, "Write it like 12 or 12..18"),
        ({"from_time": "2013-01-01", "until_time": "2013-01-01"}, "the times are equal"),
        ({"from_time": "2013-01-02", "until_time": "2013-01-01"}, "reversed: from 2013-01-02T00:00:00Z until 2013-01-01T"),
        ({"batches": "1", "chunk_size": 0}, "chunk_size: expected a whole number from 1"),
        ({"batches": "1", "parallel": True}, "parallel: expected a whole number from 1"),
        ({"batches": "1", "table": "t"}, "table: 't' is not a name like lake.trial.flights"),
        ({"batches": "1", "transform": 5}, "transform: 5 is not a name like"),
        ({"versions": "2"}, "versions: '2' cannot be read"),
        ({"versions": "<3f9a0c12b7de"}, "cannot be ordered"),
        # a misspelt dry run would load
        ({"batches": "2", "dryrun": True}, "no parameter `dryrun`; did you mean dry_run?"),
        ({"xyz": 1}, "no parameter `xyz`. The parameters are offsets, "),
    ],
)
def test_what_can_never_be_is_refused_with_an_example(params: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError) as caught:
        ReplayRequest.from_params(params)
    assert words in str(caught.value)


def test_the_digest_stands_for_what_is_replayed_and_not_for_how_fast() -> None:
    one = ReplayRequest(batches=(1, 2), chunk_size=10)
    assert one.digest == replace(one, parallel=3).digest
    assert len({each.digest for each in (one, replace(one, batches=(1, 3)), replace(one, table="lake.a.b"))}) == 3
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

"""What others are told, as JSON. Names and values are read by the DAGs of others: they do not change."""

from __future__ import annotations

import json

from tests.records import COMMITTED, REPLAYED

TABLE, TOPICS = "iceberg://lake/a/b", ("kafka://kafka_default/t",)


def test_a_commit_says_which_batch_and_what_its_load_made() -> None:
    """Nothing of it where there was nothing to load."""
    assert json.loads(json.dumps(COMMITTED.to_json())) == {
        "pipeline": "p",
        "seq": 7,
        "key": "tidegate.p.range.0000000007.r",
        "offsets": 200,
        "rows": 190,
        "transform": "m:f@1",
        "snapshot": 2**62,
        "table": TABLE,
        "topics": [*TOPICS],
        "page": "dags/p/plugin/ranges?batch=7",
    }


def test_a_replay_says_which_one_and_what_its_loads_made() -> None:
    """All of its chunks together."""
    assert json.loads(json.dumps(REPLAYED.to_json())) == {
        "pipeline": "p",
        "run_id": "manual__1",
        "replay": "again",
        "chunks": 3,
        "offsets": 600,
        "rows": 590,
        "transform": "m:f@2",
        "table": TABLE,
        "topics": [*TOPICS],
        "page": "dags/p/plugin/ranges",
    }

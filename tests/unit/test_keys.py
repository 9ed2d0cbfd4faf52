"""Laws of the part of a key that stands for a DAG run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import range_of
from tidegate.core.config.names import MASKED_WORDS
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.ledger import Ledger, is_of_run, run_key
from tidegate.testing.fakes import MemoryStore

WORDS = [
    *MASKED_WORDS,
    *(word.replace("_", "-") for word in MASKED_WORDS),
    *(word.replace("_", " ").upper() for word in MASKED_WORDS),
]


@given(st.lists(st.sampled_from([*WORDS, "", "x", "-", "_", "pro", "tok", "en", "xy"]), max_size=8).map("".join))
def test_no_masked_word_is_in_a_run_key(run_id: str) -> None:
    """Nor does one arise where another was left out; Airflow takes a hyphen for an underscore."""
    assert not any(word in run_key(run_id).replace("-", "_") for word in MASKED_WORDS)
    assert is_of_run(run_key(run_id), run_id)
    assert not is_of_run(run_key(run_id), f"{run_id}x")


@pytest.mark.parametrize("run_id", ["my token run", "bearer of news", "ß"])
def test_a_run_finds_its_range_whatever_words_its_key_leaves_out(run_id: str) -> None:
    """Keys stay, while the list of words grows: the digest alone says whose a range is."""
    store = MemoryStore()
    ledger = Ledger(store, "p")
    saved = range_of("p", 1, run_id, (OffsetRange("t", 0, 0, 5),), (), {"t": "id"}, {}, 1)
    key = ledger.save_range(saved)
    older = key.replace(run_key(run_id), f"as-it-was-called-{run_key(run_id)[-12:]}")
    store.values[older] = store.values.pop(key)
    found = ledger.listing().of_run(run_id)
    assert found is not None
    assert found.key == older
    assert ledger.saved_range(older) == saved


def test_the_ranges_of_several_runs_are_found_at_once() -> None:
    """As one by one, whatever their ids are; runs that have none are left out."""
    ledger = Ledger(MemoryStore(), "p")
    for seq, run_id in enumerate(("a.b", "a-b", "scheduled__2026-01-01T00:00:00+00:00"), 1):
        ledger.save_range(range_of("p", seq, run_id, (), (), {}, {}, 1))
    listing = ledger.listing()
    found = listing.of_runs(["a-b", "gone", "a.b"])
    assert {run_id: key.seq for run_id, key in found.items()} == {"a.b": 1, "a-b": 2}
    assert found["a-b"] == listing.of_run("a-b")

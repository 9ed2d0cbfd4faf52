"""Laws of the written form of saved state, and of the keys that hold it."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import range_of
from tidegate.core.config.names import MASKED_WORDS
from tidegate.core.model.errors import StateCorrupt, StateMasked, StateNewer
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.codec import SHOWN, decode, encode
from tidegate.core.state.ledger import Ledger, is_of_run, range_key, run_key
from tidegate.testing.fakes import MemoryStore

bodies = st.dictionaries(
    st.text(), st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=10)
)


def read(text: str, kind: str = "cursor") -> dict[str, Any]:
    return decode(kind, text, key="tidegate.x.cursor", repair="Run the repair")


OFFSETS = {"offsets": {"password-resets": {"0": 5}}, "topic_ids": {"password-resets": "AbC"}}
GOOD = encode("cursor", {"seq": 4})


@given(bodies)
def test_what_is_written_is_read_back(body: dict[str, object]) -> None:
    """Decoding inverts encoding. No value is JSON, so Airflow does not look for keys in it; no order of insertion shows."""
    text = encode("cursor", body)
    assert read(text) == body
    assert encode("cursor", dict(reversed(body.items()))) == text
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)


def test_people_can_read_a_value() -> None:
    assert GOOD.startswith('tidegate 2 {"body":{"seq":4},"kind":"cursor"} ')
    long = {"run": "r" * 1_000_000}
    assert encode("cursor", long)[SHOWN:].startswith("... ")
    assert len(encode("cursor", long)) < 2 * SHOWN
    assert read(encode("cursor", long)) == long


@pytest.mark.parametrize("secret", ["tidegate", "password-resets", '"0":5', "cursor", '"kind":"cursor"}', "AbC", "e"])
def test_a_value_whose_words_are_masked_is_read_as_it_was_written(secret: str) -> None:
    """A password that Airflow knows may be any word; it is masked wherever it stands in the readable part."""
    shown, _, packed = encode("cursor", OFFSETS).rpartition(" ")
    assert secret in shown
    assert read(f"{shown.replace(secret, '***')} {packed}") == OFFSETS


@pytest.mark.parametrize("text", ["***", GOOD[:-9] + "***"], ids=["key", "copy"])
def test_a_value_that_airflow_hides_is_named_as_that(text: str) -> None:
    """Nobody edited it, and there is nothing to repair."""
    with pytest.raises(StateMasked, match=r"tidegate\.x\.cursor: Airflow's API shows \*\*\*") as caught:
        read(text)
    assert "Run the repair" not in str(caught.value)
    assert "changed" not in str(caught.value)


def packed(text: str, shown: str) -> str:
    """A value whose copy says `text`."""
    return f"{shown} {base64.b64encode(zlib.compress(text.encode())).decode()}"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        *[(text, "not a saved value") for text in ("", '{"seq": 4}', packed("tide is high", "tide is high"))],
        (encode("range", {}), "expected a 'cursor'"),
        (GOOD.replace("tidegate 2", "tidegate 1"), "older"),
        *[
            (GOOD.replace(old, new), "the readable part differs")
            for old, new in (('"seq":4', '"seq":5'), ('"seq":4', '"seq":***5'), ('{"body":{"seq":4}', "***sea***"))
        ],
        *[(GOOD.replace("tidegate 2", new), "the readable part differs") for new in ("tidegate 2 ", "***9")],
        *[(text, "packed copy") for text in (GOOD[:-2], GOOD[:-20], GOOD[: len(GOOD) // 2], GOOD.rpartition(" ")[0])],
        # the copy is of no saved value, whatever is masked before it
        *[
            (packed(text, shown), "holds no kind and body")
            for text in ("tidegate 2 {", "tidegate 2 [1]", 'tidegate 2 {"kind":"cursor"}')
            for shown in (text, "***")
        ],
    ],
)
def test_a_changed_value_is_refused_with_the_exact_fault_the_key_and_the_repair(text: str, fault: str) -> None:
    """Edited, cut and older values are never believed."""
    with pytest.raises(StateCorrupt, match=f"tidegate.x.cursor.*{fault}.*Run the repair"):
        read(text)


@pytest.mark.parametrize("shown", ["tidegate 3 {}", "***"])
def test_a_value_of_a_newer_version_is_named_as_that(shown: str) -> None:
    """Nothing is wrong with it, so there is nothing to repair. However it goes on, it begins with its format."""
    for text in (packed("tidegate 3 {}", shown), shown if shown.startswith("tidegate") else packed("tidegate 3 [", shown)):
        with pytest.raises(StateNewer, match=r"tidegate\.x\.cursor has format 3, and .* up to 2.*Install") as caught:
            read(text)
        assert "Run the repair" not in str(caught.value)


# ---- the keys that hold values


def listed(*run_ids: str) -> tuple[Ledger, dict[str, str]]:
    """A pipeline whose batches 1, 2, … are of these runs, and the values of its store."""
    store = MemoryStore()
    ledger = Ledger(store, "p")
    for seq, run_id in enumerate(run_ids, 1):
        ledger.save_range(range_of("p", seq, run_id, (OffsetRange("t", 0, 0, 5),), (), {"t": "id"}, {}, 1))
    return ledger, store.values


def test_keys_are_of_their_pipeline_and_their_batch() -> None:
    """Replays and other pipelines share the prefix; a copied Variable is not this batch's."""
    store = MemoryStore({"tidegate.p.replay.x.1": "", "tidegate.p.range.x": "", "tidegate.p2.cursor": ""})
    listing = Ledger(store, "p").listing()
    assert (listing.ranges, listing.has_cursor) == ((), False)
    (ledger, values), copied = listed("run1"), "tidegate.p.range.0000000007.x-1"
    values[copied] = values[range_key(ledger.pipeline, 1, "run1")]
    with pytest.raises(StateCorrupt, match="holds batch 1"):
        ledger.saved_range(copied)


WORDS = [word for masked in MASKED_WORDS for word in (masked, masked.replace("_", "-"), masked.replace("_", " ").upper())]
PARTS = st.sampled_from([*WORDS, "", "x", "-", "_", "pro", "tok", "en", "xy"])


@given(st.text(max_size=250) | st.lists(PARTS, max_size=8).map("".join))
def test_any_run_id_makes_a_key_that_stores_and_logs_can_take(run_id: str) -> None:
    """Short and plain. No word that Airflow masks is in it, also where one arises as another is left out, or with hyphens."""
    key = range_key("p" * 60, 9_999_999_999, run_id)
    assert len(key) < 250
    assert all(c.isascii() and (c.isalnum() or c in "._-") for c in key)
    assert not any(word in run_key(run_id).replace("-", "_") for word in MASKED_WORDS)
    assert is_of_run(run_key(run_id), run_id)
    assert not is_of_run(run_key(run_id), f"{run_id}x")


def test_run_ids_that_look_alike_have_different_keys() -> None:
    """Run ids that differ in case, blanks or signs have different keys, also in a store that compares keys loosely."""
    ids = ["manual__A", "manual__a", "manual a", "manual/a", "manual?a", "manual#a", "manual%a", "manual+a", "my_token_run", ""]
    assert len({run_key(i).lower() for i in ids}) == len(ids)


@pytest.mark.parametrize("run_id", ["my token run", "bearer of news", "ß"])
def test_a_run_finds_its_range_whatever_words_its_key_leaves_out(run_id: str) -> None:
    """Keys stay, while the list of words grows: the digest alone says whose a range is."""
    ledger, values = listed(run_id)
    key = range_key(ledger.pipeline, 1, run_id)
    saved, older = ledger.saved_range(key), key.replace(run_key(run_id), f"as-it-was-called-{run_key(run_id)[-12:]}")
    values[older] = values.pop(key)
    found = ledger.listing().of_run(run_id)
    assert found is not None
    assert (found.key, ledger.saved_range(older)) == (older, saved)


def test_the_ranges_of_several_runs_are_found_at_once() -> None:
    """As one by one, whatever their ids are; runs that have none are left out."""
    listing = listed("a.b", "a-b", "scheduled__2026-01-01T00:00:00+00:00")[0].listing()
    found = listing.of_runs(["a-b", "gone", "a.b"])
    assert {run_id: key.seq for run_id, key in found.items()} == {"a.b": 1, "a-b": 2}
    assert found["a-b"] == listing.of_run("a-b")

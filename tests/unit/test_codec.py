"""Laws of the written form of saved state."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.model.errors import StateCorrupt, StateMasked
from tidegate.core.state.codec import SHOWN, decode, encode

bodies = st.dictionaries(
    st.text(), st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=10)
)


@given(bodies)
def test_what_is_written_is_read_back(body: dict[str, object]) -> None:
    """Decoding inverts encoding."""
    assert decode("cursor", encode("cursor", body), key="k", repair="r") == body


def test_equal_values_give_equal_text() -> None:
    """Order of insertion does not show."""
    assert encode("cursor", {"a": 1, "b": 2}) == encode("cursor", {"b": 2, "a": 1})


def read(text: str, kind: str = "cursor") -> dict[str, Any]:
    return decode(kind, text, key="tidegate.x.cursor", repair="Run the repair")


OFFSETS = {"offsets": {"password-resets": {"0": 5}}, "topic_ids": {"password-resets": "AbC"}}
GOOD = encode("cursor", {"seq": 4})
PACKED = base64.b64encode(zlib.compress(b"tide is high")).decode()


@given(bodies)
def test_no_value_is_json(body: dict[str, object]) -> None:
    """So Airflow does not look for keys in it."""
    with pytest.raises(json.JSONDecodeError):
        json.loads(encode("cursor", body))


def test_people_can_read_a_value() -> None:
    """The value holds the written JSON as readable text, up to a maximum length."""
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


@pytest.mark.parametrize(
    "text",
    [
        "***",
        GOOD[:-9] + "***",
    ],
    ids=["key", "copy"],
)
def test_a_value_that_airflow_hides_is_named_as_that(text: str) -> None:
    """Nobody edited it, and there is nothing to repair."""
    with pytest.raises(StateMasked, match=r"tidegate\.x\.cursor: Airflow's API shows \*\*\*") as caught:
        read(text)
    assert "Run the repair" not in str(caught.value)
    assert "changed" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "not a saved value"),
        ('{"seq": 4}', "not a saved value"),
        (f"tide is high {PACKED}", "not a saved value"),
        (encode("range", {}), "expected a 'cursor'"),
        (GOOD.replace("tidegate 2", "tidegate 3"), "format version 3 is newer than this library's 2"),
        (GOOD.replace("tidegate 2", "tidegate 1"), "older"),
        (GOOD.replace('"seq":4', '"seq":5'), "the readable part differs"),
        (GOOD.replace("tidegate 2", "tidegate 2 "), "the readable part differs"),
        (GOOD.replace('"seq":4', '"seq":***5'), "the readable part differs"),
        (GOOD.replace("tidegate 2", "***9"), "the readable part differs"),
        (GOOD.replace('{"body":{"seq":4}', "***sea***"), "the readable part differs"),
        (GOOD[:-2], "packed copy"),
        (GOOD[:-20], "packed copy"),
        (GOOD[: len(GOOD) // 2], "packed copy"),
        (GOOD.rpartition(" ")[0], "packed copy"),
    ],
)
def test_a_changed_value_is_refused_with_the_exact_fault_the_key_and_the_repair(text: str, fault: str) -> None:
    """Edited, cut, older and newer values are never believed."""
    with pytest.raises(StateCorrupt, match=fault) as caught:
        read(text)
    assert "tidegate.x.cursor" in str(caught.value)
    assert "Run the repair" in str(caught.value)


def packed(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode())).decode()


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("tidegate 3 {}", "format version 3 is newer"),
        ("tidegate 2 {", "holds no kind and body"),
        ("tidegate 2 [1]", "holds no kind and body"),
        ('tidegate 2 {"kind":"cursor"}', "holds no kind and body"),
    ],
)
def test_a_packed_copy_of_something_else_is_refused_whatever_is_masked_before_it(written: str, told: str) -> None:
    """Of a later version, or of no saved value."""
    for shown in (written, "***"):
        with pytest.raises(StateCorrupt, match=told):
            decode("cursor", f"{shown} {packed(written)}", key="k", repair="r")

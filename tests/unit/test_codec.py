"""Laws of the written form of saved state."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.codec import decode, encode
from tidegate.errors import StateCorrupt

bodies = st.dictionaries(st.text(), st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))


@given(bodies)
def test_what_is_written_is_read_back(body: dict[str, object]) -> None:
    """Decoding inverts encoding."""
    assert decode("cursor", encode("cursor", body), key="k", repair="r") == body


def test_equal_values_give_equal_text() -> None:
    """Order of insertion does not show."""
    assert encode("cursor", {"a": 1, "b": 2}) == encode("cursor", {"b": 2, "a": 1})


GOOD = json.loads(encode("cursor", {"seq": 4}))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"seq": 4', "not JSON"),
        ("", "not JSON"),
        ("[]", "not a saved value"),
        ('{"seq": 4}', "not a saved value"),
        (json.dumps(GOOD | {"kind": "range"}), "expected a 'cursor'"),
        (json.dumps(GOOD | {"version": 2}), "newer"),
        (json.dumps(GOOD | {"version": 0}), "older"),
        (json.dumps(GOOD | {"version": "x"}), "older"),
        (json.dumps(GOOD | {"body": {"seq": 5}}), "checksum"),
        (json.dumps(GOOD | {"body": [1]}), "checksum"),
    ],
)
def test_a_changed_value_is_refused_with_the_exact_fault_the_key_and_the_repair(text: str, fault: str) -> None:
    """Edited, cut, older and newer values are never believed."""
    with pytest.raises(StateCorrupt, match=fault) as caught:
        decode("cursor", text, key="tidegate.x.cursor", repair="Run the repair")
    assert "tidegate.x.cursor" in str(caught.value)
    assert "Run the repair" in str(caught.value)

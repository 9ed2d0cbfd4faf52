"""Laws of the Variable store, with Airflow's own `Variable` failing in the ways it can. The real one: `tests/e2e`."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import Variable

from tidegate.airflow.store import VariableStore
from tidegate.errors import StateUnavailable


def fail(*_: Any, **__: Any) -> Any:
    raise RuntimeError("API server is away")


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("keys", lambda s: s.keys("tidegate.p.")),
        ("get", lambda s: s.get("tidegate.p.cursor")),
        ("set", lambda s: s.put("tidegate.p.cursor", "x", "d")),
        ("delete", lambda s: s.delete("tidegate.p.cursor")),
    ],
)
def test_a_variable_that_cannot_be_reached_is_an_error_and_never_a_default(
    monkeypatch: pytest.MonkeyPatch, method: str, call: Any
) -> None:
    """Whatever the verb; it can be tried again, and the key is named."""
    monkeypatch.setattr(Variable, method, fail)
    with pytest.raises(StateUnavailable, match="API server is away") as caught:
        call(VariableStore())
    assert caught.value.retryable
    assert "tidegate.p." in str(caught.value)


def test_keys_compare_exactly_even_where_the_database_compares_loosely(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's LIKE ignores case, and pages may repeat a key."""
    monkeypatch.setattr(Variable, "keys", lambda prefix: ["tidegate.p.b", "TIDEGATE.P.c", "tidegate.p.a", "tidegate.p.a"])
    assert VariableStore().keys("tidegate.p.") == ["tidegate.p.a", "tidegate.p.b"]


def test_no_default_is_passed_when_a_key_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A default would come back on a failed read too."""
    asked: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def get(*words: Any, **names: Any) -> str:
        asked.append((words, names))
        return "value"

    monkeypatch.setattr(Variable, "get", get)
    assert VariableStore().get("k") == "value"
    assert asked == [(("k",), {})]

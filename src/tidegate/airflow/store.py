"""The `StateStore` port over Airflow Variables, as a task sees them.

Inside a task, `Variable.get` reports a failed read and a missing key alike. So existence is decided by the listing alone
(`Variable.keys`, which fails loudly), and a listed key that cannot be read is an error, never an empty value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from airflow.sdk import Variable

from tidegate.core.errors import StateUnavailable
from tidegate.testing.failpoints import reach

T = TypeVar("T")


class VariableStore:
    """Variables of the running task's Airflow; every failure is a `StateUnavailable`."""

    def keys(self, prefix: str) -> list[str]:
        """Every key that starts with `prefix`, sorted; letters compare exactly, also where the database compares loosely."""
        listed = self._ask("list", prefix, lambda: list(Variable.keys(prefix=prefix)))
        return sorted({key for key in listed if key.startswith(prefix)})

    def get(self, key: str) -> str:
        """The text of a listed key."""
        return str(self._ask("read", key, lambda: Variable.get(key)))

    def put(self, key: str, value: str, description: str) -> None:
        """Write one key."""
        kind = key.split(".")[2]  # tidegate.<pipeline>.<kind>...
        reach(f"before-{kind}")
        self._ask("write", key, lambda: Variable.set(key, value, description=description))
        reach(f"after-{kind}")

    def delete(self, key: str) -> None:
        """Remove one key."""
        self._ask("delete", key, lambda: Variable.delete(key))

    def _ask(self, verb: str, key: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except Exception as error:
            raise StateUnavailable(
                f"Airflow could not {verb} the Variable {key}: {type(error).__name__}: {error}",
                fix="Nothing was planned or committed on a guess. Check the API server and its database; the task tries again",
                key=key,
            ) from error

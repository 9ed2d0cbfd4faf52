"""The `StateStore` port over Airflow Variables, as a task sees them.

Inside a task, `Variable.get` reports a failed read and a missing key alike. So existence is decided by the listing alone
(`Variable.keys`, which fails loudly), and a listed key that cannot be read is an error, never an empty value.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from airflow.sdk import Variable

from tidegate.core.errors import StateUnavailable
from tidegate.testing.failpoints import reach

PAGE = 1000
"""Keys of one answer; Airflow asks for the next page when there are so many."""


class VariableStore:
    """Variables of the running task's Airflow; every failure is a `StateUnavailable`."""

    def keys(self, prefix: str) -> list[str]:
        """Every key that starts with `prefix`, sorted; letters compare exactly, also where the database compares loosely."""
        with asking_airflow("list", prefix):
            listed = list(Variable.keys(prefix=prefix))
            # pages begin at positions: while a key of an earlier page is deleted, the next page begins one key too late
            while len(listed) >= PAGE and listed != (again := list(Variable.keys(prefix=prefix))):
                listed = again
        return sorted({key for key in listed if key.startswith(prefix)})

    def get(self, key: str) -> str:
        """The text of a listed key."""
        with asking_airflow("read", key):
            return str(Variable.get(_in_url(key)))

    def put(self, key: str, value: str, description: str) -> None:
        """Write one key; the process may end at the fail points of the key's kind."""
        kind = key.split(".")[2]  # tidegate.<pipeline>.<kind>...
        reach(f"before-{kind}")
        with asking_airflow("write", key):
            Variable.set(_in_url(key), value, description=description)
        reach(f"after-{kind}")

    def delete(self, key: str) -> None:
        """Remove one key."""
        with asking_airflow("delete", key):
            Variable.delete(_in_url(key))


def _in_url(key: str) -> str:
    """The key as the task's client needs it: it puts the key into a URL as it is, so that `a?b` would be the key `a`."""
    return quote(key, safe="")


@contextmanager
def asking_airflow(verb: str, key: str) -> Iterator[None]:
    """Whatever Airflow raises inside is a Variable of which nothing is known."""
    try:
        yield
    except Exception as error:
        raise StateUnavailable(
            f"Airflow could not {verb} the Variable {key}: {type(error).__name__}: {error}",
            fix="Nothing was planned or committed on a guess. Check the API server and its database; the task tries again",
            key=key,
        ) from error

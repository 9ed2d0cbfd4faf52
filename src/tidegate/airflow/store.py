"""The `StateStore` port over Airflow Variables, as a task sees them.

Inside a task, `Variable.get` reports a failed read and a missing key alike. So existence is decided by the listing alone
(`Variable.keys`, which fails loudly), and a listed key that cannot be read is an error, never an empty value.

Airflow asks secrets backends and the environment before its database, and writes into the database alone. So each value is read
back once it is written, and a backend of the task that knows a key is named: the schedule would stand still otherwise. What is
read back may also be what another try of the task, which was given up, wrote at that time: it is another value of ours then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote

from airflow.sdk import Variable

from tidegate.core.model.errors import StateShadowed, StateUnavailable
from tidegate.core.state.codec import HEAD
from tidegate.failpoints import reach

PAGE = 1000
"""Keys of one answer; Airflow asks for the next page when there are so many."""
DATABASE = ("ExecutionAPISecretsBackend", "MetastoreBackend")
"""The backends that answer from Airflow's database: for a task through the API server, for a server by themselves."""


class VariableStore:
    """Variables of the running task's Airflow; every failure is a `StateUnavailable`."""

    def __init__(self) -> None:
        self._read: dict[str, str] = {}

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
            _refuse_shadow(key)
            self._read[key] = str(Variable.get(_in_url(key)))
            return self._read[key]

    def put(self, key: str, value: str, description: str) -> None:
        """Write one key; the process may end at the fail points of the key's kind."""
        kind, before = key.split(".")[2], self._read.get(key)  # tidegate.<pipeline>.<kind>...
        reach(f"before-{kind}")
        with asking_airflow("write", key):
            Variable.set(_in_url(key), value, description=description)
        reach(f"after-{kind}")
        now = self.get(key)
        if now != value and (now == before or not HEAD.match(now)):
            raise shadowed(key, "a secrets backend of the API server, or its environment")

    def delete(self, key: str) -> None:
        """Remove one key."""
        with asking_airflow("delete", key):
            Variable.delete(_in_url(key))


def _in_url(key: str) -> str:
    """The key as the task's client needs it: it puts the key into a URL as it is, so that `a?b` would be the key `a`."""
    return quote(key, safe="")


def _refuse_shadow(key: str) -> None:
    from airflow.sdk.execution_time.supervisor import ensure_secrets_backend_loaded  # noqa: PLC0415 - in tasks only

    if (name := answering(ensure_secrets_backend_loaded(), _in_url(key))) is not None:
        raise shadowed(key, f"the task's {name}")


def answering(backends: Iterable[Any], key: str) -> str | None:
    """The first of the secrets backends that has a Variable of this name, other than the database; None where none has."""
    for backend in backends:
        name = type(backend).__name__
        with suppress(Exception):  # as Airflow, which goes on with the next one
            if name not in DATABASE and backend.get_variable(key=key) is not None:
                return name
    return None


def shadowed(key: str, by: str) -> StateShadowed:
    """The error of a Variable that something else answers for."""
    return StateShadowed(
        f"the Variable {key} cannot be read, since {by} has a value of that name",
        fix=f"Remove it there, or the environment variable AIRFLOW_VAR_{key.upper()}, then clear the failed task. "
        "The value in Airflow's database is complete",
        key=key,
    )


@contextmanager
def asking_airflow(verb: str, key: str) -> Iterator[None]:
    """Whatever Airflow raises inside is a Variable of which nothing is known."""
    try:
        yield
    except StateShadowed:
        raise
    except Exception as error:
        raise StateUnavailable(
            f"Airflow could not {verb} the Variable {key}: {type(error).__name__}: {error}",
            fix="Nothing was planned or committed on a guess. Check the API server and its database; the task tries again",
            key=key,
        ) from error

"""The `StateStore` port over Airflow Variables, as code inside the API server sees them: routes of a plugin, for example.

There, `Variable` of the task SDK does not know the database, and `Variable.get` of Airflow's models takes a database that does
not answer for a missing key. So the table is read by a session, as Airflow's own routes do. A task has no session; it uses
`tidegate.airflow.store.VariableStore`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow.models.variable import Variable
from airflow.utils.session import create_session
from sqlalchemy import select

from tidegate.airflow.store import asking_airflow

PAGE = 500
"""Keys of one question: databases bound the parameters of a statement."""


class DatabaseStore:
    """Variables in Airflow's database, with one short session a call; every failure is a `StateUnavailable`."""

    def keys(self, prefix: str) -> list[str]:
        """Every key that starts with `prefix`, sorted; letters compare exactly, also where the database compares loosely."""
        with asking_airflow("list", prefix), create_session(scoped=False) as session:
            keys = session.scalars(select(Variable.key).where(Variable.key.startswith(prefix, autoescape=True)))
            return sorted(key for key in keys if key.startswith(prefix))

    def get(self, key: str) -> str:
        """The text of a listed key."""
        with asking_airflow("read", key), create_session(scoped=False) as session:
            variable = session.scalar(select(Variable).where(Variable.key == key))
            if variable is None or variable.key != key:
                raise KeyError(key)
            if variable.val is None:  # Airflow has logged why
                raise ValueError("the Fernet key of this Airflow does not decrypt it")
            return str(variable.val)

    def values(self, keys: Sequence[str]) -> dict[str, str]:
        """The texts of listed keys, in few questions; without those that are gone by now, or that cannot be decrypted."""
        found: dict[str, str] = {}
        for at in range(0, len(keys), PAGE):
            with asking_airflow("read", f"{keys[at]} and others"), create_session(scoped=False) as session:
                for variable in session.scalars(select(Variable).where(Variable.key.in_(keys[at : at + PAGE]))):
                    if variable.val is not None:
                        found[variable.key] = str(variable.val)
        return found

    def put(self, key: str, value: str, description: str) -> None:
        """Write one key."""
        with asking_airflow("write", key), create_session(scoped=False) as session:
            Variable.set(key, value, description=description, session=session)

    def delete(self, key: str) -> None:
        """Remove one key."""
        with asking_airflow("delete", key), create_session(scoped=False) as session:
            Variable.delete(key, session=session)


class Held(DatabaseStore):
    """Values that were read at once."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def get(self, key: str) -> str:
        """The text of a key that was read."""
        return self._values[key]

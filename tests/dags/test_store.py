"""Laws of the stores over Airflow's Variables, on a real database of Airflow, and of what Airflow's API shows of them."""

from __future__ import annotations

import os
import socket
import threading
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import psutil
import pytest
import structlog
import uvicorn
from airflow import settings
from airflow._shared.secrets_masker import DEFAULT_SENSITIVE_FIELDS, SecretsMasker, secrets_masker
from airflow.api_fastapi.core_api.datamodels.variables import VariableResponse
from airflow.models import crypto, import_all_models
from airflow.models.base import Base
from airflow.models.variable import Variable as DatabaseVariable
from airflow.sdk import Variable
from airflow.sdk.execution_time.supervisor import InProcessSupervisorComms, InProcessTestSupervisor, set_supervisor_comms
from airflow.utils.session import create_session
from cryptography.fernet import Fernet
from sqlalchemy import create_engine, delete
from sqlalchemy.orm import sessionmaker

from tidegate.airflow.store import PAGE, VariableStore
from tidegate.core.config.names import MASKED_WORDS
from tidegate.core.model.errors import StateShadowed, StateUnavailable
from tidegate.core.state.codec import decode, encode
from tidegate.testing.contracts.state_store import Fill, StateStoreContract
from tidegate.ui.database import DatabaseStore


@pytest.fixture(scope="module")
def database() -> Iterator[None]:
    """Airflow's tables, in the SQLite file of this Airflow."""
    settings.configure_orm()
    import_all_models()  # tables refer to others
    Base.metadata.create_all(settings.engine)
    yield
    Base.metadata.drop_all(settings.engine)


@pytest.fixture(scope="module")
def execution_api(database: None) -> Iterator[str]:
    """The server that Airflow's tasks talk to, on that database; it lets everybody in."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Airflow's own imports
        from airflow.api_fastapi.execution_api.app import InProcessExecutionAPI  # noqa: PLC0415

        app = InProcessExecutionAPI().app
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        assert httpx.get(f"{url}/health", timeout=60).is_success  # it takes seconds to be ready, more than a task waits
        yield url
        server.should_exit = True
        thread.join()


@contextmanager
def as_a_task(url: str) -> Iterator[None]:
    """In this process, the task SDK sends what it asks to the server, as a task's supervisor does; nothing is tried twice."""
    supervisor = InProcessTestSupervisor(
        id=uuid.uuid4(),
        pid=os.getpid(),
        process=psutil.Process(),  # type: ignore[arg-type] # it is asked for nothing
        process_log=structlog.get_logger(),
        client=InProcessTestSupervisor._Client(base_url=url, token=""),
    )
    supervisor.comms = InProcessSupervisorComms(supervisor=supervisor)
    with supervisor.client, set_supervisor_comms(supervisor.comms):
        yield


@pytest.fixture
def fill_table(database: None) -> Fill:
    """Writes many Variables in one transaction."""

    def write(keys: Iterable[str]) -> None:
        with create_session() as session:
            session.add_all(DatabaseVariable(key=key, val="v") for key in keys)

    return write


class TestVariableStore(StateStoreContract):
    """In a task."""

    @pytest.fixture
    def store(self, execution_api: str) -> Iterator[VariableStore]:
        with as_a_task(execution_api):
            yield VariableStore()

    @pytest.fixture
    def another(self) -> VariableStore:
        return VariableStore()

    @pytest.fixture
    def unreachable(self) -> Iterator[VariableStore]:
        with socket.create_server(("127.0.0.1", 0)) as bound:
            port = bound.getsockname()[1]
        with as_a_task(f"http://127.0.0.1:{port}"):
            yield VariableStore()

    @pytest.fixture
    def fill(self, fill_table: Fill) -> Fill:
        return fill_table

    @pytest.mark.parametrize("value", ["another", '{"seq": 1}'])
    def test_a_variable_that_the_environment_shadows_is_named(
        self, store: VariableStore, prefix: str, monkeypatch: pytest.MonkeyPatch, value: str
    ) -> None:
        """Airflow would read the environment's value for ever, whatever is written. The database keeps what was written."""
        key = f"{prefix}cursor"
        store.put(key, '{"seq": 1}', "d")
        monkeypatch.setenv(f"AIRFLOW_VAR_{key.upper()}", value)
        with pytest.raises(StateShadowed, match="EnvironmentVariablesBackend") as shadow:
            store.put(key, '{"seq": 2}', "d")
        assert f"AIRFLOW_VAR_{key.upper()}" in shadow.value.fix
        with pytest.raises(StateShadowed):
            store.get(key)
        assert DatabaseStore().get(key) == '{"seq": 2}'

    def test_a_value_that_is_not_read_back_is_shadowed(
        self, store: VariableStore, prefix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By the API server, whose backends a task cannot ask."""
        monkeypatch.setattr(Variable, "get", lambda _key: "another")
        with pytest.raises(StateShadowed, match="API server"):
            store.put(f"{prefix}cursor", '{"seq": 2}', "d")

    def test_what_another_writer_wrote_at_the_same_time_is_no_shadow(
        self, store: VariableStore, prefix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is another value of ours. A backend that has an old copy goes on answering what it did before."""
        key, get = f"{prefix}cursor", Variable.get
        ours, theirs = (encode("cursor", {"seq": seq}) for seq in (1, 2))
        store.put(key, ours, "d")
        monkeypatch.setattr(Variable, "get", lambda _key: theirs)
        store.put(key, ours, "d")
        monkeypatch.setattr(Variable, "get", get)
        assert store.get(key) == ours
        monkeypatch.setattr(Variable, "get", lambda _key: ours)
        with pytest.raises(StateShadowed, match="API server"):
            store.put(key, theirs, "d")

    def test_a_key_that_is_deleted_during_a_listing_hides_no_other(
        self, store: VariableStore, fill: Fill, prefix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between two pages, the keys behind it move up."""
        keys = [f"{prefix}range.{number:010d}" for number in range(PAGE + 5)]
        fill(keys)
        send, gone = InProcessSupervisorComms.send, keys[:2]

        def send_then_delete(comms: InProcessSupervisorComms, message: Any) -> Any:
            answer = send(comms, message)
            if gone:
                with create_session() as session:
                    session.execute(delete(DatabaseVariable).where(DatabaseVariable.key == gone.pop()))
            return answer

        monkeypatch.setattr(InProcessSupervisorComms, "send", send_then_delete)
        assert store.keys(prefix) == keys[2:]


class TestDatabaseStore(StateStoreContract):
    """In the API server."""

    @pytest.fixture
    def store(self, database: None) -> DatabaseStore:
        return DatabaseStore()

    @pytest.fixture
    def another(self) -> DatabaseStore:
        return DatabaseStore()

    @pytest.fixture
    def unreachable(self, monkeypatch: pytest.MonkeyPatch) -> DatabaseStore:
        monkeypatch.setattr(settings, "NonScopedSession", sessionmaker(create_engine("sqlite:////nowhere/airflow.db")))
        return DatabaseStore()

    @pytest.fixture
    def fill(self, fill_table: Fill) -> Fill:
        return fill_table

    def test_a_value_that_another_fernet_key_encrypted_cannot_be_read(
        self, store: DatabaseStore, prefix: str, use_fernet_key: Callable[[], None]
    ) -> None:
        """It is listed, and counts neither as missing nor as empty."""
        use_fernet_key()
        store.put(f"{prefix}cursor", "v", "")
        assert store.get(f"{prefix}cursor") == "v"
        use_fernet_key()
        assert store.keys(prefix) == [f"{prefix}cursor"]
        with pytest.raises(StateUnavailable, match="Fernet key"):
            store.get(f"{prefix}cursor")


@pytest.fixture
def use_fernet_key(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Lets Airflow encrypt with a new key, until the test ends."""

    def use() -> None:
        monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", Fernet.generate_key().decode())
        crypto.get_fernet.cache_clear()

    yield use
    crypto.get_fernet.cache_clear()


def test_keys_are_listed_once_and_in_order_whatever_airflow_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages may repeat a key."""
    monkeypatch.setattr(Variable, "keys", lambda prefix: ["tidegate.p.b", "tidegate.p.a", "tidegate.p.a"])
    assert VariableStore().keys("tidegate.p.") == ["tidegate.p.a", "tidegate.p.b"]


WORDS = ("password-resets", "token-events", "proxy-logs", "dsn", "a.service_account.b")


@pytest.fixture(autouse=True)
def _masker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server's: it knows Airflow's own list of words, and no password yet."""
    made = SecretsMasker()
    made.sensitive_variables_fields = list(DEFAULT_SENSITIVE_FIELDS)
    monkeypatch.setattr(secrets_masker, "_secrets_masker", lambda: made)


def shown(key: str, value: str) -> str:
    """What the REST API, and so the UI, shows of a Variable."""
    return str(VariableResponse(key=key, value=value, description=None, is_encrypted=False, team_name=None).val)


def test_the_words_that_names_must_not_contain_are_airflows() -> None:
    """All of them; one that contains another needs no mention."""
    assert set(MASKED_WORDS) <= DEFAULT_SENSITIVE_FIELDS
    assert all(any(ours in word for ours in MASKED_WORDS) for word in DEFAULT_SENSITIVE_FIELDS)


def test_the_api_shows_a_saved_value_as_it_is_whatever_the_topics_are_called() -> None:
    """The values are no JSON, so nothing looks for keys in them."""
    body = {"offsets": {word: {"0": 5} for word in WORDS}, "topic_ids": dict.fromkeys(WORDS, "AbC")}
    key = "tidegate.resets.cursor"
    assert shown(key, encode("cursor", body)) == encode("cursor", body)
    assert decode("cursor", shown(key, encode("cursor", body)), key=key, repair="") == body

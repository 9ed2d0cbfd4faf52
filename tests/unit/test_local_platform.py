"""What a platform decides before it starts anything: ports, parts, environment."""

from __future__ import annotations

import json
import os
import socket
from concurrent.futures import Future
from pathlib import Path

import pytest

from tidegate.core.model.errors import PlatformError
from tidegate_local import sockets, warm_up
from tidegate_local.platform import PARTS, Platform
from tidegate_local.saved_ports import PORTS


@pytest.fixture(autouse=True)
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here runs Java, so none is needed."""
    monkeypatch.setattr("tidegate_local.jars.find_java", lambda: tmp_path / "jdk" / "bin" / "java")


def test_a_platform_that_was_never_started_is_stopped_and_touches_nothing(tmp_path: Path) -> None:
    """Looking and stopping make no files."""
    platform = Platform(tmp_path / "state", tmp_path)
    assert {server.state for server in platform.status()} == {"stopped"}
    platform.down()
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("attribute", ["bootstrap_servers", "spark_remote", "airflow_url", "airflow_login"])
def test_addresses_of_a_platform_that_was_never_started_are_an_error(tmp_path: Path, attribute: str) -> None:
    """It says how to start it."""
    with pytest.raises(PlatformError, match=r"No platform was started.*tidegate up"):
        getattr(Platform(tmp_path, tmp_path), attribute)


def test_ports_are_chosen_once_and_kept(tmp_path: Path) -> None:
    """Another process finds the same ports."""
    tmp_path.joinpath("state").mkdir()
    chosen = Platform(tmp_path / "state", tmp_path)._settle_ports(PARTS)
    again = Platform(tmp_path / "state", tmp_path)
    assert set(chosen) == set(PORTS)
    assert len(set(chosen.values())) == len(PORTS)
    assert again._settle_ports(PARTS) == chosen
    assert again.bootstrap_servers == f"127.0.0.1:{chosen['kafka']}"
    assert again.spark_remote == f"sc://127.0.0.1:{chosen['spark']}"
    assert again.airflow_url == f"http://127.0.0.1:{chosen['airflow']}"


def test_a_configured_port_beats_a_saved_one(tmp_path: Path) -> None:
    """As long as nothing runs, ports may move."""
    Platform(tmp_path, tmp_path)._settle_ports(PARTS)
    wanted = sockets.choose_port()
    assert Platform(tmp_path, tmp_path, ports={"kafka": wanted})._settle_ports(PARTS)["kafka"] == wanted


def test_a_port_that_somebody_took_is_named_with_its_owner(tmp_path: Path) -> None:
    """The platform never moves silently; a part that is not asked for does not matter."""
    ports = Platform(tmp_path, tmp_path)._settle_ports(PARTS)
    with socket.create_server((sockets.LOOPBACK, ports["spark"])):
        with pytest.raises(PlatformError, match=rf"Port {ports['spark']}, which is spark's, is taken by .*pid"):
            Platform(tmp_path, tmp_path)._settle_ports(PARTS)
        assert Platform(tmp_path, tmp_path)._settle_ports(["kafka"]) == ports


def test_a_damaged_platform_file_is_an_error(tmp_path: Path) -> None:
    """Ports are not chosen anew over servers that may run."""
    (tmp_path / "platform.json").write_text('{"ports": {}}')
    with pytest.raises(PlatformError, match="is not what `tidegate up` wrote"):
        Platform(tmp_path, tmp_path).status()


def test_unknown_parts_and_ports_are_refused(tmp_path: Path) -> None:
    """And the known ones are listed."""
    with pytest.raises(PlatformError, match=r"no part 'flink'.*kafka, spark, airflow"):
        Platform(tmp_path, tmp_path).up(["flink"])
    with pytest.raises(PlatformError, match="no port 'flink'"):
        Platform(tmp_path, tmp_path, ports={"flink": 1})


def test_a_second_up_waits_for_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is held by one at a time, and freed afterwards."""
    monkeypatch.setattr("tidegate_local.platform.LOCK_TIMEOUT_S", 0.0)
    first, second = Platform(tmp_path, tmp_path), Platform(tmp_path, tmp_path)
    with first._lock(), pytest.raises(PlatformError, match="Another `tidegate up`"), second._lock():
        pytest.fail("two held the lock")
    with Platform(tmp_path, tmp_path)._lock():
        pass


def test_a_child_finds_the_platform_by_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's home, Spark's settings, PyIceberg's catalog; a proxy is not asked for the loopback."""
    monkeypatch.setenv("NO_PROXY", "example.org")
    variables = Platform(tmp_path, tmp_path).environment()
    assert variables["AIRFLOW_HOME"] == str(tmp_path / "airflow")
    assert variables["SPARK_CONF_DIR"] == str(tmp_path / "spark" / "conf")
    assert variables["PYICEBERG_CATALOG__LAKE__URI"] == f"sqlite:///{tmp_path}/lake/catalog.db"
    assert variables["NO_PROXY"] == variables["no_proxy"] == "example.org,127.0.0.1,localhost"
    assert variables["JAVA_HOME"] == str(tmp_path / "jdk")


def test_servers_get_nothing_of_another_airflow_or_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's AIRFLOW__DATABASE__SQL_ALCHEMY_CONN must not be migrated by us."""
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "postgresql://production")
    monkeypatch.setenv("SPARK_HOME", "/elsewhere")
    monkeypatch.setenv("LANG", "C.UTF-8")
    variables = Platform(tmp_path, tmp_path)._child_environment()
    assert "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN" not in variables
    assert variables["SPARK_HOME"] != "/elsewhere"
    assert variables["LANG"] == "C.UTF-8"


def test_a_status_is_json_ready(tmp_path: Path) -> None:
    """For `tidegate status --json`."""
    assert json.loads(json.dumps([server.to_dict() for server in Platform(tmp_path, tmp_path).status()]))[0]["name"] == "kafka"


@pytest.mark.parametrize(
    ("raised", "said"),
    [(None, "ready"), (PlatformError("the broker is away"), "failed, and the first runs will be slow: the broker is away")],
)
def test_a_warm_up_that_fails_is_reported_and_not_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: PlatformError | None, said: str
) -> None:
    """Everything is up all the same."""

    def run(*_: object) -> None:
        if raised is not None:
            raise raised

    monkeypatch.setattr("tidegate_local.warm_up.run", run)
    reported: list[tuple[str, str]] = []
    Platform(tmp_path, tmp_path)._warm_up([], lambda phase, state: reported.append((phase, state)))
    assert reported == [("warm-up", "loading"), ("warm-up", said)]


def test_without_kafka_or_spark_nothing_is_warmed_up(tmp_path: Path) -> None:
    """The server that did not start is what `up` raises."""
    failed: Future[None] = Future()
    failed.set_exception(PlatformError("Spark did not start"))
    reported: list[str] = []
    Platform(tmp_path, tmp_path)._warm_up([failed], lambda phase, _: reported.append(phase))
    assert reported == []


def test_a_warm_up_imports_nothing_of_the_folder_that_it_is_called_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project may have modules of any name. Where the state is a file, nothing else can run."""
    (tmp_path / "secrets.py").write_text("raise RuntimeError('a module of the project')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PlatformError) as told:
        warm_up.run(tmp_path / "secrets.py", tmp_path, os.environ, tmp_path / "log")
    assert "a module of the project" not in str(told.value)

"""What a platform decides and writes before it starts anything: ports, parts, settings, environment."""

from __future__ import annotations

import configparser
import dataclasses
import json
import os
import re
import socket
import stat
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tidegate.core.model.errors import PlatformError
from tidegate_local import airflow, broker, sockets, spark_connect
from tidegate_local.platform import PARTS, Platform
from tidegate_local.sockets import PORTS


@pytest.fixture(autouse=True)
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here runs Java, so none is needed."""
    monkeypatch.setattr("tidegate_local.jars.find_java", lambda: tmp_path / "jdk" / "bin" / "java")


DAMAGED = "is not what `tidegate up` wrote"


def airflow_in(home: Path, project: Path, **more: Any) -> airflow.Airflow:
    return airflow.Airflow(home=home, project=project, port=8123, env={"A": "1"}, logs=project, pid_files=project, **more)


@pytest.mark.parametrize(
    ("asks", "message"),
    [
        *(
            (lambda folder, name=name: getattr(Platform(folder, folder), name), r"No platform was started.*tidegate up")
            for name in ("bootstrap_servers", "spark_remote", "airflow_url", "airflow_login")
        ),
        (lambda folder: Platform(folder, folder).up(["flink"]), r"no part 'flink'.*kafka, spark, airflow"),
        (lambda folder: Platform(folder, folder, ports={"flink": 1}), "no port 'flink'"),
        (lambda folder: ((folder / "platform.json").write_text('{"ports": {}}'), Platform(folder, folder).status()), DAMAGED),
        (lambda folder: ((folder / "secrets.json").write_text("{"), airflow.Secrets.load(folder)), DAMAGED),
        (lambda folder: airflow_in(folder / "what?1", folder).prepare(), "has a question mark"),
        (lambda _: sockets.choose_port({*sockets.CHOSEN_FROM}), "No free port"),
    ],
)
def test_what_cannot_start_is_refused_and_touches_nothing(tmp_path: Path, asks: Callable[[Path], object], message: str) -> None:
    """Ports and keys are not made anew over servers that may run; two projects never share a database."""
    with pytest.raises(PlatformError, match=message):
        asks(tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_a_platform_that_was_never_started_is_stopped_and_touches_nothing(tmp_path: Path) -> None:
    """Looking and stopping make no files. What it tells is JSON."""
    platform = Platform(tmp_path / "state", tmp_path)
    assert {server["state"] for server in json.loads(json.dumps([each.to_dict() for each in platform.status()]))} == {"stopped"}
    platform.down()
    assert not (tmp_path / "state").exists()


def test_ports_are_chosen_once_and_kept(tmp_path: Path) -> None:
    """Another process finds the same ports. As long as nothing runs, one that is configured may move."""
    chosen = Platform(tmp_path, tmp_path)._settle_ports(PARTS)
    again = Platform(tmp_path, tmp_path)
    assert (set(chosen), len(set(chosen.values()))) == (set(PORTS), len(PORTS))
    assert again._settle_ports(PARTS) == chosen
    assert again.bootstrap_servers == f"127.0.0.1:{chosen['kafka']}"
    assert again.spark_remote == f"sc://127.0.0.1:{chosen['spark']}"
    assert again.airflow_url == f"http://127.0.0.1:{chosen['airflow']}"
    wanted = sockets.choose_port()
    assert Platform(tmp_path, tmp_path, ports={"kafka": wanted})._settle_ports(PARTS)["kafka"] == wanted


def test_a_port_that_somebody_took_is_named_with_its_owner(tmp_path: Path) -> None:
    """The platform never moves silently; a part that is not asked for does not matter."""
    ports = Platform(tmp_path, tmp_path)._settle_ports(PARTS)
    with socket.create_server((sockets.LOOPBACK, ports["spark"])):
        with pytest.raises(PlatformError, match=rf"Port {ports['spark']}, which is spark's, is taken by .*pid"):
            Platform(tmp_path, tmp_path)._settle_ports(PARTS)
        assert Platform(tmp_path, tmp_path)._settle_ports(["kafka"]) == ports


def test_a_second_up_waits_for_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is held by one at a time, and freed afterwards."""
    monkeypatch.setattr("tidegate_local.platform.LOCK_TIMEOUT_S", 0.0)
    for _ in range(2):
        with Platform(tmp_path, tmp_path)._lock(), pytest.raises(PlatformError, match="Another `tidegate up`"):
            Platform(tmp_path, tmp_path)._lock().__enter__()


def test_a_child_finds_the_platform_by_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's home, Spark's settings, PyIceberg's catalog; nothing of another Airflow or Spark."""
    elsewhere = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql://production", "SPARK_HOME": "/elsewhere"}
    for name, value in {**elsewhere, "NO_PROXY": "example.org", "LANG": "C.UTF-8"}.items():
        monkeypatch.setenv(name, value)
    assert Platform(tmp_path, tmp_path).environment().items() >= {
        ("AIRFLOW_HOME", f"{tmp_path}/airflow"),
        ("SPARK_CONF_DIR", f"{tmp_path}/spark/conf"),
        ("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/lake/catalog.db"),
        *((name, "example.org,127.0.0.1,localhost") for name in ("NO_PROXY", "no_proxy")),
        ("JAVA_HOME", f"{tmp_path}/jdk"),
    }
    inherited = Platform(tmp_path, tmp_path)._child_environment()
    assert inherited["LANG"] == "C.UTF-8"
    assert not elsewhere.items() & inherited.items()


@pytest.mark.parametrize(
    ("server", "why", "said"),
    [
        (None, None, ["loading", "ready"]),
        (None, "away", ["loading", "failed, and the first runs will be slow: away (see warm-up.log)"]),
        (PlatformError("Spark did not start"), None, []),
    ],
)
def test_a_warm_up_that_fails_is_reported_and_not_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Exception | None, why: str | None, said: list[str]
) -> None:
    """Everything is up all the same; a server that did not start is what `up` raises, and nothing is warmed up."""
    monkeypatch.setattr("tidegate_local.platform.run_to_end", lambda *_, **__: why)
    started: Future[None] = Future()
    started.set_exception(server) if server else started.set_result(None)
    reported: list[str] = []
    Platform(tmp_path, tmp_path)._warm_up([started], lambda _, state: reported.append(state.replace(f"{tmp_path}/logs/", "")))
    assert reported == said


def test_a_warm_up_imports_nothing_of_the_folder_that_it_is_called_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project may have modules of any name. Here no platform was started, which is what is reported."""
    (tmp_path / "secrets.py").write_text("raise RuntimeError('a module of the project')")
    monkeypatch.chdir(tmp_path)
    reported: list[str] = []
    Platform(tmp_path / "state", tmp_path)._warm_up([], lambda _, state: reported.append(state))
    assert "No platform was started" in reported[-1]
    assert "a module of the project" not in (tmp_path / "state" / "logs" / "warm-up.log").read_text()


def test_everything_listens_on_the_loopback(tmp_path: Path) -> None:
    """No setting lets another machine in. A mistyped topic is an error, not a new topic."""
    kafka = broker.server_properties(tmp_path, 1001, 1002)
    spark = spark_connect.spark_defaults(tmp_path, tmp_path, tmp_path)
    assert kafka["listeners"] == kafka["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1001,CONTROLLER://127.0.0.1:1002"
    assert kafka["auto.create.topics.enable"] == "false"
    assert spark["spark.driver.bindAddress"] == spark["spark.driver.host"] == "127.0.0.1"
    assert "host = 127.0.0.1\n" in airflow.render_config(tmp_path, tmp_path, 1003, airflow.Secrets.make())


def test_spark_settings_are_written_where_spark_submit_looks(tmp_path: Path) -> None:
    """SPARK_CONF_DIR holds both files and no server setting, and PyIceberg's catalog. Java reads a backslash as an escape."""
    spark_connect.prepare(tmp_path / "spark", tmp_path / "lake", tmp_path / "jars")
    written = (tmp_path / "spark" / "conf" / "spark-defaults.conf").read_text()
    ours = spark_connect.catalog_properties(tmp_path / "lake")
    assert f"spark.driver.extraClassPath={tmp_path}/jars/*\n" in written
    assert f"spark.sql.catalog.lake.warehouse={ours['warehouse']}\n" in written
    assert f"spark.sql.catalog.lake.uri=jdbc:sqlite:{ours['uri'].removeprefix('sqlite:///')}?" in written
    assert "spark.connect" not in written
    assert (tmp_path / "spark" / "conf" / "log4j2.properties").is_file()
    assert spark_connect.render_properties({"b": "x", "a": "c:\\d"}) == "a=c:\\\\d\nb=x\n"


def test_airflow_reads_back_what_was_written_even_with_percent_signs(tmp_path: Path) -> None:
    """Airflow interpolates its configuration; a path may hold anything."""
    keys = airflow.Secrets.make()
    config = configparser.ConfigParser()
    config.read_string(airflow.render_config(tmp_path / "100%", tmp_path / "project", 8123, keys))
    assert config["database"]["sql_alchemy_conn"] == f"sqlite:///{tmp_path}/100%/airflow.db?timeout=60"
    assert config["core"]["dags_folder"] == f"{tmp_path}/project/dags"
    assert config["core"]["execution_api_server_url"] == "http://127.0.0.1:8123/execution/"
    assert config["core"]["fernet_key"] == keys.fernet_key


def test_receivers_take_no_slot_of_tasks_that_run_for_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are: each instance has a slot for its lease, and another one while the next lease begins."""
    monkeypatch.setattr(airflow.Airflow, "_migrate", lambda _: None)
    project, receivers = tmp_path / "project", tmp_path / "project" / "dags" / "receivers"
    receivers.mkdir(parents=True)

    def parallelism() -> int:
        airflow_in(tmp_path / "home", project).prepare()
        (line,) = re.findall(r"(?m)^parallelism = (\d+)$", (tmp_path / "home" / "airflow.cfg").read_text())
        return int(line)

    alone = parallelism()
    (receivers / "posts.yaml").write_text("{kind: http, topic: posts, listen: {port: 8080}, instances: 3}")
    assert parallelism() == alone + 6
    (receivers / "lines.yaml").write_text("{kind: file, topic: lines, file: {path: /var/log/app.log}}")
    (receivers / "broken.yaml").write_text("kind: http")
    assert parallelism() == alone + 7


def test_the_api_server_does_not_wait_long_for_a_lock_that_it_may_hold_itself(tmp_path: Path) -> None:
    """It waits in its event loop, in which the request that holds the lock has to end."""
    servers, name = airflow_in(tmp_path, tmp_path).servers(), "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
    assert [server.env.get(name) for server in servers] == [f"sqlite:///{tmp_path}/airflow.db", None, None, None]
    assert all(server.env["A"] == "1" for server in servers)


def test_airflows_secrets_are_made_once_and_private(tmp_path: Path) -> None:
    """They survive as long as the database; nobody else may read them."""
    assert airflow.Secrets.load(tmp_path) is None
    (keys := airflow.Secrets.make()).save(tmp_path)
    assert airflow.Secrets.load(tmp_path) == keys != airflow.Secrets.make()
    assert stat.S_IMODE((tmp_path / "secrets.json").stat().st_mode) == 0o600
    assert all(dataclasses.asdict(keys).values())


def test_a_heartbeat_of_the_process_before_does_not_count() -> None:
    """Airflow calls a heartbeat healthy for 30 s, also after a crash."""
    assert airflow.is_since("2026-01-01T00:00:10+00:00", 1767225605.0)
    assert not airflow.is_since("2026-01-01T00:00:00+00:00", 1767225605.0)
    assert not airflow.is_since(None, 0.0)


def test_a_chosen_port_is_free_and_below_the_ports_of_outgoing_connections() -> None:
    """Linux gives those from 32768 on. Once it is taken its owner is named; before, a message can still be made."""
    port = sockets.choose_port()
    assert port < 32_768
    assert (sockets.is_free(port), sockets.answers(port), sockets.owner_of(port)) == (True, False, "another process")
    with socket.create_server((sockets.LOOPBACK, port)):
        assert (sockets.is_free(port), sockets.answers(port)) == (False, True)
        assert str(os.getpid()) in sockets.owner_of(port)

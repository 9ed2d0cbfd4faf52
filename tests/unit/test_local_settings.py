"""What the platform writes for its servers: broker, Spark and Airflow settings."""

from __future__ import annotations

import configparser
import dataclasses
import stat
from pathlib import Path

import pytest

from tidegate.core.model.errors import PlatformError
from tidegate_local import airflow, broker, spark_connect


def test_everything_listens_on_the_loopback(tmp_path: Path) -> None:
    """No setting lets another machine in."""
    kafka = broker.server_properties(tmp_path, 1001, 1002)
    spark = spark_connect.spark_defaults(tmp_path, tmp_path, tmp_path)
    assert kafka["listeners"] == kafka["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1001,CONTROLLER://127.0.0.1:1002"
    assert spark["spark.driver.bindAddress"] == spark["spark.driver.host"] == "127.0.0.1"
    assert "host = 127.0.0.1\n" in airflow.render_config(tmp_path, tmp_path, 1003, airflow.Secrets.make())


def test_no_topic_appears_by_itself(tmp_path: Path) -> None:
    """A mistyped topic is an error, not a new topic."""
    assert broker.server_properties(tmp_path, 1, 2)["auto.create.topics.enable"] == "false"


def test_spark_and_pyiceberg_see_the_same_catalog(tmp_path: Path) -> None:
    """One SQLite file, one warehouse."""
    ours = spark_connect.catalog_properties(tmp_path)
    spark = spark_connect.spark_defaults(tmp_path, tmp_path, tmp_path)
    assert spark["spark.sql.catalog.lake.warehouse"] == ours["warehouse"] == (tmp_path / "warehouse").as_uri()
    assert spark["spark.sql.catalog.lake.uri"].split("?")[0].removeprefix("jdbc:sqlite:") == ours["uri"].removeprefix(
        "sqlite:///"
    )


def test_a_properties_file_keeps_backslashes_and_is_sorted() -> None:
    """Java reads a backslash as an escape."""
    assert spark_connect.render_properties({"b": "x", "a": "c:\\d"}) == "a=c:\\\\d\nb=x\n"


def test_spark_settings_are_written_where_spark_submit_looks(tmp_path: Path) -> None:
    """SPARK_CONF_DIR holds both files, and no server setting."""
    spark_connect.prepare(tmp_path / "spark", tmp_path / "lake", tmp_path / "jars")
    written = (tmp_path / "spark" / "conf" / "spark-defaults.conf").read_text()
    assert f"spark.driver.extraClassPath={tmp_path}/jars/*\n" in written
    assert "spark.connect" not in written
    assert (tmp_path / "spark" / "conf" / "log4j2.properties").is_file()


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
        airflow.Airflow(home=tmp_path / "home", project=project, port=8123, env={}, logs=tmp_path, pid_files=tmp_path).prepare()
        config = configparser.ConfigParser()
        config.read(tmp_path / "home" / "airflow.cfg")
        return config.getint("core", "parallelism")

    alone = parallelism()
    (receivers / "posts.yaml").write_text("{kind: http, topic: posts, listen: {port: 8080}, instances: 3}")
    assert parallelism() == alone + 6
    (receivers / "lines.yaml").write_text("{kind: file, topic: lines, file: {path: /var/log/app.log}}")
    (receivers / "broken.yaml").write_text("kind: http")
    assert parallelism() == alone + 7


def test_the_api_server_does_not_wait_long_for_a_lock_that_it_may_hold_itself(tmp_path: Path) -> None:
    """It waits in its event loop, in which the request that holds the lock has to end."""
    servers = airflow.Airflow(
        home=tmp_path, project=tmp_path, port=8123, env={"A": "1"}, logs=tmp_path, pid_files=tmp_path
    ).servers()
    name = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
    assert [server.env.get(name) for server in servers] == [f"sqlite:///{tmp_path}/airflow.db", None, None, None]
    assert all(server.env["A"] == "1" for server in servers)


def test_a_folder_that_the_url_of_its_database_would_cut_short_is_refused(tmp_path: Path) -> None:
    """Two such projects would share one database outside of both."""
    home = tmp_path / "what?1"
    with pytest.raises(PlatformError, match="has a question mark"):
        airflow.Airflow(home=home, project=tmp_path, port=8123, env={}, logs=tmp_path, pid_files=tmp_path).prepare()
    assert not home.exists()


def test_airflows_secrets_are_made_once_and_private(tmp_path: Path) -> None:
    """They survive as long as the database; nobody else may read them."""
    assert airflow.Secrets.load(tmp_path) is None
    keys = airflow.Secrets.make()
    keys.save(tmp_path)
    assert airflow.Secrets.load(tmp_path) == keys
    assert stat.S_IMODE((tmp_path / "secrets.json").stat().st_mode) == 0o600
    assert airflow.Secrets.make() != keys
    assert all(dataclasses.asdict(keys).values())


def test_damaged_secrets_are_an_error_not_new_secrets(tmp_path: Path) -> None:
    """New keys would make the database's encrypted values unreadable."""
    (tmp_path / "secrets.json").write_text("{")
    with pytest.raises(PlatformError, match="is not what `tidegate up` wrote"):
        airflow.Secrets.load(tmp_path)


def test_a_heartbeat_of_the_process_before_does_not_count() -> None:
    """Airflow calls a heartbeat healthy for 30 s, also after a crash."""
    assert airflow.is_since("2026-01-01T00:00:10+00:00", 1767225605.0)
    assert not airflow.is_since("2026-01-01T00:00:00+00:00", 1767225605.0)
    assert not airflow.is_since(None, 0.0)

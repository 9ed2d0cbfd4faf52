"""The embedded platform for real: a broker and a Spark Connect server, killed and mended; test_tools.py has its Airflow."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog

from tests.receivers import values
from tests.topics import make_topic, write
from tidegate.core.model.errors import PlatformError, SparkAuthFailed
from tidegate.spark.session import connect as tidegate_connect
from tidegate.waiting import wait_until
from tidegate_local import jars, sockets
from tidegate_local.platform import Platform, ServerStatus
from tidegate_local.process import ProcessId, members


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Platform]:
    """A platform that a test may break, stopped afterwards."""
    made = Platform(tmp_path / "state", tmp_path)
    yield made
    made.down()


def server(platform: Platform, name: str) -> ServerStatus:
    """One line of its status."""
    return next(server for server in platform.status() if server.name == name)


def kill(platform: Platform, name: str) -> None:
    """SIGKILL to one server, and wait until it is gone."""
    pid = server(platform, name).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: server(platform, name).state == "crashed", 10.0)


def processes(platform: Platform) -> list[psutil.Process]:
    """All that lives of a platform, found by its pid files."""
    pids = [server.pid for server in platform.status() if server.pid is not None]
    return [process for pid in pids for process in members(ProcessId.of(pid))]


def kafka_of(platform: Platform) -> dict[str, str]:
    return {"bootstrap.servers": platform.bootstrap_servers}


def connect(platform: Platform) -> Any:
    """A new session on the platform's Spark Connect server."""
    from pyspark.sql.connect.session import SparkSession  # noqa: PLC0415 - two seconds that not every test needs

    return SparkSession.builder.remote(platform.spark_remote).create()


def test_jars_that_were_tampered_with_are_resolved_anew_by_ivy(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache of the platform that runs, copied and damaged in each way; afterwards it is what the sums say."""
    good = jars.locate_jars()
    monkeypatch.setenv("TIDEGATE_CACHE_DIR", str(tmp_path))
    copied = jars.locate_jars()
    shutil.copytree(good.spark.parent, copied.spark.parent)
    changed, missing = sorted(copied.spark.glob("*.jar"))[:2]
    with changed.open("r+b") as content:
        content.write(b"tampered")
    missing.unlink()
    (copied.kafka / "aaa.jar").write_bytes(b"first on the class path")
    said: list[str] = []
    jars.ensure_jars(lambda _phase, state: said.append(state))
    assert len(said) == 2
    for name in (changed.name, missing.name, "aaa.jar"):
        assert name in said[0]
    assert {path.name for path in copied.spark.iterdir()} == {path.name for path in good.spark.iterdir()}
    assert [path.read_bytes() == (good.spark / path.name).read_bytes() for path in (changed, missing)] == [True, True]
    assert not (copied.kafka / "aaa.jar").exists()
    jars.ensure_jars(lambda _phase, state: said.append(state))
    assert said[1:] == ["ready", "ready"]


def test_a_second_up_changes_nothing(platform: Platform) -> None:
    """The same processes on the same ports."""
    before = platform.status()
    platform.up(("kafka", "spark"))
    assert platform.status() == before
    assert {s.name: s.state for s in before if s.pid} == {"kafka": "running", "spark": "running"}


def test_nothing_listens_beyond_the_loopback(platform: Platform) -> None:
    """Every listening socket of every server."""
    listening = [
        connection
        for process in processes(platform)
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert listening
    assert {connection.laddr.ip.removeprefix("::ffff:") for connection in listening} == {sockets.LOOPBACK}


def test_spark_connect_lets_nobody_in_without_the_token(platform: Platform) -> None:
    """No token and another one are refused by name; the server still counts as running, and its owner gets in."""
    refused: list[str] = []
    port = platform.spark_connection["port"]
    for url in (f"sc://127.0.0.1:{port}", f"sc://localhost:{port}/;token=guessed"):
        with pytest.raises(SparkAuthFailed), tidegate_connect(url, name="stranger"):
            refused.append("got in")
    assert not refused
    assert server(platform, "spark").state == "running"
    with tidegate_connect(platform.spark_remote, name="owner") as spark:
        assert spark.sql("SELECT 1 AS one").collect()[0].one == 1
        assert spark.conf.get("spark.authenticate") == "true"


def test_the_token_of_spark_connect_is_private(platform: Platform) -> None:
    """Readable by its owner only, and on no command line."""
    token = str(platform.spark_connection["password"])
    assert len(token) >= 32
    assert (platform.state_dir / "spark" / "token").stat().st_mode & 0o777 == 0o600
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert not [line for line in lines if any(token in word for word in line)]
    assert not [log for log in (platform.state_dir / "logs").iterdir() if token in log.read_text(errors="replace")]


def test_a_topic_that_nobody_created_does_not_appear(platform: Platform) -> None:
    """Asking for it is not creating it."""
    admin = AdminClient({"bootstrap.servers": platform.bootstrap_servers})
    assert admin.list_topics("never_created", timeout=10).topics["never_created"].error is not None
    assert "never_created" not in admin.list_topics(timeout=10).topics


def test_spark_writes_what_kafka_holds_and_pyiceberg_reads_it(platform: Platform) -> None:
    """Broker, Connect server and catalog fit together."""
    write(kafka_of(platform), make_topic(kafka_of(platform), "fits"), 0, [b"a", b"b", b"c"])
    spark = connect(platform)
    try:
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.platform")
        records = (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", platform.bootstrap_servers)
            .option("assign", '{"fits":[0]}')
            .option("startingOffsets", '{"fits":{"0":0}}')
            .option("endingOffsets", '{"fits":{"0":3}}')
            .load()
        )
        records.selectExpr("offset", "CAST(value AS STRING) AS value").writeTo("lake.platform.fits").create()
        assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    finally:
        spark.stop()
    catalog = load_catalog("lake", **platform.catalog_properties)
    rows = catalog.load_table("platform.fits").scan().to_arrow().sort_by("offset").to_pylist()
    assert rows == [{"offset": 0, "value": "a"}, {"offset": 1, "value": "b"}, {"offset": 2, "value": "c"}]
    assert isinstance(catalog, SqlCatalog)
    catalog.engine.dispose()


def test_a_broker_comes_back_on_its_port_with_its_data_whether_it_was_killed_or_stopped(own: Platform) -> None:
    """What was acknowledged before is read after it. Nothing of a server lives on; a port that a stranger took is named."""
    platform = own
    platform.up(("kafka",))
    before = platform.bootstrap_servers
    numbers = [str(i).encode() for i in range(1000)]
    write(kafka_of(platform), make_topic(kafka_of(platform), "kept"), 0, numbers[:900])
    kill(platform, "kafka")
    platform.up(("kafka",))
    assert platform.bootstrap_servers == before
    write(kafka_of(platform), "kept", 0, numbers[900:])
    lived, port = processes(platform), server(platform, "kafka").port
    assert lived
    platform.down()
    assert not [process for process in lived if process.is_running()]
    platform.down()
    with socket.create_server((sockets.LOOPBACK, port)), pytest.raises(PlatformError, match=rf"Port {port}.*taken by"):
        platform.up(("kafka",))
    assert server(platform, "kafka").state == "stopped"
    platform.up(("kafka",))
    assert values(kafka_of(platform), "kept") == numbers

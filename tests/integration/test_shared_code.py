"""Sessions of the embedded Spark Connect server, which share compiled code, and those of a server that does not say so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4
from zipfile import ZipFile

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.connect.client import SparkConnectClient
from pyspark.sql.connect.proto.base_pb2 import CloneSessionRequest, CloneSessionResponse
from pyspark.sql.connect.session import SparkSession as ConnectSession

from tidegate.core.model.errors import RequestError, TidegateError
from tidegate.spark import session
from tidegate.spark.session import connect
from tidegate_local.platform import Platform

COMPILE_TIME = "SELECT java_method('org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator', 'compileTime')"


def compiled(spark: SparkSession, query: Callable[[], object]) -> bool:
    """Whether the server has compiled anything for a query."""

    def so_far() -> int:
        return int(spark.sql(COMPILE_TIME).collect()[0][0])

    so_far()  # is compiled itself
    before = so_far()
    query()
    return so_far() > before


def test_a_query_is_compiled_in_the_first_session_only(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's own isolation, where the server does not have the properties, compiles it in each."""

    def compiled_by_two() -> list[bool]:
        number = uuid4().int % 1_000_000  # a query that no other test has made
        found = []
        for _ in range(2):
            with connect(platform.spark_remote, name="t") as spark:
                rows = spark.range(10).select((F.col("id") * number).alias("n")).where(f"n % 7 < {number}")
                found.append(compiled(spark, rows.groupBy("n").count().collect))
        return found

    assert compiled_by_two() == [True, False]
    monkeypatch.setattr(session, "SHARED_CODE_PROPERTIES", {"spark.tidegate.unknown": "true"})
    assert compiled_by_two() == [True, True]


def test_a_session_cannot_add_artifacts(platform: Platform, tmp_path: Path) -> None:
    """Spark would fail the tasks of all other sessions, once this one is closed. Local data travels another way."""
    module = tmp_path / "shared.py"
    module.write_text("VALUE = 7\n")
    with connect(platform.spark_remote, name="t") as spark:
        with pytest.raises(RequestError, match="cannot add artifacts") as caught:
            spark.addArtifact(str(module), pyfile=True)
        assert "spark.tidegate.sharedCode" in caught.value.fix
        assert spark.createDataFrame([(number, "x" * 2000) for number in range(20_000)], "a INT, b STRING").count() == 20_000


def test_settings_and_views_of_one_session_are_not_those_of_another(platform: Platform) -> None:
    """Only compiled code is shared."""
    with connect(platform.spark_remote, name="t") as one, connect(platform.spark_remote, name="t") as other:
        one.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        one.range(3).createOrReplaceTempView("mine")
        assert other.conf.get("spark.sql.session.timeZone") == "UTC"
        assert not other.catalog.tableExists("mine")
        assert SparkSession.getActiveSession() is not None


@pytest.mark.parametrize("statement", ["ADD FILE", "ADD JAR"])
def test_files_of_one_name_that_two_sessions_add_harm_no_third(platform: Platform, tmp_path: Path, statement: str) -> None:
    """They stay after their sessions; the newer one takes the place of the older."""
    name = f"{uuid4().hex}.jar"
    for number in range(3):
        with connect(platform.spark_remote, name="t") as spark:
            if number < 2:
                file = tmp_path / str(number) / name
                file.parent.mkdir()
                with ZipFile(file, "w") as archive:
                    archive.writestr("held.txt", f"{number}" * (number + 1))
                spark.sql(f"{statement} '{file}'").collect()
            assert spark.range(9).repartition(3).count() == 9


def test_a_server_that_cannot_clone_gives_sessions_of_their_own(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that is older than Spark 4.1 answers as to any request that it does not know."""
    real = ConnectSession.cloneSession

    def unknown(session: ConnectSession) -> ConnectSession:
        session.client._stub.CloneSession = session.client._channel.unary_unary(
            "/spark.connect.SparkConnectService/NoSuchRequest",
            request_serializer=CloneSessionRequest.SerializeToString,
            response_deserializer=CloneSessionResponse.FromString,
        )
        return real(session)

    monkeypatch.setattr(ConnectSession, "cloneSession", unknown)
    with connect(platform.spark_remote, name="t") as spark:
        assert spark.range(3).count() == 3
    assert "only from Spark 4.1 on" in caplog.text


def test_properties_are_compared_as_spark_compares_them(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRUE is true; a server without one of the properties gives sessions of their own."""
    real = SparkConnectClient.get_config_with_defaults
    monkeypatch.setattr(
        SparkConnectClient, "get_config_with_defaults", lambda self, *asked: tuple(v and v.upper() for v in real(self, *asked))
    )
    monkeypatch.setattr(session, "with_ours", lambda _theirs, ours: ours)
    with connect(platform.spark_remote, name="t") as spark, pytest.raises(RequestError, match="cannot add artifacts"):
        spark.addArtifact("a.py", pyfile=True)


def assert_closed(platform: Platform, session_id: str) -> None:
    """The server knows the session, and does not take it any more."""
    again = f"{platform.spark_remote};session_id={session_id}"
    with pytest.raises(TidegateError) as caught, connect(again, name="t"):
        pytest.fail("the session is still there")
    assert "SESSION_CLOSED" in str(caught.value.__cause__)


@pytest.fixture
def cloned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the sessions that are cloned, and of their clones."""
    ids: list[str] = []
    real = ConnectSession.cloneSession

    def clone(session: ConnectSession) -> ConnectSession:
        made = real(session)
        ids.extend([session.session_id, made.session_id])
        return made

    monkeypatch.setattr(ConnectSession, "cloneSession", clone)
    return ids


def test_the_server_keeps_no_session_after_the_end(platform: Platform, cloned: list[str]) -> None:
    """Left alone, pyspark does not release a clone by itself: the server would keep it for an hour."""
    with connect(platform.spark_remote, name="t") as spark:
        assert spark.session_id == cloned[1]  # type: ignore[attr-defined]
        assert_closed(platform, cloned[0])
    assert_closed(platform, cloned[1])


def test_an_interrupt_before_the_work_leaves_no_session(
    platform: Platform, cloned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of the two that are there while the first one is being closed."""
    real = session._close
    interrupts = iter([KeyboardInterrupt])

    def close(which: ConnectSession) -> None:
        for interrupt in interrupts:
            raise interrupt
        real(which)

    monkeypatch.setattr(session, "_close", close)
    with pytest.raises(KeyboardInterrupt), connect(platform.spark_remote, name="t"):
        pytest.fail("interrupted")
    monkeypatch.undo()
    for session_id in cloned:
        assert_closed(platform, session_id)

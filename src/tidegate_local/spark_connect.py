"""A Spark Connect server that stays warm, and the same settings for whoever calls `spark-submit`.

Rules: one rendering of the settings (`spark_defaults`) serves both, through `SPARK_CONF_DIR`; what only the server needs
is on its command line. The catalog `lake` is Iceberg's JDBC catalog on SQLite, which PyIceberg's SqlCatalog shares.

Who reaches Spark Connect runs code as its owner, and every account of the machine reaches the loopback: the server asks for a
token. It is made once, kept with mode 0600, and handed over in the server's environment, since command lines are public.
pyspark sends a token over TLS only, except to the host `localhost`, by that name (`DefaultChannelBuilder.toChannel`).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from tidegate.spark.settings import REDACTION, SHARED_CODE_PROPERTIES
from tidegate_local import sockets
from tidegate_local.process import Server, write_private

NAME = "spark"
CATALOG = "lake"
SERVER_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
BUSY_TIMEOUT_MS = 30_000
HOST = "localhost"
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - the name of a variable

_LOG4J2 = """\
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


def catalog_properties(lake: Path) -> dict[str, str]:
    """The catalog `lake` for PyIceberg: `load_catalog("lake", **properties)`."""
    return {"type": "sql", "uri": f"sqlite:///{lake / 'catalog.db'}", "warehouse": (lake / "warehouse").as_uri()}


def spark_defaults(folder: Path, lake: Path, jars: Path) -> dict[str, str]:
    """The settings of every Spark driver on this machine."""
    return {
        "spark.master": "local[2]",
        "spark.driver.memory": "2g",
        # everything listens on the loopback, whatever the machine's name resolves to
        "spark.driver.host": sockets.LOOPBACK,
        "spark.driver.bindAddress": sockets.LOOPBACK,
        # the driver's other ports ask who calls; in local mode Spark makes the secret itself
        "spark.authenticate": "true",
        "spark.ui.enabled": "false",
        "spark.driver.extraClassPath": f"{jars}/*",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.session.timeZone": "UTC",
        # in two cores' memory: a shuffle of the default 200 partitions is mostly scheduling
        "spark.sql.shuffle.partitions": "8",
        # no Hive metastore, hence no derby files in anybody's working directory
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        **catalog_settings(CATALOG, lake),
        **REDACTION,
    }


def catalog_settings(name: str, lake: Path) -> dict[str, str]:
    """The settings of an Iceberg catalog by that name in the folder `lake`, for a driver or for one session."""
    catalog = f"spark.sql.catalog.{name}"
    return {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        # writers of one SQLite file wait for each other; at the driver's default of 3 s a busy machine gives up
        f"{catalog}.uri": f"jdbc:sqlite:{lake / 'catalog.db'}?busy_timeout={BUSY_TIMEOUT_MS}",
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": (lake / "warehouse").as_uri(),
        # a session that caches tables does not see what others commit
        f"{catalog}.cache-enabled": "false",
    }


def render_properties(settings: Mapping[str, str]) -> str:
    """The settings as a Java properties file, one a line, sorted."""
    return "".join(f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in sorted(settings.items()))


def make_token(folder: Path) -> None:
    """Make the token of a server, unless it has one."""
    if read_token(folder) is None:
        folder.mkdir(parents=True, exist_ok=True)
        write_private(folder / "token", secrets.token_urlsafe(32))


def read_token(folder: Path) -> str | None:
    """What the server asks for; None where none was made."""
    try:
        return (folder / "token").read_text() or None
    except FileNotFoundError:
        return None


def connection(port: int, token: str | None) -> dict[str, object]:
    """The server as an Airflow connection; Airflow masks the token."""
    return {"conn_type": "spark_connect", "host": HOST, "port": port, "password": token}


def remote(port: int, token: str | None) -> str:
    """The server as a URL for pyspark, token included."""
    return f"sc://{HOST}:{port}/;token={token}" if token else f"sc://{sockets.LOOPBACK}:{port}"


def prepare(folder: Path, lake: Path, jars: Path) -> None:
    """Write `SPARK_CONF_DIR`, and make the folders that Spark and SQLite expect."""
    for needed in (folder / "conf", folder / "local", folder / "work", lake / "warehouse"):
        needed.mkdir(parents=True, exist_ok=True)
    (folder / "conf" / "spark-defaults.conf").write_text(render_properties(spark_defaults(folder, lake, jars)))
    (folder / "conf" / "log4j2.properties").write_text(_LOG4J2)


def spark_connect(
    *, folder: Path, port: int, spark_home: Path, env: Mapping[str, str], log: Path, pid_file: Path, token: str | None = None
) -> Server:
    """The server as a supervised server, which asks for the token if there is one; `prepare` its folder before."""
    settings = {
        "spark.app.name": "tidegate-connect",
        "spark.connect.grpc.binding.address": sockets.LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        **SHARED_CODE_PROPERTIES,
    }
    argv = [str(spark_home / "bin" / "spark-submit"), "--class", SERVER_CLASS]
    for key, value in settings.items():
        argv += ["--conf", f"{key}={value}"]
    return Server(
        name=NAME,
        # spark-submit replaces itself by the JVM, so the pid that is started is the server's
        argv=[*argv, "spark-internal"],
        env={**env, **({TOKEN_VARIABLE: token} if token else {})},
        cwd=folder / "work",
        log=log,
        pid_file=pid_file,
        health=lambda _started: is_healthy(port),
        start_timeout_s=120.0,
    )


def is_healthy(port: int) -> bool:
    """Whether a gRPC server answers on the port: it refuses an unknown method or caller, and a dead or hung one does not.

    A real request would open a session on the server with each look.
    """
    if not sockets.answers(port):
        return False
    import grpc  # type: ignore[import-untyped]  # noqa: PLC0415 - a quarter of a second that only this check needs

    with grpc.insecure_channel(f"{sockets.LOOPBACK}:{port}", options=[("grpc.enable_http_proxy", 0)]) as channel:
        ask = channel.unary_unary("/tidegate.Health/Ask")
        try:
            ask(b"", timeout=2.0)
        except grpc.RpcError as error:
            return error.code() in {grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAUTHENTICATED}
    return True

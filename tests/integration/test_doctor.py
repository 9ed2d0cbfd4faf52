"""`tidegate doctor` names each thing that is broken on purpose, in a sentence with its fix, and nothing of what is sound."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow import plugins_manager
from confluent_kafka.admin import (  # type: ignore[attr-defined] # its names are imported from private modules
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from pyiceberg.utils.config import Config

from tests.integration.installation import NAME, Api, Installation, airflow_api
from tests.integration.private_broker import PASSWORD, USER, PrivateBroker, sign
from tests.topics import make_topic, write
from tidegate.core.audit.findings import CHECKS
from tidegate.plugin import TidegatePlugin
from tidegate.spark import examination
from tidegate_local import sockets, spark_connect
from tidegate_local.jars import locate_jars, pyspark_home
from tidegate_local.platform import Platform

TOPIC, SHORT, GROUP, POOL = "doctor-orders", "doctor-short", f"tidegate-{NAME}", "tidegate_lake_it_orders"
KAFKA, SPARK = "kafka_default", "spark_connect_default"
EXTENSIONS = "spark.sql.extensions"
MINUTES, WRONG = timedelta(minutes=10), "wrong-1"


class Site(Installation):
    """The installation, on the broker that asks who may do what, and on the platform's Spark."""

    broker: PrivateBroker
    platform: Platform
    spark_without: Callable[[], dict[str, object]]

    def log_in(self, *, servers: str = "", password: str = PASSWORD) -> None:
        """The connection to Kafka, by a password."""
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": USER}
        servers = servers or self.broker.address("LOGIN")
        self.connect(KAFKA, conn_type="kafka", extra={"bootstrap.servers": servers, **login, "sasl.password": password})

    def acl(self, permission: AclPermissionType, operation: AclOperation, kind: ResourceType, name: str) -> None:
        """Let the pipeline's user do something, or keep it from that until the test ends."""
        admin = AdminClient({"bootstrap.servers": self.broker.address()})
        of = (kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*", operation, permission)
        admin.create_acls([binding := AclBinding(*of)])[binding].result(30)
        self.undo.callback(lambda: admin.delete_acls([only := AclBindingFilter(*of)])[only].result(30))


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with airflow_api() as made:
        yield made


@pytest.fixture(scope="module")
def topics(breakable: PrivateBroker) -> None:
    """Two with a record each, one of which keeps it for an hour."""
    kafka = {"bootstrap.servers": breakable.address()}
    breakable.server.start()
    for topic, config in ((TOPIC, {}), (SHORT, {"retention.ms": "3600000"})):
        write(kafka, make_topic(kafka, topic, 1, **config), 0, [b'{"flight": 1}'])


@pytest.fixture(scope="module")
def bare(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """A Spark Connect server without Kafka's jar, without Iceberg's extensions, whose workers' Python has no packages.

    It caches tables of its catalog `kept`.
    """
    folder = tmp_path_factory.mktemp("bare")
    jars, conf, port = folder / "jars", folder / "conf" / "spark-defaults.conf", sockets.choose_port([])
    jars.mkdir()
    for jar in locate_jars().spark.glob("*.jar"):
        if "kafka" not in jar.name:
            (jars / jar.name).symlink_to(jar)
    spark_connect.prepare(folder, platform.state_dir / "lake", jars)
    lines = [line for line in conf.read_text().splitlines() if not line.startswith(EXTENSIONS)]
    conf.write_text("\n".join([*lines, f"spark.sql.catalog.kept={examination.CATALOG}", ""]))
    python = {"SPARK_CONF_DIR": str(conf.parent), "PYSPARK_PYTHON": os.path.realpath(sys.executable)}
    server = spark_connect.spark_connect(
        folder=folder,
        port=port,
        spark_home=pyspark_home(),
        env={**os.environ, **platform.environment(), **python},
        log=folder / "spark.log",
        pid_file=folder / "spark.pid",
    )
    try:
        server.start()
        yield {"conn_type": "spark_connect", "host": sockets.LOOPBACK, "port": port}
    finally:
        server.stop()


@pytest.fixture
def site(
    tmp_path: Path,
    api: Api,
    own: PrivateBroker,
    topics: None,
    platform: Platform,
    catalog: None,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Site]:
    """Nothing is the matter with it."""
    with ExitStack() as undo:
        made = Site(tmp_path / "project", api, monkeypatch, undo)
        made.broker, made.platform, made.spark_without = own, platform, lambda: request.getfixturevalue("bare")
        for kind, name in ((ResourceType.TOPIC, TOPIC), (ResourceType.TOPIC, SHORT), (ResourceType.GROUP, GROUP)):
            made.acl(AclPermissionType.ALLOW, AclOperation.ALL, kind, name)
        made.log_in()
        made.connect(SPARK, **platform.spark_connection)
        made.write(
            source={"topics": [TOPIC]},
            transform="transforms.flights:flights",
            sink={"table": "lake.it.orders"},
            schedule="@hourly",
        )
        yield made


def test_of_a_sound_installation_nothing_is_said(site: Site) -> None:
    """Everything is looked at."""
    code, found = site.examined()
    assert (code, [str(each) for each in found if each.state != "sound"]) == (0, [])
    assert {each.check for each in found} == CHECKS.keys()


Fault = Callable[[Site], object]


def lacks(operation: AclOperation, kind: ResourceType, name: str) -> Fault:
    return lambda site: site.acl(AclPermissionType.DENY, operation, kind, name)


def at(servers: Callable[[Site], str], **security: str) -> Fault:
    """Nobody logs in there."""
    return lambda site: site.connect(KAFKA, conn_type="kafka", extra={"bootstrap.servers": servers(site), **security})


def nobody() -> str:
    return f"{sockets.LOOPBACK}:{sockets.choose_port([])}"


def of_another_ca(site: Site) -> None:
    ca = str(sign(site.root / "pem") / "ca")
    at(lambda site: site.broker.address("TLS"), **{"security.protocol": "SSL", "ssl.ca.location": ca})(site)


def without(connection: str) -> Fault:
    return lambda site: site.patch.delenv(f"AIRFLOW_CONN_{connection.upper()}")


def without_plugin(site: Site) -> None:
    site.patch.setattr(plugins_manager, "_get_plugins", lambda: ([], {}))
    site.api.delete_pool(POOL)


def with_old_provider(site: Site) -> None:
    old = site.root / "old" / "apache_airflow_providers_apache_kafka-1.0.dist-info"
    old.mkdir(parents=True)
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: apache-airflow-providers-apache-kafka\nVersion: 1.0\n")
    site.patch.syspath_prepend(str(old.parent))


def pyiceberg(**settings: str | None) -> Fault:
    """PyIceberg's catalog `lake` is another one, or there is none."""

    def become(site: Site) -> None:
        for name in [name for name in os.environ if name.startswith("PYICEBERG_CATALOG__LAKE__")]:
            site.patch.delenv(name)
        for name, value in settings.items():
            site.patch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", str(value).format(root=site.root))
        site.patch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())

    return become


def unwritable(site: Site) -> None:
    """No folder can be made where the tables of a namespace are."""
    locked = site.platform.state_dir / "lake" / "warehouse" / "locked"
    locked.symlink_to("/proc")
    site.undo.callback(locked.unlink)
    site.write(sink={"table": "lake.locked.orders"})


def on_bare(**changes: Any) -> Fault:
    def move(site: Site) -> None:
        site.connect(SPARK, **site.spark_without())
        site.write(**changes)

    return move


def silent(server: str) -> Fault:
    return lambda site: site.beat(server, MINUTES)


GRANT = "Grant it: `kafka-acls.sh --add"
BARE = {
    "extensions": f"Spark lacks Iceberg's SQL extensions.*Start the server with {EXTENSIONS}=org",
    "workers": "Python workers cannot decode records .*Error.*Install pyarrow and msgspec",
}
FAULTS: dict[str, tuple[Fault, dict[str, str]]] = {
    # what is broken, and the findings: a regular expression by check
    "topic without Describe": (
        lacks(AclOperation.DESCRIBE, ResourceType.TOPIC, TOPIC),
        {"topics": f"not allow Describe on topic {TOPIC}. {GRANT} .*--operation Read --topic {TOPIC}`"},
    ),
    "topic without Read": (
        lacks(AclOperation.READ, ResourceType.TOPIC, TOPIC),
        {
            "read": f"lacks the right Read on topic {TOPIC}: loads fail. {GRANT} .*--operation Read --topic {TOPIC}`",
            "load": f"does not allow reading .*Describe and Read {TOPIC}",
        },
    ),
    "topic without DescribeConfigs": (
        lacks(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, TOPIC),
        {"describe-configs": f"lacks the right DescribeConfigs on topic {TOPIC}.* {GRANT} .*DescribeConfigs --topic {TOPIC}`"},
    ),
    "group without Read": (
        lacks(AclOperation.READ, ResourceType.GROUP, GROUP),
        {"group": f"lacks the right Read on group {GROUP}.* {GRANT} .*--operation Read --group {GROUP}`"},
    ),
    "group without any right": (
        lacks(AclOperation.ALL, ResourceType.GROUP, GROUP),
        {"group": f"not allow Read on group {GROUP}. {GRANT} .*--operation Read --group {GROUP}`"},
    ),
    "wrong password": (
        lambda site: site.log_in(password=WRONG),
        {"brokers": "refuses the connection's credentials.* Correct the user, password or certificate"},
    ),
    "certificate of another CA": (
        of_another_ca,
        {"brokers": "has a certificate of a CA that the connection does not trust.* Let ssl.ca.location of the Airflow"},
    ),
    "no broker answers": (
        lambda site: site.log_in(servers=nobody()),
        {"brokers": "^broken: .*no Kafka broker answers at .*refused.* Start the broker, or correct `bootstrap.servers`"},
    ),
    "one of two brokers answers": (
        lambda site: site.log_in(servers=f"{nobody()}, {site.broker.address('LOGIN')}"),
        {"brokers": "^doubtful: .*no Kafka broker answers at .*refused.* Start the broker, or correct `bootstrap.servers`"},
    ),
    "two clusters behind one connection": (
        at(lambda site: f"{site.broker.address()},{site.platform.bootstrap_servers}"),
        {"brokers": "the addresses are of different clusters: .* Name the brokers of one cluster in bootstrap.servers"},
    ),
    "no connection to Kafka": (
        without(KAFKA),
        {"kafka-connection": f"Airflow has no connection {KAFKA} .*Add it under Admin > Connections"},
    ),
    "no connection to Spark": (
        without(SPARK),
        {"spark-connection": f"Airflow has no connection {SPARK} .*Add it under Admin > Connections, as spark_connect"},
    ),
    "connection of another type": (
        lambda site: site.connect(SPARK, conn_type="http"),
        {"spark-connection": f"connection {SPARK} is of type http. Use a connection of one of the types spark_connect, spark"},
    ),
    "wheel without pages": (
        lambda site: site.patch.setattr(TidegatePlugin, "react_apps", []),
        {"plugin": "has no pages. Build the wheel after `make bundle`"},
    ),
    "no plugin, and no pool": (
        without_plugin,
        {
            "plugin": "has not loaded the plugin.* Install the package where each of Airflow's servers runs",
            "pools": f"pools of {POOL}: missing, and its loads wait for ever. Run `airflow pools set {POOL} 1",
        },
    ),
    "pool without slots": (
        lambda site: site.api.patch(f"/pools/{POOL}", {"pool": POOL, "slots": 0, "include_deferred": False}),
        {"pools": f"pools of {POOL}: has no slots, and its loads wait for ever. Run `airflow pools set {POOL} 1"},
    ),
    "provider too old": (
        with_old_provider,
        {"packages": "apache-airflow-providers-apache-kafka is 1.0 where tasks run.* Run `pip install 'tidegate"},
    ),
    "another client than the server": (
        lambda site: site.patch.setattr("pyspark.__version__", "3.5.9"),
        {"spark": "Spark is 4.*, and its client here 3.5.9. Run Spark 3.5"},
    ),
    "Spark of another time": (
        lambda site: site.patch.setattr(examination, "time", SimpleNamespace(time=lambda: time.time() - MINUTES.seconds)),
        {"spark": r"clock is \d+ s ahead of that of Airflow's worker.* Let both machines keep time by NTP"},
    ),
    "Airflow of another time": (
        lambda site: setattr(site, "clock", -MINUTES),
        {"servers": r"the clock of a worker is at least 5\d\d s behind that of Airflow's servers. Let all machines keep time"},
    ),
    "Spark without Kafka, extensions and packages": (
        on_bare(),
        {**BARE, "load": "Spark has no Kafka source .* Start Spark with the jar spark-sql-kafka"},
    ),
    "Spark without the catalog": (
        lambda site: site.write(sink={"table": "nowhere.it.orders"}),
        {"catalog": f"Spark has no catalog nowhere.* Start Spark with spark.sql.catalog.nowhere={examination.CATALOG}"},
    ),
    "Spark that caches tables": (
        on_bare(sink={"table": "kept.it.orders"}),
        {**BARE, "catalog": "does not see the commits of others. Start Spark with spark.sql.catalog.kept.cache-enabled=false"},
    ),
    "another warehouse in PyIceberg": (
        pyiceberg(type="sql", uri="sqlite:///{root}/other.db", warehouse="file://{root}/other"),
        {"load": "lake is another catalog to PyIceberg than to Spark. Give PYICEBERG_CATALOG__LAKE__"},
    ),
    "no such catalog in PyIceberg": (
        pyiceberg(),
        {"load": "cannot be read: .*Configure it for PyIceberg under the name lake"},
    ),
    "warehouse in which Spark may not write": (
        unwritable,
        {"load": "Spark may not write a file .*locked.* Let Spark's driver and executors write into the warehouse"},
    ),
    "other files where tasks run": (
        lambda site: site.file.write_text(f"{site.file.read_text()}# changed\n"),
        {"files": "tasks read other files of pipelines than the DAG processor.* Let every part of Airflow see the same"},
    ),
    "secrets backend that answers for a Variable": (
        lambda site: site.patch.setenv(f"AIRFLOW_VAR_TIDEGATE.{NAME.upper()}.CURSOR", "{}"),
        {"variables": f"the Variable tidegate.{NAME}.cursor cannot be read, since .* Remove it there"},
    ),
    "several teams": (
        lambda site: site.patch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True"),
        {"variables": r"several teams.* Run the pipelines in an Airflow without \[core\] multi_team"},
    ),
    "no scheduler": (
        silent("scheduler"),
        {"servers": "^broken: .*scheduler does not run .*: no run and no task starts. Start it, or see its log"},
    ),
    "no DAG processor": (
        silent("dag_processor"),
        {"servers": "^broken: .*dag processor does not run .*: .*. Start it, or see its log"},
    ),
    "no triggerer": (
        silent("triggerer"),
        {"servers": "^doubtful: .*triggerer does not run .*: .*. Start it, or see its log"},
    ),
    "retention shorter than the schedule": (
        lambda site: site.write(source={"topics": [SHORT]}),
        {"retention": f"topic {SHORT} keeps records for 3600 s, and runs are 3600 s apart.* Raise retention.ms of the topic"},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named_with_its_fix_and_nothing_else_is(site: Site, fault: str) -> None:
    """Except that a load fails, too, where something is broken that it needs. The exit code says whether anything is broken."""
    let_be, expected = FAULTS[fault]
    let_be(site)
    code, found = site.examined()
    told = [each for each in found if each.state != "sound"]
    assert {each.check for each in told} | {"load"} == {*expected, "load"}, [str(each) for each in told]
    for each in told:
        assert re.search(expected.get(each.check, ""), str(each)), str(each)
    assert expected.keys() <= {each.check for each in told}
    assert code == any(each.state == "broken" for each in told)
    assert not {PASSWORD, WRONG} & set(re.findall(r"[\w-]+", str(told)))

"""docker-compose.yml and what it refers to: all that can be known without a Docker engine (one file, as Compose's is).

`compose-spec.json` is the JSON Schema of the Compose Specification (github.com/compose-spec/compose-spec, Apache-2.0),
unchanged, as the package check-jsonschema 0.39.0 carries it.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import itertools
import json
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import tidegate
from tidegate.spark.shared_code import PROPERTIES
from tidegate_local import broker, spark_connect

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
SCHEMA = Path(__file__).with_name("compose-spec.json")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
EXAMPLE = (DOCKER / ".env.example").read_text()
DOCKERFILE = (DOCKER / "Dockerfile").read_text()
REFERENCE = re.compile(r"(?<!\$)\$\{(?P<name>[A-Z_]+)(?P<rule>:[-?])(?P<value>[^}]*)\}")
SECRET = re.compile(r"PASSWORD$|SECRET|KEY$|TOKEN")


def texts(value: object) -> Iterator[str]:
    """Every string in a piece of YAML."""
    if isinstance(value, dict):
        for child in value.values():
            yield from texts(child)
    elif isinstance(value, list):
        for child in value:
            yield from texts(child)
    elif isinstance(value, str):
        yield value


def references() -> Iterator[re.Match[str]]:
    """Every `${NAME…}` of the Compose file."""
    for text in texts(COMPOSE):
        yield from REFERENCE.finditer(text)


def environments() -> Iterator[tuple[str, str, str]]:
    """Service, variable and value of every setting."""
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            yield name, variable, value


def properties(file: Path) -> dict[str, str]:
    """A Java properties file without comments; a backslash is written twice there."""
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    return {key: value.replace("\\\\", "\\") for key, value in (line.split("=", 1) for line in lines)}


def ivy(file: Path) -> dict[str, str]:
    """The version of every module that an Ivy file names."""
    found = ET.parse(file).iter("dependency")  # noqa: S314 - our own file
    return {d.attrib["name"]: d.attrib["rev"] for d in found}


def locked() -> dict[str, str]:
    """The version of every package in uv.lock."""
    return {p["name"]: p.get("version", tidegate.__version__) for p in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}


def ours() -> dict[str, dict[str, Any]]:
    """The services that run our own image."""
    return {name: service for name, service in SERVICES.items() if "build" in service}


def test_the_file_follows_the_compose_specification() -> None:
    """Checked against the specification's schema, which forbids keys that it does not know."""
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(COMPOSE)


def test_the_vendored_schema_is_as_it_was_published() -> None:
    """A schema that was bent to fit would prove nothing."""
    published = "d549057ebc2925f39f62799eab0db7b9e2c18b35b6c00595199116da3ed10e64"
    assert hashlib.sha256(SCHEMA.read_bytes()).hexdigest() == published


def test_the_same_parts_as_the_embedded_platform_are_there() -> None:
    """Kafka, Airflow's services and Spark Connect, and what a team needs beside them."""
    airflow = {f"airflow-{part}" for part in ("init", "api-server", "scheduler", "dag-processor", "triggerer")}
    assert set(SERVICES) == {"kafka", "postgres", "spark-master", "spark-worker", "spark-connect"} | airflow


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_a_health_check_a_restart_policy_limits_and_what_it_waits_for(name: str) -> None:
    """Except the service that ends by itself, for whose success others wait: it has no health check and is not restarted."""
    service = SERVICES[name]
    ends = name == "airflow-init"
    assert service["restart"] == ("no" if ends else "unless-stopped")
    assert ("test" in service["healthcheck"]) is not ends
    assert service["healthcheck"].get("disable", False) is ends
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}
    for other, how in service.get("depends_on", {}).items():
        assert how["condition"] == ("service_completed_successfully" if other == "airflow-init" else "service_healthy")
        assert other in SERVICES


def test_no_service_waits_for_itself() -> None:
    """There is an order in which all can start."""
    waiting = {name: set(service.get("depends_on", {})) for name, service in SERVICES.items()}
    while waiting:
        ready = {name for name, others in waiting.items() if not others & set(waiting)}
        assert ready, f"a circle among {sorted(waiting)}"
        waiting = {name: others for name, others in waiting.items() if name not in ready}


def test_every_mount_names_a_volume_or_a_path_that_exists() -> None:
    """A path that Compose makes when it is missing says so."""
    used = set()
    for mount in itertools.chain.from_iterable(service.get("volumes", []) for service in SERVICES.values()):
        if mount["type"] == "volume":
            used.add(mount["source"])
        else:
            assert mount["read_only"]
            assert mount["bind"]["create_host_path"] or (ROOT / mount["source"]).exists()
    assert used == set(COMPOSE["volumes"])


def test_the_project_is_mounted_as_a_checkout_is_laid_out_and_the_warehouse_where_it_is_used() -> None:
    """`dags/tidegate.py` finds `spark_jobs/` beside its folder; drivers, executors and PyIceberg see files under one path."""
    project = re.search(r"TIDEGATE_PROJECT=(\S+)", DOCKERFILE)
    assert project is not None
    for name in (n for n in SERVICES if n.startswith("airflow")):
        targets = {m["source"]: m["target"] for m in SERVICES[name]["volumes"]}
        for folder in ("dags", "plugins", "spark_jobs"):
            assert targets[f"./{folder}"] == f"{project[1]}/{folder}"
    for name in ("spark-connect", "spark-worker", "airflow-scheduler", "airflow-api-server"):
        assert {m["source"]: m["target"] for m in SERVICES[name]["volumes"]}["lake"] == "/lake"


def test_the_image_owns_the_volumes_it_writes() -> None:
    """A new named volume takes its owner from the image's folder; a missing one would belong to root."""
    made = re.search(r"install -d -o tidegate -g tidegate (.+)", DOCKERFILE)
    assert made is not None
    written = {m["target"] for s in ours().values() for m in s.get("volumes", []) if m["type"] == "volume"}
    assert written <= set(made[1].split())


def test_spark_submit_shares_no_folder_with_the_workers_but_code_and_tables() -> None:
    """Its driver runs where the task does, so the job's file, which holds credentials, stays there."""
    volumes = [{m["source"] for m in SERVICES[name]["volumes"]} for name in ("airflow-scheduler", "spark-worker")]
    assert volumes[0] & volumes[1] == {"./spark_jobs", "lake"}
    connection = json.loads(SERVICES["airflow-scheduler"]["environment"]["AIRFLOW_CONN_SPARK_DEFAULT"])
    assert "deploy-mode" not in connection.get("extra", {})


def test_the_image_is_built_of_what_is_there() -> None:
    """Every COPY from the context names an existing path that the ignore file lets in."""
    let_in = {line[1:] for line in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {(s["build"]["context"], s["build"]["dockerfile"]) for s in ours().values()} == {(".", "docker/Dockerfile")}
    for line in re.findall(r"(?m)^COPY (?!--)(.+)$", DOCKERFILE):
        *sources, _target = line.split()
        for source in sources:
            assert (ROOT / source).exists()
            assert source in let_in or f"{source}/*" in let_in


def test_every_image_is_pinned() -> None:
    """A tag with a whole version, never `latest`; and the digest of the content, unless it is built here."""
    bases = re.findall(r"(?m)^FROM (\S+:\S+)", DOCKERFILE)
    fetched = [service["image"] for service in SERVICES.values() if "build" not in service] + bases
    assert bases
    for image in fetched:
        assert re.fullmatch(r"[a-z/]+:\d+\.\d+(\.\d+)?(-[a-z-]+)?@sha256:[0-9a-f]{64}", image), image
    for service in ours().values():
        assert re.fullmatch(r"[a-z]+:\d+\.\d+\.\d+", service["image"])


def test_versions_are_those_of_the_lock_and_of_ivy() -> None:
    """One version of each thing, wherever it runs."""
    jars = ivy(ROOT / "ivy.xml")
    assert SERVICES["kafka"]["image"].startswith(f"apache/kafka:{jars['kafka_2.13']}@")
    assert {s["image"] for s in ours().values()} == {f"tidegate:{tidegate.__version__}"}
    assert jars["spark-sql-kafka-0-10_2.13"] == locked()["pyspark"] == locked()["pyspark-client"]
    iceberg = next(name for name in jars if name.startswith("iceberg-spark-runtime-"))
    assert iceberg == f"iceberg-spark-runtime-{locked()['pyspark'].rpartition('.')[0]}_2.13"
    # nothing but the lock and the two Ivy files decides what is in the image
    assert DOCKERFILE.count("uv sync --locked --no-dev --extra airflow --extra spark --extra cli") == 2
    assert "tidegate jars" in DOCKERFILE
    assert set(ivy(DOCKER / "ivy.xml")) == {"postgresql"}
    python = re.search(r"FROM python:(\d+\.\d+)", DOCKERFILE)
    assert python is not None
    assert set(re.findall(r"python(3\.\d+)", DOCKERFILE)) == {python[1]}


def test_extra_python_packages_are_pinned_by_hash_and_not_in_the_lock_too() -> None:
    """A package has one place that decides its version."""
    text = (DOCKER / "requirements.txt").read_text()
    names = re.findall(r"(?m)^([a-z0-9-]+)==\S+ \\$", text)
    assert sorted(names) == ["asyncpg", "psycopg2-binary"]
    assert not set(names) & set(locked())
    assert "--require-hashes -r docker/requirements.txt" in DOCKERFILE


def test_every_setting_of_airflow_is_one_that_airflow_knows() -> None:
    """A misspelt AIRFLOW__SECTION__OPTION is silently ignored by Airflow, so it must not get in."""
    spec = importlib.util.find_spec("airflow")  # its own list of options, read without importing it
    assert spec is not None
    assert spec.origin is not None
    described = yaml.safe_load((Path(spec.origin).parent / "config_templates" / "config.yml").read_text())
    known = {(section, option) for section in described for option in described[section]["options"]}
    found = 0
    for _service, variable, _value in environments():
        if variable.startswith("AIRFLOW__"):
            section, option = variable.removeprefix("AIRFLOW__").lower().split("__", 1)
            assert (section, option) in known, variable
            found += 1
    assert found


def test_connections_name_services_and_the_ports_they_listen_on() -> None:
    """Each connection is JSON that Airflow reads, and leads somewhere."""
    env = SERVICES["airflow-scheduler"]["environment"]
    kafka, connect, submit = (
        json.loads(env[f"AIRFLOW_CONN_{name}"]) for name in ("KAFKA_DEFAULT", "SPARK_CONNECT_DEFAULT", "SPARK_DEFAULT")
    )
    assert (
        f"INTERNAL://{kafka['extra']['bootstrap.servers']}," in SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    )
    assert connect["host"] in SERVICES
    assert f"spark.connect.grpc.binding.port={connect['port']}" in SERVICES["spark-connect"]["command"]
    assert {f"{key}={value}" for key, value in PROPERTIES.items()} <= {*SERVICES["spark-connect"]["command"]}
    master = f"{submit['host']}:{submit['port']}"
    assert master in SERVICES["spark-connect"]["command"]
    assert master in SERVICES["spark-worker"]["command"]


def test_ports_are_published_on_the_loopback_only() -> None:
    """Nothing of it has a password for the network, so nothing of it is on the network."""
    published = list(itertools.chain.from_iterable(service.get("ports", []) for service in SERVICES.values()))
    assert published
    for port in published:
        assert re.fullmatch(r"127\.0\.0\.1:\$\{[A-Z_]+:-\d+\}:\d+", port), port
    hosts = [port.split("}")[0] for port in published]
    assert len(set(hosts)) == len(hosts)
    assert not any("network_mode" in service for service in SERVICES.values())


def neighbours(name: str) -> set[str]:
    """The services that share a network with one."""
    networks = set(SERVICES[name]["networks"])
    return {other for other, service in SERVICES.items() if other != name and networks & set(service["networks"])}


def test_only_what_reads_records_or_runs_jobs_reaches_kafka_and_spark() -> None:
    """Neither asks for a password: of Airflow, the scheduler, which runs the tasks, and beside Kafka the triggerer."""
    assert neighbours("kafka") == {"spark-master", "spark-worker", "spark-connect", "airflow-scheduler", "airflow-triggerer"}
    for name in ("spark-master", "spark-worker"):
        assert neighbours(name) <= {"kafka", "spark-master", "spark-worker", "spark-connect", "airflow-scheduler"}
    assert neighbours("spark-connect") - neighbours("spark-worker") - {"spark-worker"} == {"postgres"}


def test_whoever_needs_another_service_reaches_it() -> None:
    """What it waits for, and what its settings name, is on a network of its own."""
    for name, service in SERVICES.items():
        settings = [text for text in texts([service.get("environment", {}), service.get("command", [])]) if "://" in text]
        named = {host for text in settings for host in re.findall(r"[/@\"]([a-z-]+):\d", text) if host in SERVICES}
        if name.startswith("airflow-") and name != "airflow-scheduler":
            # the connections stand in the environment of all; tasks, which use them, run in the scheduler
            named &= {"postgres", "airflow-api-server"}
        if name == "airflow-init":
            named &= {"postgres"}
        assert (named | set(service.get("depends_on", {}))) - {name} <= neighbours(name), name
    assert {"kafka", "spark-connect", "spark-master"} <= neighbours("airflow-scheduler")
    # a worker tells one address; on two networks it might tell the one that its master does not reach
    assert SERVICES["spark-worker"]["networks"] == SERVICES["spark-master"]["networks"] == ["data"]


def test_what_publishes_nothing_but_data_has_no_way_out() -> None:
    """The database's networks are internal, and every service that publishes a port has another one."""
    internal = {name for name, network in COMPOSE["networks"].items() if (network or {}).get("internal")}
    assert set(SERVICES["postgres"]["networks"]) == internal
    assert "ports" not in SERVICES["postgres"]
    for service in SERVICES.values():
        assert set(service["networks"]) <= set(COMPOSE["networks"])
        assert "ports" not in service or set(service["networks"]) - internal


def test_no_secret_stands_in_a_file() -> None:
    """Every password and key is a required variable without a default, and URLs carry no password."""
    for _service, variable, value in environments():
        if SECRET.search(variable):
            reference = REFERENCE.fullmatch(value)
            assert reference is not None, variable
            assert reference["rule"] == ":?", variable
    files = [ROOT / "docker-compose.yml", *(f for f in DOCKER.rglob("*") if f.is_file() and "__pycache__" not in f.parts)]
    for file in files:
        assert not re.search(r"://[^/\s:@]+:[^/\s@]+@", file.read_text()), file


def test_the_example_names_every_variable_once_and_holds_no_secret() -> None:
    """What the Compose file asks for is in `.env.example`: secrets empty, the rest as a comment with its default."""
    required = {r["name"] for r in references() if r["rule"] == ":?"}
    defaults = {(r["name"], r["value"]) for r in references() if r["rule"] == ":-"}
    assert set(re.findall(r"(?m)^([A-Z_]+)=$", EXAMPLE)) == required
    assert set(re.findall(r"(?m)^# ([A-Z_]+)=(\S+)$", EXAMPLE)) == defaults
    assert not re.search(r"(?m)^[A-Z_]+=.", EXAMPLE)


def test_new_secrets_are_random_and_private_and_never_replace_old_ones(tmp_path: Path) -> None:
    """A second call would lock everybody out of the volumes."""
    (tmp_path / "docker").mkdir()
    for name in ("new_env.py", ".env.example"):
        (tmp_path / "docker" / name).write_text((DOCKER / name).read_text())
    command = [sys.executable, str(tmp_path / "docker" / "new_env.py")]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0
    made = tmp_path / ".env"
    first = made.read_text()
    values = re.findall(r"(?m)^[A-Z_]+=(.+)$", first)
    assert len(set(values)) == len(values) == len(re.findall(r"(?m)^[A-Z_]+=$", EXAMPLE))
    assert all(len(base64.urlsafe_b64decode(value)) == 32 for value in values)
    assert made.stat().st_mode & 0o777 == 0o600
    assert subprocess.run(command, check=False, capture_output=True).returncode == 1
    assert made.read_text() == first


def test_passwords_become_private_files_and_leave_the_environment(tmp_path: Path) -> None:
    """The entry point, run for real: what `~/.pgpass` needs escaped is escaped, and the command sees no password."""
    env = {
        "PGPASSFILE": str(tmp_path / ".pgpass"),
        "AIRFLOW_HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "AIRFLOW_DB_PASSWORD": "a:b\\c d",
        "LAKE_DB_PASSWORD": "lake",
        "AIRFLOW_ADMIN_PASSWORD": 'say "hi"',
    }
    done = subprocess.run(
        ["sh", str(DOCKER / "entrypoint.sh"), "sh", "-c", "env; umask"], env=env, check=True, capture_output=True, text=True
    )
    assert "PASSWORD" not in done.stdout
    assert not done.stdout.endswith("0077\n")
    pgpass, login = tmp_path / ".pgpass", tmp_path / "passwords.json"
    assert pgpass.read_text() == "*:*:airflow:airflow:a\\:b\\\\c d\n*:*:lake:lake:lake\n"
    assert json.loads(login.read_text()) == {"admin": 'say "hi"'}
    assert {f.stat().st_mode & 0o777 for f in (pgpass, login)} == {0o600}
    pgpass.unlink()
    login.unlink()
    none = {name: value for name, value in env.items() if not name.endswith("PASSWORD")}  # as Spark's master and worker start
    subprocess.run(["sh", str(DOCKER / "entrypoint.sh"), "true"], env=none, check=True)
    assert (pgpass.read_text(), login.exists()) == ("", False)


def test_spark_and_pyiceberg_see_the_same_catalog() -> None:
    """One database, one owner, one warehouse, in every container that asks the catalog."""
    spark = properties(DOCKER / "spark" / "spark-defaults.conf")
    for name in ("spark-connect", "airflow-scheduler", "airflow-api-server"):
        env = SERVICES[name]["environment"]
        assert env["PYICEBERG_CATALOG__LAKE__WAREHOUSE"] == spark["spark.sql.catalog.lake.warehouse"]
        where = spark["spark.sql.catalog.lake.uri"].removeprefix("jdbc:postgresql://")
        user = spark["spark.sql.catalog.lake.jdbc.user"]
        assert env["PYICEBERG_CATALOG__LAKE__URI"] == f"postgresql+psycopg2://{user}@{where}"
        assert env["PYICEBERG_CATALOG__LAKE__TYPE"] == "sql"
        assert "LAKE_DB_PASSWORD" in env


def test_spark_is_set_as_on_the_embedded_platform(tmp_path: Path) -> None:
    """Only what has to differ differs: places, sizes, and the catalog's database."""
    embedded = spark_connect.spark_defaults(tmp_path, tmp_path, tmp_path)
    team = properties(DOCKER / "spark" / "spark-defaults.conf")
    elsewhere = {"spark.driver.bindAddress", "spark.driver.extraClassPath", "spark.driver.memory", "spark.sql.warehouse.dir"}
    elsewhere |= {"spark.sql.catalog.lake.uri", "spark.sql.catalog.lake.warehouse"}
    # the team's drivers get these from spark-submit, from SPARK_LOCAL_HOSTNAME, and from the container's own /tmp
    left_out = {"spark.master", "spark.driver.host", "spark.local.dir"}
    # a secret that master, workers and drivers share has to be made by somebody; there, the network decides who is let in
    left_out |= {"spark.authenticate"}
    same = set(embedded) - elsewhere - left_out
    assert {key: team.get(key) for key in same} == {key: embedded[key] for key in same}
    assert not set(team) & left_out
    for key in team:
        assert "password" not in key


def test_the_broker_is_set_as_on_the_embedded_platform(tmp_path: Path) -> None:
    """No topic appears by itself; one node is enough for every internal topic."""
    env = {k.removeprefix("KAFKA_").replace("_", ".").lower(): v for k, v in SERVICES["kafka"]["environment"].items()}
    embedded = broker.server_properties(tmp_path, 1, 2)
    shared = set(env) & set(embedded) - {"listeners", "advertised.listeners", "listener.security.protocol.map"}
    shared -= {"inter.broker.listener.name", "log.dirs"}
    assert {key: env[key] for key in shared} == {key: embedded[key] for key in shared}
    assert "auto.create.topics.enable" in shared
    assert {key for key in embedded if "replication.factor" in key} <= shared


def test_both_ways_to_spark_fit_into_one_worker_at_the_same_time() -> None:
    """The Connect server never lets go of its cores: without room beside it, spark-submit would wait for ever."""
    spark = properties(DOCKER / "spark" / "spark-defaults.conf")
    defaults = {r["name"]: r["value"] for r in references() if r["rule"] == ":-"}
    assert int(defaults["SPARK_WORKER_CORES"]) >= 2 * int(spark["spark.cores.max"])
    executor_mb = int(spark["spark.executor.memory"].removesuffix("g")) * 1024
    heaps = int(defaults["SPARK_WORKER_MEMORY"].removesuffix("g"))
    assert heaps * 1024 >= 2 * executor_mb
    # the container has room for them, the worker's own gigabyte, and what JVMs and Python take beside their heaps
    assert int(defaults["SPARK_WORKER_LIMIT"].removesuffix("g")) >= heaps + 1 + heaps // 2


def test_health_checks_ask_what_they_say() -> None:
    """`health.py` knows every check that the Compose file calls, and the components that Airflow reports."""
    spec = importlib.util.spec_from_file_location("health", DOCKER / "health.py")
    assert spec is not None
    assert spec.loader is not None
    health = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(health)
    for service in ours().values():
        test = service["healthcheck"].get("test", [])
        for script in (word for word in [*service["command"], *test] if word.startswith("/opt/tidegate/")):
            assert (DOCKER / Path(script).name).is_file()
            assert f"docker/{Path(script).name}" in DOCKERFILE
        if test:
            *_python, script, check = test[:4]
            assert script.endswith("health.py")
            assert check in health.CHECKS

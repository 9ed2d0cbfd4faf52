"""docker-compose.yml and what it refers to: all that can be known without a Docker engine (one file, as Compose's is)."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
import socket
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
import yaml

import tidegate
from tidegate.spark.settings import SHARED_CODE_PROPERTIES
from tidegate_local import broker, spark_connect

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
EXAMPLE = (DOCKER / ".env.example").read_text()
DOCKERFILE = (DOCKER / "Dockerfile").read_text()
REFERENCE = re.compile(r"(?<!\$)\$\{(?P<name>[A-Z_]+)(?P<rule>:[-?])(?P<value>[^}]*)\}")
CONNECTIONS = ("KAFKA_DEFAULT", "SPARK_CONNECT_DEFAULT", "SPARK_DEFAULT")
SECRET = re.compile(r"PASSWORD$|SECRET|KEY$|TOKEN")
SECRETS = re.findall(r"(?m)^([A-Z_]+)=$", EXAMPLE)
REFERENCES = [*REFERENCE.finditer((ROOT / "docker-compose.yml").read_text())]
DEFAULTS = {r["name"]: r["value"] for r in REFERENCES if r["rule"] == ":-"}


OWN = {name for name, service in SERVICES.items() if service["image"] == f"tidegate:{tidegate.__version__}"}
"""The services of this repository's image."""
ENVIRONMENT = [setting for service in SERVICES.values() for setting in service.get("environment", {}).items()]


def properties(file: Path) -> dict[str, str]:
    """A Java properties file without comments; a backslash is written twice there."""
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    return {key: value.replace("\\\\", "\\") for key, value in (line.split("=", 1) for line in lines)}


def ivy(file: Path) -> dict[str, str]:
    """The version of every module that an Ivy file names."""
    found = ET.parse(file).iter("dependency")  # noqa: S314 - our own file
    return {d.attrib["name"]: d.attrib["rev"] for d in found}


def test_the_file_has_only_keys_of_the_compose_specification() -> None:
    """Those that it uses, by their place; `docker compose config` refuses others."""
    service = {
        *("build", "cap_drop", "command", "depends_on", "deploy", "environment", "healthcheck", "image", "init", "logging"),
        *("networks", "ports", "pull_policy", "restart", "secrets", "security_opt", "stop_grace_period", "volumes"),
    }
    health = {"test", "interval", "timeout", "retries", "start_period", "start_interval", "disable"}
    assert {key for key in COMPOSE if not key.startswith("x-")} == {"name", "services", "networks", "secrets", "volumes"}
    for each in SERVICES.values():
        assert each.keys() <= service
        assert each["healthcheck"].keys() <= health
        assert {*each["deploy"], *each["deploy"]["resources"]} - {"replicas"} == {"resources", "limits"}
        assert all(mount.keys() <= {"type", "source", "target", "read_only", "bind"} for mount in each.get("volumes", []))
    assert all(isinstance(value, str) for _, value in ENVIRONMENT)


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_checked_restarted_and_limited_except_the_one_that_ends(name: str) -> None:
    """For the success of that one others wait, for the health of all others."""
    service, ends = SERVICES[name], name == "airflow-init"
    assert service["restart"] == ("no" if ends else "unless-stopped")
    assert ("test" in service["healthcheck"]) is not ends
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}
    if name in OWN and not ends:
        _, _, script, check, *_ = service["healthcheck"]["test"]
        assert script == "/opt/tidegate/health.py"
        assert f'"{check}": ' in (DOCKER / "health.py").read_text()
    for other, how in service.get("depends_on", {}).items():
        assert how["condition"] == ("service_completed_successfully" if other == "airflow-init" else "service_healthy")


def test_every_mount_names_a_volume_or_a_path_that_exists_and_the_image_owns_what_it_writes() -> None:
    """A new named volume takes its owner from the image's folder; a missing one would belong to root."""
    (made,) = re.findall(r"install -d -o tidegate -g tidegate (.+)", DOCKERFILE)
    for name, service in SERVICES.items():
        for mount in service.get("volumes", []):
            if mount["type"] == "volume":
                assert mount["source"] in COMPOSE["volumes"]
                assert name not in OWN or mount["target"] in made.split()
            elif mount["type"] == "bind":
                assert mount["read_only"]
                assert mount["bind"]["create_host_path"] or (ROOT / mount["source"]).exists()


def test_the_project_is_mounted_as_a_checkout_is_laid_out_and_the_warehouse_where_it_is_used() -> None:
    """`dags/tidegate_dags.py` finds `spark_jobs/` beside its folder; drivers, executors and PyIceberg see one path."""
    (project,) = set(re.findall(r"TIDEGATE_PROJECT=(\S+)", DOCKERFILE))
    targets = {name: {m.get("source"): m["target"] for m in service.get("volumes", [])} for name, service in SERVICES.items()}
    for name in (n for n in SERVICES if n.startswith("airflow")):
        assert targets[name].items() >= {(f"./{folder}", f"{project}/{folder}") for folder in ("dags", "plugins", "spark_jobs")}
    for name in ("spark-connect", "spark-worker", "airflow-scheduler", "airflow-api-server"):
        assert targets[name]["lake"] == "/lake"


def test_the_image_is_built_of_what_is_there() -> None:
    """Every COPY from the context names an existing path that the ignore file lets in."""
    let_in = {line[1:] for line in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")}
    for line in re.findall(r"(?m)^COPY (?!--)(.+)$", DOCKERFILE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists()
            assert source in let_in or f"{source}/*" in let_in


def test_every_image_is_pinned() -> None:
    """A tag with a whole version, never `latest`; and the digest of the content, unless it is built here, by one service."""
    assert [name for name, service in SERVICES.items() if "build" in service] == ["airflow-init"]
    assert {SERVICES[name]["pull_policy"] for name in OWN} == {"never"}
    bases = re.findall(r"(?m)^ARG PYTHON_IMAGE=(\S+)\nFROM \$\{PYTHON_IMAGE\} AS base$", DOCKERFILE)
    assert set(re.findall(r"(?m)^FROM (\S+)", DOCKERFILE)) == {"${PYTHON_IMAGE}", "base"}
    assert SERVICES["airflow-init"]["build"]["args"] == ["PYTHON_IMAGE"]
    for image in [DEFAULTS["KAFKA_IMAGE"], DEFAULTS["POSTGRES_IMAGE"], *bases]:
        assert re.fullmatch(r"[a-z/]+:\d+\.\d+(\.\d+)?(-[a-z-]+)?@sha256:[0-9a-f]{64}", image), image


def test_versions_are_those_of_the_lock_and_of_ivy() -> None:
    """One version of each thing, wherever it runs; nothing but the lock and the two Ivy files decides what is in the image."""
    jars = ivy(ROOT / "ivy.xml")
    lock = {p["name"]: p.get("version", "") for p in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    assert DEFAULTS["KAFKA_IMAGE"].startswith(f"apache/kafka:{jars['kafka_2.13']}@")
    assert {*SERVICES} - OWN == {"kafka", "postgres"}
    assert jars["spark-sql-kafka-0-10_2.13"] == lock["pyspark"] == lock["pyspark-client"]
    assert f"iceberg-spark-runtime-{lock['pyspark'].rpartition('.')[0]}_2.13" in jars
    assert len(set(re.findall(r"python:?(3\.\d+)", DOCKERFILE))) == 1
    assert DOCKERFILE.count("uv sync --locked --no-dev --extra airflow --extra spark --extra cli") == 2
    assert set(ivy(DOCKER / "ivy.xml")) == {"postgresql"}
    names = re.findall(r"(?m)^([a-z0-9-]+)==\S+ \\$", (DOCKER / "requirements.txt").read_text())
    assert sorted(names) == ["asyncpg", "psycopg2-binary"]
    assert not set(names) & set(lock)
    assert "--require-hashes -r docker/requirements.txt" in DOCKERFILE


def test_every_setting_of_airflow_is_one_that_airflow_knows() -> None:
    """A misspelt AIRFLOW__SECTION__OPTION is silently ignored by Airflow, so it must not get in."""
    spec = importlib.util.find_spec("airflow")  # its own list of options, read without importing it
    assert spec and spec.origin  # noqa: PT018 - for the type checker
    described = yaml.safe_load((Path(spec.origin).parent / "config_templates" / "config.yml").read_text())
    known = {f"AIRFLOW__{section}__{option}".upper() for section in described for option in described[section]["options"]}
    assert set() < {variable.removesuffix("_CMD") for variable, _ in ENVIRONMENT if variable.startswith("AIRFLOW__")} <= known


def test_pages_put_before_a_command_what_the_docs_do() -> None:
    """The service runs tasks, so it reaches what a command asks."""
    before = SERVICES["airflow-api-server"]["environment"]["TIDEGATE_COMMAND_PREFIX"]
    assert f"`{before} tidegate plan flights`" in (ROOT / "docs" / "deploy.md").read_text()
    assert "data" in SERVICES[before.split()[-1]]["networks"]


def test_connections_name_services_and_the_ports_they_listen_on() -> None:
    env, server = SERVICES["airflow-scheduler"]["environment"], SERVICES["spark-connect"]["command"]
    kafka, connect, submit = (json.loads(env[f"AIRFLOW_CONN_{name}"]) for name in CONNECTIONS)
    listeners = SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert f"INTERNAL://{kafka['extra']['bootstrap.servers']}," in listeners
    assert connect["host"] in SERVICES
    stated = {"spark.connect.grpc.binding.port": connect["port"], **SHARED_CODE_PROPERTIES}
    assert {f"{name}={value}" for name, value in stated.items()} <= {*server}
    master = f"{submit['host']}:{submit['port']}"
    assert master in server
    assert master in SERVICES["spark-worker"]["command"]
    assert "deploy-mode" not in submit.get("extra", {})  # the job's file, which holds credentials, stays with the task


def test_ports_are_published_once_and_on_the_loopback_only() -> None:
    """Nothing of it has a password for the network, so nothing of it is on the network."""
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    found = re.findall(r"(?m)^127\.0\.0\.1:(\$\{[A-Z_]+:-\d+\}):\d+$", "\n".join(published))
    assert len(set(found)) == len(published) > 0


def neighbours(name: str) -> set[str]:
    """The services that share a network with one."""
    networks = set(SERVICES[name]["networks"])
    return {other for other, service in SERVICES.items() if other != name and networks & set(service["networks"])}


def test_a_service_reaches_what_it_waits_for_and_kafka_and_spark_are_reached_by_their_users_alone() -> None:
    """Neither asks for a password: of Airflow, the scheduler, which runs the tasks, and beside Kafka the triggerer."""
    waits = {name: {*service.get("depends_on", {})} for name, service in SERVICES.items()}
    assert {*TopologicalSorter(waits).static_order()} == {*SERVICES}  # so all can start
    assert [name for name in SERVICES if not waits[name] <= neighbours(name)] == []
    assert neighbours("kafka") == {"spark-master", "spark-worker", "spark-connect", "airflow-scheduler", "airflow-triggerer"}
    assert neighbours("spark-master") == {"kafka", "spark-worker", "spark-connect", "airflow-scheduler"}
    assert neighbours("spark-connect") == {"kafka", "spark-master", "spark-worker", "airflow-scheduler", "postgres"}
    # a worker tells one address; on two networks it might tell the one that its master does not reach
    assert SERVICES["spark-worker"]["networks"] == SERVICES["spark-master"]["networks"] == ["data"]


def test_the_database_has_no_way_out() -> None:
    """Its networks are internal, and every service that publishes a port has another one."""
    internal = {name for name, network in COMPOSE["networks"].items() if (network or {}).get("internal")}
    assert set(SERVICES["postgres"]["networks"]) == internal
    assert all(set(service["networks"]) - internal for service in SERVICES.values() if "ports" in service)


def test_no_secret_stands_in_a_file() -> None:
    """Every password and key is a file in its containers, of `.env`; no environment has one, and no URL."""
    assert COMPOSE["secrets"] == {name.lower(): {"environment": name} for name in SECRETS}
    assert [r["name"] for r in REFERENCES if r["rule"] == ":?"] == SECRETS
    assert COMPOSE["x-required"] == [f"${{{name}:?run python3 docker/new_env.py}}" for name in SECRETS]
    for name, service in SERVICES.items():
        read = set(re.findall(r"/run/secrets/(\w+)", json.dumps(service.get("environment", {}))))
        assert read <= {*service.get("secrets", [])} <= {*COMPOSE["secrets"]}, name
    assert not [variable for variable, _ in ENVIRONMENT if SECRET.search(variable) and not variable.endswith(("_CMD", "_FILE"))]
    files = [ROOT / "docker-compose.yml", *(f for f in DOCKER.rglob("*") if f.is_file() and "__pycache__" not in f.parts)]
    for file in files:
        assert not re.search(r"://[^/\s:@]+:[^/\s@]+@", file.read_text()), file


def test_the_example_names_every_variable_once_and_holds_no_secret() -> None:
    """What the Compose file asks for is in `.env.example`: secrets empty, the rest as a comment with its default."""
    images = {name for name in DEFAULTS if name.endswith("_IMAGE")}  # pinned in one place only
    elsewhere = images | {"NO_PROXY"}
    assert set(re.findall(r"(?m)^# ([A-Z_]+)=(\S+)$", EXAMPLE)) == {(k, v) for k, v in DEFAULTS.items() if k not in elsewhere}
    assert images <= set(re.findall(r"[A-Z_]+_IMAGE", EXAMPLE))
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
    assert sorted(len(base64.urlsafe_b64decode(value)) for value in values) == [*[32] * (len(values) - 1), 64]
    assert made.stat().st_mode & 0o777 == 0o600
    assert subprocess.run(command, check=False, capture_output=True).returncode == 1
    assert made.read_text() == first


def test_secrets_become_what_programs_look_into_and_are_private(tmp_path: Path) -> None:
    """The entry point, run for real. What clients of `~/.pgpass` read in different ways is refused."""
    env = {
        "PGPASSFILE": str(tmp_path / ".pgpass"),
        "AIRFLOW_HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "SECRETS": str(tmp_path / "secrets"),
    }
    secrets = {"airflow_db_password": "p@s s/w%#?", "lake_db_password": "lake", "airflow_admin_password": 'say "hi"'}
    (tmp_path / "secrets").mkdir()
    for name, value in secrets.items():
        (tmp_path / "secrets" / name).write_text(value)
    done = subprocess.run(
        ["sh", str(DOCKER / "entrypoint.sh"), "sh", "-c", "env; umask"], env=env, check=True, capture_output=True, text=True
    )
    assert f"SPARK_LOCAL_HOSTNAME={socket.gethostname()}\n" in done.stdout
    assert not done.stdout.endswith("0077\n")
    pgpass, login = tmp_path / ".pgpass", tmp_path / "passwords.json"
    assert pgpass.read_text() == "*:*:airflow:airflow:p@s s/w%#?\n*:*:lake:lake:lake\n"
    assert json.loads(login.read_text()) == {"admin": 'say "hi"'}
    assert {f.stat().st_mode & 0o777 for f in (pgpass, login)} == {0o600}
    for misread in ("a:b", "a\\b", "end "):
        (tmp_path / "secrets" / "lake_db_password").write_text(misread)
        done = subprocess.run(
            ["sh", str(DOCKER / "entrypoint.sh"), "true"], env=env, check=False, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr.partition(":")[0]) == (1, "lake_db_password")
    pgpass.unlink()
    login.unlink()
    for name in secrets:  # as Spark's master and worker start
        (tmp_path / "secrets" / name).unlink()
    subprocess.run(["sh", str(DOCKER / "entrypoint.sh"), "true"], env=env, check=True)
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
        assert "lake_db_password" in SERVICES[name]["secrets"]


def test_broker_and_spark_are_set_as_on_the_embedded_platform(tmp_path: Path) -> None:
    """Only what has to differ differs: places, sizes, the catalog's database, and what the containers have of their own."""
    env = {k.removeprefix("KAFKA_").replace("_", ".").lower(): v for k, v in SERVICES["kafka"]["environment"].items()}
    kafka, spark = broker.server_properties(tmp_path, 1, 2), spark_connect.spark_defaults(tmp_path, tmp_path, tmp_path)
    own = {"listeners", "advertised.listeners", "listener.security.protocol.map", "inter.broker.listener.name", "log.dirs"}
    shared = set(env) & set(kafka) - own
    assert {key: env[key] for key in shared} == {key: kafka[key] for key in shared}
    assert {"auto.create.topics.enable", *(key for key in kafka if "replication.factor" in key)} <= shared
    team = properties(DOCKER / "spark" / "spark-defaults.conf")
    own = {"spark.driver.bindAddress", "spark.driver.extraClassPath", "spark.driver.memory", "spark.sql.warehouse.dir"}
    own |= {"spark.sql.catalog.lake.uri", "spark.sql.catalog.lake.warehouse"}
    # a secret that master, workers and drivers share has to be made by somebody; there, the network decides who is let in
    left_out = {"spark.master", "spark.driver.host", "spark.local.dir", "spark.authenticate"}
    assert {key: team.get(key) for key in set(spark) - own - left_out} == {
        key: value for key, value in spark.items() if key not in own | left_out
    }
    assert not [key for key in team if key in left_out or "password" in key]


def test_both_ways_to_spark_fit_into_one_worker_at_the_same_time() -> None:
    """The Connect server never lets go of its cores: without room beside it, spark-submit would wait for ever."""
    spark = properties(DOCKER / "spark" / "spark-defaults.conf")
    cores, memory_g, limit_g = (int(DEFAULTS[f"SPARK_WORKER_{of}"].removesuffix("g")) for of in ("CORES", "MEMORY", "LIMIT"))
    assert cores >= 2 * int(spark["spark.cores.max"])
    assert memory_g >= 2 * int(spark["spark.executor.memory"].removesuffix("g"))
    # the container has room for them, the worker's own gigabyte, and what JVMs and Python take beside their heaps
    assert limit_g >= memory_g + 1 + memory_g // 2

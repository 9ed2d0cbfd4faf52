"""The built wheel in an empty environment: `tidegate init`, Airflow's own commands, and a first run that loads.

Broker and Spark Connect are those of the platform that all tests here have. Airflow, with `tidegate[airflow]`, is in an
environment and folders of its own, where nothing of the repository is.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyiceberg.catalog import load_catalog

import tidegate
from tests.e2e.project import REPO
from tidegate.airflow.remote.api import AirflowApi
from tidegate.airflow.remote.client import PASSWORD, URL, USER
from tidegate.core.model.uris import PIPELINES
from tidegate_local.airflow import Airflow
from tidegate_local.platform import Platform
from tidegate_local.sockets import choose_port
from tidegate_local.topics import create_topic, produce_lines

ORDERS = [b'{"id": 1, "item": "lamp", "price": 19.5}', b'{"id": 2, "item": "desk", "price": 120.0}', b"this is not JSON"]
OF_OTHERS = ("AIRFLOW_", "SPARK_", "PYSPARK_", "PYICEBERG_", "PYTHON", "TIDEGATE_", "UV_", "VIRTUAL_ENV")


def run(*command: object, cwd: Path, env: dict[str, str] | None = None) -> str:
    """What a command prints; it succeeds."""
    words = [str(word) for word in command]
    ended = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, f"{words}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="module")
def uv() -> str:
    """The program."""
    own = REPO / ".uv" / "bin" / "uv"  # there where `make venv` found none that works
    found = str(own) if own.exists() else shutil.which("uv")
    assert found is not None
    return found


@pytest.fixture(scope="module")
def wheel(uv: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As it is built of the checkout."""
    root = tmp_path_factory.mktemp("wheel")
    run(uv, "build", "--quiet", "--wheel", "--out-dir", root, REPO, cwd=root)
    (built,) = root.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(uv: str, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that holds the wheel with its extra `airflow`, in the locked versions."""
    root = tmp_path_factory.mktemp("environment")
    locked = root / "locked.txt"
    export = ["--frozen", "--quiet", "--no-dev", "--extra", "airflow", "--no-emit-project", "--no-hashes", "--no-annotate"]
    run(uv, "export", *export, "--project", REPO, "--output-file", locked, cwd=root)
    run(uv, "venv", "--quiet", "--python", sys.executable, root / "venv", cwd=root)
    python = root / "venv" / "bin" / "python"
    run(
        uv,
        "pip",
        "install",
        "--quiet",
        "--compile-bytecode",
        "--python",
        python,
        "--constraint",
        locked,
        f"{wheel}[airflow]",
        cwd=root,
    )
    return python.parent


@pytest.mark.long
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_the_wheel_installs_into_an_empty_environment_of_each_python(
    version: str, uv: str, wheel: Path, tmp_path: Path
) -> None:
    """With all its extras, in the newest versions that they allow; it makes a project, and finds it valid."""
    venv = [uv, "venv", "--quiet", "--no-python-downloads", "--python", version, str(tmp_path / "venv")]
    if subprocess.run(venv, capture_output=True, check=False).returncode != 0:
        pytest.skip(f"there is no Python {version}")
    programs, dags = tmp_path / "venv" / "bin", tmp_path / "dags"
    dags.mkdir()
    run(uv, "pip", "install", "--quiet", "--python", programs / "python", f"{wheel}[airflow,cli,receivers,spark]", cwd=tmp_path)
    assert run(programs / "tidegate", "--version", cwd=dags) == f"tidegate {tidegate.__version__}\n"
    run(programs / "tidegate", "init", cwd=dags)
    assert [each["valid"] for each in json.loads(run(programs / "tidegate", "check", "--json", cwd=dags))] == [True]


def test_the_wheel_holds_the_pages_and_not_their_sources(environment: Path) -> None:
    """The script that `make bundle` builds."""
    look = "import tidegate.ui as u; print(u.BUNDLE.is_file(), (u.BUNDLE.parents[1] / 'web').exists())"
    assert run(environment / "python", "-c", look, cwd=environment).split() == ["True", "False"]


@dataclass(frozen=True)
class Home:
    """The folder of an Airflow, and how to run the environment's programs there."""

    root: Path
    programs: Path
    env: dict[str, str]

    @property
    def dags(self) -> Path:
        """The DAG folder."""
        return self.root / "dags"

    def run(self, program: str, *words: object, **env: str) -> str:
        """What a program of the environment prints, in the DAG folder."""
        return run(self.programs / program, *words, cwd=self.dags, env={**self.env, **env})

    def json(self, program: str, *words: object, **env: str) -> Any:
        """The JSON that a program prints."""
        return json.loads(self.run(program, *words, **env))


@pytest.fixture(scope="module")
def home(environment: Path, platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """An empty DAG folder; of the platform, its programs know the catalog, and that no proxy leads to the loopback."""
    root = tmp_path_factory.mktemp("home")
    (root / "dags").mkdir()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(OF_OTHERS)}
    ours = {
        name: value for name, value in platform.environment().items() if name.startswith(("PYICEBERG_", "NO_PROXY", "no_proxy"))
    }
    path = os.pathsep.join([str(environment), inherited["PATH"]])
    return Home(root, environment, {**inherited, **ours, "PATH": path, "AIRFLOW_HOME": str(root / "airflow")})


@pytest.fixture(scope="module")
def printed(home: Home) -> str:
    """What `tidegate init` prints, once it has written its files."""
    text = home.run("tidegate", "init")
    assert home.json("tidegate", "init", "--json")["written"] == []
    return text


@pytest.fixture(scope="module")
def airflow(home: Home, printed: str, platform: Platform) -> Iterator[Airflow]:
    """Airflow's servers, with what `tidegate init` asks to set in their environment and the shell's."""
    spark = platform.spark_connection
    token = f'"port": {spark["port"]}, "password": "{spark["password"]}"'
    exports = [line.strip() for line in printed.splitlines() if line.strip().startswith("export AIRFLOW_CONN_")]
    for line in exports:
        filled = line.replace("HOST:9092", platform.bootstrap_servers).replace('"port": 15002', token)
        name, _, value = shlex.split(filled)[1].partition("=")
        home.env[name] = value.replace("HOST", str(spark["host"]))
    made = Airflow(
        home=home.root / "airflow",
        project=home.root,
        port=choose_port([]),
        env=home.env,
        logs=home.root / "logs",
        pid_files=home.root / "run",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(home.programs / "python"))
        made.prepare()
        started = made.servers()
    try:
        for server in started:
            server.spawn()
        for server in started:
            server.await_healthy()
        yield made
    finally:
        for server in started:
            server.stop()


@pytest.fixture
def api(airflow: Airflow) -> Iterator[AirflowApi]:
    """Its REST API."""
    with airflow.api() as client:
        yield client


def test_the_package_registers_one_provider_and_one_plugin(home: Home) -> None:
    """As Airflow's own commands list them."""
    providers = [p for p in home.json("airflow", "providers", "list", "--output", "json") if p["package_name"] == "tidegate"]
    assert len(providers) == 1
    plugins = [p for p in home.json("airflow", "plugins", "--output", "json") if "tidegate" in p["name"]]
    assert [(p["name"], p["listeners"]) for p in plugins] == [("tidegate", ["tidegate.airflow.notes"])]


def test_what_init_writes_is_valid_at_once(home: Home, printed: str) -> None:
    """By the command that `init` prints, in the DAG folder."""
    (check,) = [shlex.split(line) for line in printed.splitlines() if line.strip().startswith("tidegate check")]
    assert home.json(*check, "--json") == [{"pipeline": "orders", "valid": True, "faults": [], "warnings": []}]


def test_the_first_pipeline_runs(home: Home, airflow: Airflow, api: AirflowApi, platform: Platform) -> None:
    """Airflow parses the folder, the plugin makes the pool and writes the note, and each record is in the table once."""
    kafka = {"bootstrap.servers": platform.bootstrap_servers}
    create_topic(kafka, "orders", 2)
    assert produce_lines(kafka, "orders", ORDERS) == len(ORDERS)
    api.wait_dag("orders")
    assert api.import_errors() == []
    assert {dag["dag_id"] for dag in api.dags()} == {"orders", "orders__replay", "tidegate__doctor__orders"}
    assert api.get("/plugins/importErrors")["total_entries"] == 0
    api.unpause("orders")
    run_id = api.trigger("orders")
    assert api.wait_run("orders", run_id, timeout_s=300)["state"] == "success", api.why_failed("orders", run_id)
    # its schedule may have started a run before
    runs = [run for run in api.dag_runs("orders") if run["state"] == "success"]
    loads = [load for run in runs if (load := api.xcom("orders", run["dag_run_id"], "load"))]
    assert sum(load["receipt"]["rows"] for load in loads) == len(ORDERS)
    assert all(run["note"] for run in runs)
    assert api.get("/pools/tidegate_lake_shop_orders")["slots"] == 1
    scheduler = next(server for server in airflow.servers() if "scheduler" in server.name)
    assert scheduler.log.read_text().count("made the pool tidegate_lake_shop_orders") == 1
    table = load_catalog("lake", **platform.catalog_properties).load_table("shop.orders").scan().to_arrow()
    assert sorted(table.column("item").to_pylist(), key=str) == [None, "desk", "lamp"]
    user, password = airflow.login
    verdict = home.json(
        "tidegate", "ledger", "verify", "orders", "--json", **{URL: airflow.url, USER: user, PASSWORD: password}
    )
    assert verdict["holds"]
    # the pages are in the package, and need nothing that it does not bring
    assert api.page(PIPELINES) == f"{airflow.url}/{PIPELINES}"
    token = httpx.post(f"{airflow.url}/auth/token", json={"username": user, "password": password}, trust_env=False).json()
    answer = httpx.get(
        f"{airflow.url}/tidegate/api/pipelines",
        headers={"Authorization": f"Bearer {token['access_token']}"},
        trust_env=False,
    )
    assert [(each["pipeline"], each["faults"]) for each in answer.json()["pipelines"]] == [("orders", [])]

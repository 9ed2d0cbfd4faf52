"""Laws of what the package registers with Airflow, what processes import, and the DAG folder of `tidegate init`."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from airflow import plugins_manager, settings
from airflow.listeners.listener import ListenerManager
from airflow.providers_manager import ProvidersManager
from airflow.utils.file import list_py_file_paths

from tidegate.airflow import notes
from tidegate.airflow.dags import build_dags
from tidegate.airflow.operators.load import LoadOperator
from tidegate.airflow.preload import DAGS, TASKS, TRIGGERS
from tidegate.cli.init import example, write_files

REPO = Path(__file__).parents[2]


def test_the_plugin_is_registered_once_and_its_listener_is_called_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the entry point and by no file: a second one would be an import error. So a note is written once."""
    monkeypatch.setattr(settings, "PLUGINS_FOLDER", str(REPO / "plugins"))
    plugins_manager._get_plugins.cache_clear()
    loaded, errors = plugins_manager._get_plugins()
    assert errors == {}
    (ours,) = [plugin for plugin in loaded if plugin.name == "tidegate"]
    assert ours.listeners == [notes]
    manager = ListenerManager()
    plugins_manager.integrate_listener_plugins(manager)
    assert [each.plugin for each in manager.hook.on_dag_run_running.get_hookimpls()].count(notes) == 1


def test_the_package_is_a_provider() -> None:
    """Airflow takes what it says of itself; one distribution, one entry point."""
    assert ProvidersManager().providers["tidegate"].data["name"] == "Tidegate"
    assert [e.dist.name for e in entry_points(group="apache_airflow_provider") if e.dist].count("tidegate") == 1


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # Airflow's own use of pathspec
def test_what_init_writes_makes_the_dags_of_its_pipeline_by_one_file(tmp_path: Path) -> None:
    """Both, with loads that run the installed application and find the transforms beside the pipelines.

    Airflow takes no transform for a file of DAGs, also where it does not look into files before it imports them.
    """
    write_files(tmp_path, example())
    for safe_mode in (False, True):
        assert [Path(file).name for file in list_py_file_paths(tmp_path, safe_mode=safe_mode)] == ["tidegate_dags.py"]
    dags = build_dags(tmp_path / "pipelines", spark_jobs=tmp_path / "spark_jobs")
    assert dags.keys() == {"orders", "orders__replay", "tidegate__doctor__orders"}
    load = dags["orders"].get_task("load")
    assert isinstance(load, LoadOperator)
    assert load.spark_jobs == tmp_path / "spark_jobs"
    assert Path(load.application).is_file()


RECEIVERS = ("tidegate_receivers.config.files", "tidegate_receivers.airflow.dag")
IMPORTED = {
    "scheduler --skip-serve-logs": TASKS + RECEIVERS,
    "dag-processor": DAGS + RECEIVERS,
    "triggerer": TRIGGERS,
    "api-server": (),
    "dags list": (),
}


@pytest.mark.slow
def test_processes_that_fork_others_import_what_those_need() -> None:
    """All of it is there; other processes import nothing."""
    calls = "".join(f"print(*preload('airflow {words}'.split()))\n" for words in IMPORTED)
    code = f"from tidegate.airflow.preload import preload\n{calls}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines() == [" ".join(modules) for modules in IMPORTED.values()]

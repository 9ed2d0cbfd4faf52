"""Laws of what packages register: files of a registered kind are read, and nothing is looked up for a project without any."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from tidegate import beside
from tidegate.core.config.declared import Settings
from tidegate.core.model.errors import ConfigError

RECEIVER = "{kind: http, topic: clicks, listen: {port: 8321}}"


def write(project: Path, folder: str, **files: str) -> None:
    """YAML files in a folder of a DAG folder."""
    (project / folder).mkdir()
    for name, text in files.items():
        (project / folder / f"{name}.yaml").write_text(text)


def test_a_folder_of_a_registered_kind_is_read_and_no_other(tmp_path: Path) -> None:
    """Under the name that it is registered by; valid files and broken ones."""
    write(tmp_path, "receivers", clicks=RECEIVER, broken="{}")
    write(tmp_path, "recipes", cake="{flour: 1}")
    found = {file.stem: (kind.name, stated) for kind, file, stated in beside.load_beside(tmp_path / "pipelines", {})}
    assert [*found] == ["broken", "clicks"]
    assert {kind for kind, _ in found.values()} == {"receiver"}
    assert isinstance(found["broken"][1], ConfigError)
    (clicks,) = beside.valid_beside(tmp_path / "pipelines")
    assert (clicks.way, clicks.pool, clicks.slots) == ("http://127.0.0.1:8321 -> topic clicks", "default_pool", 2)


def test_nothing_is_looked_up_where_there_are_pipelines_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer than all else that reads a DAG folder; a schema for editors is no such file."""
    write(tmp_path, "pipelines", orders="{}")
    write(tmp_path, "receivers")
    (tmp_path / "receivers" / "receiver.schema.json").write_text("{}")
    monkeypatch.delattr(beside, "registered")
    assert list(beside.load_beside(tmp_path / "pipelines", {})) == []


@pytest.mark.parametrize("group", ["tidegate.cli", "tidegate.config", "tidegate.platform"])
def test_what_is_registered_can_be_imported(group: str) -> None:
    """What makes DAGs needs Airflow, and has its tests with it."""
    entries = beside.registered(group)
    assert entries
    for entry in entries.values():
        assert entry.load()


def raises(*_: object) -> Any:
    """What another package does."""
    raise OSError("no disk")


BROKEN = beside.Kind("broken", Settings, "", load=raises)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "no package registers tidegate.config"),
        (["nothing.of.the:sort"], "nothing.of.the:sort, which is registered as tidegate.config, cannot be imported: Mod"),
        (["tests.unit.test_beside:BROKEN"], r"receivers cannot be read: OSError\('no disk'\)"),
        (["tests.unit.test_beside:BROKEN", "nothing.of.the:sort"], "two packages register receivers as tidegate.config"),
    ],
    ids=["none", "cannot be imported", "fails", "two of one name"],
)
def test_a_broken_package_is_the_error_of_its_own_files(
    values: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pipelines go on without it."""
    write(tmp_path, "receivers", clicks=RECEIVER)
    entries = [EntryPoint("receivers", value, "tidegate.config") for value in values]
    monkeypatch.setattr(beside, "entry_points", lambda **_: entries)
    monkeypatch.setattr(beside, "registered", beside.registered.__wrapped__)
    ((_, file, stated),) = beside.load_beside(tmp_path / "pipelines", {})
    assert file.stem == "clicks"
    with pytest.raises(ConfigError, match=message):
        raise stated if isinstance(stated, ConfigError) else AssertionError(stated)


def test_a_name_that_nobody_registers_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no package registers nothing") as refused:
        beside.loaded("tidegate.cli", "nothing")
    assert refused.value.fix

"""Laws of `tidegate rename`, on in-memory ports; the moves themselves: `test_rename.py`, `test_iceberg_history.py`."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tidegate.sinks.iceberg.rename
from tests.unit.test_admission import World
from tests.unit.test_rename import move_owner
from tidegate.cli import commands, rename
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import ConfigError, KafkaError
from tidegate.core.state.ledger import Ledger

FILE = "transform: rows:f\nsource: {topics: [t]}\nsink: {table: lake.a.b}\n"


class FakeRemote:
    """The pipeline `p` has committed a batch; the brokers do not take its group."""

    def __init__(self) -> None:
        world = World()
        world.run("run1")
        self.store, self.sink, self.active = world.store, world.sink, dict[str, list[str]]()

    def active_runs(self, dag: str) -> list[str]:
        return self.active.get(dag, [])

    def cursor(self, pipeline: Pipeline) -> Any:
        return Ledger(self.store, pipeline.name).cursor()

    def kafka(self, _: Pipeline) -> dict[str, str]:
        raise KafkaError("no group", fix="none")


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> FakeRemote:
    made = FakeRemote()
    monkeypatch.setattr(rename, "open_remote", lambda _: nullcontext(made))
    monkeypatch.setattr(tidegate.sinks.iceberg.rename, "move_owner", lambda _, old, new: move_owner(made.sink, old, new))
    return made


def test_a_rename_moves_what_is_saved_once_its_file_is_renamed_and_nothing_runs(remote: FakeRemote, tmp_path: Path) -> None:
    """A second time there is nothing left to do; the group follows with the next commit where the brokers refuse it now."""
    folder = tmp_path / "dags" / "pipelines"
    folder.mkdir(parents=True)
    words = ["rename", "p", "q", "--project", str(tmp_path)]
    (folder / "p.yaml").write_text(FILE)
    assert "Rename the file to q.yaml first" in str(CliRunner().invoke(commands(), words).exception)
    (folder / "q.yaml").write_text(FILE)
    assert "q is a pipeline too: choose another name" in str(CliRunner().invoke(commands(), words).exception)
    (folder / "p.yaml").rename(folder / "q.yaml")
    (folder / "r.yaml").write_text(FILE)
    assert isinstance(CliRunner().invoke(commands(), words).exception, ConfigError)
    (folder / "r.yaml").unlink()
    remote.active["p__replay"] = ["manual__1"]
    running = CliRunner().invoke(commands(), words)
    assert "p__replay is running (manual__1)" in str(running.exception)
    assert "tidegate.p.cursor" in remote.store.values
    remote.active.clear()
    done = CliRunner().invoke(commands(), words)
    assert (done.exit_code, "p is q now (2 saved values moved): its next batch is 2" in done.output) == (0, True)
    assert "airflow dags unpause q" in done.output
    assert "group tidegate-q shows the next commit only" in done.output
    again = CliRunner().invoke(commands(), [*words, "--json"])
    assert json.loads(again.stdout) == {"old": "p", "new": "q", "moved": 0, "seq": 1}


def test_a_rename_before_the_first_commit_is_told(remote: FakeRemote, tmp_path: Path) -> None:
    """There is no cursor yet, and no group to move."""
    folder = tmp_path / "dags" / "pipelines"
    folder.mkdir(parents=True)
    (folder / "q.yaml").write_text(FILE)
    remote.store.delete("tidegate.p.cursor")
    done = CliRunner().invoke(commands(), ["rename", "p", "q", "--project", str(tmp_path)])
    assert (done.exit_code, "p is q now (1 saved values moved): its next batch is 1" in done.output) == (0, True)
    assert "group" not in done.output

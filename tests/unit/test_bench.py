"""How benchmarks are run; what they measure is no test's business."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import cli
from tests.bench.file_store import FileStore
from tidegate.core.model.errors import StateUnavailable


def test_a_benchmark_gets_its_options_and_a_folder_that_is_gone_after_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In their order and types; it prints JSON."""
    monkeypatch.setattr("sys.argv", ["bench", "--warm-up", "3"])

    def measure(rounds: int, warm_up: int, poll: float, folder: Path) -> dict[str, object]:
        assert folder.is_dir()
        return {"given": [rounds, warm_up, poll], "folder": str(folder)}

    cli.run("What it measures.", measure, rounds=10, warm_up=1, poll=2.0)
    found = json.loads(capsys.readouterr().out)
    assert found["given"] == [10, 3, 2.0]
    assert not Path(found["folder"]).exists()


def test_state_in_files_tells_what_is_missing_as_the_port_demands(tmp_path: Path) -> None:
    """A schedule that never ran has no cursor, which is no fault of the store."""
    store = FileStore(tmp_path)
    with pytest.raises(StateUnavailable):
        store.get("tidegate.p.cursor")
    store.delete("tidegate.p.cursor")
    store.put("tidegate.p.cursor", "7", "")
    assert (store.keys("tidegate.p."), store.get("tidegate.p.cursor")) == (["tidegate.p.cursor"], "7")

from __future__ import annotations

import importlib.util
import json
import stat
from pathlib import Path
from types import ModuleType

import pytest

from tidegate.core.errors import SparkJobFailed
from tidegate.core.load.job import LoadJob
from tidegate.core.offsets.ranges import OffsetRange


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """`spark_jobs/load_range.py`, as a module."""
    path = Path(__file__).parents[2] / "spark_jobs" / "load_range.py"
    spec = importlib.util.spec_from_file_location("load_range_script", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("content", "error"), [(None, "RequestError"), ("{", "RequestError"), ("{}", "StateCorrupt")])
def test_an_order_that_cannot_be_read_is_answered_with_an_error(
    script: ModuleType, tmp_path: Path, content: str | None, error: str
) -> None:
    """There is an answer whatever happens, whole, and readable by its owner only."""
    order, answer = tmp_path / "job.json", tmp_path / "result.json"
    if content is not None:
        order.write_text(content)
    assert script.main(["--job", str(order), "--result", str(answer)]) == 1
    assert json.loads(answer.read_text())["error"]["error"] == error
    assert stat.S_IMODE(answer.stat().st_mode) == 0o600
    assert {file.name for file in tmp_path.iterdir()} <= {"job.json", "result.json"}


def test_what_is_printed_holds_no_secret(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order's Kafka options are neither in the driver's output nor in its answer, also when the load fails."""

    def fail(*_: object, **__: object) -> None:
        raise SparkJobFailed("it failed")

    monkeypatch.setattr(script, "SparkSession", type("S", (), {"builder": type("B", (), {"appName": fail})}))
    options = {"kafka.sasl.jaas.config": 'password="hush"'}
    job = LoadJob("orders", 0, "r", (OffsetRange("orders", 0, 0, 5),), "a:b", "lake.a.b", options)
    order, answer = tmp_path / "job.json", tmp_path / "result.json"
    order.write_text(json.dumps(job.to_json()))
    assert script.main(["--job", str(order), "--result", str(answer)]) == 1
    said = capsys.readouterr()
    assert "batch 0 of orders: 5 offsets to lake.a.b by a:b" in said.out
    assert "hush" not in said.out + said.err + answer.read_text()


def test_a_driver_elsewhere_reads_the_copy_of_its_order_and_goes_on_without_an_answer(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """spark-submit copies the order into the working directory; the folder of the task is not there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.json").write_text("{}")
    gone = tmp_path / "gone"
    assert script.main(["--job", str(gone / "job.json"), "--result", str(gone / "result.json")]) == 1
    said = capsys.readouterr().out
    assert "failed: StateCorrupt" in said
    assert f"the answer cannot be written to {gone / 'result.json'} (FileNotFoundError)" in said

"""Laws of `tidegate init`. In an Airflow of its own: `tests/e2e/test_installed_wheel.py`."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Self

import pytest
from typer.testing import CliRunner

from tidegate.cli import commands
from tidegate.cli.init import EXAMPLE, FILES, PIPELINE, write_example
from tidegate.core.model.errors import PlatformError, RequestError
from tidegate.pipelines import load_pipeline

REPO = Path(__file__).parents[2]


def init(*words: object) -> dict[str, Any]:
    """What the command prints as JSON."""
    ended = CliRunner().invoke(commands(), ["init", *map(str, words), "--json"])
    assert ended.exit_code == 0, ended.output
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def tree(folder: Path) -> dict[str, str]:
    """All files below the folder, with their content."""
    return {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def no_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """`check` looks at files alone."""
    monkeypatch.delenv("TIDEGATE_AIRFLOW_URL", raising=False)


@pytest.mark.usefixtures("no_airflow")
@pytest.mark.parametrize("name", ["dags", "my dags", "Straße"])
def test_what_init_writes_is_valid_at_once(tmp_path: Path, name: str) -> None:
    """As the DAG folder, and, where that is called `dags`, as its project."""
    folder = tmp_path / name
    folder.mkdir()
    assert init(folder) == {"written": [str(folder / file) for file in FILES], "kept": []}
    assert tree(folder) == {file: (EXAMPLE / file).read_text() for file in FILES}
    for project in [folder] + ([tmp_path] if name == "dags" else []):
        checked = CliRunner().invoke(commands(), ["check", "--project", str(project), "--json"])
        assert checked.exit_code == 0, checked.output
        assert json.loads(checked.stdout) == [{"pipeline": "orders", "valid": True, "faults": [], "warnings": []}]


def test_the_current_folder_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is run in the DAG folder itself."""
    monkeypatch.chdir(tmp_path)
    assert init()["written"] == list(FILES)


def test_init_keeps_every_file_that_exists(tmp_path: Path) -> None:
    """Twice in one folder, and beside files of the same names with other content, which stay as they are."""
    own = tmp_path / PIPELINE
    own.parent.mkdir()
    own.write_text("mine")
    (tmp_path / "other.py").write_text("mine, too")
    first = init(tmp_path)
    assert first["kept"] == [str(own)]
    assert len(first["written"]) == len(FILES) - 1
    before = tree(tmp_path)
    assert (before[PIPELINE], before["other.py"]) == ("mine", "mine, too")
    assert init(tmp_path) == {"written": [], "kept": [str(tmp_path / file) for file in FILES]}
    assert tree(tmp_path) == before


def test_a_kept_file_with_other_content_is_marked(tmp_path: Path) -> None:
    """An older DAG file may read other folders than those that are written beside it."""
    init(tmp_path)
    (tmp_path / "tidegate_dags.py").write_text("# of an earlier version")
    kept = [
        line for line in CliRunner().invoke(commands(), ["init", str(tmp_path)]).output.splitlines() if line.startswith("kept")
    ]
    assert ["with other content" in line for line in kept] == ["tidegate_dags.py" in line for line in kept]
    assert len(kept) == len(FILES)


def test_the_text_names_files_connections_and_catalog(tmp_path: Path) -> None:
    """And a folder whose name a shell would split is quoted."""
    folder = tmp_path / "my dags"
    (folder / "pipelines").mkdir(parents=True)
    (folder / PIPELINE).touch()
    ended = CliRunner().invoke(commands(), ["init", str(folder)])
    assert ended.exit_code == 0, ended.output
    assert f"written  {folder / 'tidegate_dags.py'}\n" in ended.stdout
    assert f"kept     {folder / PIPELINE}  (it existed, with other content)\n" in ended.stdout
    pipeline = load_pipeline(EXAMPLE / PIPELINE)
    for name in (pipeline.source.connection, pipeline.spark.connection, "PYICEBERG_CATALOG__LAKE__URI", f"'{folder}'"):
        assert name in ended.stdout


def test_links_to_folders_and_files_are_used(tmp_path: Path) -> None:
    """The DAG folder may be a link, as may be what is in it."""
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "dags"
    (elsewhere / "pipelines").mkdir(parents=True)
    (elsewhere / "mine.py").touch()
    (elsewhere / "dags").mkdir()
    folder.symlink_to(elsewhere / "dags")
    (folder / "pipelines").symlink_to(elsewhere / "pipelines")
    (folder / "tidegate_dags.py").symlink_to(elsewhere / "mine.py")
    assert init(folder)["kept"] == [str(folder / "tidegate_dags.py")]
    assert (elsewhere / "mine.py").read_text() == ""
    assert (elsewhere / PIPELINE).is_file()


@pytest.mark.parametrize(
    ("obstacle", "message"),
    [
        (lambda folder: folder.rmdir(), "there is no folder"),
        (lambda folder: (folder.rmdir(), folder.touch()), "is not a folder"),
        (lambda folder: (folder.rmdir(), folder.symlink_to("nowhere")), "there is no folder"),
        (lambda folder: (folder / "spark_jobs").touch(), "spark_jobs is a file, and must be a folder"),
        (lambda folder: (folder / "pipelines").symlink_to("nowhere"), "pipelines is a link that leads nowhere"),
        (lambda folder: (folder / "tidegate_dags.py").mkdir(), "tidegate_dags.py is a folder, and must be a file"),
        (lambda folder: (folder / "tidegate_dags.py").symlink_to("nowhere"), "a link that leads nowhere, and must be a file"),
        (lambda folder: os.mkfifo(folder / "tidegate_dags.py"), "tidegate_dags.py is a special file, and must be a file"),
    ],
)
def test_what_is_in_the_way_is_refused_before_anything_is_written(tmp_path: Path, obstacle: Any, message: str) -> None:
    """By its name, as one message."""
    folder = tmp_path / "dags"
    folder.mkdir()
    obstacle(folder)
    before = tree(tmp_path)
    with pytest.raises(RequestError, match=message):
        write_example(folder)
    assert tree(tmp_path) == before


def test_a_name_that_no_folder_can_have_is_refused(tmp_path: Path) -> None:
    """The file system says why."""
    with pytest.raises(RequestError, match="cannot be read: File name too long"):
        write_example(tmp_path / ("a" * 300))


def test_a_file_that_cannot_be_written_is_named_and_no_part_of_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written before stays, and the next call goes on from there."""
    full = False

    class Full:
        """An open file on a disk without space."""

        def __init__(self, path: Path) -> None:
            path.touch()

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

        def write(self, _: bytes) -> None:
            raise OSError(28, "No space left on device")

    opened = Path.open

    def open_(path: Path, mode: str = "r", *rest: Any, **options: Any) -> Any:
        return Full(path) if full and mode == "xb" and path.name == "orders.yaml" else opened(path, mode, *rest, **options)

    monkeypatch.setattr(Path, "open", open_)
    full = True
    with pytest.raises(RequestError, match=r"orders.yaml cannot be written: No space left"):
        write_example(tmp_path)
    assert tree(tmp_path).keys() == {"tidegate_dags.py"}
    full = False
    done = write_example(tmp_path)
    assert [file.name for file in done.kept] == ["tidegate_dags.py"]
    assert tree(tmp_path).keys() == set(FILES)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_not_writable_is_refused(tmp_path: Path) -> None:
    """Nothing is written."""
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(RequestError, match="cannot be written: Permission denied"):
            write_example(tmp_path)
    finally:
        tmp_path.chmod(0o700)


def test_the_readme_has_the_same_first_pipeline(tmp_path: Path) -> None:
    """The same settings, and the same schema."""
    readme = (REPO / "README.md").read_text()
    blocks = dict(re.findall(r"```(yaml|python)\n(.*?)```", readme, re.DOTALL))
    (tmp_path / "orders.yaml").write_text(blocks["yaml"])
    assert load_pipeline(tmp_path / "orders.yaml") == load_pipeline(EXAMPLE / PIPELINE)
    returned = re.findall(r"return .*", blocks["python"])
    assert returned == re.findall(r"return .*", (EXAMPLE / "spark_jobs/transforms/orders.py").read_text())


def test_the_embedded_airflow_is_not_started_where_it_would_find_no_dags(tmp_path: Path) -> None:
    """It reads a project's folder `dags`; `init` writes into a DAG folder."""
    CliRunner().invoke(commands(), ["init", str(tmp_path)])
    ended = CliRunner().invoke(commands(), ["up", "--project", str(tmp_path)])
    assert isinstance(ended.exception, PlatformError)
    assert "is a DAG folder" in str(ended.exception)
    assert not (tmp_path / ".tidegate").exists()

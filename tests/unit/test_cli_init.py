"""Laws of `tidegate init` and `check` on files alone. In an Airflow of its own: `tests/e2e/test_installed_wheel.py`."""

from __future__ import annotations

import json
import os
import re
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from typer.testing import CliRunner

from tests.records import write_of
from tidegate.cli import check, commands
from tidegate.cli.init import EXAMPLE, FILES, PIPELINE, example, write_files
from tidegate.cli.shared import the_pipeline
from tidegate.core.config.layout import Layout
from tidegate.core.config.sampled import schema_of
from tidegate.core.model.errors import ConfigError, PlatformError, RequestError
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.receipt import Receipt
from tidegate.pipelines import load_pipeline, pipelines_of, spark_jobs_of
from tidegate.testing.fakes import FakeReader, MemoryStore
from tidegate_local import airflow

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


@pytest.mark.parametrize("name", ["dags", "my Straße"])
def test_what_init_writes_is_valid_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As the DAG folder, and, where that is called `dags`, as its project."""
    monkeypatch.delenv("TIDEGATE_AIRFLOW_URL", raising=False)
    folder = tmp_path / name
    folder.mkdir()
    assert init(folder) == {"written": [str(folder / file) for file in FILES], "kept": []}
    assert tree(folder) == {file: (EXAMPLE / file).read_text() for file in FILES}
    for project in [folder] + ([tmp_path] if name == "dags" else []):
        checked = CliRunner().invoke(commands(), ["check", "--project", str(project), "--json"])
        assert checked.exit_code == 0, checked.output
        assert json.loads(checked.stdout) == [{"pipeline": "orders", "valid": True, "faults": [], "warnings": []}]


def test_init_keeps_every_file_that_exists_and_marks_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice in one folder, here the current one; an older DAG file may read other folders than those beside it."""
    monkeypatch.chdir(tmp_path)
    Path(PIPELINE).parent.mkdir()
    for own in (PIPELINE, "other.py"):
        Path(own).write_text("mine")
    assert init() == {"written": [file for file in FILES if file != PIPELINE], "kept": [PIPELINE]}
    before = tree(tmp_path)
    assert (before[PIPELINE], before["other.py"]) == ("mine", "mine")
    assert init() == {"written": [], "kept": [*FILES]}
    assert tree(tmp_path) == before
    kept = [line for line in CliRunner().invoke(commands(), ["init"]).output.splitlines() if line.startswith("kept")]
    assert (
        ["with other content" in line for line in kept] == [PIPELINE in line for line in kept] == [f == PIPELINE for f in FILES]
    )


@pytest.mark.parametrize("prefix", ["", "dags/"])
def test_an_example_that_nobody_has_changed_makes_way_for_a_topic_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    """What somebody has written stays, and so does a link. A folder that cannot be written is named."""
    sample = {f"{prefix}{name}": text for name, text in example().items()}
    pipeline, transform, dag_file = f"{prefix}{PIPELINE}", f"{prefix}{FILES[-1]}", f"{prefix}{FILES[0]}"
    write_files(tmp_path, sample)
    (tmp_path / transform).write_bytes(b"mine")
    (tmp_path / dag_file).rename(tmp_path / "elsewhere")
    (tmp_path / dag_file).symlink_to(tmp_path / "elsewhere")
    of_topic = {**sample, **dict.fromkeys((pipeline, transform, dag_file), b"of a topic")}
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", mock.Mock(side_effect=PermissionError(13, "Permission denied")))
        with pytest.raises(RequestError, match=r"orders.yaml cannot be written: Permission denied"):
            write_files(tmp_path, of_topic)
    done = write_files(tmp_path, of_topic)
    assert done.written == (tmp_path / pipeline,)
    assert set(done.kept) == {tmp_path / name for name in sample if name != pipeline}
    assert ((tmp_path / pipeline).read_bytes(), (tmp_path / transform).read_bytes()) == (b"of a topic", b"mine")
    assert write_files(tmp_path, of_topic).written == ()


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
    """By its name, as one message; so is a name that no folder can have."""
    folder = tmp_path / "dags"
    folder.mkdir()
    obstacle(folder)
    before = tree(tmp_path)
    with pytest.raises(RequestError, match=message):
        write_files(folder, example())
    with pytest.raises(RequestError, match="cannot be read: File name too long"):
        write_files(tmp_path / ("a" * 300), example())
    assert tree(tmp_path) == before


def test_a_file_that_cannot_be_written_is_named_and_no_part_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written before stays, and the next call goes on from there."""
    opened = Path.open

    def open_(path: Path, mode: str = "r", *rest: Any, **options: Any) -> Any:
        if mode != "xb" or path.name != "orders.yaml":
            return opened(path, mode, *rest, **options)
        path.touch()  # as a disk without space leaves it
        full = mock.MagicMock()
        full.__enter__.return_value.write.side_effect = OSError(28, "No space left on device")
        full.__exit__.return_value = None
        return full

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", open_)
        with pytest.raises(RequestError, match=r"orders.yaml cannot be written: No space left"):
            write_files(tmp_path, example())
    assert tree(tmp_path).keys() == {"tidegate_dags.py"}
    assert [file.name for file in write_files(tmp_path, example()).kept] == ["tidegate_dags.py"]
    assert tree(tmp_path).keys() == set(FILES)


def test_the_readme_has_the_same_first_pipeline(tmp_path: Path) -> None:
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


def test_in_an_empty_project_init_writes_where_the_embedded_airflow_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is up by then: its page says to run `init`."""
    home = tmp_path / ".tidegate"
    monkeypatch.setattr(airflow.Airflow, "_migrate", lambda _: None)
    airflow.Airflow(home=home, project=tmp_path, port=1, env={}, logs=home, pid_files=home).prepare()
    CliRunner().invoke(commands(), ["init", "--project", str(tmp_path)])
    assert f"dags_folder = {tmp_path / 'dags'}\n" in (home / "airflow.cfg").read_text()
    assert (tmp_path / "dags" / FILES[0]).is_file()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With one module of transforms, and no Airflow."""
    monkeypatch.delenv("TIDEGATE_AIRFLOW_URL", raising=False)
    for folder in ("dags/pipelines", "dags/receivers", "spark_jobs"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "spark_jobs" / "rows.py").write_text("def f(records): return records\n")
    return tmp_path


def add(project: Path, name: str, text: str) -> None:
    lines = f"{text}\nsource: {{topics: [a]}}\nsink: {{table: lake.a.{name}}}\n"
    (project / "dags" / "pipelines" / f"{name}.yaml").write_text(lines)


def checked(project: Path, code: int, *words: str) -> str:
    """What a check prints that ends so."""
    told = CliRunner().invoke(commands(), ["check", "--project", str(project), *words])
    assert told.exit_code == code, told.output
    return told.stdout if "--json" in words else told.output


def test_check_tells_all_faults_of_all_files_at_once(project: Path) -> None:
    """In text and as JSON, with exit code 1. What has no effect is no fault."""
    stated = {
        "good": ("transform: rows:f", 0),
        "no_function": ("transform: rows:g", 1),
        "no_next": ("transform: rows:f\nreplay: {transforms: ['rows:f', 'next:f']}", 1),
        "endless": (f"transform: rows:f\nretry_delay_s: .inf\ntags: ['{'x' * 200}']", 2),
        "twice": ("transform: rows:f\ntransform: rows:f", 1),
        "idle": ("transform: rows:f\ncatch_up: true", 0),
        "odd[bold]": ("transform: rows:f", 1),
    }
    for name, (text, _) in stated.items():
        add(project, name, text)
    faults = {entry["pipeline"]: entry["faults"] for entry in json.loads(checked(project, 1, "--json"))}
    assert {name: len(found) for name, found in faults.items()} == {name: count for name, (_, count) in stated.items()}
    assert faults["no_function"][0].startswith("pipelines/no_function.yaml: transform: module rows has no function g")
    assert faults["no_next"][0].startswith("pipelines/no_next.yaml: replay.transforms: next:f: there is no module next")
    printed = checked(project, 1)
    assert "pipelines/idle.yaml: catch_up: has no effect without a bound" in printed.replace("\n", " ")
    assert all(fault in printed for found in faults.values() for fault in found)
    assert {"broken odd[bold]", "valid  good: a -> lake.a.good"} <= {*printed.splitlines()}


def test_check_looks_at_the_tables_where_airflow_answers(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another pipeline's is named, with exit code 1; another layout is a warning; without an answer nothing is checked."""
    monkeypatch.setenv("TIDEGATE_AIRFLOW_URL", "http://airflow")
    monkeypatch.setattr(check, "broken_transforms", lambda *_: {})
    add(project, "new", "transform: rows:f")
    sink = FakeReader(owners=frozenset({"old"}))
    api = SimpleNamespace(pool_slots=lambda _: 1, parallelism=lambda: 32)
    remote = SimpleNamespace(store=MemoryStore(), reader=lambda _: sink, api=api)
    monkeypatch.setattr(check, "open_remote", lambda _: nullcontext(remote))

    def tells(code: int, *words: str) -> None:
        told = checked(project, code).replace("\n", " ")
        assert [each for each in words if each not in told] == []

    tells(1, "table lake.a.new belongs to pipeline old, not to new")
    sink.owners, sink.laid_out = frozenset({"new"}), Layout(partition_by=("days(at)",))
    sink.found = [Receipt(replace(write_of("new", 1, "r", (OffsetRange("t", 0, 0, 9),)), quarantined=3), 1, 1, rows=6)]
    rejected = "no quarantine for: name the one that holds them, or run `tidegate replay new --from t:0:0 --until t:0:9`"
    tells(0, "run ALTER TABLE lake.a.new DROP PARTITION FIELD days(at)", rejected)
    sink.away = True
    tells(0, "table lake.a.new was not checked", "columns were not checked: no Spark is known")
    monkeypatch.setenv("SPARK_REMOTE", "sc://spark:15002")
    for said, code, told in (
        ({"new": ["ALTER TABLE t"]}, 0, "new: the next load will run ALTER TABLE t"),
        ({"new": "id is int there"}, 1, "new: id is int there"),
        ({}, 0, "new: columns were not checked"),
    ):
        monkeypatch.setattr(check, "column_changes", lambda *_, said=said: said)
        tells(code, told)


def test_check_covers_receivers_beside_the_pipelines(project: Path) -> None:
    """A fault of one file hides no other, and a project may have receivers alone; their schema is printed by its own option."""
    folder = project / "dags" / "receivers"
    (folder / "posts.yaml").write_text("kind: http\ntopic: orders\nlisten: {port: 8080}\n")
    valid, unchecked = checked(project, 0).splitlines()
    assert valid == "valid  posts: http://127.0.0.1:8080 -> topic orders"
    assert unchecked.startswith("pools, tables and columns were not checked: no Airflow is known")
    (folder / "lines.yaml").write_text("kind: tcp_server\ntopic: orders\nlisten: {port: 0}\n")
    (folder / "log.yml").touch()
    checks = {check["receiver"]: check for check in json.loads(checked(project, 1, "--json"))}
    assert {name: check["valid"] for name, check in checks.items()} == {"lines": False, "posts": True, "log": False}
    assert checks["lines"]["faults"] == ["receivers/lines.yaml: listen.port: expected a port from 1 to 65535, got 0"]
    told = CliRunner().invoke(commands(), ["check", "--receiver-schema"])
    assert told.stdout == (REPO / "dags" / "receivers" / "receiver.schema.json").read_text()


def test_what_is_no_file_of_a_pipeline_is_refused_by_name(project: Path) -> None:
    """No name leads out of the folder, and none is too long to be looked up."""
    (project / "dags" / "secrets.yaml").touch()
    for name in ("a" * 300, "../secrets", "."):
        with pytest.raises(RequestError, match="there is no pipeline"):
            the_pipeline(project, name)


@pytest.mark.parametrize(
    ("folders", "pipelines", "jobs"),
    [
        ([], "dags/pipelines", "spark_jobs"),
        (["dags/pipelines", "spark_jobs"], "dags/pipelines", "spark_jobs"),
        (["pipelines", "spark_jobs"], "pipelines", "spark_jobs"),
        (["dags/pipelines", "dags/spark_jobs"], "dags/pipelines", "dags/spark_jobs"),
        (["dags/pipelines", "pipelines", "spark_jobs"], "dags/pipelines", "spark_jobs"),
        (["dags/pipelines", "dags/spark_jobs", "spark_jobs"], "dags/pipelines", None),
    ],
)
def test_a_project_is_a_checkout_or_a_dag_folder(tmp_path: Path, folders: list[str], pipelines: str, jobs: str | None) -> None:
    """Or holds one. A checkout's folders come first, and are missed where nothing is. Of two of transforms none is used."""
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    assert pipelines_of(tmp_path) == tmp_path / pipelines
    if jobs is None:
        with pytest.raises(ConfigError, match=r"two folders of transforms.*--project .*dags"):
            spark_jobs_of(tmp_path)
    assert spark_jobs_of(tmp_path if jobs else tmp_path / "dags") == tmp_path / (jobs or "dags/spark_jobs")


# ---- a pipeline of a topic


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The newest values of every topic."""
    values: list[bytes] = []
    client = SimpleNamespace(watermarks=lambda *_, isolation_level: isolation_level)
    remote = SimpleNamespace(brokers=lambda _: client, kafka=lambda _: {})
    monkeypatch.setattr("tidegate.cli.init.open_remote", lambda _: nullcontext(remote))
    monkeypatch.setattr("tidegate.kafka.log.newest_values", lambda *_, isolation_level: values)
    return values


def test_a_topic_makes_a_pipeline_whose_columns_are_those_of_its_newest_records(
    tmp_path: Path, broker: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Valid at once, also beside another one; names that SQL, Python and YAML have other ideas of are quoted."""
    monkeypatch.delenv("TIDEGATE_AIRFLOW_URL", raising=False)
    init(tmp_path)
    broker += [b'{"id": 1, "my \\"price\\"": 1, "to\\\\go": null}', b'{"id": 2, "my \\"price\\"": 1.5}']
    written = init(tmp_path, "--topic", "Shop.Returns-2", "--table", "lake.shop.returns")["written"]
    assert [Path(file).name for file in written] == ["shop_returns_2.yaml", "shop_returns_2.py"]
    transform = (tmp_path / "spark_jobs" / "transforms" / "shop_returns_2.py").read_text()
    made: dict[str, Any] = {}
    exec(compile(transform, "made", "exec"), made)  # noqa: S102 - what was written is valid Python
    assert made["COLUMNS"] == 'id BIGINT, `my "price"` DOUBLE, `to\\go` STRING'
    pipeline = load_pipeline(tmp_path / "pipelines" / "shop_returns_2.yaml")
    assert (pipeline.source.topics, pipeline.sink.table) == (("Shop.Returns-2",), "lake.shop.returns")
    checked = CliRunner().invoke(commands(), ["check", "--project", str(tmp_path), "--json"])
    assert [each["valid"] for each in json.loads(checked.stdout)] == [True, True]
    broker[:] = [b"\x00\xff"]
    init(tmp_path, "--topic", "avro", "--table", "lake.shop.avro")
    assert "as bytes" in (tmp_path / "spark_jobs" / "transforms" / "avro.py").read_text()
    broker[:] = [b"no JSON"]
    init(tmp_path, "--topic", "1", "--name", "numbers", "--table", "lake.shop.numbers")
    assert load_pipeline(tmp_path / "pipelines" / "numbers.yaml").source.topics == ("1",)
    exec(compile((tmp_path / "spark_jobs" / "transforms" / "numbers.py").read_text(), "made", "exec"), made)  # noqa: S102
    assert made["numbers"].__doc__.startswith("One row for each record, as text")


def test_transforms_go_where_the_project_has_them(tmp_path: Path, broker: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder need not be named. Its DAG file reads the transforms that are beside it."""
    shutil.copytree(REPO / "dags", tmp_path / "dags")
    shutil.copytree(REPO / "spark_jobs", tmp_path / "spark_jobs")
    monkeypatch.chdir(tmp_path)
    broker.append(b'{"id": 1}')
    written = init("--topic", "lamps", "--table", "lake.shop.lamps")["written"]
    assert {"dags/pipelines/lamps.yaml", "spark_jobs/transforms/lamps.py"} <= {*written}
    assert not (tmp_path / "dags" / "spark_jobs").exists()
    assert spark_jobs_of(Path()) == Path("spark_jobs")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--topic", "t"], "Give --topic and --table"),
        (["--table", "lake.a.b"], "Give --topic and --table"),
        (["--name", "t"], "Give --topic and --table"),
        (["--topic", "class", "--table", "lake.a.b"], "is a word of Python"),
        (["--topic", "parse-json", "--table", "lake.a.b"], "is a word of Python"),
        (["--topic", "9", "--table", "lake.a.b"], "--name"),
        (["--topic", "t", "--table", "b"], "sink.table"),
        (["--topic", "a b", "--table", "lake.a.b"], "source.topics"),
        (["--topic", "t", "--table", "lake.a.b"], "hold no record with a value"),
    ],
)
def test_no_file_is_made_of_what_can_be_no_pipeline(tmp_path: Path, broker: list[bytes], words: list[str], told: str) -> None:
    ended = CliRunner().invoke(commands(), ["init", str(tmp_path), *words])
    assert told in str(ended.exception)
    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    ("values", "columns"),
    [
        ([{"b": True, "i": -5, "f": 1.0, "s": "x", "n": None}], ["b BOOLEAN", "i BIGINT", "f DOUBLE", "s STRING", "n STRING"]),
        ([{"a": 1}, {"a": 2.5}, {"b": "x"}], ["a DOUBLE", "b STRING"]),
        ([{"a": 1}, {"a": "x"}], ["a STRING"]),
        ([{"a": True}, {"a": 1}], ["a STRING"]),
        ([{"a": 2**63}], ["a STRING"]),
        ([{"at": "2026-01-05T10:00:00.5+02:00"}, {"at": None}], ["at TIMESTAMP"]),
        ([{"at": "2026-01-05T10:00:00Z"}, {"at": "later"}], ["at STRING"]),
        # what a load refuses as a time is none
        *(([{"at": at}], ["at STRING"]) for at in ("2026-01-05T10:00:00", "2026-02-30T10:00:00Z", "0000-01-01T00:00:00Z")),
        *(([{"at": f"{at}Z"}], ["at STRING"]) for at in ("2026-01-01T24:00:00", "١٢٣٤-01-01T00:00")),
        ([{"at": "9999-12-31T23:59:59-08:00"}], ["at STRING"]),
        ([{"o": {"a": 1, "b c": []}}, {"o": {"A": 1.5, "d": {}}}], ["o STRUCT<a: DOUBLE, `b c`: ARRAY<STRING>, d: STRING>"]),
        ([{"l": [1, 2.5]}, {"l": []}, {"l": [None]}], ["l ARRAY<DOUBLE>"]),
        ([{"l": [{"a": 1}, {"b": "x"}]}], ["l ARRAY<STRUCT<a: BIGINT, b: STRING>>"]),
        ([{"a": 1, "A": 2}, {"_kafka_offset": 1, "_ERROR": "x", "": 1, "_deleted": True}], ["a BIGINT"]),
        ([{"_raw": 1}], None),
        ([[1]], None),
        ([{}], None),
        ([], None),
    ],
)
def test_columns_hold_the_values_that_they_are_made_of(values: list[Any], columns: list[str] | None) -> None:
    """Records without a value say nothing, and one that is no JSON object makes no columns."""
    lines = [json.dumps(value).encode() for value in values]
    assert [schema_of([*lines, *odd]) for odd in ([], [b"{"], [b"[]"])] == [columns, None, None]


@pytest.mark.parametrize(
    "value",
    [
        b'\xef\xbb\xbf{"a": 1}',
        '{"a": 1}'.encode("utf-16"),
        b'{"a": NaN}',
        b'{"\\ud800": 1}',
        b'{"a":' * 900 + b"1" + b"}" * 900,
    ],
    ids=["BOM", "UTF-16", "NaN", "half a character", "too deep"],
)
def test_what_is_no_json_to_a_load_makes_no_columns(value: bytes) -> None:
    assert schema_of([value]) is None


def test_a_pipeline_that_would_stop_another_is_not_written(tmp_path: Path, broker: list[bytes]) -> None:
    """In its table, or by a module of transforms that it would hide."""
    init(tmp_path)
    broker.append(b'{"id": 1}')
    for table in ("lake.shop.orders", "lake.shop.returns"):
        before = tree(tmp_path)
        ended = CliRunner().invoke(commands(), ["init", str(tmp_path), "--topic", "returns", "--table", table])
        assert isinstance(ended.exception, ConfigError), ended.output
        assert tree(tmp_path) == before
        (tmp_path / "spark_jobs" / "transforms.py").touch()

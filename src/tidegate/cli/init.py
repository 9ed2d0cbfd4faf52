"""`tidegate init`: the files of a first pipeline in the DAG folder of an Airflow.

The files are those of the folder `example`, as they are, or for a topic: then the transform has the columns of its newest
records. A file that exists is kept, except an unchanged one of the example that a topic's file replaces. What is in the way (a
folder where a file must be, a link that leads nowhere) is refused before anything is written.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.shared import HERE, AsJson, Project, open_remote, out, print_json
from tidegate.core.config.checks import table_faults
from tidegate.core.config.names import name_faults
from tidegate.core.config.parse import parse_pipeline
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.config.sampled import schema_of
from tidegate.core.model.errors import ConfigError, RequestError
from tidegate.pipelines import load_pipeline, load_pipelines, pipelines_of

app = typer.Typer()

EXAMPLE = Path(__file__).with_name("example")
PIPELINE = "pipelines/orders.yaml"
FILES = (
    "tidegate_dags.py",
    PIPELINE,
    "spark_jobs/.airflowignore",
    "spark_jobs/transforms/__init__.py",
    "spark_jobs/transforms/orders.py",
)
SAMPLED = 10
"""Records that a transform is written for."""
TRANSFORM = '''\
"""The transform of `pipelines/{name}.yaml`."""

from __future__ import annotations

from pyspark.sql import DataFrame
{rest}'''
OF_JSON = '''
from tidegate import parse_json

COLUMNS = (
{columns}
)  # of the newest records of topic {topic}: look them over before the first load


def {name}(records: DataFrame) -> DataFrame:
    """One row for each JSON record; a record that is not valid keeps its text in `_raw` and the reason in `_error`."""
    return parse_json(records, COLUMNS)
'''
OF_BYTES = '''

def {name}(records: DataFrame) -> DataFrame:
    """One row for each record, as bytes: the newest ones are neither JSON objects nor texts."""
    return records.select("value", "_kafka_topic", "_kafka_partition", "_kafka_offset")
'''
OF_TEXT = '''from pyspark.sql import functions as F


def {name}(records: DataFrame) -> DataFrame:
    """One row for each record, as text: the newest ones are no JSON objects."""
    value = F.col("value").cast("string").alias("value")
    return records.select(value, "_kafka_topic", "_kafka_partition", "_kafka_offset")
'''


@dataclass(frozen=True)
class Initialized:
    """Which files were written, and which existed before and were kept."""

    written: tuple[Path, ...]
    kept: tuple[Path, ...]


@app.command()
def init(
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="Airflow's DAG folder, or a folder in it; by default that of the project, or this one", metavar="FOLDER"
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="the topic that the pipeline reads, whose newest records make its columns")
    ] = None,
    table: Annotated[str | None, typer.Option(help="the table of the topic's rows, such as lake.shop.orders")] = None,
    name: Annotated[str | None, typer.Option(help="the pipeline's name; by default that of the topic")] = None,
    project: Project = HERE,
    *,
    as_json: AsJson = False,
) -> None:
    """Write a DAG file, a pipeline and its transform into an Airflow's DAG folder.

    With --topic and --table, the brokers of the connection kafka_default are asked for the topic's newest records, and the
    transform gets their columns, with types to be looked over. Otherwise, an example is written.

    Existing files are kept, except those of an unchanged example that the topic's files replace. Exit code 0: every file is
    there, written now or kept.
    """
    if (topic is None) != (table is None) or (name is not None and topic is None):
        raise RequestError(
            "a pipeline of a topic needs a topic and a table", fix="Give --topic and --table, or neither of them"
        )
    folder = folder or _dag_folder(project)
    if topic is None or table is None:
        pipeline, content = load_pipeline(EXAMPLE / PIPELINE), example()
    else:
        pipeline = pipeline_of(name or name_of(topic), topic, table)
        _refuse_conflicts(folder, pipeline)
        content = of_topic(pipeline, project)
    root, content = _beside(folder, content)
    done = write_files(root, content)
    if as_json:
        print_json({state: [str(file) for file in files] for state, files in vars(done).items()})
        return
    for file in done.written:
        out.print(f"written  {file}")
    for file in done.kept:
        same = file.read_bytes() == content[file.relative_to(root).as_posix()]
        out.print(f"kept     {file}  (it existed{'' if same else ', with other content'})")
    out.print(next_steps(root, pipeline, is_of_topic=topic is not None), soft_wrap=True)


def _dag_folder(project: Path) -> Path:
    """That of the project, or the project itself where it has none."""
    found = pipelines_of(project).parent
    return found if found.is_dir() else project


def _beside(folder: Path, content: dict[str, bytes]) -> tuple[Path, dict[str, bytes]]:
    """Where the files go, by their names there: transforms beside the DAG folder of a project that has its own there."""
    project = folder / ".." if folder == HERE else folder.parent
    is_of_project = folder.resolve().name == "dags" and (folder / FILES[0]).is_file() and (project / "spark_jobs").is_dir()
    if not is_of_project or (folder / "spark_jobs").exists():
        return folder, content
    return project, {name if name.startswith("spark_jobs/") else f"dags/{name}": text for name, text in content.items()}


def _refuse_conflicts(folder: Path, pipeline: Pipeline) -> None:
    """Raises ConfigError where the pipeline would stop one of those that are there, or its transform would hide theirs."""
    there = [each for each in load_pipelines(folder / "pipelines").values() if isinstance(each, Pipeline)]
    others = [each for each in there if each.name != pipeline.name]
    if faults := table_faults([*others, pipeline], [each.name for each in [*others, pipeline]]):
        (first, *_) = faults[pipeline.name] if pipeline.name in faults else next(iter(faults.values()))
        raise ConfigError(f"{pipeline.name}: {first}", fix="Name another table; nothing was written")
    root, _ = _beside(folder, {})
    if (module := root / "spark_jobs" / "transforms.py").is_file():
        raise ConfigError(
            f"{module} would be hidden by a folder of its name", fix="Move its functions into a module of another name"
        )


def example() -> dict[str, bytes]:
    """The content of `FILES`."""
    return {name: (EXAMPLE / name).read_bytes() for name in FILES}


def name_of(topic: str) -> str:
    """A pipeline's name that is like that of its topic."""
    return re.sub(r"[^a-z0-9_]", "_", topic.lower()).strip("_")


def pipeline_of(name: str, topic: str, table: str) -> Pipeline:
    """The pipeline that its file is to state. Raises ConfigError: there can be none of that name, topic and table."""
    faults = [*name_faults(name), *([f'"{name}" is a word of Python'] if iskeyword(name) or name == "parse_json" else [])]
    if faults:
        raise ConfigError("\n".join(faults), fix="Give the pipeline a name of its own with --name")
    settings = {"source": {"topics": [topic]}, "transform": f"transforms.{name}:{name}", "sink": {"table": table}}
    return parse_pipeline(name, settings, file=PIPELINE.replace("orders", name))


def of_topic(pipeline: Pipeline, project: Path) -> dict[str, bytes]:
    """The files of a pipeline that loads one topic, by their names.

    Raises ConfigError: Airflow does not say how to reach its brokers. KafkaError: no broker answers, or the login may not read
    the topic. RequestError: the topic holds no record.
    """
    name, (topic,) = pipeline.name, pipeline.source.named
    words = {"orders": name, "[orders]": json.dumps([topic]), "lake.shop.orders": pipeline.sink.table}  # JSON is YAML
    files = {file.replace("orders", name): _with(words, text.decode()) for file, text in example().items()}
    transform_file = FILES[-1].replace("orders", name)
    values = _newest(pipeline, topic, project)
    columns = schema_of(values)
    if columns is not None:
        rest = OF_JSON.format(name=name, topic=topic, columns=_joined(columns))
    else:
        rest = (OF_TEXT if all(map(_is_text, values)) else OF_BYTES).format(name=name)
    return {file: text.encode() for file, text in {**files, transform_file: TRANSFORM.format(name=name, rest=rest)}.items()}


def _joined(columns: Sequence[str]) -> str:
    """Texts of Python, each on a line, that are one."""
    *before, last = columns
    return "\n".join(f"    {json.dumps(text, ensure_ascii=False)}" for text in (*(f"{each}, " for each in before), last))


def _with(words: Mapping[str, str], text: str) -> str:
    """The text with each of the words replaced, the longest first."""
    longest_first = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.sub(longest_first, lambda found: words[found[0]], text)


def _newest(pipeline: Pipeline, topic: str, project: Path) -> list[bytes]:
    from tidegate.kafka.log import newest_values  # noqa: PLC0415 - only with a topic

    with open_remote(project) as remote:
        level = pipeline.source.isolation_level
        marks = remote.brokers(pipeline).watermarks([topic], isolation_level=level)
        values = newest_values(remote.kafka(pipeline), marks, SAMPLED, isolation_level=level)
    if not values:
        message = f"the last {SAMPLED} offsets of each partition of topic {topic} hold no record with a value"
        raise RequestError(message, fix="Produce one, or write the transform yourself")
    return values


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except ValueError:
        return False
    return True


def write_files(folder: Path, content: Mapping[str, bytes]) -> Initialized:
    """Write those of the files that `folder` does not have, or that replace a file of the example that nobody has changed.

    Raises RequestError: the folder does not exist, something else is where a file or folder must be, or a file cannot be
    written. Files that were written before the failure stay; the next call keeps them.
    """
    targets = {folder / name: text for name, text in content.items()}
    try:
        if not folder.is_dir():
            raise RequestError(
                f"{folder} is not a folder" if folder.exists() else f"there is no folder {folder}",
                fix="Name Airflow's DAG folder, which `airflow config get-value core dags_folder` prints; create it if need be",
            )
        there = [target for target in targets if _is_kept(target, folder)]
        replaced = [target for target in there if _gives_way(target, folder, targets[target])]
    except OSError as error:
        raise RequestError(
            f"{folder} cannot be read: {error.strerror}", fix="Correct the name, or run it as a user who may read it"
        ) from error
    kept = tuple(target for target in there if target not in replaced)
    written = tuple(target for target in targets if target not in kept)
    for target in written:
        _write(target, targets[target], replaces=target in replaced)
    return Initialized(written, kept)


def _gives_way(target: Path, folder: Path, content: bytes) -> bool:
    """Whether the file is of the example, unchanged, and is to hold something else."""
    example_file = EXAMPLE / target.relative_to(folder).as_posix().removeprefix("dags/")
    if target.is_symlink() or not example_file.is_file():
        return False
    return content != target.read_bytes() == example_file.read_bytes()


def _is_kept(target: Path, folder: Path) -> bool:
    """Whether the file exists. Raises RequestError where it can neither be kept nor written."""
    for above in target.relative_to(folder).parents:
        parent = folder / above
        if not parent.is_dir() and (parent.exists() or parent.is_symlink()):
            raise _in_the_way(parent, "folder")
    if not target.is_file() and (target.exists() or target.is_symlink()):
        raise _in_the_way(target, "file")
    return target.is_file()


def _in_the_way(path: Path, needed: str) -> RequestError:
    kind = "a folder" if path.is_dir() else "a file" if path.is_file() else "a special file"
    return RequestError(
        f"{path} is {kind if path.exists() else 'a link that leads nowhere'}, and must be a {needed}",
        fix="Move it away, or name another folder",
    )


def _write(target: Path, content: bytes, *, replaces: bool) -> None:
    """Create the file, which must not exist unless it `replaces` one; no part of it stays when that fails."""
    created = False
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if replaces:
            target.unlink()
        with target.open("xb") as file:
            created = True
            file.write(content)
    except OSError as error:
        if created:
            target.unlink(missing_ok=True)
        raise RequestError(
            f"{target} cannot be written: {error.strerror}", fix="Make the folder writable for this user, then run it again"
        ) from error


def next_steps(folder: Path, pipeline: Pipeline, *, is_of_topic: bool) -> str:
    """What to set before the pipeline's first run, and how to start it. That of a topic has read it by its connection."""
    catalog = pipeline.sink.table.partition(".")[0]
    named = f"PYICEBERG_CATALOG__{catalog.upper()}"
    source, spark = pipeline.source.connection.upper(), pipeline.spark.connection.upper()
    brokers = f"""  export AIRFLOW_CONN_{source}='{{"conn_type": "kafka", "extra": {{"bootstrap.servers": "HOST:9092"}}}}'\n"""
    return f"""
Set in the environment of all of Airflow's servers, and of your shell, the brokers (librdkafka's settings), a Spark Connect
server, and for PyIceberg the catalog that is spark.sql.catalog.{catalog}.* there:

{"" if is_of_topic else brokers}  export AIRFLOW_CONN_{spark}='{{"conn_type": "spark_connect", "host": "HOST", "port": 15002}}'
  export {named}__TYPE=rest {named}__URI=https://HOST

Then restart Airflow, so that it loads Tidegate's plugin, and run the pipeline:

  tidegate check --project {shlex.quote(str(folder))}
  tidegate doctor --project {shlex.quote(str(folder))}
  tidegate start {pipeline.name} --project {shlex.quote(str(folder))}"""

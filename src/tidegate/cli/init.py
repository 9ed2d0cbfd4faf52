"""`tidegate init`: the files of a first pipeline in the DAG folder of an Airflow.

The files are those of the folder `example`, as they are. Nothing is overwritten: a file that exists is kept, whatever it holds.
What is in the way (a folder where a file must be, a link that leads nowhere) is refused before anything is written.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.shared import HERE, AsJson, out, print_json
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import RequestError
from tidegate.pipelines import load_pipeline

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


@dataclass(frozen=True)
class Initialized:
    """Which of `FILES` were written, and which existed before and were kept."""

    written: tuple[Path, ...]
    kept: tuple[Path, ...]


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Airflow's DAG folder, or a folder in it", metavar="FOLDER")] = HERE,
    *,
    as_json: AsJson = False,
) -> None:
    """Write a DAG file, an example pipeline and its transform into an Airflow's DAG folder.

    Existing files are kept. Exit code 0: every file is there, written now or kept.
    """
    done = write_example(folder)
    if as_json:
        print_json({name: [str(file) for file in files] for name, files in vars(done).items()})
        return
    for file in done.written:
        out.print(f"written  {file}", markup=False)
    for file in done.kept:
        same = file.read_bytes() == (EXAMPLE / file.relative_to(folder)).read_bytes()
        out.print(f"kept     {file}  (it existed{'' if same else ', with other content'})", markup=False)
    out.print(next_steps(folder, load_pipeline(EXAMPLE / PIPELINE)), markup=False)


def write_example(folder: Path) -> Initialized:
    """Write those of `FILES` that `folder` does not have.

    Raises:
        RequestError: the folder does not exist, something else is where a file or folder must be, or a file cannot be written.
            Files that were written before the failure stay; the next call keeps them.
    """
    targets = {folder / name: EXAMPLE / name for name in FILES}
    try:
        if not folder.is_dir():
            raise RequestError(
                f"{folder} is not a folder" if folder.exists() else f"there is no folder {folder}",
                fix="Name Airflow's DAG folder, which `airflow config get-value core dags_folder` prints; create it if need be",
            )
        kept = tuple(target for target in targets if _is_kept(target, folder))
    except OSError as error:
        raise RequestError(
            f"{folder} cannot be read: {error.strerror}", fix="Correct the name, or run it as a user who may read it"
        ) from error
    written = tuple(target for target in targets if target not in kept)
    for target in written:
        _write(target, targets[target].read_bytes())
    return Initialized(written, kept)


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


def _write(target: Path, content: bytes) -> None:
    """Create the file, which must not exist; no part of it stays when that fails."""
    created = False
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            created = True
            file.write(content)
    except OSError as error:
        if created:
            target.unlink(missing_ok=True)
        raise RequestError(
            f"{target} cannot be written: {error.strerror}", fix="Make the folder writable for this user, then run it again"
        ) from error


def next_steps(folder: Path, pipeline: Pipeline) -> str:
    """What to set before the pipeline's first run, and how to start it."""
    catalog = pipeline.sink.table.partition(".")[0]
    source, spark = pipeline.source.connection, pipeline.spark.connection
    return f"""
Set before the first run:

  Airflow connections: the brokers (librdkafka names in the extra), and a Spark Connect server
    airflow connections add {source} --conn-type kafka --conn-extra '{{"bootstrap.servers": "HOST:9092"}}'
    airflow connections add {spark} --conn-type spark_connect --conn-host HOST --conn-port 15002

  Iceberg catalog {catalog}: for PyIceberg, in the environment of Airflow's scheduler and workers; the same one as
  spark.sql.catalog.{catalog}.* of the Spark server
    PYICEBERG_CATALOG__{catalog.upper()}__TYPE=rest
    PYICEBERG_CATALOG__{catalog.upper()}__URI=https://HOST

Then restart Airflow once, so that it loads Tidegate's plugin, and run the pipeline:

  tidegate check --project {shlex.quote(str(folder))}
  tidegate doctor --project {shlex.quote(str(folder))}
  airflow dags unpause {pipeline.name}
  airflow dags trigger {pipeline.name}"""

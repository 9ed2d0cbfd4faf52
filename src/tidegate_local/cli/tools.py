"""Commands to try a pipeline on the embedded platform: logins, topics, records, SQL, and Airflow's own commands."""

from __future__ import annotations

import json
import math
import os
import sys
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from tidegate.cli.shared import HERE, AsJson, Project, err, out, print_table
from tidegate.core.model.errors import PlatformError, RequestError
from tidegate_local.cli.shared import open_platform

if TYPE_CHECKING:
    from tidegate_local.platform import Platform

app = typer.Typer()
topic_app = typer.Typer(no_args_is_help=True, help="Create topics on the embedded platform's broker.")
app.add_typer(topic_app, name="topic")

Topic = Annotated[str, typer.Argument(help="name of the topic", metavar="TOPIC")]
PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@app.command()
def login(project: Project = HERE, *, as_json: AsJson = False) -> None:
    """Print Airflow's user and password, and the URL of Spark Connect with its token. The output is secret."""
    platform = open_platform(project)
    user, password = platform.airflow_login
    data = {
        "airflow": {"url": platform.airflow_url, "user": user, "password": password},
        "spark_connect": platform.spark_remote,
    }
    text = f"Airflow: {platform.airflow_url}\n  user {user}\n  password {password}\nSpark Connect: {platform.spark_remote}"
    _say(data, text, as_json=as_json)


@app.command(context_settings=PASS_ON)
def airflow(
    arguments: Annotated[list[str], typer.Argument(help="Airflow's command, with its own options", metavar="COMMAND...")],
    project: Project = HERE,
) -> None:
    """Run a command of Airflow's CLI on the embedded platform, for example `tidegate airflow dags list`."""
    command, environment = open_platform(project).airflow_command(arguments)
    sys.stdout.flush()
    # Airflow replaces this process, and so gets its terminal, its signals and its exit code
    os.execve(command[0], command, {**environment, "PYTHONUNBUFFERED": ""})  # noqa: S606


@topic_app.command()
def create(
    topic: Topic,
    partitions: Annotated[int, typer.Option(min=1, help="number of partitions")] = 1,
    project: Project = HERE,
    *,
    as_json: AsJson = False,
) -> None:
    """Create a topic. Exit code 1 where it exists already."""
    from tidegate_local.topics import create_topic, partitions_of  # noqa: PLC0415

    kafka = _kafka(project)
    if not create_topic(kafka, topic, partitions):
        raise RequestError(
            f"topic {topic} exists, with {partitions_of(kafka, topic)} partitions", fix="Use it, or choose another name"
        )
    _say({"topic": topic, "partitions": partitions}, f"topic {topic} created, partitions: {partitions}", as_json=as_json)


@app.command()
def produce(
    topic: Topic,
    file: Annotated[Path, typer.Argument(help="file with one record a line; - is the standard input", metavar="FILE")] = Path(
        "-"
    ),
    key_separator: Annotated[
        str | None, typer.Option(help="text that separates key and value in each line; without it records have no key")
    ] = None,
    project: Project = HERE,
    *,
    as_json: AsJson = False,
) -> None:
    """Produce each line of a file, or of the standard input, as a record of a topic. Empty lines are skipped."""
    from tidegate_local.topics import partitions_of, produce_lines  # noqa: PLC0415

    if key_separator == "":
        raise RequestError("the key separator is empty", fix="Give at least one character, or leave the option out")
    kafka = _kafka(project)
    partitions_of(kafka, topic)
    separator = key_separator.encode() if key_separator is not None else None
    if file == Path("-"):
        count = produce_lines(kafka, topic, sys.stdin.buffer, separator=separator)
    else:
        try:
            with file.open("rb") as lines:
                count = produce_lines(kafka, topic, lines, separator=separator)
        except OSError as error:
            raise RequestError(f"{file} cannot be read: {error.strerror}", fix="Name a file with one record a line") from error
    _say({"topic": topic, "produced": count}, f"records produced to {topic}: {count:,}", as_json=as_json)


@app.command()
def sql(
    statement: Annotated[str, typer.Argument(help="one statement of Spark SQL", metavar="STATEMENT")],
    limit: Annotated[int, typer.Option(min=1, help="maximum number of rows to print")] = 100,
    project: Project = HERE,
    *,
    as_json: AsJson = False,
) -> None:
    """Run a statement of Spark SQL on the embedded platform, for example "SELECT * FROM lake.demo.flights"."""
    platform = _running(project, "spark")
    columns, rows = _run_sql(platform, statement, limit + 1)
    shown = rows[:limit]
    if as_json:
        if len(set(columns)) < len(columns):
            raise RequestError("several columns of the answer have one name", fix="Give each a name of its own: … AS name")
        out.print_json(json.dumps([dict(zip(columns, map(_jsonable, row), strict=True)) for row in shown]))
    elif columns:
        table = Table(box=None, pad_edge=False)
        for column in columns:
            table.add_column(column.replace("[", r"\["))
        for row in shown:
            table.add_row(*(_text(value).replace("[", r"\[") for value in row))
        print_table(table)
    if not rows and not as_json:
        err.print("no rows" if columns else "done", style="dim")
    if len(rows) > limit:
        err.print(f"only the first {limit} rows are shown; raise --limit to see more")


def _say(data: dict[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        out.print_json(json.dumps(data))
    else:
        out.print(text)


def _run_sql(platform: Platform, statement: str, most: int) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Names of the columns and at most so many rows of the answer; times are in UTC."""
    # gRPC reads the environment too: no proxy is asked for the loopback
    os.environ.update({name: value for name, value in platform.environment().items() if name.lower() == "no_proxy"})
    from pyspark.errors import AnalysisException, ParseException  # noqa: PLC0415 - a second that only this command needs
    from pyspark.logger import PySparkLogger  # noqa: PLC0415
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - Spark's own convention
    from pyspark.sql.types import VariantType  # noqa: PLC0415

    from tidegate.formats.columns import quoted  # noqa: PLC0415
    from tidegate.sinks.failures import first_line  # noqa: PLC0415
    from tidegate.spark.errors import translated  # noqa: PLC0415
    from tidegate.spark.session import connect  # noqa: PLC0415

    # pyspark logs what it raises too, with the JVM's stack
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    with connect(platform.spark_remote, name="tidegate-sql") as session, translated():
        try:
            rows = session.sql(statement).limit(most)
            variants = [f.name for f in rows.schema.fields if isinstance(f.dataType, VariantType)]
            # Spark cannot hand on a VARIANT that is null
            as_json = {name: F.to_json(quoted(name)) for name in variants}
            answer = (rows.withColumns(as_json) if as_json else rows).toArrow()
        except (AnalysisException, ParseException) as error:
            raise RequestError(
                f"Spark refuses the statement: {first_line(str(error)).rstrip('.')}",
                fix="Correct it; a table is named with its catalog, such as lake.demo.flights",
            ) from error
    try:
        columns = [column.to_pylist() for column in answer.columns]
    except UnicodeDecodeError as error:
        raise RequestError(
            f"a text is no UTF-8: {error.object[:40]!r}",
            fix="Ask for hex() or make_valid_utf8() of its column; a transform makes such texts of bytes by cast",
        ) from error
    for at in (at for at, name in enumerate(answer.column_names) if name in variants):
        columns[at] = [value and json.loads(value) for value in columns[at]]
    return answer.column_names, list(zip(*columns, strict=True))


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _jsonable(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(inner) for inner in value]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, Decimal) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _text(value: Any) -> str:
    plain = _jsonable(value)
    if plain is None:
        return "NULL"
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _kafka(project: Path) -> dict[str, str]:
    """Settings of librdkafka for the platform's broker. Raises PlatformError where it does not run."""
    return {"bootstrap.servers": _running(project, "kafka").bootstrap_servers, "client.id": "tidegate-cli"}


def _running(project: Path, name: str) -> Platform:
    """The platform. Raises PlatformError where this server of it does not run."""
    platform = open_platform(project)
    state = next((server.state for server in platform.servers() if server.name == name), "stopped")
    if state != "running":
        raise PlatformError(f"the platform's server {name} is {state}", fix="Run `tidegate up`", server=name)
    return platform

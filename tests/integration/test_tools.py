"""What a newcomer types on the embedded platform: the README's first pipeline, and the commands that it uses."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from tests.integration.shell import Shell, blocks
from tests.projects import REPO
from tests.receivers import landed
from tidegate.waiting import wait_until

DAG = '''
from airflow.sdk import dag, task

@dag(schedule=None)
def sample():
    """One task that sees what the platform gives it."""

    @task
    def look() -> dict:
        import os
        from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
        from airflow.sdk import Connection

        print("looking around")
        return {
            "catalog": os.environ["PYICEBERG_CATALOG__LAKE__URI"],
            "kafka": Connection.get("kafka_default").extra_dejson,
            "spark": SparkConnectHook().get_connection_url(),
        }

    look()

sample()
'''


def test_up_tells_how_to_see_the_password_and_login_shows_it(shell: Shell) -> None:
    """Neither `up` nor a log holds a secret; `tidegate login` prints what logs in."""
    user, password = shell.platform.airflow_login
    token = str(shell.platform.spark_connection["password"])
    again = shell.run("tidegate up")
    for said in (shell.first, again):
        assert f"Airflow: {shell.platform.airflow_url}  user {user}  password: run `tidegate login`" in said.out
    logs = [log.read_text(errors="replace") for log in (shell.root / ".tidegate" / "logs").iterdir()]
    for text in (shell.first.out, shell.first.err, again.out, again.err, *logs):
        assert password not in text
        assert token not in text
    shown = shell.run("tidegate login")
    assert f"password {password}" in shown.out
    assert shell.platform.spark_remote in shown.out
    assert shown.err == ""
    assert shell.json("tidegate login") == {
        "airflow": {"url": shell.platform.airflow_url, "user": user, "password": password},
        "spark_connect": shell.platform.spark_remote,
    }


def test_the_first_pipeline_of_the_readme_can_be_typed_from_start_to_rows(shell: Shell) -> None:
    """Its commands, word for word; the last one shows the rows, one of them with the reason why it is not valid."""
    start, query = blocks("sh")
    assert "tidegate up" in start
    *before, begin = re.split(r"(?=^tidegate start)", start, maxsplit=1, flags=re.MULTILINE)
    done = shell.run("".join(before))
    assert done.code == 0, done.err
    with shell.platform.api() as api:
        api.wait_dag("orders")
        done = shell.run(begin)
        assert done.code == 0, done.err

        def has_committed() -> bool:
            return "tidegate.orders.cursor" in api.variables("tidegate.orders.")

        assert wait_until(has_committed, 180, poll_s=0.5)
    done = shell.run(query)
    assert done.code == 0, done.err
    assert "lamp" in done.out
    assert "desk" in done.out
    rows = shell.json('tidegate sql "SELECT id, price, _error IS NULL AS valid FROM lake.shop.orders ORDER BY id"')
    assert rows == [
        {"id": None, "price": None, "valid": False},
        {"id": 1, "price": 19.5, "valid": True},
        {"id": 2, "price": 120.0, "valid": True},
    ]


def test_a_pipeline_is_written_for_the_newest_records_of_a_topic(shell: Shell) -> None:
    """Of all its partitions, into the project's own folders; Airflow makes its DAG, and nothing else of the project changes."""
    records = "".join(json.dumps({"id": n, "watts": 4.5, "tags": ["x"]}) + "\n" for n in range(12))
    done = shell.run("tidegate topic create Lamps --partitions 2 && tidegate produce Lamps", records)
    assert done.code == 0, done.err
    done = shell.run("tidegate init --topic Lamps --table lake.shop.lamps && tidegate check")
    assert done.code == 0, done.err
    assert (shell.root / "dags" / "pipelines" / "lamps.yaml").is_file()
    transform = (shell.root / "spark_jobs" / "transforms" / "lamps.py").read_text()
    assert re.findall(r'^    "(\w.*)"$', transform, re.MULTILINE) == ["id BIGINT, ", "watts DOUBLE, ", "tags ARRAY<STRING>"]
    with shell.platform.api() as api:
        api.wait_dag("lamps")
    assert "does not exist" in shell.run("tidegate init --topic nowhere --table lake.shop.nowhere").err


def test_the_wait_for_the_first_load_is_not_silent(shell: Shell) -> None:
    """The demo says which task is at work, and the task's log which part of the load has begun."""
    done = shell.run("tidegate demo --records 200")
    assert done.code == 0, done.err
    told = done.err.splitlines()
    assert any(line.endswith("which may take a minute") and ", load: Spark reads the range" in line for line in told), told
    with shell.platform.api() as api:
        log = api.task_log("flights", api.dag_runs("flights")[0]["dag_run_id"], "load")
    begun = [log.index(part) for part in ("opening a session of Spark Connect", "preparing the transform", "reading Kafka")]
    assert begun == sorted(begun)
    assert str(shell.platform.spark_connection["password"]) not in log


def test_airflows_own_commands_run_on_the_platform_and_their_exit_code_counts(shell: Shell) -> None:
    """The backfill of docs/replay.md, as it stands there, for a DAG that has a schedule."""
    with shell.platform.api() as api:
        api.wait_dag("daily")
    documented = re.search(r"`(tidegate airflow backfill create [^`]+)`", REPO.joinpath("docs/replay.md").read_text())
    assert documented is not None
    command = documented[1].replace("--dag-id flights", "--dag-id daily")
    done = shell.run(command)
    for _ in range(5):
        if "database is locked" not in done.err:
            break
        # On SQLite, Airflow 3.3 makes these runs in transactions that read before they write; such a one fails at once where
        # another process has written in between. The backfill is there then, and has to be given up before the next.
        with shell.platform.api() as api:
            for begun in api.get("/backfills", dag_id="daily")["backfills"]:
                if begun["completed_at"] is None:
                    api._call("PUT", f"/backfills/{begun['id']}/cancel")
        done = shell.run(command)
    assert done.code == 0, done.err
    with shell.platform.api() as api:
        assert [run["run_type"] for run in api.dag_runs("daily")] == ["backfill", "backfill"]
    done = shell.run("tidegate airflow dags trigger no_such_dag")
    assert done.code != 0
    assert "no_such_dag" in done.err + done.out
    assert "usage: airflow dags" in shell.run("tidegate airflow dags --help").out.lower()


def test_airflows_own_commands_wait_for_a_database_that_another_process_has_locked(shell: Shell) -> None:
    """Longer than the 5 s of SQLite's driver; so do the scheduler and the DAG processor, which run on."""
    before = shell.platform.status()
    with closing(sqlite3.connect(shell.root / ".tidegate" / "airflow" / "airflow.db", check_same_thread=False)) as database:
        database.execute("BEGIN IMMEDIATE")
        unlock = threading.Timer(15, database.rollback)  # the command takes some of it to start
        unlock.start()
        done = shell.run("tidegate airflow pools set waited 1 'made after a lock'")
        unlock.join()
    assert done.code == 0, done.err
    assert shell.platform.status() == before


def test_airflow_runs_a_task_that_finds_the_platform(shell: Shell) -> None:
    """A DAG of the project, triggered through REST, sees the connections and PyIceberg's catalog."""
    (shell.root / "dags" / "sample.py").write_text(DAG)
    platform = shell.platform
    platform.sync_pools({"tidegate.lake": 2})
    platform.sync_pools({"tidegate.lake": 5})
    with platform.api() as api:
        assert api.get("/pools/tidegate.lake")["slots"] == 2
        api.wait_dag("sample", timeout_s=60)
        api.unpause("sample")
        run_id = api.trigger("sample", {"any": 1})
        assert api.wait_run("sample", run_id, timeout_s=90)["state"] == "success", api.task_log("sample", run_id, "look")
        assert api.xcom("sample", run_id, "look") == {
            "catalog": platform.catalog_properties["uri"],
            "kafka": {"bootstrap.servers": platform.bootstrap_servers},
            "spark": platform.spark_remote,
        }
        token = str(platform.spark_connection["password"])
        assert api.get("/connections/spark_connect_default")["password"] != token
        assert token not in api.task_log("sample", run_id, "look")
        assert "looking around" in api.task_log("sample", run_id, "look")
        assert [task["state"] for task in api.task_instances("sample", run_id)] == ["success"]
        assert api.import_errors() == []


def test_a_killed_scheduler_is_started_again_and_nothing_else(shell: Shell) -> None:
    """By `up`, beside all that runs."""
    before = {server.name: server.pid for server in shell.platform.status()}
    killed = before["airflow-scheduler"]
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    shell.platform.up()
    after = {server.name: server.pid for server in shell.platform.status()}
    assert {name for name in after if after[name] != before[name]} == {"airflow-scheduler"}


def test_lines_become_records_of_a_topic_that_was_created_once(shell: Shell, tmp_path: Path) -> None:
    """With keys or without, from a file and from the standard input; what cannot be created or produced is one sentence."""
    assert shell.json("tidegate topic create lines --partitions 1") == {"topic": "lines", "partitions": 1}
    assert "topic lines exists, with 1 partitions" in shell.refused("tidegate topic create lines")
    assert "cannot be created" in shell.refused("tidegate topic create 'not a name'")
    file = tmp_path / "lines.txt"
    file.write_bytes(b"k1|one|two\r\n\n|empty key\n")
    assert shell.json(f"tidegate produce lines {file} --key-separator '|'") == {"topic": "lines", "produced": 2}
    assert shell.json("tidegate produce lines", "no key, no end of line")["produced"] == 1
    told = shell.refused("tidegate produce lines --key-separator ,", "a,1\n\nb\nc,3\n")
    assert "line 3 holds no key separator; the 1 records before it were produced" in told
    assert "tidegate topic create nowhere" in shell.refused("tidegate produce nowhere", "x")
    assert "cannot be read" in shell.refused("tidegate produce lines /no/such/file")
    kafka = {"bootstrap.servers": shell.platform.bootstrap_servers}
    found = [(record.key(), record.value()) for record in landed(kafka, "lines")]
    assert found == [(b"k1", b"one|two"), (b"", b"empty key"), (None, b"no key, no end of line"), (b"a", b"1")]


def test_sql_answers_with_values_that_json_knows_and_an_error_is_one_sentence(shell: Shell) -> None:
    """Of the parser, of the analysis, and of the job. JSON objects hold a name once."""
    statement = "SELECT CAST(1.5 AS DECIMAL(3, 2)) AS d, TIMESTAMP'2013-01-01 05:00:00Z' AS at, map('k', 2) AS m, "
    statement += "parse_json('[1, null]') AS v, CAST(NULL AS VARIANT) AS no"
    row = {"d": "1.50", "at": "2013-01-01T05:00:00+00:00", "m": [["k", 2]], "v": [1, None], "no": None}
    assert shell.json(f'tidegate sql "{statement}"') == [row]
    shown = shell.run("tidegate sql 'SELECT id, NULL AS nothing FROM range(5)' --limit 2")
    assert [line.split() for line in shown.out.splitlines()] == [["id", "nothing"], ["0", "NULL"], ["1", "NULL"]]
    assert "only the first 2 rows are shown" in shown.err
    made = shell.run("tidegate sql 'CREATE NAMESPACE IF NOT EXISTS lake.mine'")
    assert (made.code, made.out, made.err.strip()) == (0, "", "done")
    assert shell.run("tidegate sql 'SELECT 1 AS a WHERE false'").err.strip() == "no rows"
    assert "name of its own" in shell.run("tidegate sql 'SELECT 1 AS a, 2 AS a' --json").err
    for wrong, told in (
        ("SELECT CAST(X'FF' AS STRING) AS a", "make_valid_utf8() of its column"),
        ("SELEC 1", "PARSE_SYNTAX_ERROR"),
        ("SELECT * FROM lake.no.table", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SELECT raise_error('my own words')", "my own words"),
    ):
        assert told in shell.refused(f'tidegate sql "{wrong}"')


def test_a_platform_that_is_down_is_one_sentence_with_the_way_up(tmp_path: Path) -> None:
    """Of a command that needs its addresses, and of one that needs a server."""
    (tmp_path / "dags").mkdir()
    stopped = Shell(tmp_path)
    for command in ("login", "sql 'SELECT 1'"):
        assert "Run `tidegate up`" in stopped.refused(f"tidegate {command}"), command

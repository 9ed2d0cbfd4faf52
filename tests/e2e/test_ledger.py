"""The ledger's commands, on the real parts: shown, verified, and rebuilt after the schedule was lost or altered."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from tests.e2e.project import Project
from tests.e2e.runs import Runs, state_of
from tidegate.airflow.remote.api import AirflowApi
from tidegate.airflow.remote.schedule import ApiStore
from tidegate.core.offsets.ranges import OffsetRange
from tidegate.core.state.codec import decode, encode
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.saved_range import Decision, SavedRange
from tidegate.iceberg.history import load_table
from tidegate.local import Platform
from tidegate.local.flights import create_topic, produce, read_flights
from tidegate.spark.session import connect

NAME = "booked"
TABLE = "lake.bad.booked"


@pytest.fixture(scope="module")
def kafka(project: Project, platform: Platform) -> dict[str, str]:
    settings = {"bootstrap.servers": platform.bootstrap_servers}
    create_topic(settings, NAME, 2)
    produce(settings, read_flights(300), topic=NAME)
    project.write(NAME, source={"topics": [NAME]}, limits={"max_records": 120}, retries=0, sink={"table": TABLE})
    platform.sync_pools({"tidegate_lake_bad_booked": 1})
    return settings


@pytest.fixture
def runs(api: AirflowApi, kafka: dict[str, str]) -> Runs:
    return Runs(api, NAME)


def test_history_shows_each_batch_and_the_table_holds_what_it_says(project: Project, api: AirflowApi, runs: Runs) -> None:
    """Who started it, why it read what it read, and how many rows came of it."""
    for _ in range(3):
        assert runs.run()["state"] == "success"
    shown = project.tidegate("ledger", "show", NAME)
    assert [(b["seq"], b["state"], b["loads"]) for b in shown["batches"]] == [(n, "committed", 1) for n in (1, 2, 3)]
    assert sum(b["rows"] for b in shown["batches"]) == 300
    assert {b["who"] for b in shown["batches"]} == {"admin"}
    assert shown["batches"][0]["why"] == ["earliest to max_records"]
    assert len(shown["transforms"]) == 1
    verified = project.tidegate("ledger", "verify", NAME)
    assert (verified["holds"], verified["records"], verified["rows"], verified["other_commits"]) == (True, 300, 300, [])


def test_a_schedule_whose_variables_are_all_gone_is_rebuilt_from_the_table(
    project: Project, api: AirflowApi, kafka: dict[str, str], runs: Runs
) -> None:
    """The cursor is where it was, old runs can be cleared again, and the schedule goes on."""
    before = state_of(api, CURSOR)
    for key in api.variables(f"tidegate.{NAME}."):
        api.delete_variable(key)
    lost = runs.run()
    assert "CursorLost" in runs.log(lost, "plan")
    dry = project.tidegate("ledger", "rebuild", NAME, "--dry-run")
    assert (dry["written"], api.variables(f"tidegate.{NAME}.")) == (False, {})
    project.tidegate("ledger", "rebuild", NAME)
    after = state_of(api, CURSOR)
    for same in ("seq", "offsets", "starts", "topic_ids"):
        assert after[same] == before[same]
    assert after["generation"] == before["generation"] + 1
    oldest = api.dag_runs(NAME)[0]["dag_run_id"]
    api.clear(NAME, oldest)
    again = runs.ended(oldest)
    assert again["tasks"] == {"plan": "success", "load": "success", "commit": "success"}
    assert "loading it again" in runs.log(again, "plan")
    produce(kafka, read_flights(50), topic=NAME)
    run = runs.run()
    assert run["state"] == "success", runs.log(run, "plan")
    verified = project.tidegate("ledger", "verify", NAME)
    assert (verified["holds"], verified["rows"]) == (True, 350)


CURSOR = f"tidegate.{NAME}.cursor"


def altered(text: str, **changes: Any) -> str:
    """A cursor with a checksum that fits, as only a program writes it."""
    body = decode("cursor", text, key=CURSOR, repair="")
    return encode("cursor", {**body, **changes})


def moved(text: str, by: int) -> str:
    """A cursor that leaves out records, or reads some again."""
    offsets = decode("cursor", text, key=CURSOR, repair="")["offsets"][NAME]
    return altered(text, offsets={NAME: {partition: offset + by for partition, offset in offsets.items()}})


@pytest.mark.parametrize(
    ("alter", "told"),
    [
        (lambda text: "tide is high", "not JSON"),
        (lambda text: text.replace("tidegate 2", "tidegate 0"), "older than this library's"),
        (lambda text: text.replace("tidegate 2", "tidegate 99"), "newer than this library's"),
        (lambda text: text.replace('"seq":', '"seq":9'), "was changed after it was written"),
        (lambda text: text[: len(text) // 2], "changed or cut short"),
        (lambda text: altered(text, offsets={NAME: {"0": -5, "1": 1}}), "-5"),
        (lambda text: altered(text, offsets=[1, 2]), "wrong shape"),
        (lambda text: altered(text, seq=1), "batch 1 did not lead to where the cursor is"),
        (lambda text: altered(text, topic_ids={NAME: "AAAAAAAAAAAAAAAAAAAAAA"}), "topic id AAAAAAAAAAAAAAAAAAAAAA"),
        (lambda text: moved(text, 3), "(+3 offsets)"),
        (lambda text: moved(text, -3), "(-3 offsets)"),
    ],
    ids=["text", "older", "newer", "edited", "cut", "negative", "shape", "gone-back", "other-topic", "gap", "overlap"],
)
def test_a_cursor_that_somebody_altered_is_refused_with_the_fault_and_the_repair(
    project: Project, api: AirflowApi, alter: Any, told: str
) -> None:
    """Nothing is planned; a rebuild repairs it."""
    good = api.variable(CURSOR)
    ranges = [key for key in api.variables(f"tidegate.{NAME}.") if ".range." in key]
    api.set_variable(CURSOR, alter(good))
    refused = project.tidegate("plan", NAME, code=1)
    assert told in refused["message"]
    assert f"tidegate.{NAME}." in refused["message"]
    assert f"ledger rebuild {NAME}" in refused["fix"]
    assert [key for key in api.variables(f"tidegate.{NAME}.") if ".range." in key] == ranges
    project.tidegate("ledger", "rebuild", NAME)
    body, before = (decode("cursor", text, key=CURSOR, repair="") for text in (api.variable(CURSOR), good))
    assert (body["seq"], body["offsets"], body["topic_ids"]) == (before["seq"], before["offsets"], before["topic_ids"])


def ranged(text: str, **changes: Any) -> str:
    """A saved range with a checksum that fits."""
    return encode("range", {**decode("range", text, key="", repair=""), **changes})


@pytest.mark.parametrize(
    ("alter", "told"),
    [
        (lambda text: "tide is high", "not JSON"),
        (lambda text: text[: len(text) // 2], "changed or cut short"),
        (lambda text: text.replace('"seq"', '"sequence"'), "was changed after it was written"),
        (lambda text: text.replace("tidegate 2", "tidegate 99"), "newer than this library's"),
        (lambda text: ranged(text, ranges={NAME: {"0": [-1, 5]}}), "-1"),
        (lambda text: ranged(text, ranges={NAME: {"0": [9, 5]}}), "wrong shape"),
        (lambda text: ranged(text, ranges={NAME: {"0": [0, 5]}}, reasons={"cursor to log end": {NAME: [0]}}), "(+"),
        (lambda text: ranged(text, ranges={NAME: {"0": [10**6, 10**6 + 5]}}), "(-"),
        (lambda text: ranged(text, topic_ids={NAME: "AAAAAAAAAAAAAAAAAAAAAA"}), "AAAAAAAAAAAAAAAAAAAAAA"),
    ],
    ids=["text", "cut", "edited", "newer", "negative", "reversed", "overlap", "gap", "other-topic"],
)
@pytest.mark.usefixtures("runs")
def test_a_waiting_range_that_somebody_altered_is_refused_with_the_fault_and_the_command(
    project: Project, api: AirflowApi, alter: Any, told: str
) -> None:
    """Nothing is planned; once the Variable is deleted, the next run plans anew."""
    ledger = Ledger(ApiStore(api), NAME)
    cursor = ledger.cursor()
    ranges = tuple(OffsetRange(tp.topic, tp.partition, at, at + 1) for tp, at in cursor.offsets.items())
    decisions = tuple(Decision(r.topic_partition, "cursor", "max_records") for r in ranges)
    key = ledger.save_range(
        SavedRange(
            NAME, cursor.seq + 1, "a run that died", ranges, decisions, cursor.topic_ids, {}, 1, generation=cursor.generation
        )
    )
    assert project.tidegate("plan", NAME)["origin"] == "adopted"
    api.set_variable(key, alter(api.variable(key)))
    before = api.variables(f"tidegate.{NAME}.")
    refused = project.tidegate("plan", NAME, code=1)
    assert key in refused["message"]
    assert told in refused["message"]
    assert f"airflow variables delete {key}" in refused["fix"]
    assert api.variables(f"tidegate.{NAME}.") == before
    api.delete_variable(key)
    assert "skip" in project.tidegate("plan", NAME)


@pytest.mark.usefixtures("runs", "catalog")
def test_rows_that_somebody_deleted_are_found_and_loading_their_batch_again_brings_them_back(
    project: Project, api: AirflowApi
) -> None:
    """Verify names the batch and the stranger's commit."""
    table = load_table(TABLE)
    assert table is not None
    table.delete("_kafka_partition = 0 and _kafka_offset < 3")
    found = project.tidegate("ledger", "verify", NAME, code=1)
    assert (found["lost"], [m["seq"] for m in found["miscounts"]]) == (3, [1])
    assert [c["operation"] for c in found["other_commits"]] in (["overwrite"], ["delete"])
    oldest = api.dag_runs(NAME)[0]["dag_run_id"]
    api.clear(NAME, oldest)
    assert Runs(api, NAME).ended(oldest)["state"] == "success"
    assert project.tidegate("ledger", "verify", NAME)["holds"]


@pytest.mark.usefixtures("runs")
def test_compaction_and_expired_snapshots_are_harmless_and_changed_columns_are_told(
    project: Project, platform: Platform, api: AirflowApi, kafka: dict[str, str], runs: Runs
) -> None:
    """No record is missed, the next batch goes on, and an old one can be loaded again."""
    with connect(platform.spark_remote, name="maintenance") as spark:
        spark.sql(f"CALL lake.system.rewrite_data_files(table => '{TABLE}', options => map('rewrite-all', 'true'))").collect()
        spark.sql(
            f"CALL lake.system.expire_snapshots(table => '{TABLE}', older_than => TIMESTAMP '2100-01-01', retain_last => 1)"
        ).collect()
        assert spark.table(f"{TABLE}.snapshots").count() == 1
        spark.sql(f"ALTER TABLE {TABLE} ADD COLUMN note STRING")
    produce(kafka, read_flights(20), topic=NAME)
    before = project.tidegate("ledger", "verify", NAME)
    run = runs.run()
    assert run["state"] == "success", runs.log(run, "load")
    oldest = api.dag_runs(NAME)[0]["dag_run_id"]
    api.clear(NAME, oldest)
    assert runs.ended(oldest)["state"] == "success"
    after = project.tidegate("ledger", "verify", NAME)
    assert (before["holds"], after["holds"], after["rows"] - before["rows"]) == (True, True, 20)
    with connect(platform.spark_remote, name="somebody") as spark:
        spark.sql(f"ALTER TABLE {TABLE} DROP COLUMN note")
        spark.sql(f"INSERT INTO {TABLE} (carrier) VALUES ('XX')")  # noqa: S608 - a constant
    found = project.tidegate("ledger", "verify", NAME, code=1)
    assert (found["without_origin"], found["changed_columns"]) == (1, ["note was dropped"])
    assert [c["operation"] for c in found["other_commits"]] == ["append"]


def test_a_rebuilt_cursor_knows_a_partition_that_was_silent_all_the_time(
    project: Project, api: AirflowApi, platform: Platform, kafka: dict[str, str]
) -> None:
    """It began at the log's end; read from its beginning, its old records would be new."""
    name = "silent"
    create_topic(kafka, name, 2)
    producer = Producer(kafka)

    def send(partition: int, count: int) -> None:
        for _ in range(count):
            producer.produce(name, b"{}", partition=partition)
        assert producer.flush(30) == 0

    send(0, 5)
    send(1, 7)
    project.write(name, source={"topics": [name], "start": "latest"}, retries=0, sink={"table": "lake.bad.silent"})
    platform.sync_pools({"tidegate_lake_bad_silent": 1})
    silent = Runs(api, name)
    for _ in range(2):
        assert silent.run()["state"] == "success"
        send(0, 3)
    before = Ledger(ApiStore(api), name).cursor()
    for key in api.variables(f"tidegate.{name}."):
        api.delete_variable(key)
    refused = project.tidegate("ledger", "rebuild", name, code=1)
    assert "nothing is known of batch 1 of silent" in refused["message"]
    assert api.variables(f"tidegate.{name}.") == {}
    project.tidegate("ledger", "rebuild", name, "--accept-gaps")
    after = Ledger(ApiStore(api), name).cursor()
    assert (after.offsets, after.topic_ids) == (before.offsets, before.topic_ids)
    send(1, 1)
    assert silent.run()["state"] == "success"
    newest = project.tidegate("ledger", "show", name)["batches"][-1]
    assert newest["ranges"] == {name: {"0": [8, 11], "1": [7, 8]}}


@pytest.mark.usefixtures("catalog")
def test_a_rebuild_stops_at_what_the_table_lacks(
    project: Project, platform: Platform, api: AirflowApi, kafka: dict[str, str], runs: Runs
) -> None:
    """It names the offsets, and writes them down as absent where that is accepted; a replay brings them back."""
    with connect(platform.spark_remote, name="somebody") as spark:
        spark.sql(f"DROP TABLE {TABLE}")
    project.tidegate("accept", "table", NAME)
    produce(kafka, read_flights(20), topic=NAME)
    run = runs.run()
    assert run["state"] == "success", runs.log(run, "load")
    api.delete_variable(CURSOR)
    refused = project.tidegate("ledger", "rebuild", NAME, code=1)
    assert "lacks offsets before the rebuilt cursor" in refused["message"]
    assert "--accept-gaps" in refused["fix"]
    assert CURSOR not in api.variables(f"tidegate.{NAME}.")
    rebuilt = project.tidegate("ledger", "rebuild", NAME, "--accept-gaps")
    assert (rebuilt["written"], rebuilt["gaps"].keys()) == (True, {NAME})
    assert project.tidegate("ledger", "verify", NAME)["holds"]
    assert project.tidegate("replay", NAME, "--from", "0")["state"] == "success"
    verified = project.tidegate("ledger", "verify", NAME)
    assert (verified["holds"], verified["lost"]) == (True, 0)

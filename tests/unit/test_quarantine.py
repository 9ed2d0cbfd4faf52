"""What of a quarantine counts, by the receipts of its table; what a file may say of it; what the command shows."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from typer.testing import CliRunner

from tests.records import write_of
from tidegate.cli import commands, quarantine
from tidegate.core.audit.oracle import verify
from tidegate.core.audit.quarantine import judge_quarantine
from tidegate.core.config.checks import table_faults
from tidegate.core.config.parse import parse_pipeline
from tidegate.core.config.pipeline import Quarantine
from tidegate.core.model.errors import ConfigError, RequestError, SinkMisfit
from tidegate.core.model.ranges import OffsetRange, TopicPartition
from tidegate.core.model.watermarks import Watermarks
from tidegate.core.state.jobs import LoadJob, Reading
from tidegate.core.state.receipt import Receipt
from tidegate.core.state.rejection import COLUMNS, Rejection, check_quarantine, load_of
from tidegate.pipelines import load_pipeline
from tidegate.sinks.iceberg.summary import quarantine_of
from tidegate.spark.quarantine import Rejected
from tidegate.testing.fakes import FakeBrokers, FakeReader, MemoryStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TP = TopicPartition("t", 0)
FILE: dict[str, Any] = {"source": {"topics": ["t"]}, "transform": "m:f", "sink": {"table": "lake.a.b"}}


def rejected(offset: int, attempt: str = "a", reason: str = "broken", partition: int = 0) -> Rejection:
    return Rejection("t", partition, offset, "decode", reason, attempt)


def receipt(seq: int, attempt: str, *ranges: tuple[int, int], partition: int = 0, aside: int = 0) -> Receipt:
    of = tuple(OffsetRange("t", partition, *bounds) for bounds in ranges)
    write = write_of("p", seq, "r", of, attempt=attempt)
    return Receipt(replace(write, quarantined=aside), seq, seq, rows=10 - aside)


def test_a_record_counts_where_the_load_that_set_it_aside_is_what_the_table_holds() -> None:
    """A replay of a part takes its place there. What no commit holds is left of a load that was killed, or has not ended."""
    receipts = [receipt(1, "a", (0, 10)), receipt(2, "b", (10, 20)), receipt(3, "c", (5, 15))]
    there = [rejected(n, attempt) for n in (4, 5, 14, 15, 25) for attempt in "abc"]
    found = judge_quarantine([*there, rejected(7, partition=1)], receipts)
    assert (found.records, found.left) == (4, 11)
    assert found.ranges == (OffsetRange("t", 0, 4, 16),)
    assert judge_quarantine([], []).ranges == ()


def test_a_record_counts_that_another_attempt_at_the_load_has_set_aside() -> None:
    """The commit of a killed one lands after the next has swept what it set aside; what both have set aside counts once."""
    late = receipt(1, "late", (0, 10), aside=1)
    of = load_of(late.load), late.write.transform
    there = [Rejection(*rejected(5, attempt)[:6], *of) for attempt in ("a", "late", "z")]
    for held in (there, there[:2], there[:1], there[2:]):
        found = judge_quarantine(held, [late], {TP: 10})
        assert (found.records, found.left) == (1, len(held) - 1)
    for other in (there[0]._replace(load="batch 2 of p"), there[0]._replace(transform="m:f@2")):
        assert judge_quarantine([other], [late], {TP: 10}).records == 0


def test_below_the_cursor_a_record_of_an_expired_receipt_counts_once() -> None:
    """Somebody has expired the snapshots of all loads but one; no load sets aside what is beyond, or twice."""
    there = [rejected(2, "x"), rejected(2, "y"), rejected(11, "x"), rejected(12, "b"), rejected(25, "x"), rejected(31, "x")]
    found = judge_quarantine(there, [receipt(2, "b", (10, 20))], {TP: 30})
    assert ([one.offset for one in found.rejected], found.left) == ([2, 12, 25], 3)
    none = judge_quarantine([rejected(2, partition=1)], [], {TopicPartition("t", 1): 3})
    assert (none.records, none.left) == (1, 0)


def test_what_the_log_does_not_hold_cannot_be_replayed() -> None:
    """Its offsets have expired, or mean records of a topic that was created again, or its partition is gone."""
    receipts = [receipt(1, "a", (0, 10)), receipt(2, "b", (0, 10), partition=1)]
    there = [rejected(3), rejected(4), rejected(6), rejected(5, "b", partition=1)]
    found = judge_quarantine(there, receipts, log=Watermarks({TP: 4}, {TP: 20}))
    assert (found.records, found.gone, found.ranges) == (4, 2, (OffsetRange("t", 0, 4, 7),))
    of_former = [replace(r, write=replace(r.write, load=replace(r.load, topic_ids={"t": "old"}))) for r in receipts]
    found = judge_quarantine(there, of_former, log=Watermarks({TP: 0}, {TP: 20}, {"t": "new"}))
    assert (found.records, found.gone, found.ranges) == (4, 4, ())


def test_reasons_come_by_their_number_with_the_first_and_the_last_record() -> None:
    of = {0: "x", 1: "y", 2: "y", 8: "y"}
    found = judge_quarantine([rejected(n, reason=reason) for n, reason in of.items()], [receipt(1, "a", (0, 10))])
    told = [(each.reason, each.records, each.first.offset, each.last.offset) for each in found.reasons]
    assert told == [("y", 3, 1, 8), ("x", 1, 0, 0)]


def test_rows_and_rejected_records_are_counted_together_against_a_receipt() -> None:
    """`verify` finds a record that is in neither, and one that is in both."""
    receipts, marks = [receipt(1, "a", (0, 10), aside=3)], Watermarks({TP: 0}, {TP: 10})
    rows = {"all": [*range(10)], "lost": [*range(9)], "doubled": [*range(10), 4]}
    verified = {name: verify(marks, {TP: range(10)}, {TP: sorted(of)}, receipts) for name, of in rows.items()}
    assert {name: found.holds for name, found in verified.items()} == {"all": True, "lost": False, "doubled": False}


def test_a_table_is_a_quarantine_by_its_property_and_its_columns() -> None:
    mine = ["tidegate.quarantine-of.lake.a.b"]
    assert quarantine_of(["tidegate.owner.p", *mine]) == ["lake.a.b"]
    check_quarantine("q", ["lake.a.b"], COLUMNS)
    check_quarantine("q", ["lake.a.b"], COLUMNS, "lake.a.b")
    for of, columns, table, told in (
        ([], COLUMNS, None, "table q is no quarantine"),
        ([], COLUMNS, "lake.a.b", "is no quarantine, and cannot be that of lake.a.b"),
        (["lake.a.c"], COLUMNS, "lake.a.b", "is the quarantine of lake.a.c, and cannot be"),
        (["lake.a.b"], COLUMNS[:-1], "lake.a.b", "the quarantine q has no column added_at"),
    ):
        with pytest.raises(SinkMisfit, match=told):
            check_quarantine("q", of, columns, table)


@pytest.mark.parametrize(
    ("said", "read"),
    [({}, Quarantine("lake.a.b_quarantine")), ({"table": "lake.q.b", "budget": "0.1 %"}, Quarantine("lake.q.b", 0.001))],
)
def test_a_quarantine_is_named_by_its_file_or_by_its_table(said: dict[str, Any], read: Quarantine) -> None:
    """That of a replay into another table is always named by that table."""
    pipeline = parse_pipeline("p", {**FILE, "quarantine": said}, file="p.yaml")
    assert pipeline.quarantined("lake.a.b") == read
    assert pipeline.quarantined("lake.a.b_trial") == replace(read, table="lake.a.b_trial_quarantine")
    assert parse_pipeline("p", FILE, file="p.yaml").quarantined("lake.a.b") is None


def test_a_quarantine_is_read_as_the_docs_write_it(tmp_path: Path) -> None:
    """YAML takes a bare `on` for true, but as a key it is a name."""
    pages = (Path(__file__).parents[2] / "docs" / "tables.md").read_text(encoding="utf-8")
    (line,) = (line for line in pages.splitlines() if line.startswith("quarantine: "))
    (tmp_path / "p.yaml").write_text(f"source: {{topics: [t]}}\ntransform: m:f\nsink: {{table: lake.a.b}}\n{line}\n")
    assert load_pipeline(tmp_path / "p.yaml").quarantine == Quarantine("lake.shop.orders_quarantine", 0.001)


def test_two_tables_have_two_quarantines() -> None:
    def file(topic: str, **sink: object) -> dict[str, Any]:
        return {**FILE, "source": {"topics": [topic]}, "sink": sink}

    same = [file("t", table="lake.a.t", shared_with=["b"]), file("u", table="lake.a.t", shared_with=["a"])]
    others = [file("t", table="lake.a.t"), file("u", table="lake.a.u")]
    unnamed: list[dict[str, str]] = [{}, {}]
    one, of_other = [{"table": "lake.q.all"}, {"table": "lake.q.ALL"}], [{"table": "lake.a.u"}, {}]
    for both, named, faulty in ((same, unnamed, ""), (others, unnamed, ""), (others, one, "ab"), (others, of_other, "a")):
        files = [{**each, "quarantine": said} for each, said in zip(both, named, strict=True)]
        found = table_faults([parse_pipeline(name, each, file="f") for name, each in zip("ab", files, strict=True)])
        assert [name for name, said in found.items() if "quarantine.table" in said[0]] == [*faulty]


def test_a_job_has_what_its_file_says_of_every_load() -> None:
    said = {"quarantine": {}, "contract": {"columns": "freeze"}, "sink": {"table": "lake.a.b", "sort_by": ["id"]}}
    pipeline = parse_pipeline("p", {**FILE, **said}, file="p.yaml")
    load, reading = receipt(1, "a", (0, 10)).load, Reading(kafka_options={})
    job = LoadJob.of(pipeline, load, reading, table="lake.a.b_trial", transform="m:f")
    assert (job.sink, job.layout, job.contract) == ("iceberg", pipeline.sink.layout, pipeline.contract)
    assert job.quarantined == "lake.a.b_trial_quarantine"
    assert LoadJob.from_json(job.to_json()) == job


def test_a_budget_is_a_share_of_the_offsets_that_records_held_before_do_not_use_up() -> None:
    """Exactly: 29 of 100 are 29 %, though 0.29 * 100 is less than 29."""
    pipeline = parse_pipeline("p", {**FILE, "quarantine": {"budget": "29 %"}}, file="p.yaml")
    load, origins = receipt(1, "a", (0, 100)).load, cast("DataFrame", None)
    job = LoadJob.of(pipeline, load, Reading(kafka_options={}), table="lake.a.b", transform="m:f")
    Rejected(29, origins).check(job, lambda _: pytest.fail("nothing is looked up within the budget"))
    Rejected(31, origins).check(job, lambda _: 2)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"quarantine": {}, "identity": "batch"}, "quarantine: rows of `identity: batch`"),
        ({"quarantine": {"table": "lake.a.b"}}, "quarantine.table: lake.a.b is a table of rows"),
        ({"quarantine": {"table": "lake.a.B_commits"}}, "lake.a.B_commits is a table of rows or of commits"),
        ({"quarantine": {}, "replay": {"tables": ["lake.a.b_quarantine"]}}, "lake.a.b_quarantine is a table of rows"),
        ({"quarantine": {"budget": "1"}}, "quarantine.budget: expected a share"),
        ({"quarantine": {"budget": "101 %"}}, "quarantine.budget: expected a share"),
        ({"quarantine": {"on": []}}, "quarantine.on: expected a list"),
        ({"quarantine": {"on": ["types"]}}, "quarantine.on"),
        ({"contract": {"types": "quarantine"}}, "contract: records that it rejects .* add `quarantine: {}`"),
        ({"contract": {"missing": "quarantine"}, "quarantine": {"on": ["decode"]}}, "add contract to quarantine.on"),
    ],
)
def test_what_a_quarantine_cannot_be_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_pipeline("p", {**FILE, **changes}, file="p.yaml")


def test_the_command_shows_reasons_samples_and_the_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are bytes of anybody: what cannot be printed is not."""
    folder = tmp_path / "dags" / "pipelines"
    folder.mkdir(parents=True)
    text = "source: {topics: [t]}\ntransform: m:f\nsink: {table: lake.a.b}\n"
    (folder / "none.yaml").write_text(text)
    (folder / "p.yaml").write_text(text.replace("lake.a.b", "lake.a.c") + "quarantine: {}\n")
    there = {rejected(3): b"\x1b\xff" + b"x" * 300, rejected(7, reason="[red]\x1b[31m"): None, rejected(8, attempt="gone"): b""}
    sink = FakeReader(found=[receipt(1, "a", (0, 10))], rejected=there)
    brokers = FakeBrokers(latest={TP: 20})
    remote = SimpleNamespace(reader=lambda _: sink, brokers=lambda _: brokers, store=MemoryStore())
    monkeypatch.setattr(quarantine, "open_remote", lambda _: nullcontext(remote))

    def run(*arguments: str) -> str:
        asked = ["quarantine", *arguments, "--project", str(tmp_path)]
        return CliRunner().invoke(commands(), asked, catch_exceptions=False).stdout

    said = json.loads(run("p", "--json"))
    assert (said["table"], said["records"], said["left"]) == ("lake.a.c_quarantine", 2, 1)
    assert said["replay"] == "tidegate replay p --from t:0:3 --until t:0:8"
    assert [each["sample"][:8] for each in said["reasons"]] == [" \\xffxxx", "no value"]
    shown = run("p")
    assert "2 records are in lake.a.c_quarantine" in shown
    assert "[red]" in shown
    assert "\x1b" not in shown
    brokers.earliest[TP] = 5
    assert "1 of them are not in the log any more" in run("p")
    assert json.loads(run("p", "--json"))["replay"] == "tidegate replay p --from t:0:7 --until t:0:8"
    there.clear()
    assert json.loads(run("p", "--json"))["replay"] is None
    with pytest.raises(RequestError, match="none has no quarantine"):
        run("none")

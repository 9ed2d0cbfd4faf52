"""Laws of a pipeline that takes over from a stream, hands over to one, or ends: on in-memory ports.

On the real parts: `tests/integration/test_handover.py`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.records import changed
from tests.unit.loads import P0
from tests.unit.test_cli_schedule import PIPELINE, FakeRemote, run
from tidegate.cli import handover
from tidegate.core.config.pipeline import Limits, Sink, Source
from tidegate.core.model import errors
from tidegate.core.model.errors import RequestError
from tidegate.core.model.ranges import TopicPartition
from tidegate.core.planning.handover import checkpoint_offsets, remove, table_offsets
from tidegate.testing.fakes import MemoryStore

P1, U0 = TopicPartition("t", 1), TopicPartition("u", 0)
META = '{"batchWatermarkMs":0,"batchTimestampMs":1357034400000,"conf":{}}'


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> FakeRemote:
    made = FakeRemote()
    made.groups, made.pools = {}, ["tidegate_lake_a_b"]  # type: ignore[attr-defined]
    made.api.dag = lambda _: {"is_paused": True, "is_stale": False}
    made.api.delete_pool = lambda name: name in made.pools  # type: ignore[attr-defined]
    made.kafka = lambda _: {}  # type: ignore[method-assign]
    monkeypatch.setattr(handover, "open_remote", lambda _: contextlib.nullcontext(made))
    monkeypatch.setattr(handover, "the_pipeline", lambda *_: made.pipeline)
    monkeypatch.setattr(handover, "load_pipelines", lambda _: {})
    monkeypatch.setattr(handover, "platform_of", lambda _: SimpleNamespace(is_up=False))
    monkeypatch.setattr("tidegate.kafka.brokers.commit_offsets", lambda _, group, at: made.groups.update({group: at}))  # type: ignore[attr-defined]
    monkeypatch.setattr("tidegate.kafka.brokers.delete_group", lambda _, group: group == "tidegate-p")
    return made


def refuses(says: str, *words: str) -> None:
    """What the command ends with."""
    with pytest.raises(RequestError, match=says):
        raise run(*words).exception or AssertionError


def log(*lines: str, version: str = "v1") -> str:
    return "\n".join([version, META, *lines])


def test_a_checkpoint_says_where_its_stream_goes_on() -> None:
    """Of the partitions that the pipeline reads; sources of another kind, and those without an offset yet, count nothing."""
    text = log('{"t":{"1":7,"0":3},"u":{"0":1}}', "-", '{"logOffset":5}', '{"v":{"0":2}}')
    assert checkpoint_offsets(text, Source(("t",))) == {P0: 3, P1: 7}
    assert checkpoint_offsets(text, Source(("t", "u"))) == {P0: 3, P1: 7, U0: 1}
    assert checkpoint_offsets(text, Source(assign={"t": (1,)})) == {P1: 7}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "begins with ''"),
        (log('{"t":{"0":3}}', version="v2"), "begins with 'v2'"),
        (log('{"u":{"0":3}}'), "the query has read u, and the pipeline reads t"),
        (log("{}"), "nothing of Kafka"),
        (log('{"t":{"0":3}}', '{"t":{"0":5}}'), "two sources of the query read t-0"),
    ],
    ids=["empty", "version", "other-topic", "no-topic", "twice"],
)
def test_a_checkpoint_of_something_else_is_refused(text: str, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        checkpoint_offsets(text, Source(("t",)))


def test_a_table_says_where_its_writer_goes_on() -> None:
    """After the last offset of each partition that the pipeline reads."""
    assert table_offsets({P0: 9, U0: 4}, Source(("t",))) == {P0: 10}


def checkpoint(folder: Path, committed: int, planned: int) -> str:
    for name, last in (("commits", committed), ("offsets", planned)):
        (folder / name).mkdir()
        (folder / name / ".0.crc").touch()
        for batch in range(last + 1):
            (folder / name / f"{batch}").write_text(log(f'{{"t":{{"0":{10 * batch}}}}}'))
    return str(folder)


@pytest.mark.parametrize(("planned", "begun"), [(11, None), (12, 12)])
def test_import_prints_where_the_stream_goes_on(remote: FakeRemote, tmp_path: Path, planned: int, begun: int | None) -> None:
    """As YAML to paste, by the number of a batch and not by its text; what a later one may have left in the sink is said."""
    assert remote.pipeline == PIPELINE
    location = checkpoint(tmp_path, 11, planned)
    printed = run("import", "p", "--checkpoint", location)
    assert yaml.safe_load(printed.stdout) == {"start": {"offsets": {"t": {"0": 110}}}}
    assert f"after batch 11 of {location}" in printed.stderr
    assert ("batch 12 was begun and not committed" in printed.stderr) == (begun is not None)
    answer = json.loads(run("import", "p", "--json", "--checkpoint", f"file://{location}").stdout)
    assert answer == {"pipeline": "p", "start": {"offsets": {"t": {"0": 110}}}, "begun": begun}


def test_import_reads_the_table_of_another_writer(remote: FakeRemote, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the columns that are named."""
    assert remote.pipeline == PIPELINE
    monkeypatch.setattr("tidegate.sinks.iceberg.history.last_offsets", lambda *asked: {P0: 41} if asked[1][2] == "o" else {})
    printed = run("import", "p", "--table", "lake.a.old", "--columns", "t,p,o")
    assert yaml.safe_load(printed.stdout) == {"start": {"offsets": {"t": {"0": 42}}}}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", "one of --checkpoint and --table is needed"),
        ("--table a --checkpoint b", "one of --checkpoint and --table is needed"),
        ("--table a --columns t,p", "--columns names three columns"),
        ("--checkpoint {}", "cannot be read"),
        ("--checkpoint nothing://x", "cannot be read"),
        ("--checkpoint {}/begun", "no batch of .* is committed"),
    ],
)
def test_import_says_what_it_cannot_read(remote: FakeRemote, tmp_path: Path, words: str, says: str) -> None:
    assert remote.pipeline == PIPELINE
    (tmp_path / "begun").mkdir()
    checkpoint(tmp_path / "begun", -1, 0)
    refuses(says, "import", "p", *words.format(tmp_path).split())


def test_export_prints_the_starting_offsets_of_a_stream(remote: FakeRemote) -> None:
    """Where the next run would begin; a partition that it would read first begins there too, since Spark takes all or none."""
    remote.pipeline = replace(PIPELINE, limits=Limits(min_records=1000))
    remote.log.latest[P1], remote.log.earliest[P1] = 5, 2
    assert run("export", "p").stdout == '{"t": {"0": 10, "1": 2}}\n'
    answer = json.loads(run("export", "p", "--json").stdout)
    assert answer == {"pipeline": "p", "seq": 1, "startingOffsets": {"t": {"0": 10, "1": 2}}, "group": None}
    assert remote.groups == {}  # type: ignore[attr-defined]
    assert "group g is there now" in run("export", "p", "--group", "g").stderr
    assert remote.groups == {"g": {P0: 10, P1: 2}}  # type: ignore[attr-defined]


def test_what_is_retired_is_not_handed_over(remote: FakeRemote) -> None:
    """And a pipeline that is caught up is."""
    remote.pipeline = replace(PIPELINE, source=Source(("t", "u"), on_deleted="retire"))
    remote.ledger.save_cursor(changed(remote.ledger.cursor(), offsets={P0: 10, U0: 3}, topic_ids={"t": "id", "u": "id"}))
    remote.store.delete(next(key for key in remote.store.values if "range" in key))
    assert json.loads(run("export", "p").stdout) == {"t": {"0": 10}}
    remote.pipeline, remote.log.latest = PIPELINE, {P0: 10}
    remote.ledger.save_cursor(changed(remote.ledger.cursor(), offsets={P0: 10}))
    assert json.loads(run("export", "p").stdout) == {"t": {"0": 10}}


def test_what_stops_the_next_run_is_not_handed_over(remote: FakeRemote) -> None:
    """A stream would skip records or write rows again; here they have expired."""
    remote.log.earliest[P0] = 12
    assert isinstance(run("export", "p", "--group", "g").exception, errors.OffsetsExpired)
    assert remote.groups == {}  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", ["export", "remove"])
@pytest.mark.parametrize(
    ("happens", "says"),
    [
        (lambda remote: setattr(remote.api, "dag", lambda _: {"is_paused": False, "is_stale": False}), "DAG p is not paused"),
        (lambda remote: remote.active.append("run9"), r"p is running \(run9\)"),
    ],
    ids=["schedule", "run"],
)
def test_a_pipeline_that_goes_on_is_neither_handed_over_nor_removed(
    remote: FakeRemote, command: str, happens: Callable[[FakeRemote], Any], says: str
) -> None:
    happens(remote)
    kept = dict(remote.store.values)
    refuses(says, command, "p")
    assert remote.store.values == kept


def test_a_batch_that_may_have_landed_is_not_handed_over(remote: FakeRemote) -> None:
    """A stream that began at the cursor would write its rows again."""
    remote.save(2, 10, 20)
    refuses("batch 2 of p is planned by run run2, and not committed.*Unpause", "export", "p")


def test_remove_takes_what_is_saved_and_leaves_the_table(remote: FakeRemote) -> None:
    """Of no other pipeline, whatever its name begins with; the pool and the group go too, the second time nothing is left."""
    others = {"tidegate.p_2.cursor": "x", "tidegate.pool": "y"}
    remote.store.values |= others
    printed = run("remove", "p").stdout
    assert "removed of p: 2 saved values, its pool, its group\n" in printed
    assert "lake.a.b stays" in printed
    assert remote.store.values == others
    answer = json.loads(run("remove", "p", "--json").stdout)
    assert answer["saved"] == 0


def test_variables_are_removed_where_the_file_is_deleted_first(remote: FakeRemote, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else is known of it then. A name of which nothing is saved is a mistake, and so is the folder of other files."""
    remote.api.dag = lambda _: {"is_paused": False, "is_stale": True}

    def gone(*_: object) -> None:
        raise RequestError("there is no pipeline p")

    monkeypatch.setattr(handover, "the_pipeline", gone)
    answer = json.loads(run("remove", "p", "--json").stdout)
    assert answer == {"pipeline": "p", "saved": 2, "pool": False, "group": False}
    refuses("nothing is saved of it", "remove", "p")
    remote.save(2, 10, 20)
    remote.api.dag = lambda _: {"is_paused": True, "is_stale": False}
    refuses("reads a file of p elsewhere", "remove", "p")


def test_the_cursor_is_removed_last() -> None:
    """So one whose removal was killed has its cursor still, and is not taken for a pipeline that never ran."""
    store = MemoryStore(
        {f"tidegate.p.{rest}": "x" for rest in ("cursor", "range.0000000001.r", "accepted.0000000002", "replay.1.a.r")}
    )
    assert remove("p", store) == 4
    assert [key for verb, key in store.calls if verb == "delete"][-1] == "tidegate.p.cursor"


@pytest.mark.parametrize(
    ("pipeline", "beside", "pool", "group"),
    [
        (replace(PIPELINE, group="g"), {}, True, False),
        (replace(PIPELINE, sink=Sink("lake.a.b", pool="default_pool")), {}, False, True),
        (PIPELINE, {"q": replace(PIPELINE, name="q", sink=Sink("lake.a.c", pool="tidegate_lake_a_b"))}, False, True),
        (PIPELINE, {"q": errors.ConfigError("torn")}, False, True),
        (PIPELINE, {"q": replace(PIPELINE, name="q", sink=Sink("lake.a.c"))}, True, True),
    ],
    ids=["group", "pool", "shared", "torn", "alone"],
)
def test_a_pool_and_a_group_that_others_may_use_stay(
    remote: FakeRemote, monkeypatch: pytest.MonkeyPatch, pipeline: Any, beside: dict[str, Any], *, pool: bool, group: bool
) -> None:
    """Those with a name of somebody's choice, and those of other files, as far as these can be read."""
    remote.pipeline = pipeline
    monkeypatch.setattr(handover, "load_pipelines", lambda _: {Path(f"{n}.yaml"): each for n, each in beside.items()})
    answer = json.loads(run("remove", "p", "--json").stdout)
    assert (answer["pool"], answer["group"]) == (pool, group)


def test_a_group_that_cannot_be_removed_is_said(remote: FakeRemote) -> None:
    """The rest is removed all the same."""

    def refuse(_: object) -> dict[str, str]:
        raise errors.KafkaError("not allowed", fix="none")

    remote.kafka = refuse  # type: ignore[method-assign]
    ended = run("remove", "p")
    assert (ended.exit_code, remote.store.values) == (0, {})
    assert "its group stays: not allowed" in ended.stderr


def test_a_pipeline_that_never_ran_has_no_place_to_hand_over(remote: FakeRemote) -> None:
    """Its file may begin at the end of the log, and a stream must not begin at the earliest offset for that."""
    remote.store.values.clear()
    remote.sink.found.clear()
    refuses("p has committed nothing yet", "export", "p")

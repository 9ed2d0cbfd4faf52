"""Laws of files beside each other (who may name one port, topic, table or consumer group), and of settings without effect."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tidegate.core.config.checks import group_faults, ineffective, table_faults
from tidegate.core.config.parse import parse_pipeline
from tidegate.core.config.pipeline import Backpressure, Limits, Pipeline, Replay, Sink, Source
from tidegate.core.model.errors import ConfigError
from tidegate.pipelines import load_pipelines
from tidegate_receivers.config.files import downstream_faults, load_receivers, receiver_faults, receivers_of
from tidegate_receivers.config.receiver import Connect, File, Listen, Receiver, ReceiverBackpressure, Workers

ALSO = "listen.port: 8080 is also the port of receiver {}; choose another port"
ANY = "0.0.0.0"  # noqa: S104 - nothing listens here


def receiver(name: str, port: int, host: str = "127.0.0.1") -> Receiver:
    return Receiver(name, "tcp_server", "orders", listen=Listen(port, host))


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("127.0.0.1", "127.0.0.1", True), ("127.0.0.1", ANY, True), ("::", "10.0.0.1", True), ("localhost", "127.0.0.1", True),
        ("127.0.0.1", "edge1", True), ("127.0.0.1", "127.0.0.2", False), ("10.0.0.1", "::1", False),
    ],
)  # fmt: skip
def test_two_receivers_of_one_port_are_at_fault_unless_their_addresses_never_meet(one: str, other: str, *, meet: bool) -> None:
    """Each would get connections of the other. A name may be any address. Other ports never meet."""
    beside = [receiver("c", 8081, one), Receiver("d", "m:C", "t"), Receiver("e", "m:C", "t")]
    faults = receiver_faults([receiver("b", 8080, other), receiver("a", 8080, one), *beside])
    assert faults == ({"a": [ALSO.format("b")], "b": [ALSO.format("a")]} if meet else {})


FOLLOWS = {"kind": "file", "file": File("/var/log/a.log")}
READS = {"kind": "socket", "connect": Connect("127.0.0.1", 9)}


@pytest.mark.parametrize(
    ("one", "other", "doubled"),
    [
        (FOLLOWS, {}, True),
        (FOLLOWS, {"file": File("/var/log/../log/a.log", state="/b")}, True),
        (READS, {}, True),
        (READS, FOLLOWS, False),
        (FOLLOWS, {"file": File("/var/log/b.log")}, False),
        (READS, {"connect": Connect("127.0.0.1", 8)}, False),
        (FOLLOWS, {"topic": "others"}, False),
        (FOLLOWS, {"connection": "other"}, False),
        ({**FOLLOWS, "preferred_hosts": ("h",)}, {"preferred_hosts": ()}, True),
        ({**FOLLOWS, "preferred_hosts": ("h",)}, {"preferred_hosts": ("i",)}, False),
        (FOLLOWS, {"workers": Workers(queues=("edge",))}, False),
    ],
)
def test_two_receivers_of_the_same_lines_are_at_fault(one: dict[str, Any], other: dict[str, Any], *, doubled: bool) -> None:
    """Unless they are meant for different hosts, each with a file of its own."""
    found = receiver_faults(Receiver(name, **{"topic": "orders", **of}) for name, of in (("a", one), ("b", one | other)))
    assert {name: [fault.split(" lands ")[0] for fault in faults] for name, faults in found.items()} == (
        {"a": ["topic: receiver b"], "b": ["topic: receiver a"]} if doubled else {}
    )


def test_receivers_are_read_from_their_folder_and_no_file_hides_another(tmp_path: Path) -> None:
    assert receivers_of(tmp_path / "pipelines") == tmp_path / "receivers"
    assert load_receivers(tmp_path / "receivers", {}) == {}
    for name, text in {"a": "kind: http\ntopic: orders\nlisten: {port: 1}\n", "b": "kind: [", "c": ""}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    found = [value for _, value in load_receivers(tmp_path, {}).items()]
    assert found[0] == Receiver("a", "http", "orders", listen=Listen(1))
    assert "b.yaml: not valid YAML: line" in str(found[1])
    assert str(found[2]).endswith("c.yaml: is empty; kind and topic are required")


def loads(source: Source, **more: Any) -> Pipeline:
    return Pipeline("loads", source=source, transform="m:f", sink=Sink("lake.demo.orders"), **more)


ORDERS = Source(topics=("orders",))


@pytest.mark.parametrize(
    ("found", "policy", "fault"),
    [
        *((loads(source), "credit", None) for source in (Source(topics=("a", "orders")), Source(assign={"orders": (0,)}))),
        (loads(Source(pattern="ord.*")), "credit", None),
        *(
            (loads(source), "credit", f"pipeline loads reads {named}, and not topic orders; name the pipeline that loads it")
            for source, named in (
                (Source(topics=("a",)), "a"),
                (Source(assign={"a": (0,)}), "a[0]"),
                (Source(pattern="ord"), "/ord/"),
                (Source(pattern="ord.*", exclude=("orders",)), "/ord.*/"),
            )
        ),
        (loads(ORDERS), "watermark", None),
        (loads(ORDERS), "rate", "nothing bounds the batches of pipeline loads"),
        (loads(ORDERS, limits=Limits(max_records=5)), "rate", None),
        (loads(ORDERS, backpressure=Backpressure("target")), "rate", None),
        (None, "credit", None),
    ],
)
def test_a_pipeline_reads_the_topic_and_a_rate_needs_a_bound(found: Pipeline | None, policy: Any, fault: str | None) -> None:
    """However it names its topics; bounded by its rate policy or its limits. One whose file is not valid is no fault."""
    posts = Receiver("posts", "http", "orders", backpressure=ReceiverBackpressure(policy, "loads"))
    told = downstream_faults([posts, Receiver("other", "http", "orders")], {"loads": found}).get("posts", [])
    assert [each.startswith(f"backpressure.pipeline: {fault}") for each in told] == ([True] if fault else [])


def test_a_pipeline_whose_file_is_not_valid_is_no_fault_of_the_receiver(tmp_path: Path) -> None:
    """It goes on. One that has no file is; with another fault of the file, both are named."""
    text = "kind: http\ntopic: orders\nlisten: {port: 8080}\nbackpressure: {policy: credit, pipeline: loads, max_backlog: 9}\n"
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(text)

    def fault(*pipelines: str) -> str:
        files: dict[Path, Pipeline | ConfigError] = {tmp_path / f"{name}.yaml": ConfigError("broken") for name in pipelines}
        return str(load_receivers(tmp_path, files)[tmp_path / "a.yaml"])

    port = "listen.port: 8080 is also the port of receiver b"
    assert (port in fault("loads"), "loads" in fault("loads")) == (True, False)
    assert (port in fault(), "there is no pipeline loads; write pipelines/loads.yaml" in fault()) == (True, True)
    assert "there is no pipeline loads; name one of x" in fault("x")


T, U = Source(("t",)), Source(("u",))


def pipeline(name: str, source: Source, shared_with: Sequence[str] = (), table: str = "lake.a.t", **more: Any) -> Pipeline:
    return Pipeline(name, source, "m:f", sink=Sink(table, shared_with=tuple(shared_with)), **more)


def test_a_table_is_shared_with_pipelines_that_have_a_file() -> None:
    """A pipeline that was renamed would begin beside itself, behind records that nobody has read."""
    found = table_faults([pipeline("new", T, ["old", "older", "b"]), pipeline("b", U, ["new"])], ["b"])
    assert {name: [fault.split("; ")[0] for fault in faults] for name, faults in found.items()} == {
        "new": ["sink.shared_with: there is no old.yaml and older.yaml"]
    }


@pytest.mark.parametrize(
    ("one", "other", "missing"),
    [((), (), "a.yaml and b.yaml"), (["b"], (), "b.yaml"), (["c"], ["a"], "a.yaml")],
)
def test_two_files_with_one_table_name_each_other(one: Sequence[str], other: Sequence[str], missing: str) -> None:
    """Both files are at fault, and the message says where the setting is missing. Catalogs may ignore the case of names."""
    found = table_faults([pipeline("b", U, other, "lake.A.t"), pipeline("a", T, one)], ["c"])
    assert set(found) == {"a", "b"}
    (fault,) = found["a"]
    assert fault.startswith("sink.table: lake.a.t is also the table of pipeline b; choose another table, or let both")
    assert fault.endswith(f"name the other pipeline in sink.shared_with (missing in {missing})")


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        (Source(("t", "u")), Source(("u", "v")), "topic u"),
        (T, Source(assign={"t": (3,)}), "topic t"),
        (Source(assign={"t": (0, 1, 2)}), Source(assign={"t": (1, 2, 3), "u": (0,)}), "t-1, t-2"),
        (Source(assign={"t": (0,)}), Source(assign={"t": (1,)}), None),
        (T, Source(pattern="t.*"), None),
    ],
)
def test_pipelines_that_share_a_table_read_no_partition_twice(one: Source, other: Source, common: str | None) -> None:
    """As far as the files name topics and partitions; what a pattern matches is seen by the load. A third one may share it."""
    sources = {"a": one, "b": other, "c": Source(("x",))}
    found = table_faults([pipeline(name, source, [*sources.keys() - {name}]) for name, source in sources.items()])
    assert set(found) == ({"a", "b"} if common else set())
    assert common is None or f"both read {common}: a load of one would delete the rows of the other" in found["a"][0]


def test_a_table_of_batches_is_not_shared() -> None:
    """The batches of two pipelines have the same numbers."""
    found = table_faults([pipeline("a", T, ["b"]), pipeline("b", U, ["a"], identity="batch")])
    assert "with `identity: batch` a table belongs to one pipeline" in found["a"][0]
    assert set(found) == {"a", "b"}


@pytest.mark.parametrize("table", ["lake.a.t_trial", "lake.a.t_trial_7", "lake.a.extra"])
def test_tables_of_a_pipelines_replays_are_its_own(table: str) -> None:
    """Trials by their name, others by the file."""
    found = table_faults([pipeline("a", T, replay=Replay(tables=("lake.a.extra",))), pipeline("b", U, table=table)])
    assert set(found) == {"b"}
    assert found["b"][0].startswith(f"sink.table: replays of pipeline a may write into {table}")


def test_a_consumer_group_is_of_one_pipeline_of_a_connection() -> None:
    a, c = pipeline("a", T), pipeline("c", T, group="c")
    also = "group: tidegate-a is also the consumer group of pipeline {}; choose another name"
    assert group_faults([a, pipeline("b", U, group="tidegate-a"), c]) == {"a": [also.format("b")], "b": [also.format("a")]}
    assert group_faults([a, pipeline("b", Source(("u",), connection="other"), group="tidegate-a")]) == {}


def test_a_file_has_its_faults_of_each_kind_beside_the_others(tmp_path: Path) -> None:
    for name in ("a", "b"):
        text = f"source: {{topics: [{name}]}}\ntransform: m:f\nsink: {{table: lake.a.t}}\ngroup: ours\n"
        (tmp_path / f"{name}.yaml").write_text(text)
    assert [str(error).count(" is also the ") for error in load_pipelines(tmp_path).values()] == [2, 2]


MINIMAL = {"source": {"topics": ["orders"]}, "transform": "m:f", "sink": {"table": "lake.a.b"}}
HOURLY = {"schedule": "@hourly"}
SLOW = {"max_rate_per_partition": 5, "interval_s": 10}
HAVE_AN_EFFECT: list[dict[str, Any]] = [
    {"catch_up": True, "limits": {"max_bytes": 5}},
    {**HOURLY, "limits": {"min_records": 9, "max_delay_s": 3600}},
    {**HOURLY, "catch_up": True, "limits": {"min_records": 9, "max_records": 9, "max_delay_s": 60}},
    {"limits": {"min_rate_per_partition": 5}, "backpressure": {"policy": "pid"}},
    {"limits": {**SLOW, "min_rate_per_partition": 50}},
    {"schedule": {"max_delay": "1m", "poll": "1m"}},
    {"schedule": {"lag": 9}, "limits": {"max_records": 5}, "catch_up": True},
    {"schedule": {"lag": 9, "max_delay": "1h"}, "limits": {"max_records": 5}},
    {"spark": {"connection": "mine", "max_executors": 4, "cores": 2}, "split": {"min_partitions": 8}},
    *({"spark": {"cores": 4}}, {"retries": 0}, {"timeout_s": 60}),
]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        *((settings, None) for settings in HAVE_AN_EFFECT),
        ({"catch_up": True}, "catch_up: has no effect without a bound"),
        ({"limits": {"min_records": 1}}, "limits.min_records: 1 skips no run"),
        ({**HOURLY, "limits": {"min_records": 9, "max_delay_s": 60}}, "max_delay_s 60 is over before the next run"),
        ({"limits": {"min_records": 9, "max_records": 5}}, "limits.min_records: 9 is above limits.max_records 5"),
        (
            {"limits": {"min_records": 9, "max_records": 8}, "backpressure": {"max_records": 5}},
            "above backpressure.max_records 5",
        ),
        ({"limits": {"min_rate_per_partition": 5}}, "min_rate_per_partition: has no effect without"),
        ({"limits": {**SLOW, "min_rate_per_partition": 500}}, "fewer than min_rate_per_partition 500"),
        ({"schedule": {"max_delay": "10s", "poll": "1m"}}, "schedule.max_delay: 10 s are shorter than schedule.poll 60 s"),
        ({"schedule": {"lag": 9}, "limits": {"max_records": 5}}, "schedule.lag: 9 is above limits.max_records 5"),
        ({"spark": {"max_executors": 4}}, "spark.max_executors: has no effect in a Spark Connect server"),
        ({"spark": {"cores": 4}, "split": {"min_partitions": 8}}, "spark.cores: has no effect in"),
        ({"retries": 0, "retry_delay_s": 5}, "retry_delay_s: has no effect with retries: 0"),
        ({"wait_s": 900, "timeout_s": 900}, "wait_s: 900 s are never waited"),
        ({"identity": "batch", "rows_per_record": "any"}, "rows_per_record: has no effect with identity: batch"),
    ],
)
def test_what_has_no_effect_is_named_with_the_fix(settings: dict[str, Any], words: str | None) -> None:
    """In one sentence, and one warning for each. What has an effect is passed over, also where it seems odd."""
    found = ineffective(parse_pipeline("p", {**MINIMAL, **settings}, file="p.yaml"))
    assert [words is not None and words in warning and "; " in warning for warning in found] == ([True] if words else [])

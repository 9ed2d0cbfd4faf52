"""Laws of which pipelines may name one table, or one consumer group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tidegate.core.config.pipeline import Pipeline, Replay, Sink, Source
from tidegate.core.config.table_conflicts import group_faults, table_faults
from tidegate.pipelines import load_pipelines


def pipeline(name: str, source: Source, shared_with: Sequence[str] = (), table: str = "lake.a.t", **more: Any) -> Pipeline:
    return Pipeline(name, source, "m:f", Sink(table, shared_with=tuple(shared_with)), **more)


def topics(*names: str) -> Source:
    return Source(names)


def assign(partitions: Mapping[str, Sequence[int]]) -> Source:
    return Source(assign={topic: tuple(numbers) for topic, numbers in partitions.items()})


def test_a_table_of_ones_own_is_no_fault() -> None:
    """Also with replays into other tables, and a table that is shared with a pipeline whose file is not valid."""
    mine = pipeline("a", topics("t"), replay=Replay(tables=("lake.a.other",)))
    others = [pipeline("b", topics("t"), table="lake.a.u"), pipeline("c", topics("t"), ["broken"], "lake.a.v")]
    assert table_faults([mine, *others], ["broken"]) == {}


def test_a_table_is_shared_with_pipelines_that_have_a_file() -> None:
    """A pipeline that was renamed would begin beside itself, behind records that nobody has read."""
    found = table_faults([pipeline("new", topics("t"), ["old", "older", "b"]), pipeline("b", topics("u"), ["new"])], ["b"])
    assert {name: [fault.split("; ")[0] for fault in faults] for name, faults in found.items()} == {
        "new": ["sink.shared_with: there is no old.yaml and older.yaml"]
    }


@pytest.mark.parametrize(
    ("one", "other", "missing"),
    [((), (), "a.yaml and b.yaml"), (["b"], (), "b.yaml"), ((), ["a"], "a.yaml"), (["c"], ["a"], "a.yaml")],
)
def test_two_files_with_one_table_name_each_other(one: Sequence[str], other: Sequence[str], missing: str) -> None:
    """Both files are at fault, and the message says where the setting is missing. Catalogs may ignore the case of names."""
    found = table_faults([pipeline("b", topics("u"), other, "lake.A.t"), pipeline("a", topics("t"), one)], ["c"])
    assert set(found) == {"a", "b"}
    (fault,) = found["a"]
    assert fault.startswith("sink.table: lake.a.t is also the table of pipeline b; choose another table, or let both")
    assert fault.endswith(f"name the other pipeline in sink.shared_with (missing in {missing})")


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        (topics("t", "u"), topics("u", "v"), "topic u"),
        (topics("t"), assign({"t": [3]}), "topic t"),
        (assign({"t": [0, 1, 2]}), assign({"t": [1, 2, 3], "u": [0]}), "t-1, t-2"),
    ],
)
def test_pipelines_that_share_a_table_read_no_partition_twice(one: Source, other: Source, common: str) -> None:
    """As far as the files name topics and partitions; what a pattern matches is seen by the load."""
    found = table_faults([pipeline("a", one, ["b"]), pipeline("b", other, ["a"])])
    assert f"both read {common}: a load of one would delete the rows of the other" in found["a"][0]
    assert set(found) == {"a", "b"}


@pytest.mark.parametrize(
    ("one", "other"),
    [(topics("t"), topics("u")), (assign({"t": [0]}), assign({"t": [1]})), (topics("t"), Source(pattern="t.*"))],
)
def test_pipelines_that_share_a_table_and_no_partition_are_fine(one: Source, other: Source) -> None:
    """Three may as well."""
    three = [pipeline("a", one, ["b", "c"]), pipeline("b", other, ["a", "c"]), pipeline("c", topics("x"), ["a", "b"])]
    assert table_faults(three) == {}


def test_a_table_of_batches_is_not_shared() -> None:
    """The batches of two pipelines have the same numbers."""
    found = table_faults([pipeline("a", topics("t"), ["b"]), pipeline("b", topics("u"), ["a"], identity="batch")])
    assert "with `identity: batch` a table belongs to one pipeline" in found["a"][0]
    assert set(found) == {"a", "b"}


@pytest.mark.parametrize("table", ["lake.a.t_trial", "lake.a.t_trial_7", "lake.a.extra"])
def test_tables_of_a_pipelines_replays_are_its_own(table: str) -> None:
    """Trials by their name, others by the file."""
    found = table_faults(
        [pipeline("a", topics("t"), replay=Replay(tables=("lake.a.extra",))), pipeline("b", topics("u"), table=table)]
    )
    assert set(found) == {"b"}
    assert found["b"][0].startswith(f"sink.table: replays of pipeline a may write into {table}")


def test_a_consumer_group_is_of_one_pipeline_of_a_connection() -> None:
    """Stated or by default."""
    groups = [pipeline("a", topics("t")), pipeline("b", topics("u"), group="tidegate-a"), pipeline("c", topics("v"), group="c")]
    also = "group: tidegate-a is also the consumer group of pipeline {}; choose another name"
    assert group_faults(groups) == {"a": [also.format("b")], "b": [also.format("a")]}
    assert group_faults([groups[0], pipeline("b", Source(("u",), connection="other"), group="tidegate-a")]) == {}


def test_a_file_has_its_faults_of_each_kind_beside_the_others(tmp_path: Path) -> None:
    """Of tables and groups at once."""
    for name in ("a", "b"):
        text = f"source: {{topics: [{name}]}}\ntransform: m:f\nsink: {{table: lake.a.t}}\ngroup: ours\n"
        (tmp_path / f"{name}.yaml").write_text(text)
    assert [str(error).count(" is also the ") for error in load_pipelines(tmp_path).values()] == [2, 2]

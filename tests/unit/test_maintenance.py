"""What a pipeline file says of maintenance, the orders and answers of its steps, and when a table needs it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from tidegate.core.config.checks import table_faults
from tidegate.core.config.parse import parse_pipeline
from tidegate.core.config.pipeline import MIB, Maintenance, Pipeline, Quarantine, Replay, Sink, Source, Step
from tidegate.core.config.schedules import DAY_S
from tidegate.core.maintenance.advice import advice, state_of
from tidegate.core.model.errors import ConfigError
from tidegate.core.state.history import DataFiles, TableCommit, TableHistory
from tidegate.core.state.jobs import Maintained

PIPELINE = Pipeline("orders", Source(("orders",)), "m:f", sink=Sink("lake.shop.orders"), maintenance=Maintenance())
NOW_MS = 100 * DAY_S * 1000
TABLE = TableHistory(files=DataFiles(count=10, size=10 * MIB))


def parsed(maintenance: Any, **properties: str) -> Pipeline:
    sink = {"table": "a.b.c", "properties": properties}
    settings = {"source": {"topics": ["t"]}, "transform": "m:f", "sink": sink, "maintenance": maintenance}
    return parse_pipeline("orders", settings, file="orders.yaml")


def commits(count: int, *, age_days: float) -> tuple[TableCommit, ...]:
    return tuple(TableCommit(n, int(NOW_MS - age_days * DAY_S * 1000)) for n in range(count))


def test_an_empty_section_is_maintenance_with_the_defaults() -> None:
    assert parsed({}).maintenance == Maintenance()
    assert parsed({"keep": "36h"}).maintenance == Maintenance(keep=1.5 * DAY_S)
    assert Maintenance().steps == ("compact", "expire")
    assert Maintenance(keep_orphans=3 * DAY_S).steps == get_args(Step)
    assert PIPELINE.maintain_dag == "orders__maintain"


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, "expected a mapping of settings, got null"),  # a section whose settings are comments now
        ({"keep": "23h"}, "keep: expected a duration from 1d"),
        ({"keep_orphans": 60}, "keep_orphans: expected a duration from 1d"),
        ({"keep_snapshots": 99}, "keep_snapshots: expected a whole number of snapshots from 100"),
        ({"target_file_bytes": MIB - 1}, "target_file_bytes: expected a whole number of bytes from 2^20"),
        ({"max_files": 1}, "max_files: expected a whole number of files from 2"),
        ({"schedule": "@continuous"}, "schedule: expected five cron fields"),
        ({"schedule": {"lag": 1}}, "schedule: expected five cron fields"),
    ],
)
def test_nothing_that_a_running_load_may_refer_to_can_be_removed(setting: dict[str, Any] | None, expected: str) -> None:
    """A day is the least age, and a hundred snapshots stay; it runs at times."""
    with pytest.raises(ConfigError) as caught:
        parsed(setting)
    assert f"maintenance{': ' if setting is None else '.'}{expected}" in str(caught.value)


def test_a_step_says_what_it_did() -> None:
    done = Maintained("compact", {"files_before": 1200, "files_after": 3}, "beware")
    assert str(done) == "compact: 1,200 files before, 3 files after. beware"
    assert str(Maintained("expire", {"files_removed": 0})) == "expire: 0 files removed"


def test_snapshots_may_expire_that_are_old_and_not_among_the_newest() -> None:
    keep, old, young = Maintenance(keep_snapshots=100), commits(150, age_days=6), commits(150, age_days=4)
    states = [state_of(replace(TABLE, commits=each), keep, now_ms=NOW_MS) for each in (young, old, young + old)]
    assert [state.expirable for state in states] == [0, 50, 150]
    told = "150 snapshots, 50 of which may expire"
    assert str(states[1]) == f"10 data files of 1.0 MiB on average and {told}"
    assert str(state_of(TableHistory(commits=old), keep, now_ms=NOW_MS)) == told


@pytest.mark.parametrize(
    ("maintenance", "shared", "do"),
    [
        (None, (), "set `maintenance` in orders.yaml"),
        (None, ("visits",), "set `maintenance` in orders.yaml or in that of another pipeline of the table"),
        (Maintenance(), (), "trigger orders__maintain, or set maintenance.schedule"),
        (Maintenance("@daily"), (), "see whether orders__maintain is paused"),
    ],
)
def test_advice_says_what_there_is_and_what_to_do(maintenance: Maintenance | None, shared: tuple[str, ...], do: str) -> None:
    pipeline = replace(PIPELINE, maintenance=maintenance, sink=Sink("lake.shop.orders", shared_with=shared))
    small = TableHistory(files=DataFiles(count=2000, size=2000 * MIB))
    told = "lake.shop.orders needs maintenance: it has 2,000 data files of 1.0 MiB on average and 0 snapshots, 0 of which may"
    assert (advice(pipeline, small, now_ms=NOW_MS) or "").startswith(f"{told} expire; {do}")


LARGE = (8000, 8000 * 128 * MIB)
LEFT = (1500, 1500 << 10)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        *[(DataFiles(count=count, size=mib * MIB), None) for count, mib in ((999, 1), (1000, 16_000), (0, 0))],  # few, or large
        # a table of many partitions keeps small files in each, which are too few to be merged
        (DataFiles(count=2000, size=2000 << 10, compacted=LEFT), None),
        (DataFiles(count=2500, size=2000 << 10, compacted=LEFT), "2,500 data files of 0.8 KiB on average"),
        # what counts is the size of those that have come since the compaction, beside many large ones
        (DataFiles(count=9500, size=LARGE[1] + (1500 << 10), compacted=LARGE), "needs maintenance"),
        (DataFiles(count=9500, size=LARGE[1] + 1500 * 64 * MIB, compacted=LARGE), None),
        # Iceberg merges small files of a partition where there are five
        (DataFiles(count=8000, size=8000 << 10, partitions=2000), None),
        (DataFiles(count=10_000, size=8000 << 10, partitions=2000), "needs maintenance"),
    ],
)
def test_a_table_needs_maintenance_for_small_files_that_a_compaction_would_merge(files: DataFiles, told: str | None) -> None:
    """Of few or of large files, of those that it has left, and of few in each partition nothing is said."""
    found = advice(PIPELINE, TableHistory(files=files), now_ms=NOW_MS)
    assert found is None if told is None else told in (found or "")


@pytest.mark.parametrize(("age", "may_expire", "told"), [(6, True, False), (8, True, True), (8, False, False)])
def test_snapshots_wait_two_days_for_the_next_maintenance(*, age: int, may_expire: bool, told: bool) -> None:
    """Unless they never expire, since the table's properties forbid it."""
    maintained = replace(PIPELINE, maintenance=Maintenance("@daily", keep=5 * DAY_S))
    files = replace(TABLE.files, may_expire=may_expire)
    found = advice(maintained, replace(TABLE, commits=commits(3000, age_days=age), files=files), now_ms=NOW_MS)
    assert "2,000 of which may expire" in (found or "") if told else found is None


# ---- what other files say of the table


def faults(table: str, of: str, maintenance: Maintenance | None) -> dict[str, list[str]]:
    """Where the other pipeline, or a replay of it or of one's own, writes into a table."""
    own, other = replace(PIPELINE, maintenance=maintenance), Pipeline("eu", Source(("t",)), "m:f", sink=Sink("lake.shop.eu"))
    if of == "its own replays":
        own = replace(own, replay=Replay(tables=(table,)))
    elif of == "its own quarantine":
        own = replace(own, quarantine=Quarantine(table))
    elif of == "a quarantine":
        other = replace(other, quarantine=Quarantine(table))
    elif of == "replays":
        other = replace(other, replay=Replay(tables=(table,)))
    else:
        other = replace(other, sink=Sink(table))
    return table_faults([own, other])


REMOVING = Maintenance(keep_orphans=3 * DAY_S)


def test_one_pipeline_maintains_a_table() -> None:
    one = Pipeline("a", Source(("t",)), "m:f", sink=Sink("lake.a.t", shared_with=("b",)), maintenance=Maintenance())
    other = replace(one, name="b", source=Source(("u",)), sink=Sink("lake.a.T", shared_with=("a",)))
    found = table_faults([one, other])
    assert found.keys() == {"a", "b"}
    assert found["a"] == ["maintenance: lake.a.T is also maintained by pipeline b; leave it to one of them"]
    assert table_faults([one, replace(other, maintenance=None)]) == {}


LIES_THERE = [
    *(("sink", "eu"), ("replays", "eu"), ("its own replays", "orders")),
    *(("a quarantine", "eu"), ("its own quarantine", "orders")),
]


@pytest.mark.parametrize(
    ("table", "of", "owner"),
    [
        *((table, *of) for table in ("lake.shop.Orders.data", "lake.shop.orders.data.eu") for of in LIES_THERE),
        *((f"lake.shop.{table}", "sink", None) for table in ("orders.eu", "orders_data", "orders.database")),
    ],
)
def test_orphans_are_not_removed_where_another_table_lies_in_the_data_folder(table: str, of: str, owner: str | None) -> None:
    """By its name, unless it is only similar; without `keep_orphans` it does no harm."""
    found = {name: [fault.split(" may ")[0] for fault in each] for name, each in faults(table, of, REMOVING).items()}
    assert found == ({"orders": [f"maintenance.keep_orphans: {table} of pipeline {owner}"]} if owner else {})
    assert faults(table, of, Maintenance()) == {}


def test_orphans_of_a_quarantine_are_not_removed_where_another_table_lies_in_its_data_folder() -> None:
    """Maintenance cleans that too."""
    own = replace(PIPELINE, maintenance=REMOVING, quarantine=Quarantine("lake.q.orders"))
    other = Pipeline("eu", Source(("t",)), "m:f", sink=Sink("lake.q.orders.data.eu"))
    (fault,) = table_faults([own, other])["orders"]
    assert "lake.q.orders.data.eu of pipeline eu may keep its files in the data folder of lake.q.orders, where" in fault


def test_orphans_are_not_removed_of_a_folder_that_the_file_gives_to_tables_of_replays_too() -> None:
    """Whose files Iceberg keeps there without the table's name."""
    path = {"write.data.path": "s3://b/orders"}
    assert parsed({}, **path).sink.properties == path
    with pytest.raises(ConfigError, match=r"keep_orphans: tables of replays have their files in write\.data\.path"):
        parsed({"keep_orphans": "3d"}, **path)


@pytest.mark.parametrize("of", ["sink", "replays"])
def test_the_table_of_commits_is_nobody_elses(of: str) -> None:
    """Neither a sink nor a table of replays; the fault is that of the file that asks for maintenance."""
    told = "maintenance: it keeps commits in lake.shop.orders_commits, which pipeline eu writes; rename one of the tables"
    found = [faults("lake.shop.orders_commits", of, maintenance) for maintenance in (Maintenance(), None)]
    assert found == [{"orders": [told]}, {}]

"""The law of a schedule, whatever happens to its Variables, its table and its log, in any order.

What a plan believes is in the table, once. Where it is not, the plan refuses, and what its error advises helps.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from tests.records import write_of_load
from tests.unit.world import OnPorts
from tidegate.core.audit.restore import offsets_to_reload, restore
from tidegate.core.config.pipeline import Limits, Pipeline, Sink, Source
from tidegate.core.model.errors import OffsetsExpired, RequestError, StateError, TableLost, TidegateError, TopicRecreated
from tidegate.core.model.ranges import OffsetRange, TopicPartition, total_count
from tidegate.core.planning.accept import accept_loss, accept_recreated, accept_table, missing_now
from tidegate.core.planning.plan import Skip
from tidegate.core.planning.run import Planned, Request, commit_batch, plan_batch
from tidegate.core.replay.request import Asked, ReplayRequest
from tidegate.core.replay.run import plan_replay
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.history import Missing
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.receipt import Receipt, Write
from tidegate.testing.fakes import FakeBrokers, FakeReader, MemoryStore

PIPELINE = Pipeline("p", Source(("t",)), "m:f", sink=Sink("lake.a.b"), limits=Limits(50), keep_ranges=5)
PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
HOUR_MS = 3_600_000
MOST_HELP = 8
REFUSED = (StateError, TableLost, OffsetsExpired, TopicRecreated)
HARM = ("retention", "topic", "put back", "deleted", "dropped", "rolled back", "expired")
HARMS = [frozenset[str](), frozenset({"put back"}), *map(frozenset, combinations(HARM, 2))]
"""What one harm does alone is among what it does beside others. A cursor that is put back must be no loss."""
Row = tuple[str, TopicPartition, int]
"""The id of its topic, and the offset that it came from."""


def may(*harms: str) -> Callable[[Any], Any]:
    """The rule is there in examples where one of these harms is done."""
    return precondition(lambda self: bool(self.harms & {*harms}))


class Schedule(OnPorts, RuleBasedStateMachine):
    """A pipeline over two partitions, and what becomes of it.

    `rows` are the commits whose rows the table holds, also of snapshots that have expired; the reader knows the others alone.
    `begins` says from where on each partition of a topic has to be in the table: where it began, or where an operator has
    accepted that what was before is missing. Of what may go wrong, `harms` does: two at a time go deeper. `reloads` is whether
    the operator loads again what a table has lost, as far as the log has it, or gives it up at once.
    """

    def __init__(self, harms: frozenset[str]) -> None:
        super().__init__()
        self.harms = harms
        self.store, self.sink = MemoryStore(), FakeReader(exists=False, owners=frozenset({"p"}))
        self.brokers = FakeBrokers(latest={PARTITIONS[0]: 5})  # the other partition is added later
        self.rows: list[Receipt] = []
        self.begins: dict[tuple[str, TopicPartition], int] = {}
        self.cursors: list[str] = []
        self.runs: dict[str, tuple[OffsetRange, ...]] = {}
        self.now_ms = self.count = 0
        self.accepted = False
        self.reloads = True

    # what a user, and the world, does

    @initialize(batches=st.lists(st.integers(1, 30), min_size=2, max_size=6), reloads=st.booleans())
    def there_is_a_past(self, batches: list[int], *, reloads: bool) -> None:
        self.reloads = reloads
        for n, records in enumerate(batches):
            self.records_come(PARTITIONS[n % 2], records, reads=True)

    @rule(partition=st.sampled_from(PARTITIONS), records=st.integers(1, 40), reads=st.booleans())
    def records_come(self, partition: TopicPartition, records: int, *, reads: bool) -> None:
        self.brokers.latest[partition] = self.brokers.latest.get(partition, 0) + records
        if reads:
            self.run(f"run{self.next()}")

    @may("retention")
    @rule(partition=st.sampled_from(PARTITIONS), share=st.integers(0, 4))
    def retention_passes(self, partition: TopicPartition, share: int) -> None:
        first, end = self.brokers.earliest.get(partition, 0), self.brokers.latest.get(partition, 0)
        self.brokers.earliest[partition] = first + (end - first) * share // 4

    @may("topic")
    @rule()
    def the_topic_is_created_again(self) -> None:
        self.brokers.ids["t"] = f"id{self.next()}"
        self.brokers.latest, self.brokers.earliest = dict.fromkeys(PARTITIONS, 3), {}

    @rule(dies=st.sampled_from(["", "", "", "after its plan", "after its load"]), most=st.none() | st.integers(1, 30))
    def the_schedule_runs(self, dies: str, most: int | None) -> None:
        self.run(f"run{self.next()}", dies, most=most)

    @may("dropped", "rolled back")
    @precondition(lambda self: len(self.sink.found) > 1)
    @rule(data=st.data())
    def the_table_is_lost_between_a_plan_and_its_load(self, data: st.DataObject) -> None:
        dropped = data.draw(st.sampled_from(sorted(self.harms & {"dropped", "rolled back"}))) == "dropped"
        self.run(f"run{self.next()}", meanwhile=lambda: self.the_table_is_dropped(again=True) if dropped else self.roll_back(1))

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def a_run_is_cleared(self, data: st.DataObject) -> None:
        run_id = data.draw(st.sampled_from(sorted(self.runs)))
        known = any(r.load.run_id == run_id for r in [*self.sink.kept, *self.sink.found])
        if not known and Ledger(self.store, "p").listing().of_run(run_id) is None:
            return  # nothing is left of it
        try:
            planned = self.plan(run_id, ran_at_ms=1)
        except REFUSED:
            return
        assert isinstance(planned, Planned)
        assert planned.saved.load.nonempty == self.runs[run_id]
        self.load(planned)

    @may("put back")
    @precondition(lambda self: self.cursors)
    @rule(data=st.data())
    def an_older_cursor_is_put_back(self, data: st.DataObject) -> None:
        self.store.values["tidegate.p.cursor"] = data.draw(st.sampled_from(self.cursors[-3:]))

    @may("deleted")
    @rule(gone=st.sets(st.sampled_from([".range.", ".cursor", ".accepted."])))
    def variables_are_deleted(self, gone: set[str]) -> None:
        for key in [key for key in self.store.values if any(part in key for part in gone)]:
            del self.store.values[key]

    @may("dropped")
    @rule(again=st.booleans())
    def the_table_is_dropped(self, *, again: bool) -> None:
        self.sink.found, self.sink.kept, self.rows = [], [], []
        self.sink.exists, self.sink.expired, self.sink.has_rows = again and self.sink.exists, False, False

    @may("rolled back")
    @precondition(lambda self: len(self.sink.found) > 1)
    @rule(data=st.data())
    def the_table_is_rolled_back(self, data: st.DataObject) -> None:
        self.roll_back(data.draw(st.integers(1, len(self.sink.found) - 1)))

    def roll_back(self, left: int) -> None:
        gone = self.sink.found[left:]
        self.sink.found = self.sink.found[:left]
        self.rows = [receipt for receipt in self.rows if receipt not in gone]

    @may("expired")
    @precondition(lambda self: self.sink.found)
    @rule(kept=st.booleans(), data=st.data())
    def snapshots_expire(self, data: st.DataObject, *, kept: bool) -> None:
        many = data.draw(st.integers(0, len(self.sink.found) - 1))
        if not many:
            return
        if kept and not (self.sink.expired and not self.sink.kept):
            self.sink.kept = [*self.sink.kept, *self.sink.found[:many]]
        else:
            self.sink.kept = []
        self.sink.found, self.sink.expired = self.sink.found[many:], True

    @rule(data=st.data())
    def a_part_is_replayed(self, data: st.DataObject) -> None:
        tp = data.draw(st.sampled_from(PARTITIONS))
        try:
            self.replay(ReplayRequest(offsets=(Asked("t", tp.partition, None, None),), accept_loss=True))
        except (RequestError, *REFUSED):
            return

    # the law

    @invariant()
    def what_a_plan_believes_is_in_the_table_once(self) -> None:
        try:
            self.plan("look", save=False)
        except REFUSED:
            return
        cursor, _ = missing_now(PIPELINE, store=self.store, sink=self.sink)
        held = self.held()
        assert not [row for row, count in held.items() if count > 1]
        of = cursor.at.topic_ids.get("t")
        if of != self.brokers.ids.get("t", "id"):
            return  # records of another topic have replaced some of its rows, or will
        for tp, until in cursor.at.offsets.items():
            lost = [offset for offset in range(self.begins[of, tp], until) if not held[of, tp, offset]]
            assert not lost, f"{tp}: {lost}"

    @invariant()
    def each_batch_is_one_range(self) -> None:
        """Whoever has loaded it, however often."""
        loads = {(r.load.generation, r.load.seq, r.load.ranges) for r in self.rows if r.load.replay is None}
        assert len(loads) == len({load[:2] for load in loads})

    @precondition(lambda self: self.sink.exists)
    @invariant()
    def receipts_lead_to_where_the_cursor_is(self) -> None:
        """A rebuild that is not refused finds the cursor that a plan believes, but for what was accepted after the batch."""
        try:
            self.plan("look", save=False)
            rebuilt = restore(PIPELINE, store=self.store, sink=self.sink, save=False)
        except REFUSED:
            return
        cursor, _ = missing_now(PIPELINE, store=self.store, sink=self.sink)
        if rebuilt.refused is None and cursor.seq and rebuilt.cursor.seq == cursor.seq:
            position = rebuilt.cursor.at
            assert (replace(position, starts=cursor.at.starts) if self.accepted else position) == cursor.at

    def teardown(self) -> None:
        """Whatever has happened, the schedule drains the log with what its errors advise."""
        for _ in range(100):
            if not self.run(f"run{self.next()}"):
                break
        self.what_a_plan_believes_is_in_the_table_once()
        assert self.cursor.at.offsets == self.brokers.latest

    # how it is done

    def next(self) -> int:
        self.count += 1
        return self.count

    def held(self) -> Counter[Row]:
        """The rows of the table: each load has replaced what the table held of its ranges."""
        rows: set[Row] = set()
        for receipt in self.rows:
            load = receipt.load
            for r in load.ranges:
                offsets = range(r.from_offset, r.until_offset)
                rows = {row for row in rows if row[1] != r.topic_partition or row[2] not in offsets}
                rows |= {(load.topic_ids.get(r.topic, "id"), r.topic_partition, offset) for offset in offsets}
        return Counter(rows)

    def plan(self, run_id: str, *, save: bool = True, **asked: Any) -> Planned | Skip:
        self.now_ms += HOUR_MS
        return plan_batch(PIPELINE, run_id, Request(**asked), **self.ports, now_ms=self.now_ms, save=save)

    def run(self, run_id: str, dies: str = "", meanwhile: Callable[[], None] = lambda: None, most: int | None = None) -> bool:
        """A run with what its errors advise; whether it has read something. `meanwhile` comes between its plan and its load."""
        for _ in range(MOST_HELP):
            try:
                planned = self.plan(run_id, max_records=most)
            except REFUSED as error:
                self.help(error)
                continue
            if isinstance(planned, Skip):
                return False
            if dies == "after its plan":
                return True
            meanwhile()
            receipt = self.load(planned)
            if dies == "after its load":
                return True
            saved, _, moved = commit_batch(PIPELINE, planned.key, receipt, store=self.store)
            if moved:
                self.runs[run_id] = saved.load.nonempty
                self.cursors.append(self.store.values["tidegate.p.cursor"])
            if moved and saved.load.seq == 1:  # nothing was left of what was before
                self.begins = {}
            for r in saved.load.ranges if moved else ():
                self.begins.setdefault((saved.load.topic_ids["t"], r.topic_partition), r.from_offset)
            return True
        raise AssertionError(f"{run_id} is refused again and again")

    def load(self, planned: Planned) -> Receipt | None:
        load = planned.saved.load
        if not load.nonempty:
            return None
        assert self.sink.exists or planned.create, "a load must not create a table that held batches"
        same = [r for r in self.sink.found if (r.load.task, r.load.generation) == (load.task, load.generation)]
        there = [r for r in same if r.covers(load.nonempty)]
        if there and not planned.committed:
            return there[-1]
        return self.land(write_of_load(load, beside=planned.saved.after.beside(load.nonempty, load.topic_ids)))

    def land(self, write: Write) -> Receipt:
        self.now_ms += 1
        parent = self.sink.found[-1].snapshot if self.sink.found else None
        receipt = Receipt(write, self.now_ms, self.now_ms, rows=total_count(write.load.ranges), parent=parent)
        self.sink.exists = self.sink.has_rows = True
        self.sink.found.append(receipt)
        self.rows.append(receipt)
        return receipt

    def replay(self, request: ReplayRequest) -> None:
        self.now_ms += 1
        planned = plan_replay(PIPELINE, f"replay{self.next()}", request, **self.ports, now_ms=self.now_ms)
        for number in planned.todo:
            saved = planned.saved
            if self.sink.exists:
                self.land(write_of_load(saved.chunk(number)))

    def help(self, error: TidegateError) -> None:
        """Do what the error advises. A cursor that is put back is no loss: the schedule catches up."""
        assert self.harms - {"put back"}, f"nothing was lost: {error}"
        advised = re.search(r"`tidegate ([^`]+)`", error.fix or "")
        assert advised is not None, error
        match advised[1].split():
            case ["ledger", "reload", "p"]:
                self.reload()
            case ["ledger", "rebuild", "p"]:
                self.rebuild()
            case ["accept", "loss", "p"]:
                cursor, _ = missing_now(PIPELINE, store=self.store, sink=self.sink)
                accepted, dropped = accept_loss(PIPELINE, **self.ports)
                for saved in dropped:
                    for r in saved.load.ranges:
                        if r.topic_partition not in cursor.at.offsets or cursor.at.topic_ids["t"] != saved.load.topic_ids["t"]:
                            self.begins.pop((saved.load.topic_ids["t"], r.topic_partition), None)
                lost = {r.topic_partition: r.until_offset for r in accepted.loss if r.topic_partition in cursor.at.offsets}
                self.begin_anew(lost, cursor)
            case ["accept", "recreated", "p", "t"]:
                accepted = accept_recreated(PIPELINE, "t", **self.ports)
                self.begins = {key: at for key, at in self.begins.items() if key[0] != accepted.recreated["t"]}
            case ["ledger", "drop", "p", key]:
                self.store.values.pop(key)
            case _:
                raise AssertionError(error)

    def reload(self) -> None:
        cursor, missing = missing_now(PIPELINE, store=self.store, sink=self.sink)
        assert missing is not None
        if self.reloads:
            self.replay_missing(cursor, missing)
        if missing_now(PIPELINE, store=self.store, sink=self.sink)[1] is not None:
            accepted = accept_table(PIPELINE, store=self.store, sink=self.sink)
            self.give_up(cursor, accepted.absent)

    def replay_missing(self, cursor: Cursor, missing: Missing) -> None:
        with suppress(RequestError):
            held: dict[str, Any] = {"store": self.store, "brokers": lambda: self.brokers}
            offsets = offsets_to_reload(PIPELINE, cursor, missing, **held, accept_loss=True)
            asked = tuple(Asked(r.topic, r.partition, r.from_offset, r.until_offset) for r in offsets)
            self.replay(ReplayRequest(offsets=asked, accept_loss=True))

    def rebuild(self) -> None:
        try:
            view = restore(PIPELINE, store=self.store, sink=self.sink, accept_gaps=True)
        except StateError:  # nothing is left of it: it begins anew, in a new table
            self.the_table_is_dropped(again=False)
            self.store.values.clear()
            self.begins, self.cursors, self.runs = {}, [], {}
            return
        of, known = view.cursor.at.topic_ids["t"], view.cursor.at.offsets
        self.begins = {key: at for key, at in self.begins.items() if key[0] == of and key[1] in known}
        for receipt in self.rows:  # one may have landed whose commit never came
            for r in receipt.load.ranges if receipt.load.replay is None else ():
                self.begins.setdefault((receipt.load.topic_ids["t"], r.topic_partition), r.from_offset)
        for tp, at in view.cursor.at.starts.items():  # of which nothing was to be loaded
            self.begins.setdefault((of, tp), at)
        self.give_up(view.cursor, view.gaps)
        self.cursors = []

    def give_up(self, cursor: Cursor, ranges: tuple[OffsetRange, ...]) -> None:
        self.begin_anew({r.topic_partition: cursor.at.offsets[r.topic_partition] for r in ranges}, cursor)

    def begin_anew(self, offsets: dict[TopicPartition, int], cursor: Cursor) -> None:
        self.accepted |= bool(offsets)
        self.begins |= {(cursor.at.topic_ids["t"], tp): offset for tp, offset in offsets.items()}


@pytest.mark.parametrize("harms", HARMS, ids=" and ".join)
def test_what_a_plan_believes_is_in_the_table_once_and_what_errors_advise_helps(harms: frozenset[str]) -> None:
    few = settings(stateful_step_count=15, max_examples=max(2, settings().max_examples // 14))
    run_state_machine_as_test(partial(Schedule, harms), settings=few)  # type: ignore[arg-type]

"""Laws of replays: what they select, refuse, save, replace and verify; in one file, since they share one past in memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import changed, write_of
from tidegate.core.config.pipeline import Limits, Pipeline, Replay, Sink, Source
from tidegate.core.errors import ReceiptMismatch, RequestError, StateCorrupt, TopicRecreated
from tidegate.core.load.receipt import Receipt, Write
from tidegate.core.offsets.algebra import merged
from tidegate.core.offsets.ranges import OffsetRange, TopicPartition, covers, total_count, until_offsets
from tidegate.core.replay.chunks import MOST_CHUNKS, SavedReplay
from tidegate.core.replay.request import Asked, ReplayRequest
from tidegate.core.replay.run import PlannedReplay, plan_backfill, plan_replay
from tidegate.core.replay.verdict import verify_replay
from tidegate.core.schedule.plan import Skip
from tidegate.core.schedule.run import Planned, Request, commit_batch, plan_batch
from tidegate.core.state.codec import encode
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger, run_key
from tidegate.testing.fakes import FakeBrokers, FakeReader, MemoryStore

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
MORE = Replay(tables=("lake.trial.t",), transforms=("m:g",))
PIPELINE = Pipeline("p", Source(("t",)), "m:f", Sink("lake.a.b"), limits=Limits(20), replay=MORE)


def r(start: int, until: int, partition: int = 0) -> OffsetRange:
    return OffsetRange("t", partition, start, until)


def ask(**params: Any) -> ReplayRequest:
    return ReplayRequest.from_params(params)


@dataclass
class World:
    """A pipeline of two partitions that has committed three batches of ten offsets each, and one more record each waits."""

    store: MemoryStore = field(default_factory=MemoryStore)
    brokers: FakeBrokers = field(default_factory=lambda: FakeBrokers({P0: 31, P1: 31}))
    sink: FakeReader = field(default_factory=FakeReader)
    pipeline: Pipeline = PIPELINE
    now_ms: int = 0
    version: str = "1"

    def batches(self, count: int = 3) -> World:
        for n in range(count):
            self.batch(f"run{n + 1}")
        return self

    def batch(self, run_id: str, *, commit: bool = True) -> Planned:
        self.now_ms += 1000
        ports: dict[str, Any] = {"store": self.store, "brokers": self.brokers, "sink": self.sink, "now_ms": self.now_ms}
        planned = plan_batch(self.pipeline, run_id, Request(), **ports)
        assert isinstance(planned, Planned)
        saved = planned.saved
        receipt = self.land(
            write_of("p", saved.load.seq, run_id, saved.load.nonempty, f"m:f@{self.version}", "a", saved.load.topic_ids)
        )
        if commit:
            commit_batch(self.pipeline, planned.key, receipt, store=self.store, record_bytes=100)
        return planned

    def land(self, load: Write) -> Receipt:
        self.now_ms += 1000
        found = Receipt(load, len(self.sink.found), self.now_ms, total_count(load.load.ranges))
        self.sink.found.append(found)
        return found

    def replay(self, run_id: str = "replay", *, save: bool = True, **params: Any) -> PlannedReplay:
        self.now_ms += 1000
        return plan_replay(
            self.pipeline,
            run_id,
            ask(**params),
            store=self.store,
            brokers=self.brokers,
            sink=self.sink,
            now_ms=self.now_ms,
            save=save,
        )

    def backfill(self, run_id: str, interval: tuple[int, int] = (0, 10**12), scheduled: str = "none") -> PlannedReplay | Skip:
        self.now_ms += 1000
        return plan_backfill(
            self.pipeline,
            run_id,
            interval,
            scheduled=[scheduled],
            store=self.store,
            brokers=self.brokers,
            sink=self.sink,
            now_ms=self.now_ms,
        )

    def load(self, planned: PlannedReplay, *numbers: int) -> None:
        saved = planned.saved
        for n in numbers:
            self.land(Write(saved.chunk(n), f"{saved.transform}@{self.version}", "a"))

    def verify(self, planned: PlannedReplay) -> Any:
        return verify_replay(planned.saved, sink=self.sink, brokers=self.brokers)

    @property
    def cursor(self) -> Cursor:
        return Ledger(self.store, "p").cursor()


@pytest.fixture
def world() -> World:
    return World().batches()


def refused(world: World, run_id: str = "replay", **params: Any) -> str:
    """The refusal, which comes before anything is written."""
    before = dict(world.store.values)
    with pytest.raises(RequestError) as caught:
        world.replay(run_id, **params)
    assert world.store.values == before
    return str(caught.value)


@pytest.mark.parametrize(
    ("params", "selected"),
    [
        ({"offsets": {"t": {"0": [5, 15]}}}, [r(5, 15)]),
        ({"offsets": {"t": [5, 15]}}, [r(5, 15), r(5, 15, 1)]),
        ({"offsets": [5, None]}, [r(5, 30), r(5, 30, 1)]),
        ({"offsets": {"t": {"1": [None, 3]}}}, [r(0, 3, 1)]),
        ({"offsets": {"t": {"0": [[0, 2], [4, 6]]}}}, [r(0, 2), r(4, 6)]),
        ({"batches": "2"}, [r(10, 20), r(10, 20, 1)]),
        ({"batches": "2..3"}, [r(10, 30), r(10, 30, 1)]),
        ({"run": "run1"}, [r(0, 10), r(0, 10, 1)]),
        ({"versions": "=1"}, [r(0, 30), r(0, 30, 1)]),
        ({"from_time": 5, "until_time": 15}, [r(5, 15), r(5, 15, 1)]),
        ({"from_time": 25}, [r(25, 30), r(25, 30, 1)]),
        ({"until_time": 10**9}, [r(0, 30), r(0, 30, 1)]),
    ],
)
def test_each_selector_means_offsets(world: World, params: dict[str, Any], selected: list[OffsetRange]) -> None:
    """Saved as such, by one write; the fake broker's times are its offsets."""
    before = len(world.store.calls)
    planned = world.replay(**params)
    assert planned.saved.selection == tuple(selected)
    assert [verb for verb, _ in world.store.calls[before:]].count("put") == 1
    assert world.store.calls[-1] == ("put", planned.key)
    assert Ledger(world.store, "p").saved_replay(planned.key) == planned.saved
    assert planned.saved.load.topic_ids == {"t": "id"}


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"offsets": {"t": {"0": [9, 3]}}}, "t-0 [9, 3) is reversed. p can replay t-0 [0, 30)"),
        ({"offsets": {"t": {"0": [3, 3]}}}, "t-0 [3, 3) is empty. p can replay t-0 [0, 30)"),
        ({"offsets": {"t": {"0": [-3, 3]}}}, "t-0 [-3, 3) is negative. p can replay t-0 [0, 30)"),
        ({"offsets": {"t": {"0": [0, 31]}}}, "t-0 [0, 31) goes past the cursor. p can replay t-0 [0, 30)"),
        ({"offsets": {"t": {"0": [[0, 9], [5, 12]]}}}, "t-0 [0, 9) and t-0 [5, 12) overlap"),
        ({"offsets": {"t": {"7": [0, 9]}}}, "p has read nothing of t-7. It can replay t-0 [0, 30), t-1 [0, 30)"),
        ({"offsets": {"u": [0, 9]}}, "p has read nothing of topic u. It can replay t-0 [0, 30), t-1 [0, 30)"),
        ({"offsets": [0, 99]}, "t-0 [0, 99) goes past the cursor, t-1 [0, 99) goes past the cursor"),
        ({"batches": "3..2"}, "batches 3..2: this is reversed. Batches 1 to 3 are committed"),
        ({"batches": "2..4"}, "batches 2..4: this is not committed. Batches 1 to 3 are committed"),
        ({"batches": "0"}, "batches 0..0: this does not exist. Batches 1 to 3 are committed"),
        ({"run": "never"}, "no batch of p is known of run 'never'. Ask by batch: 1 to 3 are committed"),
        ({"versions": "=2"}, "loaded by a version =2. Its rows were loaded by m:f@1"),
        ({"from_time": 1000}, "has read no record with a time from 1970-01-01T00:00:01Z until any. It can replay t-0 [0, 30)"),
        ({"batches": "1..3", "chunk_size": 1, "parallel": 0}, "parallel: expected"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence_with_the_valid_bounds(
    world: World, params: dict[str, Any], words: str
) -> None:
    """Before anything is written."""
    assert words in refused(world, **params)


def test_a_pipeline_that_never_ran_has_nothing_to_replay() -> None:
    """It has no cursor."""
    assert "has no cursor" in refused(World(), batches="1")


def test_what_is_no_longer_retained_is_refused_unless_the_loss_is_accepted(world: World) -> None:
    """Then it is left out, and named."""
    world.brokers.earliest = {P0: 12}
    told = refused(world, offsets={"t": {"0": [0, 20]}})
    assert "t-0 [0, 20) is retained from 12 on only. p can replay t-0 [12, 30), or accept the loss" in told
    planned = world.replay("a", offsets={"t": {"0": [0, 20]}}, accept_loss=True)
    assert planned.saved.selection == (r(12, 20),)
    assert planned.saved.lost == (r(0, 12),)
    assert planned.report is not None
    assert "no longer retained, left out: t-0 [0, 12) = 12 offsets" in planned.report.lines()
    assert "nothing of it is retained" in refused(world, offsets={"t": {"0": [0, 10]}}, accept_loss=True)


def test_a_log_that_was_cut_ends_what_can_be_replayed(world: World) -> None:
    """The cursor does not make records."""
    world.brokers.latest = {P0: 12, P1: 31}
    assert "t-0 [5, 20) goes past the cursor. p can replay t-0 [0, 12)" in refused(world, offsets={"t": {"0": [5, 20]}})


def test_a_partition_that_is_gone_is_refused(world: World) -> None:
    """Its rows stay."""
    del world.brokers.latest[P1]
    assert "t-1 is gone from the brokers. p can replay t-0 [0, 30)" in refused(world, batches="1")


def test_a_recreated_topic_is_refused(world: World) -> None:
    """Also where its offsets are valid: they mean other records."""
    world.brokers.ids = {"t": "other"}
    for params in ({"batches": "1"}, {"offsets": [0, 5]}, {"from_time": 1}, {"run": "run1"}):
        assert "topic t was deleted and created again" in refused(world, **params)


def test_batches_from_before_a_topic_was_created_again_are_refused(world: World) -> None:
    """By number and by run; by version they do not count."""
    cursor = changed(world.cursor, topic_ids={"t": "new"})
    Ledger(world.store, "p").save_cursor(cursor)
    world.brokers.ids = {"t": "new"}
    assert "batch 2 was read from a topic that has been deleted" in refused(world, batches="2..3")
    assert "batch 1 was read from a topic that has been deleted" in refused(world, run="run1")
    assert "Its rows were loaded by nothing that is still known" in refused(world, versions="!=9")
    world.sink.found.clear()
    assert "batch 2 was read from a topic" in refused(world, batches="2..3")


def test_a_batch_that_was_pruned_is_found_in_the_sinks_history(world: World) -> None:
    """By number and by run."""
    for key in [key for key in world.store.values if ".range." in key]:
        del world.store.values[key]
    assert world.replay("a", batches="1").saved.selection == (r(0, 10), r(0, 10, 1))
    assert world.replay("b", run="run2").saved.selection == (r(10, 20), r(10, 20, 1))
    del world.sink.found[:2]
    told = refused(world, batches="1..3")
    assert "nothing is known any more of batch 1, 2. Batches that are known: 3 to 3" in told
    world.sink.found.clear()
    assert "Ask by offsets instead" in refused(world, batches="1")


def test_a_damaged_range_of_the_next_batch_keeps_no_replay_back(world: World) -> None:
    """Also in a table whose first snapshots have expired, of which nothing says that each row has an origin."""
    world.store.values[world.batch("run4", commit=False).key] = "damaged"
    world.sink.expired = True
    assert world.replay(batches="1").saved.selection == (r(0, 10), r(0, 10, 1))


def test_a_batch_whose_receipt_is_gone_is_found_by_its_variable(world: World) -> None:
    """Snapshots may be expired."""
    world.sink.found.clear()
    assert world.replay(batches="2").saved.selection == (r(10, 20), r(10, 20, 1))


def test_a_batch_that_is_not_committed_is_the_schedules(world: World) -> None:
    """A replay never goes past the cursor, whatever the table holds already."""
    world.batch("late", commit=False)
    assert "batch 4 of run late is not committed: the schedule loads it" in refused(world, run="late")
    assert world.replay(versions="=1").saved.selection == (r(0, 30), r(0, 30, 1))


def test_an_empty_batch_has_nothing_to_replay() -> None:
    """It only fixed where partitions begin."""
    world = World(brokers=FakeBrokers({P0: 0}))
    planned = plan_batch(PIPELINE, "run1", Request(), store=world.store, brokers=world.brokers, sink=world.sink, now_ms=1)
    assert isinstance(planned, Planned)
    commit_batch(PIPELINE, planned.key, None, store=world.store)
    assert "batches 1..1 hold no offsets" in refused(world, batches="1")
    assert "batch 1 of run run1 holds no offsets" in refused(world, run="run1")


def test_versions_select_the_rows_that_they_still_stand_for(world: World) -> None:
    """What a replay has replaced is no longer the old version's."""
    world.version = "2"
    done = world.replay("a", batches="2")
    world.load(done, 0)
    assert world.replay("b", versions="<2").saved.selection == (r(0, 10), r(20, 30), r(0, 10, 1), r(20, 30, 1))
    assert world.replay("c", versions="=2").saved.selection == (r(10, 20), r(10, 20, 1))


def test_chunks_are_whole_batches_where_they_fit(world: World) -> None:
    """The pipeline's own limit is the size, unless the request says otherwise."""
    assert len(world.replay("a", batches="1..3").saved.chunks) == 3
    assert len(world.replay("b", batches="1..3", chunk_size=40).saved.chunks) == 2
    assert len(world.replay("c", batches="1..3", chunk_size=10).saved.chunks) == 6
    into = world.replay("d", batches="1..3", table="lake.trial.t", transform="m:g", chunk_size=40).saved
    assert (len(into.chunks), into.table, into.transform) == (2, "lake.trial.t", "m:g")


def test_more_chunks_than_airflow_maps_are_refused_with_the_smallest_size_that_fits() -> None:
    """Where no size was asked for, the smallest one that fits is used."""
    world = World(brokers=FakeBrokers({P0: 10**6}), pipeline=replace(PIPELINE, limits=Limits(10**6), keep_ranges=2)).batches(1)
    told = refused(world, batches="1", chunk_size=10)
    assert (
        f"are about 100,000 chunks, and a replay has at most {MOST_CHUNKS:,}. The smallest chunk size that fits is 1000" in told
    )
    world.pipeline = replace(world.pipeline, limits=Limits(10))
    assert len(world.replay("a", batches="1").saved.chunks) == 1000
    gaps = {"t": {"0": [[n * 10, n * 10 + 1] for n in range(2000)]}}
    assert "more gaps than" in refused(world, offsets=gaps)


def test_a_plan_too_large_for_a_variable_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written."""
    monkeypatch.setattr("tidegate.core.state.ledger.MOST_BYTES", 100)
    assert "at most 100 are saved as one Variable. Choose larger chunks" in refused(world, batches="1")


def test_a_dry_run_writes_nothing_and_tells_everything(world: World) -> None:
    """Offsets, bytes, chunks, time, and what is replaced."""
    before = dict(world.store.values)
    report = world.replay(save=False, offsets={"t": {"0": [5, 15]}}).report
    assert world.store.values == before
    assert report is not None
    assert report.to_json() == {
        "records": {"t": {"0": 10}},
        "total": 10,
        "chunks": 1,
        "bytes": 1000,
        "seconds": 0.5,
        "lost": [],
        "replaces": [
            {"load": "batch 1", "offsets": 5, "rows": 5, "transform": "m:f@1"},
            {"load": "batch 2", "offsets": 5, "rows": 5, "transform": "m:f@1"},
        ],
        "landed": 0,
    }
    assert report.lines() == [
        "t-0: 10 offsets",
        "in all 10 offsets, about 1,000 bytes, 1 chunks, about 0 s",
        "replaces 5 rows of batch 1 (5 offsets, by m:f@1)",
        "replaces 5 rows of batch 2 (5 offsets, by m:f@1)",
    ]


def test_what_was_never_observed_is_unknown(world: World) -> None:
    """Neither guessed nor zero."""
    Ledger(world.store, "p").save_cursor(changed(world.cursor, record_bytes=None))
    for key in [key for key in world.store.values if ".range." in key]:
        del world.store.values[key]
    report = world.replay(batches="1").report
    assert report is not None
    assert (report.bytes, report.seconds, report.to_json()["seconds"]) == (None, None, None)
    assert "bytes unknown, 1 chunks, time unknown: no rate was observed" in report.lines()[-2]


def test_a_run_owns_its_replay_for_ever(world: World) -> None:
    """Cleared, it finds its chunks again, and those that are missing; all there, it loads all again."""
    first = world.replay(batches="1..3")
    world.load(first, 0, 2)
    again = world.replay(batches="1..3")
    assert (again.origin, again.saved, again.todo, again.redo) == ("own", first.saved, (1,), False)
    world.load(first, 1)
    whole = world.replay(batches="1..3")
    assert (whole.todo, whole.redo, whole.report) == ((0, 1, 2), True, None)


def test_the_same_request_goes_on_where_an_unfinished_replay_stopped(world: World) -> None:
    """What landed is left out; finished, the request is a new one."""
    first = world.replay("a", batches="1..3")
    world.load(first, 0)
    second = world.replay("b", batches="1..3")
    assert second.saved.selection == (r(10, 30), r(10, 30, 1))
    assert second.saved.resumes == (first.saved.name,)
    assert second.report is not None
    assert "landed by an earlier run of the same replay, not repeated: 20 offsets" in second.report.lines()
    other = world.replay("c", batches="1..3", table="lake.trial.t")
    assert other.saved.resumes == ()
    world.load(second, 0, 1)
    assert world.verify(second).chunks == 2
    third = world.replay("d", batches="1..3")
    assert (third.saved.selection, third.saved.resumes) == (first.saved.selection, ())


def test_a_replay_that_a_clock_ahead_dated_is_not_gone_on_with(world: World) -> None:
    """It would count as the newest, and what it landed as never asked for again since."""
    world.now_ms += 86_400_000
    first = world.replay("a", batches="1..3")
    world.load(first, 0)
    world.now_ms -= 86_400_000
    second = world.replay("b", batches="1..3")
    world.load(second, *second.todo)
    assert world.replay("c", batches="1..3").saved.selection == first.saved.selection


def test_unfinished_replays_that_landed_all_together_are_not_left_out(world: World) -> None:
    """Somebody asks again: there is nothing missing, so all of it is meant."""
    first = world.replay("a", batches="1..3", chunk_size=20)
    world.load(first, 0, 1)
    second = world.replay("b", batches="1..3", chunk_size=20)
    ranges = second.saved.chunks[0]
    world.land(write_of("p", 2, "a", first.saved.chunks[2], "m:f@1", "a", replay="nobody"))
    assert covers(ranges, first.saved.chunks[2])
    Ledger(world.store, "p").save_replay(
        changed(second.saved, run_id="c", replay="c", chunks=(*second.saved.chunks, (r(0, 1),))),
        ask(batches="1..3", chunk_size=20).digest,
        Ledger(world.store, "p").listing(),
        keep=100,
    )
    world.land(write_of("p", 0, "c", ranges, "m:f@1", "a", replay="c"))
    assert world.replay("d", batches="1..3", chunk_size=20).saved.selection == first.saved.selection


def test_a_replay_of_a_topic_that_is_another_now_is_not_gone_on_with(world: World) -> None:
    """Its chunks mean other records."""
    first = world.replay("a", offsets=[0, 30])
    world.load(first, 0)
    Ledger(world.store, "p").save_cursor(changed(world.cursor, topic_ids={"t": "new"}))
    world.brokers.ids = {"t": "new"}
    assert world.replay("b", offsets=[0, 30]).saved.resumes == ()


def test_receipts_that_do_not_cover_their_chunk_do_not_count(world: World) -> None:
    """Nor those of other replays, or of chunks that there are not."""
    first = world.replay("a", batches="1..3")
    name = first.saved.name
    for seq, ranges, replay_name in ((0, (r(0, 9),), name), (9, (r(0, 10),), name), (0, first.saved.chunks[0], "other")):
        world.land(write_of("p", seq, "a", ranges, "m:f@1", "a", replay=replay_name))
    assert world.replay("a", batches="1..3").todo == (0, 1, 2)


def test_a_chunk_that_another_version_has_replaced_since_is_loaded_again(world: World) -> None:
    """In part too, whether the run goes on or another with its request. Rows of the same version are as good as its own."""
    first = world.replay("a", batches="1..3")
    world.load(first, 0, 1)
    world.land(write_of("p", 0, "x", (r(12, 18),), "m:f@1", "b", replay="x"))
    assert world.replay("a", batches="1..3").todo == (2,)
    world.land(write_of("p", 0, "x", (r(5, 7),), "m:f@2", "b", replay="x"))
    assert world.replay("a", batches="1..3").todo == (0, 2)
    second = world.replay("b", batches="1..3")
    assert second.saved.selection == merged([*first.saved.chunks[0], *first.saved.chunks[2]])
    world.load(second, *second.todo)
    assert world.verify(second).resumed == merged([*first.saved.chunks[0], *first.saved.chunks[1]])
    world.land(write_of("p", 0, "x", (r(12, 13),), "m:f@2", "b", replay="x"))
    with pytest.raises(ReceiptMismatch, match="made by different versions: m:f@1, m:f@2"):
        world.verify(second)
    world.land(write_of("p", 0, "x", (r(22, 23),), "m:f@2", "b", replay="x"))
    with pytest.raises(ReceiptMismatch, match=r"1 of 4 chunks.*or were replaced by another version since: chunk 3"):
        world.verify(second)


def test_old_replays_are_pruned_with_the_newest_kept(world: World) -> None:
    """As many as ranges; one that was planned within a week may still run."""
    world.pipeline = replace(PIPELINE, keep_ranges=2)
    keys = []
    for n in range(4):
        keys.append(world.replay(f"run-{n}", batches="1").key)
        world.now_ms += 8 * 86_400_000
    assert [key for key in world.store.values if ".replay." in key] == keys[-2:]
    keys += [world.replay(f"late-{n}", batches="1").key for n in range(3)]
    assert [key for key in world.store.values if ".replay." in key] == keys[-3:]


def test_a_saved_replay_that_is_anothers_is_refused(world: World) -> None:
    """By its pipeline and by its run."""
    planned = world.replay(batches="1")
    ledger = Ledger(world.store, "p")
    for other in (changed(planned.saved, pipeline="q"), changed(planned.saved, run_id="other")):
        world.store.values[planned.key] = encode("replay", other.to_json())
        with pytest.raises(StateCorrupt, match="holds a replay of"):
            ledger.saved_replay(planned.key)


def test_keys_tell_the_request_and_the_run(world: World) -> None:
    """So one listing finds both."""
    planned = world.replay("manual__2026-01-01", batches="1")
    at, digest, run = planned.key.removeprefix("tidegate.p.replay.").split(".", 2)
    assert int(at) == planned.saved.planned_at_ms // 1000
    assert digest == ask(batches="1").digest
    assert run == run_key("manual__2026-01-01") == planned.saved.name


def test_the_verdict_names_the_chunks_that_are_missing(world: World) -> None:
    """And what to do."""
    planned = world.replay(batches="1..3")
    world.load(planned, 1)
    with pytest.raises(ReceiptMismatch) as caught:
        world.verify(planned)
    told = str(caught.value)
    assert "2 of 3 chunks of replay" in told
    assert "chunk 0 (t-0 [0, 10), t-1 [0, 10)), chunk 2 (t-0 [20, 30), t-1 [20, 30))" in told
    assert "only what is missing is loaded" in told


def test_a_whole_replay_is_told_with_what_the_log_lost_meanwhile(world: World) -> None:
    """Counts, version, and nothing more."""
    planned = world.replay(batches="1..3")
    world.load(planned, 0, 1, 2)
    world.brokers.earliest = {P0: 4}
    found = world.verify(planned)
    assert (found.chunks, found.offsets, found.rows, found.transform, found.expired) == (3, 60, 60, "m:f@1", (r(0, 4),))


def test_chunks_of_two_versions_are_no_replay(world: World) -> None:
    """Also where the other version's landed in the run that this one continues."""
    first = world.replay("a", batches="1..3")
    world.load(first, 0)
    world.version = "2"
    second = world.replay("b", batches="1..3")
    world.load(second, 0, 1)
    with pytest.raises(ReceiptMismatch, match="made by different versions: m:f@1, m:f@2"):
        world.verify(second)


def test_a_topic_created_again_under_a_replay_is_told(world: World) -> None:
    """Its receipts are of the old topic's records; no chunk is loaded from the new one."""
    planned = world.replay(batches="1")
    world.load(planned, 0)
    world.brokers.ids = {"t": "new"}
    with pytest.raises(TopicRecreated, match="since this replay was planned: its id is"):
        world.replay(batches="1")
    with pytest.raises(TopicRecreated, match="since this replay was planned: its id is"):
        world.verify(planned)


@pytest.fixture
def whole() -> World:
    """A pipeline whose rows belong to batches."""
    return World(pipeline=replace(PIPELINE, identity="batch")).batches()


def test_whole_batches_are_replayed_batch_by_batch(whole: World) -> None:
    """However they are selected, batches are not joined and not cut."""
    for run, params in (
        ("a", {"batches": "1..2"}),
        ("b", {"offsets": [0, 20], "chunk_size": 1}),
        ("c", {"until_time": 20, "chunk_size": 100}),
    ):
        saved = whole.replay(run, **params).saved
        assert saved.chunks == ((r(0, 10), r(0, 10, 1)), (r(10, 20), r(10, 20, 1)))
        assert saved.batches == (1, 2)
        assert SavedReplay.from_json(saved.to_json()) == saved
    assert len(whole.replay("d", versions="=1").saved.chunks) == 3


def test_whole_batches_are_not_replayed_by_the_numbers_of_a_schedule_that_was_rebuilt_since(whole: World) -> None:
    """They may be those of other records, which other batches hold too. A new run finds the batches as they are."""
    whole.replay("a", batches="2..3")
    ledger = Ledger(whole.store, "p")
    ledger.save_cursor(replace(ledger.cursor(), generation=1))
    assert "was planned before the schedule of p was rebuilt" in refused(whole, "a", batches="2..3")
    assert whole.replay("b", batches="2..3").saved.batches == (2, 3)


@pytest.mark.parametrize(
    ("params", "near"),
    [
        ({"offsets": [5, 15]}, "Nearest are batches 1..2: t-0 [0, 20), t-1 [0, 20)"),
        ({"offsets": {"t": {"0": [10, 20]}}}, "Nearest are batches 2..2: t-0 [10, 20), t-1 [10, 20)"),
    ],
)
def test_parts_of_batches_are_refused_with_the_nearest_bounds(whole: World, params: dict[str, Any], near: str) -> None:
    """Rows that aggregate have no other identity."""
    told = refused(whole, **params)
    assert "belong to whole batches" in told
    assert near in told


def test_offsets_of_no_known_batch_are_refused(whole: World) -> None:
    """Nothing says which rows are theirs: neither a receipt nor a Variable."""
    whole.sink.found.clear()
    for key in whole.store.keys(f"tidegate.{whole.pipeline.name}.range."):
        whole.store.delete(key)
    assert "Nearest are batches 1..3" in refused(whole, offsets=[0, 10])


def test_too_many_whole_batches_are_refused(whole: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """They cannot be put together."""
    monkeypatch.setattr("tidegate.core.replay.run.MOST_CHUNKS", 2)
    assert "these are 3 batches, and a replay has at most 2 chunks" in refused(whole, batches="1..3")


def test_a_backfill_reads_what_its_interval_covers(world: World) -> None:
    """By time; one chunk; found again by the same run; the cursor stays."""
    before = world.cursor
    found = world.backfill("backfill__1", (5, 15))
    assert isinstance(found, PlannedReplay)
    assert found.saved.chunks == ((r(5, 15), r(5, 15, 1)),)
    assert found.report is not None
    assert world.cursor == before
    again = world.backfill("backfill__1", (5, 15))
    assert isinstance(again, PlannedReplay)
    assert (again.origin, again.todo) == ("own", (0,))


@pytest.mark.parametrize(
    "other",
    [
        {"batches": "2"},
        {"batches": "1", "chunk_size": 7},
        {"batches": "1", "parallel": 2},
        {"batches": "1", "accept_loss": True},
        {"batches": "1", "table": "lake.a.b_trial"},
        {"from_time": 0},
    ],
)
def test_a_run_id_that_was_used_for_another_request_is_refused(world: World, other: dict[str, Any]) -> None:
    """By name, with both requests; the parameters that it was used for find its replay again."""
    first = world.replay("mine", batches="1")
    told = refused(world, run_id="mine", **other)
    assert 'the run id mine was used before, for {"batches": [1, 1]}, and now asks for {' in told
    assert "trigger it without a run id, or with another one" in told
    assert world.replay("mine", batches="1").saved == first.saved


def test_a_backfills_run_id_that_was_used_for_another_interval_is_refused(world: World) -> None:
    """As after a change of the schedule; a run that was planned by its date's scheduled run has no interval to compare."""
    world.backfill("backfill__1", (5, 15))
    with pytest.raises(RequestError, match=r'"until_time": "1970-01-01T00:00:00.010Z"}.*--since TIME --until TIME'):
        world.backfill("backfill__1", (5, 10))
    world.backfill("backfill__2", (5, 15), "run2")
    again = world.backfill("backfill__2", (5, 10))
    assert isinstance(again, PlannedReplay)
    assert again.origin == "own"


def test_a_backfill_reads_what_the_scheduled_run_of_its_date_has_saved(world: World) -> None:
    """Exactly that range, whatever the interval; also where the run itself is the one that is filled again."""
    for run, scheduled in (("backfill__2", "run2"), ("run2", "none")):
        found = world.backfill(run, (0, 1), scheduled)
        assert isinstance(found, PlannedReplay)
        assert found.saved.chunks == ((r(10, 20), r(10, 20, 1)),)


def test_a_backfill_is_skipped_with_the_reason(world: World) -> None:
    """Past the cursor, before retention, or of a range that the schedule has still to load."""
    past = world.backfill("a", (1000, 2000))
    assert isinstance(past, Skip)
    assert "has read no record with a time" in past.reason
    world.batch("late", commit=False)
    pending = world.backfill("late")
    assert isinstance(pending, Skip)
    assert "the schedule loads it" in pending.reason
    world.brokers.earliest = {P0: 12}
    expired = world.backfill("b", scheduled="run1")
    assert isinstance(expired, Skip)
    assert "is retained from 12 on only" in expired.reason
    assert not [key for key in world.store.values if ".replay." in key]


def test_a_backfill_of_whole_batches_reads_whole_batches_only(whole: World) -> None:
    """One of them, since a run is one load; an interval that cuts through one, or covers several, is skipped."""
    found = whole.backfill("a", (10, 20))
    assert isinstance(found, PlannedReplay)
    assert found.saved.batches == (2,)
    several = whole.backfill("c", (0, 20))
    assert isinstance(several, Skip)
    assert "tidegate replay p --batch 1..2" in several.reason
    cut = whole.backfill("b", (5, 20))
    assert isinstance(cut, Skip)
    assert "Nearest are batches 1..2" in cut.reason


ranges = st.tuples(st.integers(-2, 40), st.integers(-2, 40))


@given(
    wanted=st.dictionaries(st.integers(0, 2), ranges, min_size=1),
    size=st.integers(1, 50),
    earliest=st.integers(0, 20),
    accept=st.booleans(),
)
def test_a_replay_is_what_was_asked_and_never_past_the_cursor(
    *, wanted: dict[int, tuple[int, int]], size: int, earliest: int, accept: bool
) -> None:
    """Or it is refused."""
    world = World().batches()
    world.brokers.earliest = {P0: earliest}
    asked = {"t": {str(p): list(bounds) for p, bounds in wanted.items()}}
    try:
        saved = world.replay(offsets=asked, chunk_size=size, accept_loss=accept).saved
    except RequestError:
        return
    whole = merged(r(first, last, p) for p, (first, last) in wanted.items())
    assert merged([*saved.selection, *saved.lost]) == whole
    assert sum(total_count(chunk) for chunk in saved.chunks) == total_count(saved.selection)
    assert all(end <= world.cursor.at.offsets[tp] for tp, end in until_offsets(saved.selection).items())
    assert all(one.from_offset >= earliest for one in saved.selection if one.topic_partition == P0)
    assert accept or not saved.lost


def test_asked_ranges_of_every_topic_need_no_name(world: World) -> None:
    """The first retained offset and the cursor are what an open bound means."""
    world.brokers.earliest = {P1: 3}
    request = ReplayRequest(offsets=(Asked(None, 1, None, None),))
    planned = plan_replay(
        world.pipeline, "x", request, store=world.store, brokers=world.brokers, sink=world.sink, now_ms=1, save=False
    )
    assert planned.saved.selection == (r(3, 30, 1),)


def test_whole_batches_are_known_by_their_variables_where_the_table_has_no_receipt(whole: World) -> None:
    """A table that was lost can be loaded again; an uncommitted batch, and one of a former topic, are no past."""
    whole.sink.found.clear()
    whole.store.delete(Ledger(whole.store, whole.pipeline.name).range_key(3, "run3"))
    assert whole.replay("first", offsets=[0, 20]).saved.batches == (1, 2)
    other = changed(whole.cursor, topic_ids={"t": "new"})
    Ledger(whole.store, whole.pipeline.name).save_cursor(other)
    whole.brokers.ids["t"] = "new"
    assert "Nearest are batches 1..3" in refused(whole, offsets=[0, 20])


@pytest.mark.parametrize("table", ["lake.a.b", "lake.a.b_trial", "lake.a.b_trial_2", "lake.trial.t"])
def test_a_replay_writes_into_its_pipelines_table_trials_of_it_and_what_the_file_names(world: World, table: str) -> None:
    """By the pipeline's transform, or one that the file names."""
    for run, transform in (("a", "m:f"), ("b", "m:g")):
        saved = world.replay(run, batches="1", table=table, transform=transform).saved
        assert (saved.table, saved.transform) == (table, transform)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"table": "lake.a.c"}, r"may not write into table lake\.a\.c.*lake\.a\.b_trial.*replay\.tables in p\.yaml"),
        ({"table": "lake.a.B"}, "may not write into table"),
        ({"table": "lake.a.b.snapshots"}, "is not a name like"),
        ({"table": "lake.a.b_trial.files"}, "is not a name like"),
        ({"table": "other.a.b_trial"}, "may not write into table"),
        ({"table": "lake.trial.t2"}, "may not write into table"),
        ({"transform": "os:system"}, r"may not use transform os:system.*replay\.transforms in p\.yaml"),
        ({"transform": "m:h"}, "may not use transform m:h"),
    ],
)
def test_a_replay_that_the_file_does_not_allow_is_refused_before_anything_is_read(
    world: World, asked: dict[str, Any], told: str
) -> None:
    """Who may trigger a replay may not thereby write any table or run any code."""
    world.store.values.clear()
    with pytest.raises(RequestError, match=told):
        world.replay(batches="1", **asked)
    assert world.store.values == {}


def test_a_saved_replay_is_refused_once_the_file_no_longer_allows_it(world: World) -> None:
    """What was saved by an older version, or by hand, has to be allowed as well."""
    world.replay("a", batches="1", table="lake.trial.t")
    world.pipeline = replace(PIPELINE, replay=Replay())
    with pytest.raises(RequestError, match=r"may not write into table lake\.trial\.t"):
        world.replay("a", batches="1")

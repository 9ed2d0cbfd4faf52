"""Laws of replays: what they select, refuse, save, replace and verify; in one file, since they share one past in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import changed, write_of
from tests.unit import world as common
from tests.unit.world import P0, in_turn
from tidegate.core.config.pipeline import Limits, Pipeline, Replay, Sink, Source
from tidegate.core.model.errors import ReceiptMismatch, RequestError, StateCorrupt, TopicRecreated
from tidegate.core.model.ranges import OffsetRange, TopicPartition, covers, merged, total_count, until_offsets
from tidegate.core.planning.plan import Skip
from tidegate.core.rates import BatchTiming
from tidegate.core.replay.request import Asked, ReplayRequest
from tidegate.core.replay.run import PlannedReplay, plan_backfill, plan_replay
from tidegate.core.replay.verdict import ReplayReport, verify_replay
from tidegate.core.state.codec import encode
from tidegate.core.state.ledger import range_key, run_key
from tidegate.core.state.receipt import Write
from tidegate.core.state.saved_replay import MOST_CHUNKS
from tidegate.testing.fakes import FakeBrokers

P1 = TopicPartition("t", 1)
MORE = Replay(tables=("lake.trial.t",), transforms=("m:g",))
PIPELINE = Pipeline("p", Source(("t",)), "m:f", sink=Sink("lake.a.b"), limits=Limits(20), replay=MORE)
BY_BATCH = replace(PIPELINE, identity="batch")
Happens = Callable[["World"], object]


def r(start: int, until: int, partition: int = 0) -> OffsetRange:
    return OffsetRange("t", partition, start, until)


def both(start: int, until: int) -> tuple[OffsetRange, ...]:
    return r(start, until), r(start, until, 1)


@dataclass
class World(common.World):
    """A pipeline of two partitions that has committed batches of ten offsets each, and one more record each waits."""

    brokers: FakeBrokers = field(default_factory=lambda: FakeBrokers(latest={P0: 31, P1: 31}))
    pipeline: Pipeline = PIPELINE
    step_ms: int = 1000
    landing_ms: int = 1000
    version: str = "m:f@1"
    committed: int = 3
    record_bytes: float | None = 100

    def late(self) -> str:
        """The key of a batch that has landed, and is not committed."""
        planned = self.planned("late")
        self.load(planned)
        return planned.key

    def asked(self, run_id: str, request: ReplayRequest, *, save: bool = True) -> PlannedReplay:
        self.now_ms += self.step_ms
        return plan_replay(self.pipeline, run_id, request, **self.ports, now_ms=self.now_ms, save=save)

    def replayed(self, run_id: str = "replay", *, save: bool = True, **params: Any) -> PlannedReplay:
        return self.asked(run_id, ReplayRequest.from_params(params), save=save)

    def reported(self, **params: Any) -> ReplayReport:
        """What a dry run tells."""
        report = self.replayed(save=False, **params).report
        assert report is not None
        return report

    def backfill(self, run_id: str, interval: tuple[int, int] = (0, 10**12), scheduled: str = "none") -> PlannedReplay | Skip:
        self.now_ms += self.step_ms
        return plan_backfill(self.pipeline, run_id, interval, scheduled=[scheduled], **self.ports, now_ms=self.now_ms)

    def filled(self, run_id: str, interval: tuple[int, int], scheduled: str = "none") -> PlannedReplay:
        found = self.backfill(run_id, interval, scheduled)
        assert isinstance(found, PlannedReplay)
        return found

    def load_chunks(self, planned: PlannedReplay, *numbers: int) -> None:
        for n in numbers:
            self.land(Write(planned.saved.chunk(n), self.version, "a"))

    def begun(self, run_id: str, *numbers: int, **params: Any) -> PlannedReplay:
        """A replay of which some chunks have landed."""
        planned = self.replayed(run_id, **params)
        self.load_chunks(planned, *numbers)
        return planned

    def replaced(self, ranges: OffsetRange, version: str, replay: str = "x") -> None:
        """Another replay's commit."""
        self.land(write_of("p", 0, "x", (ranges,), version, "b", replay=replay))

    def recreated(self) -> None:
        self.ledger.save_cursor(changed(self.cursor, topic_ids={"t": "new"}))
        self.brokers.ids = {"t": "new"}

    def prune(self, *, receipts: int = 0) -> None:
        """No range is saved any more, and the table has lost its first receipts."""
        for key in self.store.keys("tidegate.p.range."):
            self.store.delete(key)
        del self.sink.found[:receipts]

    def verify(self, planned: PlannedReplay) -> Any:
        return verify_replay(planned.saved, sink=self.sink, brokers=self.brokers)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def whole() -> World:
    """Its rows belong to batches."""
    return World(pipeline=BY_BATCH)


def refused(world: World, run_id: str = "replay", **params: Any) -> str:
    """The refusal, which comes before anything is written."""
    before = dict(world.store.values)
    with pytest.raises(RequestError) as caught:
        world.replayed(run_id, **params)
    assert world.store.values == before
    return str(caught.value)


def never_ran(world: World) -> None:
    world.store.values.clear()
    world.sink.found.clear()


def lost_some(world: World) -> None:
    world.brokers.earliest[P0] = 12


def began_at_the_end(world: World) -> None:
    never_ran(world)
    world.brokers.latest.update({P0: 0, P1: 0})
    world.run("run1")


def replaced_by_2(world: World) -> None:
    """A replay has replaced a batch by version 2; another batch is pending."""
    world.late()
    world.version = "m:f@2"
    world.begun("a", 0, batches="2")


def of(*bounds: Any, partition: int = 0) -> dict[str, Any]:
    return {"offsets": {"t": {str(partition): [*bounds]}}}


WHERE: dict[str, Happens] = {
    "": lambda _: None,
    "never ran": never_ran,
    "retention": lost_some,
    "log cut": lambda world: world.brokers.latest.update({P0: 12}),
    "partition gone": lambda world: world.brokers.latest.pop(P1),
    "topic another": lambda world: world.brokers.ids.update(t="other"),
    "goes on with another": World.recreated,
    "goes on in an empty table": in_turn(World.recreated, lambda world: world.sink.found.clear()),
    "two forgotten": lambda world: world.prune(receipts=2),
    "all forgotten": lambda world: world.prune(receipts=3),
    "pending": World.late,
    "damaged": lambda world: world.store.values.update({world.late(): "damaged"}),
    "receipts expired": in_turn(lambda world: world.sink.found.clear(), lambda world: setattr(world.sink, "expired", True)),
    "Variables pruned": World.prune,
    "replaced": replaced_by_2,
    "began at the end": began_at_the_end,
}


@pytest.mark.parametrize(
    ("where", "params", "selected"),
    [
        ("", of(5, 15), (r(5, 15),)),
        ("", {"offsets": {"t": [5, 15]}}, both(5, 15)),
        ("", {"offsets": [5, None]}, both(5, 30)),
        ("", of(None, 3, partition=1), (r(0, 3, 1),)),
        ("", of([0, 2], [4, 6]), (r(0, 2), r(4, 6))),
        ("retention", {**of(0, 20), "accept_loss": True}, (r(12, 20),)),
        ("", {"batches": "2"}, both(10, 20)),
        ("", {"batches": "2..3"}, both(10, 30)),
        ("", {"run": "run1"}, both(0, 10)),
        # a batch is found by its receipt or by its Variable; a damaged one of the next batch keeps none back
        ("damaged", {"batches": "1"}, both(0, 10)),
        ("receipts expired", {"batches": "2"}, both(10, 20)),
        ("Variables pruned", {"batches": "1"}, both(0, 10)),
        ("Variables pruned", {"run": "run2"}, both(10, 20)),
        # what a replay has replaced is no longer the old version's; what is not committed is the schedule's
        ("", {"versions": "=1"}, both(0, 30)),
        ("replaced", {"versions": "<2"}, (r(0, 10), r(20, 30), r(0, 10, 1), r(20, 30, 1))),
        ("replaced", {"versions": "=2"}, both(10, 20)),
        ("", {"from_time": 5, "until_time": 15}, both(5, 15)),
        ("", {"from_time": 25}, both(25, 30)),
        ("", {"until_time": 10**9}, both(0, 30)),
    ],
)
def test_a_selector_means_offsets(world: World, where: str, params: dict[str, Any], selected: tuple[OffsetRange, ...]) -> None:
    """Saved as such, by one write; the fake broker's times are its offsets."""
    WHERE[where](world)
    before = len(world.store.calls)
    planned = world.replayed(**params)
    assert (planned.saved.selection, planned.saved.load.topic_ids) == (selected, {"t": "id"})
    assert [verb for verb, _ in world.store.calls[before:]].count("put") == 1
    assert world.store.calls[-1] == ("put", planned.key)
    assert world.ledger.saved_replay(planned.key) == planned.saved


ALL, OF_0 = "can replay t-0 [0, 30), t-1 [0, 30)", "can replay t-0 [0, 30)"
FORMER = "was read from a topic that has been deleted"
RETAINED = "is retained from 12 on only. p can replay t-0 [12, 30), or accept the loss"


@pytest.mark.parametrize(
    ("where", "params", "words"),
    [
        *[("", of(9, 3), f"t-0 [9, 3) is reversed. p {OF_0}"), ("", of(3, 3), f"t-0 [3, 3) is empty. p {OF_0}")],
        ("", of(-3, 3), f"t-0 [-3, 3) is negative. p {OF_0}"),
        ("", of(0, 31), f"t-0 [0, 31) goes past the cursor. p {OF_0}"),
        ("", of([0, 9], [5, 12]), "t-0 [0, 9) and t-0 [5, 12) overlap"),
        ("", of(0, 9, partition=7), f"p has read nothing of t-7. It {ALL}"),
        ("", {"offsets": {"u": [0, 9]}}, f"p has read nothing of topic u. It {ALL}"),
        ("", {"offsets": [0, 99]}, "t-0 [0, 99) goes past the cursor, t-1 [0, 99) goes past the cursor"),
        ("", {"batches": "3..2"}, "batches 3..2: this is reversed. Batches 1 to 3 are committed"),
        ("", {"batches": "2..4"}, "batches 2..4: this is not committed. Batches 1 to 3 are committed"),
        ("", {"batches": "0"}, "batches 0..0: this does not exist. Batches 1 to 3 are committed"),
        ("", {"run": "never"}, "no batch of p is known of run 'never'. Ask by batch: 1 to 3 are committed"),
        ("", {"versions": "=2"}, "loaded by a version =2. Its rows were loaded by m:f@1"),
        ("", {"from_time": 1000}, f"with a time from 1970-01-01T00:00:01Z until any. It {OF_0}"),
        ("never ran", {"batches": "1"}, "has no cursor"),
        ("retention", of(0, 20), RETAINED),
        ("retention", {**of(0, 10), "accept_loss": True}, "nothing of it is retained"),
        ("log cut", of(5, 20), "t-0 [5, 20) goes past the cursor. p can replay t-0 [0, 12)"),
        ("partition gone", {"batches": "1"}, f"t-1 is gone from the brokers. p {OF_0}"),
        *[
            ("topic another", params, "topic t was deleted and created again")
            for params in ({"batches": "1"}, {"offsets": [0, 5]}, {"from_time": 1}, {"run": "run1"})
        ],
        ("goes on with another", {"batches": "2..3"}, f"batch 2 {FORMER}"),
        ("goes on with another", {"run": "run1"}, f"batch 1 {FORMER}"),
        ("goes on with another", {"versions": "!=9"}, "Its rows were loaded by nothing that is still known"),
        ("goes on in an empty table", {"batches": "2..3"}, f"batch 2 {FORMER}"),
        ("two forgotten", {"batches": "1..3"}, "offsets of batch 1, 2 are no longer known. Batches that are known: 3 to 3"),
        ("all forgotten", {"batches": "1"}, "Ask by offsets instead"),
        ("pending", {"run": "late"}, "batch 4 of run late is not committed: the schedule loads it"),
        ("began at the end", {"batches": "1"}, "batches 1..1 hold no offsets"),
        ("began at the end", {"run": "run1"}, "batch 1 of run run1 holds no offsets"),
        # what the file does not allow is refused before anything is read
        *[
            ("never ran", {"batches": "1", "table": table}, "may not write into table")
            for table in ("lake.a.c", "lake.a.B", "other.a.b_trial", "lake.trial.t2")
        ],
        *[
            ("never ran", {"batches": "1", "table": table}, "is not a name like")
            for table in ("lake.a.b.snapshots", "lake.a.b_trial.files")
        ],
        ("never ran", {"batches": "1", "transform": "os:system"}, "may not use transform os:system"),
    ],
)
def test_what_cannot_be_replayed_is_refused_with_bounds(world: World, where: str, params: dict[str, Any], words: str) -> None:
    WHERE[where](world)
    assert words in refused(world, **params)


@pytest.mark.parametrize(
    ("where", "params", "nearest"),
    [
        ("", {"offsets": [5, 15]}, "1..2: t-0 [0, 20), t-1 [0, 20)"),
        ("", of(10, 20), "2..2: t-0 [10, 20), t-1 [10, 20)"),
        ("all forgotten", {"offsets": [0, 10]}, "1..3"),
        ("goes on in an empty table", {"offsets": [0, 20]}, "1..3"),
    ],
)
def test_parts_of_batches_are_told_the_nearest_bounds(whole: World, where: str, params: dict[str, Any], nearest: str) -> None:
    """Rows that aggregate have no other identity; neither a receipt nor a Variable may be left of it."""
    WHERE[where](whole)
    assert f"cuts through them. Nearest are batches {nearest}" in refused(whole, **params)


def test_chunks_are_whole_batches_where_they_fit_and_no_more_than_airflow_maps(world: World, whole: World) -> None:
    """By the pipeline's own limit, unless the request says otherwise; the smallest size that fits is told, or used."""
    counts = [len(world.replayed(f"{size}", batches="1..3", chunk_size=size).saved.chunks) for size in (None, 40, 10)]
    assert counts == [3, 2, 6]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegate.core.replay.run.MOST_CHUNKS", 2)
        assert "these are 3 batches, and a replay has at most 2 chunks" in refused(whole, batches="1..3")
        patch.setattr("tidegate.core.state.ledger.MOST_BYTES", 100)
        assert "at most 100 are saved as one Variable. Choose larger chunks" in refused(world, batches="1")
    pipeline = replace(PIPELINE, limits=Limits(10**6), keep_ranges=2)
    world = World(brokers=FakeBrokers(latest={P0: 10**6}), pipeline=pipeline, committed=1)
    most = f"are about 100,000 chunks, and a replay has at most {MOST_CHUNKS:,}"
    assert f"{most}. The smallest chunk size that fits is 1000" in refused(world, batches="1", chunk_size=10)
    world.pipeline = replace(world.pipeline, limits=Limits(10))
    assert len(world.replayed("a", batches="1").saved.chunks) == 1000
    assert "more gaps than" in refused(world, **of(*[[n * 10, n * 10 + 1] for n in range(2000)]))


def test_a_dry_run_writes_nothing_and_tells_everything(world: World) -> None:
    """Offsets, bytes, chunks, time, and what is replaced. What was never observed is unknown, neither guessed nor zero."""
    before = dict(world.store.values)
    report = world.reported(**of(5, 15))
    assert world.store.values == before
    replaces = [{"load": f"batch {n}", "offsets": 5, "rows": 5, "transform": "m:f@1"} for n in (1, 2)]
    told = {"records": {"t": {"0": 10}}, "total": 10, "chunks": 1, "bytes": 1000, "seconds": 0.5, "run_seconds": None}
    assert report.to_json() == {**told, "lost": [], "replaces": replaces, "landed": 0}
    assert report.lines() == [
        "t-0: 10 offsets",
        "10 offsets (about 1,000 bytes), 1 chunk, about 0 s for the loads, plus the rest of the run",
        *[f"replaces 5 rows of batch {n} (5 offsets, by m:f@1)" for n in (1, 2)],
    ]
    timed = tuple(BatchTiming(10, None, run_ms, 9, 0, 1) for run_ms in (99_000, 9500, 9500, 9500, 9500, 2500))
    world.ledger.save_cursor(changed(world.cursor, timings=timed))
    report = world.reported(**of(5, 15))
    assert (report.to_json()["seconds"], report.to_json()["run_seconds"]) == (0.5, 7.1)
    assert "about 0 s for the loads, 7 s for the rest of the run" in report.lines()[1]
    lost_some(world)
    report = world.reported(**of(0, 20), accept_loss=True)
    assert report.to_json()["lost"] == ["t-0 [0, 12)"]
    assert "no longer retained, left out: t-0 [0, 12) = 12 offsets" in report.lines()
    world.brokers.earliest.clear()
    world.ledger.save_cursor(changed(world.cursor, record_bytes=None))
    world.prune()
    report = world.reported(batches="1")
    assert (report.bytes, report.seconds, report.to_json()["seconds"]) == (None, None, None)
    assert "(bytes unknown), 1 chunk, time unknown: no rate was observed" in report.lines()[-2]


# ---- a replay that goes on


def test_a_run_owns_its_replay_for_ever(world: World) -> None:
    """Cleared, it finds its chunks again, and those that are missing; all there, it loads all again.

    A receipt that does not cover its chunk does not count, nor one of another replay, or of a chunk that there is not.
    """
    first = world.replayed(batches="1..3")
    name = first.saved.name
    for seq, ranges, replay in ((1, (r(10, 19),), name), (9, both(10, 20), name), (1, first.saved.chunks[1], "other")):
        world.land(write_of("p", seq, "a", ranges, "m:f@1", "a", replay=replay))
    world.load_chunks(first, 0, 2)
    again = world.replayed(batches="1..3")
    assert (again.origin, again.saved, again.todo, again.redo) == ("own", first.saved, (1,), False)
    world.load_chunks(first, 1)
    again = world.replayed(batches="1..3")
    assert (again.todo, again.redo, again.report) == ((0, 1, 2), True, None)


def test_the_same_request_goes_on_where_an_unfinished_replay_stopped(world: World) -> None:
    """What landed is left out; finished, the request is a new one. One whose topic is another now is not gone on with."""
    first, second = world.begun("a", 0, batches="1..3"), world.replayed("b", batches="1..3")
    assert (second.saved.selection, second.saved.resumes) == (both(10, 30), (first.saved.name,))
    assert second.report is not None
    assert "landed by an earlier run of the same replay, not repeated: 20 offsets" in second.report.lines()
    assert world.replayed("c", batches="1..3", table="lake.trial.t").saved.resumes == ()
    world.load_chunks(second, 0, 1)
    assert world.verify(second).chunks == 2
    third = world.replayed("d", batches="1..3")
    assert (third.saved.selection, third.saved.resumes) == (first.saved.selection, ())
    world.begun("e", 0, offsets=[0, 30])
    world.recreated()
    assert world.replayed("f", offsets=[0, 30]).saved.resumes == ()


def test_what_landed_of_topics_without_gaps_is_judged_again(world: World) -> None:
    """Only its load counts the records, after the commit: one that has found a gap leaves a receipt all the same."""
    world.pipeline = replace(PIPELINE, source=Source(("t",), contiguous=True))
    first = world.begun("a", 0, batches="1..3")
    again, second = world.replayed("a", batches="1..3"), world.replayed("b", batches="1..3")
    assert (again.todo, again.redo) == ((0, 1, 2), False)
    assert (second.saved.selection, second.saved.resumes) == (first.saved.selection, ())


def test_a_replay_that_a_clock_ahead_dated_is_not_gone_on_with(world: World) -> None:
    """It would count as the newest, and what it landed as never asked for again since."""
    world.now_ms += 86_400_000
    first = world.begun("a", 0, batches="1..3")
    world.now_ms -= 86_400_000
    second = world.replayed("b", batches="1..3")
    world.load_chunks(second, *second.todo)
    assert world.replayed("c", batches="1..3").saved.selection == first.saved.selection


def test_unfinished_replays_that_landed_all_together_are_not_left_out(world: World) -> None:
    """Somebody asks again: there is nothing missing, so all of it is meant."""
    request: dict[str, Any] = {"batches": "1..3", "chunk_size": 20}
    first, second = world.begun("a", 0, 1, **request), world.replayed("b", **request)
    ranges = second.saved.chunks[0]
    world.land(write_of("p", 2, "a", first.saved.chunks[2], "m:f@1", "a", replay="nobody"))
    assert covers(ranges, first.saved.chunks[2])
    unfinished = changed(second.saved, run_id="c", replay="c", chunks=(*second.saved.chunks, (r(0, 1),)))
    digest = ReplayRequest.from_params(request).digest
    world.ledger.save_replay(unfinished, digest, world.ledger.listing(), keep=100)
    world.land(write_of("p", 0, "c", ranges, "m:f@1", "a", replay="c"))
    assert world.replayed("d", **request).saved.selection == first.saved.selection


def test_a_chunk_that_another_version_has_replaced_since_is_loaded_again(world: World) -> None:
    """In part too, whether the run goes on or another with its request. Rows of the same version are as good as its own.

    The load does not look for a receipt that does not count: it would take the chunk for landed.
    """
    first = world.begun("a", 0, 1, batches="1..3")
    world.replaced(r(12, 18), "m:f@1")
    again = world.replayed("a", batches="1..3")
    assert (again.todo, again.redo) == ((2,), False)
    world.replaced(r(5, 7), "m:f@2")
    again = world.replayed("a", batches="1..3")
    assert (again.todo, again.redo) == ((0, 2), True)
    kept = world.store.values.pop(first.key)  # a replay had the name before
    assert [world.replayed(run, batches="1..3", save=False).redo for run in ("a", "b")] == [True, False]
    world.store.values[first.key] = kept
    second = world.replayed("b", batches="1..3")
    assert second.saved.selection == merged([*first.saved.chunks[0], *first.saved.chunks[2]])
    world.load_chunks(second, *second.todo)
    assert world.verify(second).resumed == merged([*first.saved.chunks[0], *first.saved.chunks[1]])
    world.replaced(r(12, 13), "m:f@2")
    with pytest.raises(ReceiptMismatch, match="made by different versions: m:f@1, m:f@2"):
        world.verify(second)
    world.replaced(r(22, 23), "m:f@2")
    with pytest.raises(ReceiptMismatch, match=r"1 of 4 chunks.*or were replaced by another version since: chunk 3"):
        world.verify(second)


def test_old_replays_are_pruned_with_the_newest_kept(world: World) -> None:
    world.pipeline = replace(PIPELINE, keep_ranges=2)
    keys = []
    for n in range(4):
        keys.append(world.replayed(f"run-{n}", batches="1").key)
        world.now_ms += 8 * 86_400_000
    assert [key for key in world.store.values if ".replay." in key] == keys[-2:]
    keys += [world.replayed(f"late-{n}", batches="1").key for n in range(3)]
    assert [key for key in world.store.values if ".replay." in key] == keys[-3:]


def test_a_saved_replay_is_refused_where_it_is_anothers_or_the_file_no_longer_allows_it(world: World) -> None:
    """By its pipeline and by its run; its key tells the request and the run, so one listing finds both."""
    request: dict[str, Any] = {"batches": "1", "table": "lake.trial.t"}
    planned = world.replayed("a", **request)
    digest = ReplayRequest.from_params(request).digest
    assert planned.key == f"tidegate.p.replay.{planned.saved.planned_at_ms // 1000:010}.{digest}.{run_key('a')}"
    assert planned.saved.name == run_key("a")
    world.pipeline = replace(PIPELINE, replay=Replay())
    assert "may not write into table lake.trial.t" in refused(world, "a", batches="1")
    for other in ({"pipeline": "q"}, {"run_id": "other"}):
        world.store.values[planned.key] = encode("replay", changed(planned.saved, **other).to_json())
        with pytest.raises(StateCorrupt, match="holds a replay of"):
            world.ledger.saved_replay(planned.key)


def test_the_verdict_counts_a_whole_replay_and_names_the_chunks_that_are_missing(world: World) -> None:
    """And what to do. What the log lost meanwhile is told; a topic that was created again is refused."""
    planned = world.begun("replay", 1, batches="1..3")
    with pytest.raises(ReceiptMismatch, match="2 of 3 chunks of replay") as caught:
        world.verify(planned)
    told = str(caught.value)
    assert "chunk 0 (t-0 [0, 10), t-1 [0, 10)), chunk 2 (t-0 [20, 30), t-1 [20, 30))" in told
    # there is no load that failed: the verdict would not have come
    assert "Clear the plan task with those after it" in told
    world.load_chunks(planned, 0, 2)
    world.brokers.earliest = {P0: 4}
    found = world.verify(planned)
    assert (found.chunks, found.offsets, found.rows, found.transform, found.expired) == (3, 60, 60, "m:f@1", (r(0, 4),))
    world.brokers.ids = {"t": "new"}
    for again in (lambda: world.replayed(batches="1..3"), lambda: world.verify(planned)):
        with pytest.raises(TopicRecreated, match="since this replay was planned: its id is"):
            again()


# ---- whole batches, run ids and backfills


def test_whole_batches_are_replayed_batch_by_batch(whole: World) -> None:
    """However they are selected, they are not joined and not cut; also where only Variables know them, in a lost table."""
    first_two = (both(0, 10), both(10, 20)), (1, 2)
    requests: list[dict[str, Any]] = [{"batches": "1..2"}, {"offsets": [0, 20], "chunk_size": 1}, {"until_time": 20}]
    for n, params in enumerate(requests):
        saved = whole.replayed(f"{n}", **params).saved
        assert (saved.chunks, saved.batches) == first_two
    assert len(whole.replayed("all", versions="=1").saved.chunks) == 3
    whole.sink.found.clear()
    whole.store.delete(range_key(whole.ledger.pipeline, 3, "run3"))
    saved = whole.replayed("lost", offsets=[0, 20]).saved
    assert (saved.chunks, saved.batches) == first_two


def test_whole_batches_are_not_replayed_by_the_numbers_of_a_schedule_that_was_rebuilt_since(whole: World) -> None:
    """They may be those of other records, which other batches hold too. A new run finds the batches as they are."""
    whole.replayed("a", batches="2..3")
    whole.ledger.save_cursor(replace(whole.cursor, generation=1))
    assert "was planned before the schedule of p was rebuilt" in refused(whole, "a", batches="2..3")
    assert whole.replayed("b", batches="2..3").saved.batches == (2, 3)


@pytest.mark.parametrize(
    "other",
    [
        *[{"batches": "2"}, {"from_time": 0}],
        *[{"batches": "1", **how} for how in ({"chunk_size": 7}, {"parallel": 2}, {"accept_loss": True})],
        {"batches": "1", "table": "lake.a.b_trial"},
    ],
)
def test_a_run_id_that_was_used_for_another_request_is_refused(world: World, other: dict[str, Any]) -> None:
    """By name, with both requests; the parameters that it was used for find its replay again."""
    first = world.replayed("mine", batches="1")
    told = refused(world, "mine", **other)
    assert 'the run id mine was used before, for {"batches": [1, 1]}, and now asks for {' in told
    assert world.replayed("mine", batches="1").saved == first.saved


def test_a_backfill_reads_what_its_interval_covers_or_the_scheduled_run_of_its_date_has_saved(world: World) -> None:
    """By time, in one chunk, found again by the same run, which has no other interval. The cursor stays.

    A saved range is read exactly, whatever the interval; also where the run itself is the one that is filled again.
    """
    before = world.cursor
    found = world.filled("backfill__1", (5, 15))
    assert (found.saved.chunks, found.report is not None, world.cursor) == ((both(5, 15),), True, before)
    again = world.filled("backfill__1", (5, 15))
    assert (again.origin, again.todo) == ("own", (0,))
    with pytest.raises(RequestError, match=r'"until_time": "1970-01-01T00:00:00.010Z"}.*--since TIME --until TIME'):
        world.backfill("backfill__1", (5, 10))
    for run, scheduled in (("backfill__2", "run2"), ("run2", "none")):
        assert world.filled(run, (0, 1), scheduled).saved.chunks == (both(10, 20),)
    assert world.filled("backfill__2", (5, 10)).origin == "own"


@pytest.mark.parametrize(
    ("pipeline", "run_id", "interval", "scheduled", "reason"),
    [
        (PIPELINE, "a", (1000, 2000), "none", "has read no record with a time"),
        (PIPELINE, "late", (0, 10**12), "none", "the schedule loads it"),
        (PIPELINE, "b", (0, 10**12), "run1", "is retained from 12 on only"),
        (BY_BATCH, "a", (0, 20), "none", "tidegate replay p --batch 1..2"),
        (BY_BATCH, "b", (5, 20), "none", "Nearest are batches 1..2"),
    ],
)
def test_a_backfill_is_skipped_with_the_reason(
    pipeline: Pipeline, run_id: str, interval: tuple[int, int], scheduled: str, reason: str
) -> None:
    """Past the cursor, of a range that the schedule has to load, before retention; of aggregates, unless it is one batch."""
    world = World(pipeline=pipeline)
    if pipeline is PIPELINE:
        world.late()
        lost_some(world)
    found = world.backfill(run_id, interval, scheduled)
    assert isinstance(found, Skip)
    assert reason in found.reason
    assert not [key for key in world.store.values if ".replay." in key]
    if pipeline is BY_BATCH:
        assert world.filled("c", (10, 20)).saved.batches == (2,)


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
    world = World()
    world.brokers.earliest = {P0: earliest}
    asked = {"t": {str(p): list(bounds) for p, bounds in wanted.items()}}
    try:
        saved = world.replayed(offsets=asked, chunk_size=size, accept_loss=accept).saved
    except RequestError:
        return
    whole = merged(r(first, last, p) for p, (first, last) in wanted.items())
    assert merged([*saved.selection, *saved.lost]) == whole
    assert sum(total_count(chunk) for chunk in saved.chunks) == total_count(saved.selection)
    assert all(end <= world.cursor.at.offsets[tp] for tp, end in until_offsets(saved.selection).items())
    assert all(one.from_offset >= earliest for one in saved.selection if one.topic_partition == P0)
    assert accept or not saved.lost


def test_a_partition_of_every_topic_needs_no_name(world: World) -> None:
    world.brokers.earliest = {P1: 3}
    assert world.asked("x", ReplayRequest(offsets=(Asked(None, 1, None, None),)), save=False).saved.selection == (r(3, 30, 1),)


@pytest.mark.parametrize("table", ["lake.a.b", "lake.a.b_trial", "lake.a.b_trial_2", "lake.trial.t"])
def test_a_replay_writes_into_its_pipelines_table_trials_of_it_and_what_the_file_names(world: World, table: str) -> None:
    for transform in ("m:f", "m:g"):
        saved = world.replayed(transform, batches="1", table=table, transform=transform).saved
        assert (saved.table, saved.transform) == (table, transform)

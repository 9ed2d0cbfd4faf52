"""The steps of a batch: plan -> load -> commit, on ports.

    planned    its range is saved; nothing else has happened
    loaded     the sink holds a commit with its receipt
    committed  the cursor has moved past it

A run that is called again, at any step, continues its own saved range. A run that finds another run's uncommitted range for
the next batch adopts it. Nothing here knows Airflow, Kafka's client or Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tidegate.core.config.pipeline import Pipeline
from tidegate.core.maintenance.advice import advice as maintenance_advice
from tidegate.core.model.counts import is_whole
from tidegate.core.model.errors import CommitConflict, KafkaError, StateUnavailable
from tidegate.core.model.hours import Span
from tidegate.core.model.ranges import TopicPartition, total_count
from tidegate.core.model.watermarks import Watermarks, begins, waiting
from tidegate.core.planning.capacity import outlook, size_load, times_least
from tidegate.core.planning.commit import leads_to, moved
from tidegate.core.planning.evidence import read_evidence
from tidegate.core.planning.plan import Plan, RangePolicy, Skip, plan_next
from tidegate.core.planning.rebuild import saved_of
from tidegate.core.planning.topics import read_log, watermarks_of
from tidegate.core.planning.trust import Belief, believe, check_loadable
from tidegate.core.rates import BatchTiming
from tidegate.core.rates.advice import Advice, Resources
from tidegate.core.rates.control import RateBound
from tidegate.core.state.cursor import Accepted, Cursor
from tidegate.core.state.ledger import Ledger, range_key
from tidegate.core.state.ports import Brokers, SinkReader, StateStore
from tidegate.core.state.receipt import Load, Receipt
from tidegate.core.state.saved_range import SavedRange, Why


@dataclass(frozen=True)
class Request:
    """What a trigger asks of one run, beside the pipeline's own limits.

    `max_records` takes the place of the pipeline's own. What its rate policy allows is not applied to a run that asks.
    `ran_at_ms` is when the run was created (epoch ms), if somebody has cleared it since; None for one that has not run before.
    """

    max_records: int | None = None
    until: Mapping[TopicPartition, int] | None = None
    ran_at_ms: int | None = None

    @property
    def is_own(self) -> bool:
        """Whether it asks for a range of its own, and not for what is next."""
        return self.max_records is not None or self.until is not None


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A saved range and how it came to this run: `planned` now, `adopted` from another run, or `own` from an earlier try.

    `caught_up_from` is the batch of a saved cursor that something had put back. `create` says whether the load may create the
    table: only where no batch has written to it, or an operator has accepted that it is gone. `formerly` are the names that the
    pipeline had when it loaded into the table. `cursor` is the one that is believed; None where the plan did not need the
    brokers. Of a range that was planned now, `advice` is on the pipeline's interval, where enough is known, `maintenance` why
    the table needs it, and `held_back` that records wait behind an open transaction.
    """

    saved: SavedRange
    key: str
    origin: Literal["planned", "adopted", "own"]
    committed: bool = False
    caught_up_from: int | None = None
    create: bool = True
    advice: Advice | None = None
    maintenance: str | None = None
    held_back: str | None = None
    formerly: tuple[str, ...] = ()
    cursor: Cursor | None = field(default=None, compare=False, repr=False)

    @property
    def waiting(self) -> int | None:
        """How many records wait, those of the range among them; None where the range was saved before this run's plan."""
        return total_count(self.saved.load.ranges) + self.saved.remaining if self.origin == "planned" else None


def plan_batch(
    pipeline: Pipeline,
    run_id: str,
    request: Request,
    *,
    store: StateStore,
    brokers: Brokers,
    sink: SinkReader,
    now_ms: int,
    save: bool = True,
) -> Planned | Skip:
    """The range that this run reads, saved; or why there is none. With `save=False` nothing is written: a dry run.

    Store and sink are read once, then the brokers; what follows from that is decided on values; a new range is written last.
    The DAG run owns the range from then on. Raises SinkUnavailable: the table cannot be read. KafkaError: the brokers do not
    answer. OffsetsOutOfRange: cursor and log do not fit. RequestError: the trigger asks for what cannot be.
    """
    evidence = read_evidence(pipeline, store, sink, run_id=run_id, oldest=request.ran_at_ms is not None)
    belief = believe(evidence, run_id, request.ran_at_ms)
    ledger = Ledger(store, pipeline.name)
    # before the brokers are asked, which may take long, or fail: what was overwritten or deleted does not depend on them
    if save and belief.caught_up_from is not None:
        ledger.save_cursor(belief.cursor)
    if save and belief.saved is not None and belief.pruned:
        ledger.save_range(belief.saved)
    if belief.saved is None:
        watermarks, policy = read_log(pipeline.source, belief.cursor, brokers)
        decided = _new_range(pipeline, run_id, request, belief, watermarks, policy, now_ms)
        held_back = _held_back(watermarks, brokers, now_ms)
    else:
        if belief.needs_log:
            watermarks = watermarks_of(pipeline, belief.saved, brokers)
            check_loadable(pipeline, belief.saved, belief.key, watermarks, redo=belief.redo)
        decided = belief.saved
    if isinstance(decided, Skip):
        return replace(decided, reason="; ".join(filter(None, (decided.reason, held_back))), cursor=belief.cursor)
    key, origin = belief.key, "planned" if belief.saved is None else belief.origin
    if origin != "own":
        decided = decided.leading_to(leads_to(belief.cursor, decided, belief.accepted), head=evidence.history.head)
        key = ledger.save_range(decided) if save else range_key(pipeline.name, decided.load.seq, run_id)
        if save:
            _check_in_time(ledger, decided, key, sink, pipeline.sink.table)
    planned = Planned(
        saved=decided,
        key=key,
        origin=origin,
        committed=belief.redo,
        caught_up_from=belief.caught_up_from,
        create=belief.create,
        formerly=evidence.history.formerly(pipeline.name),
        cursor=belief.cursor if belief.saved is None or belief.needs_log else None,
    )
    if belief.saved is not None:
        return planned
    advice = outlook(pipeline, belief.cursor, watermarks, now_ms=now_ms)
    maintenance = maintenance_advice(pipeline, evidence.current, now_ms=now_ms)
    return replace(planned, advice=advice, maintenance=maintenance, held_back=held_back)


def _held_back(watermarks: Watermarks, brokers: Brokers, now_ms: int) -> str | None:
    """That records wait behind an open transaction; None where none do. Only then the brokers are asked since when."""
    began: Mapping[TopicPartition, int] = {}
    if watermarks.held_back:
        with suppress(KafkaError):  # no plan depends on it
            began = brokers.next_timestamps(begins(watermarks))
    return waiting(watermarks, began, now_ms=now_ms)


def _check_in_time(ledger: Ledger, saved: SavedRange, key: str, sink: SinkReader, table: str) -> None:
    """Take a range back that was saved after its batch was committed.

    A task that Airflow has given up, and that was frozen before it saved its range, does so when it goes on. By then the next
    try of the same run may have planned, loaded and committed another range under the same key. What that one saved is made
    again of the receipt, so that a replay of the batch, or a load that is cleared, reads what the table holds. Raises
    CommitConflict: the batch was committed before.
    """
    try:
        cursor = ledger.cursor()
    except StateUnavailable:  # there is none before the first batch is committed
        return
    if cursor.seq < saved.load.seq and cursor.generation == saved.load.generation:
        return
    own = (None, saved.load.seq, saved.load.run_id)
    receipts = [r for r in sink.receipts(table, saved.load.pipeline) if (r.load.replay, r.load.seq, r.load.run_id) == own]
    if receipts:
        ledger.save_range(saved_of(receipts[-1], receipts[-1].load.generation))
    else:
        ledger.delete(key)
    raise CommitConflict(
        f"batch {saved.load.seq} of {saved.load.pipeline} was committed while this task was frozen: its range is not used",
        fix="No action needed: another try of the same run, or another run, has loaded the batch",
        seq=cursor.seq,
    )


def _new_range(
    pipeline: Pipeline, run_id: str, request: Request, belief: Belief, watermarks: Watermarks, policy: RangePolicy, now_ms: int
) -> SavedRange | Skip:
    limits, cursor = pipeline.limits, belief.cursor
    if request.max_records is not None:
        limits = replace(limits, max_records=request.max_records)
    size = cursor.pace.record_bytes
    policy = replace(policy, limits=limits, until=request.until, record_bytes=size, accepted=belief.accepted)
    interval_s = _since_last(pipeline, cursor, now_ms)

    def plan_within(bound: int | None) -> Plan:
        return plan_next(cursor, watermarks, replace(policy, bound=bound), interval_s=interval_s, now_ms=now_ms)

    # executors follow what waits, and the bound follows them; what a running Spark is given follows the batch
    elastic = pipeline.spark.max_executors is not None
    resources = size_load(pipeline, cursor, plan_within(None).count) if elastic else None
    rate = _bound(pipeline, cursor, resources, applied=not request.is_own)
    plan = plan_within(rate.records if rate is not None and rate.applied else None)
    if plan.skip is not None:
        return plan.skip
    if not elastic:
        resources = size_load(pipeline, cursor, plan.count)
    planned_topics = {r.topic for r in plan.ranges}
    in_force = ("max_records", "max_rate_per_partition", "max_bytes", "min_records", "max_delay_s")
    load = Load(
        pipeline=pipeline.name,
        seq=cursor.seq + 1,
        run_id=run_id,
        ranges=plan.ranges,
        topic_ids={topic: topic_id for topic, topic_id in watermarks.topic_ids.items() if topic in planned_topics},
        generation=cursor.generation,
    )
    why = Why(
        decisions=plan.decisions,
        limits={name: getattr(limits, name) for name in in_force if getattr(limits, name) is not None},
        rate=rate and replace(rate, limiting=any(d.until_reason == "backpressure" for d in plan.decisions)),
    )
    return SavedRange(
        load=load,
        planned_at_ms=now_ms,
        why=why,
        jumped=plan.jumped,
        retired=plan.retired,
        remaining=plan.remaining,
        resources=resources,
    )


def _since_last(pipeline: Pipeline, cursor: Cursor, now_ms: int) -> float:
    """Seconds by which a rate is multiplied: the interval, or the time since the last batch where runs may start at once."""
    last_ms = cursor.fired_at_ms
    if not pipeline.catch_up or not is_whole(last_ms, 0, now_ms):
        return pipeline.interval_s
    return min(pipeline.interval_s, (now_ms - (last_ms or 0)) / 1000)


def _bound(pipeline: Pipeline, cursor: Cursor, resources: Resources | None, *, applied: bool) -> RateBound | None:
    """What the rate policy allows; it has learned for the least executors, and more of them load more."""
    control = pipeline.rate_control
    rate = None if control is None else control.bound(cursor.pace.rate_state)
    if rate is None:
        return None
    return replace(rate, records=max(1, int(rate.records * times_least(pipeline, resources))), applied=applied)


def _rate_state(pipeline: Pipeline, cursor: Cursor, saved: SavedRange, timing: BatchTiming | None) -> Mapping[str, Any]:
    """What the pipeline's rate policy knows once the batch is committed."""
    control = pipeline.rate_control
    if control is None:
        return {}
    if timing is None:
        return cursor.pace.rate_state
    times = times_least(pipeline, saved.resources)
    if times != 1:
        bound = None if timing.bound is None else max(1, int(timing.bound / times))
        timing = replace(timing, records=int(timing.records / times), bound=bound)
    timing = timing.waiting_for(cursor.pace.timings[-1] if cursor.pace.timings else None)
    return control.observed(cursor.pace.rate_state, timing, catching_up=pipeline.catch_up and saved.remaining > 0)


def commit_batch(
    pipeline: Pipeline,
    key: str,
    receipt: Receipt | None,
    *,
    store: StateStore,
    record_bytes: float | None = None,
    timing: BatchTiming | None = None,
    announce: Callable[[SavedRange, Cursor], Span | None] | None = None,
) -> tuple[SavedRange, Cursor, bool]:
    """Move the cursor past the saved range at `key`; returns the range, the cursor, and whether it moved now (not before).

    `receipt` is None where there was nothing to load. `announce` says of the range and the cursor from when until when the
    hours are that are announced with the batch. Raises StateError: the schedule cannot be read or believed; `CommitConflict`
    where the cursor is elsewhere. ReceiptMismatch: the receipt does not cover the range.
    """
    ledger = Ledger(store, pipeline.name)
    listing = ledger.listing()
    saved = ledger.saved_range(key)
    cursor = ledger.cursor() if listing.has_cursor else Cursor(pipeline=pipeline.name, seq=0)
    accepted = ledger.accepted(listing, cursor)
    rate_state = _rate_state(pipeline, cursor, saved, timing)
    after = moved(cursor, saved, receipt, accepted=accepted, timing=timing, record_bytes=record_bytes, rate_state=rate_state)
    if after is cursor:
        return saved, cursor, False
    if announce is not None:
        after = replace(after, announced=announce(saved, after))
    if accepted and accepted.creates and receipt is None:  # the table is still to be created
        ledger.save_accepted(Accepted(seq=after.seq + 1, gone=True, after=after.last))
    ledger.save_cursor(after)
    ledger.prune(listing, committed=after.seq, keep=pipeline.keep_ranges)
    return saved, after, True
